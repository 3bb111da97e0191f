// Why a request was served where it was, and what it took.

import { make, setText } from "./dom.js";
import { count, ms, seconds } from "./format.js";
import { phaseList } from "./phases.js";

export const PHASES = [["tokenize", "Tokenize"], ["queue", "Queue"], ["prefill", "Prefill"], ["handoff", "Handoff"], ["decode", "Decode"]];

/** Returns how long each phase took, in milliseconds, up to now where it goes on: `[["queue", 3.1], ...]`. */
export function phases(explanation) {
  const took = PHASES.map(([name]) => [name, explanation[`${name}_ms`]]).filter(([, value]) => value != null);
  if (explanation.end !== "") return took;
  const { age_ms, state } = explanation.request;
  const rest = age_ms - took.reduce((sum, [, value]) => sum + value, 0);
  const now = explanation.queue_ms === null ? "queue" : explanation.prefill_ms === null ? "prefill" : state === "handing-off" ? "handoff" : "decode";
  return [...took.filter(([name]) => name !== now), [now, Math.max(0, rest)]];
}

/** Shows phases in an element, on an axis that ends at `most` milliseconds. */
export function showFall(fall, took, most) {
  while (fall.children.length > took.length) fall.lastElementChild.remove();
  let begin = 0;
  took.forEach(([name, value], at) => {
    const bar = fall.children[at] ?? fall.appendChild(make("div"));
    bar.className = `fill ${name}`;
    bar.style.left = `${((100 * begin) / most).toFixed(2)}%`;
    bar.style.width = `${((100 * value) / most).toFixed(2)}%`;
    bar.title = `${name} ${ms(value)}`;
    begin += value;
  });
}

/** Returns phases in words, for those who do not see the bars. */
export const inWords = (took) => took.map(([name, value]) => `${name} ${ms(value)}`).join(", ");

/** Builds the panel of one request. `close` is called when it is closed. Returns its element and what shows it. */
export function explanationPanel(close) {
  const title = make("h2", { tabindex: "-1" });
  const state = make("span.small.soft");
  const fall = make("div.fall", { role: "img" });
  const steps = make("dl.steps");
  const places = make("div.placed");
  const list = phaseList();
  const panel = make("article.explained", { hidden: true },
    make("header", {}, title, state, make("button.plain", { type: "button", onclick: close }, "Close")), fall, steps, list.root, places);
  let shown = "";

  const show = (explanation) => {
    const { request, placements } = explanation;
    const took = phases(explanation);
    panel.hidden = false;
    setText(title, request.id);
    const where = request.prefill_name ? `${request.prefill_name} to ${request.decode_name}` : request.decode_name;
    setText(state, explanation.end ? `ended: ${explanation.end}${where ? `, at ${where}` : ""}` : `${request.state}: waits for ${request.waits_for}`);
    showFall(fall, took, Math.max(...[took.reduce((sum, [, value]) => sum + value, 0)], 0.001));
    fall.setAttribute("aria-label", inWords(took) || "No phase yet");
    const facts = [
      ...took.map(([name, value]) => [PHASES.find(([it]) => it === name)[1], ms(value), name]),
      ["First token", explanation.first_token_ms === null ? "–" : ms(explanation.first_token_ms)],
      ["In all", ms(explanation.total_ms ?? request.age_ms)],
      ["Prompt", `${count(request.prompt_tokens)} tokens`],
      ["Cached", `${count(explanation.cached_tokens)} tokens`],
      ["Output", `${count(request.output_tokens)} tokens`],
      ["Attempts", count(request.attempts)],
    ];
    while (steps.children.length > facts.length) steps.lastElementChild.remove();
    facts.forEach(([name, value, phase], at) => {
      const fact = steps.children[at] ?? steps.appendChild(make("div", {}, make("dt"), make("dd")));
      fact.firstElementChild.className = phase ? `mark ${phase}` : "";
      setText(fact.firstElementChild, name);
      setText(fact.lastElementChild, value);
    });
    list.show(explanation);
    // Placements change when there is a new one, so what is read stays where it is.
    const version = `${request.id} ${explanation.placements_total}`;
    if (version !== shown) places.replaceChildren(...placements.map((placement) => placed(placement, placements)));
    shown = version;
  };
  const refuse = (id, why) => {
    panel.hidden = false;
    setText(title, id);
    setText(state, why);
    list.show({});
    [fall, steps, places].forEach((part) => part.replaceChildren());
    shown = "";
  };
  return { panel, show, refuse, focus: () => title.focus() };
}

const COLUMNS = ["Could be", "Worker", "Total", "Queue", "Load", "Compute", "Fetch", "Slows others", "Cached", "Notes"];

function placed(placement, all) {
  const number = all.length > 1 ? `Placement ${placement.epoch}, ` : "Placement ";
  if (placement.moved) return make("p.small", {}, `${number}after ${ms(placement.at_ms)}: moved to w${placement.decode}. Nothing was computed again.`);
  const first = placement.first_token_s === null ? "" : `, first token predicted after ${seconds(placement.first_token_s)}`;
  const rows = placement.candidates.map((it) => {
    const notes = [it.chosen && "chosen", !it.fits && "no room now", !it.takes && "busy", !it.measured && "speed assumed"].filter(Boolean);
    const costs = [it.total_s, it.queue_s, it.load_s, it.compute_s, it.fetch_s, it.slowdown_s];
    return make(it.chosen ? "tr.chosen" : "tr", {},
      make("td", {}, it.kind), make("td", {}, it.worker_name),
      ...costs.map((cost) => make("td.number", {}, cost ? seconds(cost) : "0")),
      make("td.number", {}, count(it.cached_tokens)), make("td.soft", {}, notes.join(", ")));
  });
  const numeric = (name) => (["Could be", "Worker", "Notes"].includes(name) ? "th" : "th.number");
  return make("div.placed", {},
    make("p.small.soft", {}, `${number}after ${ms(placement.at_ms)}, for ${count(placement.tokens)} tokens${first}:`),
    make("div.sheet", { tabindex: "0", role: "group", "aria-label": "Candidates and what they were predicted to cost" }, make("table", {},
      make("thead", {}, make("tr", {}, ...COLUMNS.map((name) => make(numeric(name), { scope: "col" }, name)))),
      make("tbody", {}, ...rows))));
}
