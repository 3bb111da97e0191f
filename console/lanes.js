// How workers read each other's KV: over which lane, how fast, and why not over a faster one.

import { keyed, make, setFill, setText } from "./dom.js";
import { rate, seconds } from "./format.js";

/** The parts of each row. */
const shown = new WeakMap();
const COLUMNS = ["Reader", "Reads from", "Lane", "Measured", "Delay", "Why no faster lane"];

/** Builds the view in an element. Returns what shows a snapshot. */
export function lanesView(root) {
  // Where rows are drawn as cards, they are rows of a table by their roles alone.
  const rows = make("tbody", { role: "rowgroup" });
  const table = make("div.sheet", {}, make("table.tall", { role: "table" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...COLUMNS.map((name) => make("th", { role: "columnheader", scope: "col" }, name)))), rows));
  const empty = make("div.empty", {},
    make("strong", {}, "No worker reads from another one yet"),
    make("p", {}, "Workers connect to each other when the first request needs it: a prompt that one computes and another decodes. Ask something in the chat, or:"),
    make("pre", { tabindex: "0", "aria-label": "Command" }, "baton topo"));
  const quiet = make("p.small.soft");
  root.append(make("div.head", {}, make("h2", {}, "Lanes"), make("span.small.soft", {}, "how KV moves between workers, as measured")), table, empty, quiet);

  return ({ lanes, silent }) => {
    const fastest = Math.max(...lanes.map((lane) => lane.bytes_per_s), 1);
    table.hidden = lanes.length === 0;
    empty.hidden = lanes.length > 0;
    setText(quiet, silent.map(({ worker, why }) => `${worker} does not say: ${why}.`).join(" "));
    const sorted = [...lanes].sort((a, b) => `${a.worker_name} ${a.peer_name}`.localeCompare(`${b.worker_name} ${b.peer_name}`, "en", { numeric: true }));
    keyed(rows, sorted, ({ worker, peer }) => `${worker} ${peer}`, create, (row, lane) => update(row, lane, fastest));
  };
}

function create() {
  const cells = COLUMNS.map((name) => make("td", { role: "cell", "data-name": name }));
  const [reader, peer, lane, speed, delay, why] = cells;
  const part = { reader: make("span"), peer: make("span"), lane: make("span.tag"), speed: make("span"), fill: make("div.fill"), delay: make("span"), why: make("ul") };
  reader.append(part.reader);
  peer.append(part.peer);
  lane.append(part.lane);
  speed.append(make("div", {}, part.speed, make("div.bar", { "aria-hidden": "true" }, part.fill)));
  delay.append(part.delay);
  why.append(part.why);
  const row = make("tr", { role: "row" }, ...cells);
  shown.set(row, part);
  return row;
}

function update(row, lane, fastest) {
  const part = shown.get(row);
  setText(part.reader, lane.worker_name);
  setText(part.peer, lane.peer_name);
  setText(part.lane, lane.encrypted ? `${lane.lane}+tls` : lane.lane);
  const expected = lane.expected_bytes_per_s ? ` of ${rate(lane.expected_bytes_per_s)}` : "";
  setText(part.speed, lane.bytes_per_s ? `${rate(lane.bytes_per_s)}${expected}` : "not yet");
  setFill(part.fill, lane.bytes_per_s / (lane.expected_bytes_per_s ?? fastest));
  setText(part.delay, lane.latency_s ? seconds(lane.latency_s) : "–");
  const reasons = lane.passed_over.length ? lane.passed_over : [{ lane: "", reason: "It is the fastest there is." }];
  keyed(part.why, reasons, ({ lane }) => lane, () => make("li"), (item, { lane, reason }) => setText(item, lane ? `${lane}: ${reason}` : reason));
}
