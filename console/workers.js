// The map of workers: two pools, what they do, and how full they are.

import { changes } from "./changes.js";
import { keyed, make, say, setText } from "./dom.js";
import { count, counted } from "./format.js";
import { prefixes } from "./prefixes.js";
import { createCard, updateCard } from "./worker-card.js";

const POOLS = [["prefill", "Prefill", "computes prompts"], ["decode", "Decode", "makes tokens"]];

/** Builds the view in an element. `changed` is called once a worker was changed from here. Returns what shows a snapshot. */
export function workersView(root, changed) {
  const sums = new Map(["Workers", "Open requests", "Running sequences", "Blocks in use"].map((name) => [name, [make("dd", {}, "–"), make("dd")]]));
  const pools = new Map(POOLS.map(([role, title, what]) => {
    const [note, cards] = [make("span.small.soft", {}, what), make("div.cards")];
    const pool = make(`section.pool.${role}`, { "aria-label": `${title} workers` }, make("div.head", {}, make("h2", {}, title), note), cards);
    return [role, { pool, cards }];
  }));
  const empty = make("div.empty", { hidden: true },
    make("strong", {}, "No worker is here yet"),
    make("p", {}, "Start one that this router knows of (cluster.workers, or discovery.kind), for instance:"),
    make("pre", { tabindex: "0", "aria-label": "Command" }, "baton decode-worker --model PATH"));
  const pins = prefixes(changed);
  pins.button.classList.add("prefixes");
  const map = make("div.pools", {}, ...[...pools.values()].map(({ pool }) => pool));
  root.append(
    make("dl.sums", {}, ...[...sums].map(([name, figures]) => make("div", {}, make("dt", {}, name), ...figures))),
    empty, map,
    pins.button);
  const note = changes(root);
  const set = (name, figure, more) => sums.get(name).forEach((part, at) => setText(part, at === 0 ? figure : more));

  return ({ workers, requests, tiers, silent }) => {
    const of = (role) => workers.filter((worker) => worker.role === role).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    const state = (wanted) => workers.filter((worker) => worker.state === wanted).length;
    const sum = (field) => workers.reduce((all, worker) => all + worker[field], 0);
    const others = ["draining", "drained", "silent"].filter((name) => state(name) > 0).map((name) => `${state(name)} ${name}`);
    set("Workers", count(workers.length), others.join(", ") || (workers.length ? "all serving" : "none is up"));
    const byState = new Map();
    requests.forEach(({ state }) => byState.set(state, (byState.get(state) ?? 0) + 1));
    set("Open requests", count(requests.length), [...byState].map(([state, many]) => `${many} ${state}`).join(", ") || "none is open");
    set("Running sequences", count(sum("running")), `${counted(sum("waiting"), "waits", "wait")} at workers`);
    const [total, available] = [sum("blocks_total"), sum("blocks_available")];
    set("Blocks in use", total ? `${Math.round((100 * (total - available)) / total)} %` : "–", total ? `of ${count(total)} on devices` : "not known");
    empty.hidden = workers.length > 0;
    map.hidden = workers.length === 0;
    pins.button.hidden = workers.length === 0;
    pins.update([...of("prefill"), ...of("decode")]);
    for (const [role] of POOLS) {
      const { pool, cards } = pools.get(role);
      const shown = of(role).map((worker) => ({
        worker,
        tiers: tiers.filter((tier) => tier.worker === worker.id),
        silent: silent.find((it) => it.worker === worker.name)?.why,
      }));
      pool.hidden = shown.length === 0;
      keyed(cards, shown, ({ worker }) => worker.id, ({ worker }) => createCard(worker, changed), updateCard);
    }
    const lines = note(workers);
    if (lines.length > 0) say(lines.join(" "));
  };
}
