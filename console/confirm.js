// Asks before something changes.

import { make } from "./dom.js";

/** Asks, and resolves to whether the answer is yes. */
export function confirm(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = make("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
      make("form", { method: "dialog" },
        make("h2", { id: "confirm-title" }, title),
        make("p", { id: "confirm-text" }, text),
        make("div.row", {},
          make("button", { value: "" }, "Cancel"),
          make("button.main", { value: "yes" }, yes))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
