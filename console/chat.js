// A chat with a model that is served: the same on the page of the API and in the console.

import { ask, events, Refusal } from "./api.js";
import { copy, make, say, setText } from "./dom.js";
import { showText } from "./text.js";

/** Answers closer to the end of the page than this, in pixels, are followed as they grow. */
const NEAR_END = 160;

/** Builds a chat in an element. `openKey` asks the user for a key; `explains`: answers link to how they were served. */
export function chat(root, { openKey, explains = false }) {
  const turns = make("ol.turns", { "aria-label": "Conversation" });
  const nothing = make("div.nothing", {}, make("h2", {}, "Ask the model something"),
    make("p.small", {}, "Nothing is kept: a conversation ends when this page is closed."));
  const model = make("select", { "aria-label": "Model" });
  const system = make("textarea", { rows: "1", placeholder: "None" });
  const temperature = make("input", { type: "number", min: "0", max: "2", step: "0.1", value: "0.7" });
  const tokens = make("input", { type: "number", min: "1", step: "1", value: "512" });
  const text = make("textarea", { rows: "1", "aria-label": "Message", placeholder: "Message" });
  const send = make("button.main", { type: "submit" }, "Send");
  const fresh = make("button.plain.new", { type: "button" }, "New chat");
  const form = make("form.composer", {},
    make("div.write", {}, text, send),
    make("div.set", {},
      make("label.model", {}, "Model", model),
      make("details", {}, make("summary", {}, "Settings"),
        make("div.fields", {},
          make("label", {}, "System prompt", system),
          make("label", {}, "Temperature", temperature),
          make("label", {}, "Most tokens", tokens))),
      fresh));
  root.append(make("div.chat", {}, make("div", {}, nothing, turns), form));

  /** What was said, oldest first: `{ role, content }`. */
  let history = [];
  /** Ends the answer that comes now. */
  let stop = null;

  const loadModels = async () => {
    try {
      const { data } = await (await ask("v1/models")).json();
      const chosen = model.value;
      model.replaceChildren(...data.map(({ id }) => make("option", { value: id }, id)));
      if (data.some(({ id }) => id === chosen)) model.value = chosen;
    } catch (error) {
      model.replaceChildren(make("option", { value: "" }, "none"));
      if (error.status === 401) openKey();
    }
  };
  addEventListener("key", loadModels);
  loadModels();

  const add = (role) => {
    nothing.hidden = true;
    const said = make("div.said");
    const below = make("div.below");
    const turn = make(`li.turn.${role}`, {}, make("div.who", {}, role === "user" ? "You" : model.value), said);
    if (role !== "user") turn.append(below);
    turns.append(turn);
    return { turn, said, below };
  };

  const answer = async () => {
    // Only the latest answer can be made again.
    turns.querySelectorAll(".again").forEach((button) => button.remove());
    const { turn, said, below } = add("assistant");
    const follow = () => {
      const page = document.documentElement;
      return page.scrollHeight - page.scrollTop - page.clientHeight < NEAR_END;
    };
    turn.setAttribute("aria-busy", "true");
    said.append(make("p.waits", {}, "Waiting for the first token"));
    turn.scrollIntoView({ block: "end" });
    const abort = new AbortController();
    stop = () => abort.abort();
    setText(send, "Stop");
    const began = performance.now();
    let [content, first, usage, id, why, drawn] = ["", null, null, null, "", false];
    const draw = () => {
      drawn = false;
      const follows = follow();
      if (content) showText(said, content);
      if (follows) scrollTo(0, document.documentElement.scrollHeight);
    };
    try {
      const body = {
        model: model.value,
        messages: [...(system.value.trim() ? [{ role: "system", content: system.value }] : []), ...history],
        stream: true,
        stream_options: { include_usage: true },
        ...(temperature.value === "" ? {} : { temperature: Number(temperature.value) }),
        ...(tokens.value === "" ? {} : { max_tokens: Number(tokens.value) }),
      };
      const response = await ask("v1/chat/completions", body, abort.signal);
      id = response.headers.get("x-request-id");
      for await (const data of events(response)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Refusal(500, chunk.error.message);
        usage = chunk.usage ?? usage;
        const delta = chunk.choices?.[0]?.delta?.content;
        if (chunk.choices?.[0]?.finish_reason === "length") why = "cut off at the most tokens";
        if (!delta) continue;
        first ??= performance.now();
        content += delta;
        if (!drawn) {
          drawn = true;
          requestAnimationFrame(draw);
        }
      }
    } catch (error) {
      if (error.name === "AbortError") why = "stopped";
      else {
        why = null;
        below.append(make("span.bad", { role: "alert" }, error.message));
        if (error.status === 401) below.append(make("button.plain", { type: "button", onclick: openKey }, "Set a key"));
      }
    }
    stop = null;
    setText(send, "Send");
    turn.removeAttribute("aria-busy");
    draw();
    if (!content) said.replaceChildren(...(why === null ? [] : [make("p.waits", {}, why || "An empty answer")]));
    if (content) history.push({ role: "assistant", content });
    const now = performance.now();
    const facts = [];
    if (usage) facts.push(`${usage.completion_tokens} tokens`);
    if (first) facts.push(`first after ${Math.round(first - began)} ms`);
    if (usage && first && now - first > 100) facts.push(`${((usage.completion_tokens - 1) / ((now - first) / 1000)).toFixed(1)} a second`);
    if (why && content) facts.push(why);
    const again = make("button.plain.again", { type: "button" }, "Regenerate");
    again.addEventListener("click", () => {
      if (stop) return;
      turn.remove();
      if (history.at(-1)?.role === "assistant") history.pop();
      answer();
    });
    if (content) {
      const button = make("button.plain", { type: "button", onclick: () => copy(content, button) }, "Copy");
      below.append(button);
    }
    below.append(again, make("span", {}, facts.join(" · ")));
    if (explains && id) below.append(make("a", { href: `#requests/${id}` }, "How it was served"));
    say(why === null ? "The answer failed." : "The answer is complete.");
    if (follow()) scrollTo(0, document.documentElement.scrollHeight);
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (stop) return stop();
    const content = text.value.trim();
    if (!content) return;
    text.value = "";
    // What was said last and got no answer is said again with this.
    history.push({ role: "user", content });
    showText(add("user").said, content);
    answer();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!stop) form.requestSubmit();
  });
  fresh.addEventListener("click", () => {
    stop?.();
    history = [];
    turns.replaceChildren();
    nothing.hidden = false;
    text.focus();
  });
  return { focus: () => text.focus({ preventScroll: true }) };
}
