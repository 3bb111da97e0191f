// One worker: its load, its tiers, and what can be asked of it.

import { call } from "./api.js";
import { confirm } from "./confirm.js";
import { make, say, setFill, setText } from "./dom.js";
import { bytes, count, counted, ms, seconds } from "./format.js";

/** The parts of each card, and the worker that it shows. */
const shown = new WeakMap();
const DOTS = { serving: "good", draining: "warn", drained: "", silent: "off" };

/** Makes the card of a worker, with no figures yet. `changed` is called once something was changed. */
export function createCard(worker, changed) {
  const { name } = worker;
  const part = {
    dot: make("span.dot"), state: make("span"),
    running: gauge("Running"), waiting: gauge("Waiting"), device: gauge("Device"),
    speed: make("span.small.soft"),
    drain: make("button", { type: "button" }), role: make("button", { type: "button" }),
    flush: make("button", { type: "button" }, "Flush cached blocks"),
    facts: make("dl.facts"), gauges: make("dl.gauges"),
  };
  part.gauges.append(part.running.row, part.waiting.row, part.device.row);
  const title = `worker-${worker.id}`;
  const card = make("article.card", { "aria-labelledby": title },
    make("header", {}, make("h3", { id: title }, name), make("span.state", {}, part.dot, part.state)),
    part.gauges,
    make("footer", {}, part.speed, part.role, part.drain),
    make("details", {}, make("summary", {}, "More"), part.facts, part.flush));
  shown.set(card, part);
  part.drain.addEventListener("click", () => act(part.drain, changed, () => drain(part.worker)));
  part.role.addEventListener("click", () => act(part.role, changed, () => changeRole(part.worker)));
  part.flush.addEventListener("click", () => act(part.flush, changed, () => flush(part.worker)));
  return card;
}

/** Shows a worker as it is now, with what is known of its tiers. */
export function updateCard(card, { worker, tiers, silent }) {
  const part = shown.get(card);
  part.worker = worker;
  const takesWork = worker.state === "serving" || worker.state === "silent";
  card.classList.toggle("idle", !takesWork);
  part.dot.className = `dot ${DOTS[worker.state] ?? ""}`;
  setText(part.state, worker.state);
  show(part.running, worker.running / worker.running_max, worker.running_max ? `${count(worker.running)} of ${count(worker.running_max)}` : count(worker.running));
  show(part.waiting, Math.min(1, worker.waiting / (worker.running_max || 16)), worker.waiting_tokens ? `${count(worker.waiting)} · ${count(worker.waiting_tokens)} tokens` : count(worker.waiting));
  showDevice(part, worker, tiers.find((tier) => tier.tier === "device"));
  showTiers(part, tiers.filter((tier) => tier.tier !== "device"));
  setText(part.speed, silent ?? speed(worker));
  setText(part.drain, takesWork ? "Drain" : "Undrain");
  part.drain.setAttribute("aria-label", `${takesWork ? "Drain" : "Undrain"}: ${worker.name}`);
  const other = worker.role === "decode" ? "prefill" : "decode";
  setText(part.role, `Make ${other}`);
  part.role.setAttribute("aria-label", `Make ${other}: ${worker.name}`);
  showFacts(part.facts, worker, tiers);
}

function gauge(name) {
  const fill = make("div.fill");
  const value = make("dd.number");
  const label = make("dt", {}, name);
  const bar = make("dd.bar", { "aria-hidden": "true" }, fill);
  return { row: make("div", {}, label, bar, value), fill, value, bar };
}

function show({ fill, value }, share, text) {
  setFill(fill, share);
  setText(value, text);
}

/** Shows the blocks of the device: those that sequences use, and behind them those that are only cached. */
function showDevice(part, { blocks_total: total, blocks_available: available }, device) {
  if (!part.cached) {
    part.cached = make("div.fill.cached");
    part.device.bar.prepend(part.cached);
  }
  const used = total - available;
  const held = Math.max(used, device?.blocks ?? 0);
  setFill(part.cached, held / total);
  const cached = held > used ? ` + ${count(held - used)} cached` : "";
  show(part.device, used / total, total ? `${count(used)}${cached} of ${count(total)}` : "not known");
}

