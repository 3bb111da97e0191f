// Requests as waterfalls: those that are open, and the last that ended, all on one axis.

import { call, Refusal } from "./api.js";
import { keyed, make, setText } from "./dom.js";
import { explanationPanel, inWords, PHASES, phases, showFall } from "./explanation.js";
import { ms } from "./format.js";

/** Requests that ended, and open ones, that are shown. */
const ENDED = 40;
const OPEN = 20;
/** Time between looks, in milliseconds. */
const EVERY = 1000;

/** The parts of each line. */
const parts = new WeakMap();

/** Builds the view in an element. `refused` gets errors. Returns what shows it, with the id of one request or without, and hides it. */
export function requestsView(root, refused) {
  const list = make("ol.lines");
  const ticks = [make("span"), make("span"), make("span")];
  const sheet = make("div.sheet", {},
    make("div.line.axis", { "aria-hidden": "true" }, make("span", {}, "Request"), make("div.ticks", {}, ...ticks), make("span.number", {}, "In all")), list);
  const empty = make("div.empty", {},
    make("strong", {}, "No request is open, and none is remembered"),
    make("p", {}, "Ask something in the chat, or send a request to the API. This router remembers the last ones (admin.explained_max)."));
  const more = make("p.small.soft");
  const { panel, show, refuse, focus } = explanationPanel(() => (location.hash = "requests"));
  const legend = make("div.legend", { "aria-hidden": "true" }, ...PHASES.map(([name, title]) => make(`span.${name}`, {}, title)));
  root.append(panel, make("div.head", {}, make("h2", {}, "Requests"), legend), sheet, empty, more);

  /** Explanations by id. That of a request that ended stays as it is, when it was looked at twice. */
  const known = new Map();
  /** Those that were asked for once more since their end: a worker may tell what took time a little later. */
  const settled = new Set();
  let [selected, round] = ["", 0];

  const explain = async (id) => {
    const has = known.get(id);
    if (settled.has(id)) return has;
    const explanation = await call("ExplainRequest", { id });
    if (has?.end) settled.add(id);
    known.set(id, explanation);
    return explanation;
  };

  const look = async () => {
    const { requests } = await call("ListRequests", { ended: ENDED });
    const open = requests.filter(({ state }) => state !== "ended");
    const shown = [...open.slice(0, OPEN), ...requests.filter(({ state }) => state === "ended")];
    // One that ended between the two calls is explained the next time.
    const explained = await Promise.all(shown.map(({ id }) => explain(id).catch(() => null)));
    const ids = new Set(requests.map(({ id }) => id));
    [...known.keys()].filter((id) => !ids.has(id) && id !== selected).forEach((id) => known.delete(id) && settled.delete(id));
    draw(explained.filter(Boolean));
    empty.hidden = shown.length > 0;
    sheet.hidden = shown.length === 0;
    setText(more, open.length > OPEN ? `${open.length - OPEN} more are open.` : "");
  };

  const draw = (explained) => {
    const lines = explained.map((explanation) => ({ explanation, took: phases(explanation) }));
    const lasts = lines.map(({ took }) => took.reduce((sum, [, value]) => sum + value, 0));
    const most = roundUp(Math.max(...lasts, 1));
    [0, most / 2, most].forEach((tick, at) => setText(ticks[at], tick ? ms(tick) : "0"));
    keyed(list, lines, ({ explanation }) => explanation.request.id, createLine, (item, line) => updateLine(item, line, most, selected));
  };

  const run = async (mine) => {
    while (mine === round) {
      try {
        await look();
        if (selected && mine === round) show(await explain(selected));
      } catch (error) {
        if (selected && (error.status === 404 || error.status === 400)) refuse(selected, error.message);
        else refused(error);
        if (!(error instanceof Refusal) && error.name !== "TimeoutError") throw error;
      }
      await new Promise((done) => setTimeout(done, EVERY));
      while (document.hidden && mine === round) await new Promise((done) => setTimeout(done, EVERY));
    }
  };

  return {
    show(id) {
      const opens = id && id !== selected;
      selected = id;
      panel.hidden = !id;
      round += 1;
      run(round);
      for (const link of list.querySelectorAll("a")) mark(link, selected);
      if (opens) explain(id).then(show, () => {}).then(focus);
    },
    hide: () => (round += 1),
  };
}

/** Returns the next round number, so that the axis rarely moves. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value) * power;
}

function mark(link, selected) {
  if (link.hash === `#requests/${selected}`) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

function createLine({ explanation: { request } }) {
  const part = { dot: make("span.dot"), id: make("span.mono"), state: make("span.small.soft"), fall: make("div.fall", { role: "img" }), all: make("span.number.small") };
  const link = make("a.line", { href: `#requests/${request.id}` }, make("span.id", {}, part.dot, part.id, part.state), part.fall, part.all);
  const item = make("li", {}, link);
  parts.set(item, part);
  return item;
}

function updateLine(item, { explanation, took }, most, selected) {
  const [part, link] = [parts.get(item), item.firstElementChild];
  const { request, end } = explanation;
  const left = end.startsWith("error by client");
  const fails = end !== "" && !left && !["stop", "length"].includes(end);
  link.classList.toggle("open", end === "");
  part.dot.className = `dot ${end === "" ? "warn" : fails ? "off" : left ? "" : "good"}`;
  // Ids of one router begin alike.
  setText(part.id, `…${request.id.slice(-8)}`);
  setText(part.state, end === "" ? request.state : fails ? "failed" : left ? "left by its client" : `${request.output_tokens} tokens`);
  showFall(part.fall, took, most);
  part.fall.setAttribute("aria-label", inWords(took) || "no phase yet");
  setText(part.all, ms(explanation.total_ms ?? request.age_ms));
  mark(link, selected);
}
