// What changed among the workers while somebody looked, or looked away.

import { make } from "./dom.js";

/** Changes that are shown: the latest. */
const SHOWN = 12;

/** Lists changes in an element, and returns what takes the workers as they are now. */
export function changes(root) {
  const list = make("ol", {});
  const none = make("p.small.soft", {}, "Nothing has changed since this page was opened.");
  const shown = make("div.changes", { hidden: true }, make("div.head", {}, make("h2", {}, "Changes")), none, list);
  root.append(shown);
  let before = null;
  return (workers) => {
    shown.hidden = false;
    const now = new Map(workers.map((worker) => [worker.id, worker]));
    const lines = before ? compare(before, now) : [];
    before = now;
    for (const line of lines) {
      none.hidden = true;
      const time = new Date().toLocaleTimeString("en-GB");
      list.prepend(make("li", {}, make("time.soft", {}, time), make("span", {}, line)));
    }
    while (list.children.length > SHOWN) list.lastElementChild.remove();
    return lines;
  };
}

function compare(before, now) {
  const lines = [];
  for (const [id, worker] of now) {
    const was = before.get(id);
    if (!was) lines.push(`${worker.name} joined as a ${worker.role} worker.`);
    else if (was.incarnation !== worker.incarnation) lines.push(`${worker.name} started again.`);
    else {
      if (was.role !== worker.role) lines.push(`${worker.name} is a ${worker.role} worker now.`);
      if (was.state !== worker.state) lines.push(`${worker.name} is ${worker.state}.`);
    }
  }
  for (const [id, worker] of before) if (!now.has(id)) lines.push(`${worker.name} left.`);
  return lines;
}