function showTiers(part, tiers) {
  part.tiers ??= new Map();
  for (const tier of tiers) {
    if (!part.tiers.has(tier.tier)) {
      const made = gauge(tier.tier[0].toUpperCase() + tier.tier.slice(1));
      made.bar.classList.add("tier");
      part.tiers.set(tier.tier, made);
      part.gauges.append(made.row);
    }
    const text = tier.open ? `${bytes(tier.bytes)} · ${Math.round((100 * tier.blocks) / (tier.blocks_max || 1))} %` : "failed, left alone";
    show(part.tiers.get(tier.tier), tier.blocks / tier.blocks_max, text);
  }
}

function speed(worker) {
  const figures = [];
  if (worker.prefill_tokens_per_s) figures.push(`${count(worker.prefill_tokens_per_s)} tokens/s`);
  if (worker.decode_step_s) figures.push(`${seconds(worker.decode_step_s)} a step`);
  return figures.join(" · ") || "No speed measured yet";
}

function showFacts(list, worker, tiers) {
  const facts = [
    ["Address", worker.address], ["Id", `w${worker.id}`], ["Model", worker.model],
    ["Context", `${count(worker.context_tokens)} tokens`], ["Protocol", worker.protocol],
    ...tiers.filter((tier) => tier.tier === "device").map((tier) => ["Pinned", counted(tier.pinned, "block")]),
    ...tiers.map((tier) => [`${tier.tier} hits`, `${count(tier.hits)} of ${count(tier.hits + tier.misses)} blocks, ${count(tier.evictions)} evicted`]),
  ];
  while (list.children.length > 2 * facts.length) list.lastElementChild.remove();
  facts.forEach(([name, value], at) => {
    if (!list.children[2 * at]) list.append(make("dt"), make("dd"));
    setText(list.children[2 * at], name);
    setText(list.children[2 * at + 1], value);
  });
}

/** Does what a button says, once it is confirmed, and says how it went. */
async function act(button, changed, what) {
  button.disabled = true;
  const began = performance.now();
  try {
    const done = await what();
    if (done) {
      say(`${done} (${ms(performance.now() - began)})`);
      changed();
    }
  } catch (error) {
    say(error.status === 401 || error.status === 403 ? `Not allowed: ${error.message}` : error.message);
  }
  button.disabled = false;
  button.focus();
}

/** Makes a call that the service refuses where it is the last worker of its kind, unless it is told again. */
async function insist(name, request, title, yes) {
  try {
    return await call(name, request);
  } catch (error) {
    if (error.status !== 409 || !(await confirm(title, error.message, yes))) throw error;
    return call(name, { ...request, force: true });
  }
}

async function drain({ name, state }) {
  if (state === "serving" || state === "silent") {
    const text = "It takes nothing new, and what decodes there moves to other workers. Undrain undoes it.";
    if (!(await confirm(`Drain ${name}?`, text, "Drain"))) return null;
    const now = await insist("DrainWorker", { worker: name }, `Drain ${name} all the same?`, "Drain anyway");
    return `${name} is ${now.state}.`;
  }
  const now = await call("UndrainWorker", { worker: name });
  return `${name} is ${now.state}.`;
}

async function changeRole({ name, role }) {
  const other = role === "decode" ? "prefill" : "decode";
  const text = `It takes ${other} work from now on. What it has goes on.`;
  if (!(await confirm(`Make ${name} a ${other} worker?`, text, `Make ${other}`))) return null;
  await insist("ChangeRole", { worker: name, role: other }, `Make ${name} a ${other} worker all the same?`, "Change anyway");
  return `${name} is a ${other} worker.`;
}

async function flush({ name }) {
  const text = "It drops the blocks on its device that no sequence, reader or pin holds. Prompts that would have found them are computed again.";
  if (!(await confirm(`Flush ${name}?`, text, "Flush"))) return null;
  const { blocks } = await call("FlushWorker", { worker: name });
  return `${name} dropped ${count(blocks)} blocks.`;
}
