// What took time in one request: a line for each phase, all on one axis.

import { keyed, make, setText } from "./dom.js";
import { bytes, count, counted, ms } from "./format.js";

const NAMES = {
  tokenize: "Tokenize", queue: "Queue", load: "Load", chunk: "Prefill chunk", transfer: "Transfer",
  "first-token": "First token", decode: "Decode", end: "End",
};
/** What each is coloured as. */
const COLOURS = { tokenize: "tokenize", queue: "queue", load: "prefill", chunk: "prefill", transfer: "handoff", decode: "decode" };

/** The parts of each line. */
const parts = new WeakMap();

/** Returns what a phase is about, in words. */
export function detail(phase) {
  const { kind, start, tokens, layer, layers, lane, tier, peer_name: peer } = phase;
  const words = [];
  if (kind === "chunk") words.push(`tokens ${count(start)} to ${count(start + tokens - 1)}`);
  else if (tokens) words.push(counted(tokens, "token"));
  if (layers === 1) words.push(`layer ${layer}`);
  else if (layers) words.push(`layers ${layer} to ${layer + layers - 1}`);
  else if (kind === "transfer") words.push("all layers");
  if (phase.bytes) words.push(bytes(phase.bytes));
  const over = [lane && `over ${lane}`, (tier || peer) && `from ${tier || peer}`].filter(Boolean).join(" ");
  if (over) words.push(over);
  if (phase.parts > 1 && kind !== "load") words.push(`${count(phase.parts)} told as one`);
  return words.join(", ");
}

/** Builds the list. Returns its element and what shows it. */
export function phaseList() {
  const list = make("ol.phases");
  const more = make("p.small.soft");
  const root = make("div.sheet.detail", { tabindex: "0", role: "group", "aria-label": "What took time", hidden: true }, list, more);
  const show = ({ phases = [], phases_left_out: left = 0 }) => {
    root.hidden = phases.length === 0;
    const most = Math.max(...phases.map((phase) => phase.begin_ms + phase.ms), 0.001);
    const lines = phases.map((phase, at) => ({ phase, at }));
    keyed(list, lines, ({ phase, at }) => `${at} ${phase.kind} ${phase.worker_name}`, create, (item, { phase }) => update(item, phase, most));
    setText(more, left ? `${count(left)} more are not kept.` : "");
  };
  return { root, show };
}

function create() {
  const part = { where: make("span.small.soft"), what: make("span.small"), bar: make("div.fill"), took: make("span.number.small"), about: make("span.small.soft") };
  const item = make("li", {}, part.what, part.where, make("div.fall", { "aria-hidden": "true" }, part.bar), part.took, part.about);
  parts.set(item, part);
  return item;
}

function update(item, phase, most) {
  const part = parts.get(item);
  setText(part.what, NAMES[phase.kind] ?? phase.kind);
  setText(part.where, phase.worker_name || "router");
  part.bar.className = `fill ${COLOURS[phase.kind] ?? "moment"}`;
  part.bar.style.left = `${Math.min((100 * phase.begin_ms) / most, 99.5).toFixed(2)}%`;
  part.bar.style.width = `${((100 * phase.ms) / most).toFixed(2)}%`;
  const isMoment = phase.kind === "first-token" || phase.kind === "end";
  setText(part.took, isMoment ? `at ${ms(phase.begin_ms)}` : ms(phase.ms));
  item.title = `begins after ${ms(phase.begin_ms)}`;
  setText(part.about, detail(phase));
}
