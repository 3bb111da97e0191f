// What a model says, as text and blocks of code. All of it is text: nothing that a model writes becomes markup.

import { copy, make, setText } from "./dom.js";

/** Splits a text into paragraphs and blocks of code. The last block may still be open. */
export function parts(text) {
  const parts = [];
  let code = null;
  let lines = [];
  const paragraph = () => {
    const text = lines.join("\n").trim();
    if (text) parts.push({ kind: "text", text });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const fence = line.match(/^\s*```+\s*([\w+#.-]*)/);
    if (fence && code) {
      parts.push({ ...code, text: lines.join("\n") });
      [code, lines] = [null, []];
    } else if (fence) {
      paragraph();
      code = { kind: "code", language: fence[1] };
    } else if (!code && line.trim() === "") {
      paragraph();
    } else {
      lines.push(line);
    }
  }
  if (code) parts.push({ ...code, text: lines.join("\n") });
  else paragraph();
  return parts;
}

/** Shows a text in an element. What did not change since the last time stays as it is. */
export function showText(element, text) {
  const wanted = parts(text);
  wanted.forEach((part, at) => {
    let child = element.children[at];
    const kind = `${part.kind} ${part.language ?? ""}`;
    if (child?.dataset.kind !== kind) {
      const fresh = part.kind === "code" ? block(part.language) : make("p");
      fresh.dataset.kind = kind;
      if (child) child.replaceWith(fresh);
      else element.append(fresh);
      child = fresh;
    }
    if (part.kind === "code") setText(child.querySelector("code"), part.text);
    else showParagraph(child, part.text);
  });
  while (element.children.length > wanted.length) element.lastElementChild.remove();
}

function block(language) {
  const code = make("code");
  const button = make("button.plain", { type: "button", onclick: () => copy(code.textContent, button) }, "Copy");
  return make("div.block", {},
    make("div", {}, make("span.soft", {}, language || "code"), button),
    make("pre", { tabindex: "0", role: "group", "aria-label": `Code${language ? ` in ${language}` : ""}` }, code));
}

/** Shows a paragraph, in which what stands between backticks is code. */
function showParagraph(element, text) {
  if (element.shown === text) return;
  element.shown = text;
  element.replaceChildren(...text.split(/(`[^`\n]+`)/).map((part) =>
    part.length > 2 && part.startsWith("`") && part.endsWith("`") ? make("code", {}, part.slice(1, -1)) : part));
}
