// Pins and parks a system prompt: one dialog, in which each worker says what it did.

import { call } from "./api.js";
import { keyed, make, setText } from "./dom.js";
import { count, counted } from "./format.js";

/** How long a pin may last, in hours, and what people call it. */
const TIMES = [[1, "1 hour"], [24, "1 day"], [168, "7 days"], [720, "30 days"]];
/** What can be done. */
const ACTS = [["PinPrefix", "Pin"], ["UnpinPrefix", "Unpin"], ["ParkPrefix", "Park"], ["UnparkPrefix", "Unpark"]];

/** Returns the button that opens the dialog, and what tells it the workers that there are. `changed` is called once something was done. */
export function prefixes(changed) {
  const text = make("textarea", { rows: "6", name: "prompt", spellcheck: "false", required: true });
  const worker = make("select", { name: "worker" });
  const time = make("select", { name: "time" }, ...TIMES.map(([hours, name]) => make("option", { value: 3600 * hours, selected: hours === 24 }, name)));
  const tenant = make("input", { name: "tenant", autocomplete: "off", spellcheck: "false", placeholder: "None" });
  const said = make("ul.outcomes");
  const [pin, ...others] = ACTS.map(([name, title], at) => (at === 0
    ? make("button.main", { type: "submit" }, title)
    : make("button", { type: "button", onclick: ({ target }) => form.reportValidity() && act(name, target) }, title)));
  const buttons = [...others.reverse(), pin];
  const form = make("form", {},
    make("h2", { id: "prefixes-title" }, "Pin or park a system prompt"),
    make("p.soft.small", {}, "Pinned, its blocks stay on the devices once a request has brought them there. Parked, they move to the tiers; Unpark brings them back."),
    make("label", {}, "System prompt, or a request in JSON", text),
    make("div.fields", {}, make("label", {}, "At", worker), make("label", {}, "Pin for", time), make("label", {}, "Tenant of the key", tenant)),
    make("div", { role: "status" }, said),
    make("div.row", {}, make("button.plain", { type: "button", onclick: () => dialog.close() }, "Close"), ...buttons));
  const dialog = make("dialog", { "aria-labelledby": "prefixes-title" }, form);
  document.body.append(dialog);

  const show = (rows) => keyed(said, rows, (row) => row.who, () => make("li", {}, make("strong"), make("span")), (item, { who, what, bad }) => {
    setText(item.firstElementChild, who);
    setText(item.lastElementChild, what);
    item.classList.toggle("bad", Boolean(bad));
  });
  async function act(name, button) {
    const request = { prefix: { request: asRequest(text.value), tenant: tenant.value }, worker: worker.value };
    if (name === "PinPrefix") request.seconds = Number(time.value);
    buttons.forEach((it) => (it.disabled = true));
    try {
      show(lines(await call(name, request)));
      changed();
    } catch (error) {
      show([{ who: "Not done", what: error.message, bad: true }]);
    }
    buttons.forEach((it) => (it.disabled = false));
    button.focus();
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act("PinPrefix", pin);
  });
  const open = () => {
    show([]);
    dialog.showModal();
    text.focus();
  };
  return {
    button: make("button.plain", { type: "button", onclick: open }, "Pin or park a prompt"),
    update(workers) {
      const all = [{ name: "" }, ...workers];
      keyed(worker, all, ({ name }) => name, ({ name }) => make("option", { value: name }, name || "All workers"), () => {});
    },
  };
}

/** Returns the body of a request whose prompt is meant: the text itself, or a chat that has it as its system prompt. */
const asRequest = (content) => (content.trimStart().startsWith("{") ? content : JSON.stringify({ messages: [{ role: "system", content }] }));

/** Says in words what each worker did. */
function lines({ workers, silent }) {
  const said = workers.map(({ worker_name: who, outcome, why, tokens, device_tokens: there, blocks, pinned }) => {
    if (outcome !== "done") return { who, what: why, bad: outcome === "refused" };
    const moved = blocks > 0 ? `${counted(blocks, "block")} on the way; ` : "";
    return { who, what: `${moved}${count(there)} of ${count(tokens)} tokens on the device${pinned ? ", pinned" : ""}` };
  });
  return [...said, ...silent.map(({ worker: who, why }) => ({ who, what: why, bad: true }))];
}
