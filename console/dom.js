// Elements, made and kept without markup: text is only ever text.

/**
 * Makes an element: `make("button.plain", { onclick: f, disabled: true }, "Stop")`. Attributes that are null or false are left
 * out; children are elements or text.
 */
export function make(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a text, if it is another one: what a reader has selected stays selected. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Sets how much of a bar is filled, from 0 to 1. */
export function setFill(bar, share) {
  const width = `${(100 * Math.min(1, Math.max(0, share || 0))).toFixed(1)}%`;
  if (bar.style.width !== width) bar.style.width = width;
}

/**
 * Makes the children of a list those of `items`, by their keys. An item that stays keeps its element, and so its focus and what
 * is open in it. `create(item)` returns an element; `update(element, item)` shows the item as it is now.
 */
export function keyed(list, items, keyOf, create, update) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  let before = list.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let element = old.get(key);
    old.delete(key);
    if (!element) {
      element = create(item);
      element.dataset.key = key;
    }
    if (element === before) before = before.nextElementSibling;
    else list.insertBefore(element, before);
    update(element, item);
  }
  for (const gone of old.values()) gone.remove();
}

/** Says something to those who do not see the page, and shows it for a while. */
export function say(text) {
  const region = document.getElementById("said");
  region.textContent = text;
  clearTimeout(region.timer);
  region.timer = setTimeout(() => (region.textContent = ""), 6000);
}

/** Makes the button that goes through the themes: the system's, light, dark. */
export function themeButton(button) {
  const themes = ["auto", "light", "dark"];
  const root = document.documentElement;
  const show = () => {
    setText(button.lastElementChild, { auto: "Auto", light: "Light", dark: "Dark" }[root.dataset.theme]);
    button.setAttribute("aria-label", `Theme: ${root.dataset.theme}`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    localStorage.setItem("theme", root.dataset.theme);
    show();
  });
  show();
}

/** Copies a text, and says so on the button for a moment. */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    setText(button, "Copied");
  } catch {
    setText(button, "Not allowed");
  }
  setTimeout(() => setText(button, "Copy"), 1500);
}
