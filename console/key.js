// The dialog in which a key is given.

import { hasKey, setKey } from "./api.js";
import { make, say, setText } from "./dom.js";

/** Lets a button open the dialog, and returns what opens it. `command`: what makes such a key. */
export function keyButton(button, command) {
  const field = make("input", { type: "password", autocomplete: "off", spellcheck: "false", name: "key" });
  const forget = make("button", { type: "button" }, "Forget it");
  const dialog = make("dialog", { "aria-labelledby": "key-title" },
    make("form", { method: "dialog" },
      make("h2", { id: "key-title" }, "Key"),
      make("p.soft.small", {}, "A key that the operator of this cluster made with ", make("code", {}, command),
        ". It stays in this tab, and is forgotten when the tab is closed."),
      make("label", {}, "Key", field),
      make("div.row", {},
        forget,
        make("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        make("button.main", { type: "submit" }, "Use it"))));
  document.body.append(dialog);
  const show = () => setText(button, hasKey() ? "Key set" : "Key");
  const take = (key) => {
    setKey(key);
    show();
    dialog.close();
    say(key ? "The key is used from now on." : "The key is forgotten.");
  };
  forget.addEventListener("click", () => take(""));
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    take(field.value.trim());
  });
  dialog.addEventListener("close", () => (field.value = ""));
  const open = () => {
    forget.hidden = !hasKey();
    dialog.showModal();
    field.focus();
  };
  button.addEventListener("click", open);
  show();
  return open;
}
