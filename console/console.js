// The console: chooses the view by the address, and feeds it.

import { chat } from "./chat.js";
import { make, setText, themeButton } from "./dom.js";
import { Feed } from "./feed.js";
import { capital } from "./format.js";
import { keyButton } from "./key.js";
import { lanesView } from "./lanes.js";
import { requestsView } from "./requests.js";
import { workersView } from "./workers.js";

/** What each view watches, and how often, in milliseconds. Lanes and tiers take a question to each worker. */
const WATCHES = {
  workers: [["workers", "requests", "tiers"], 1000],
  requests: [["workers"], 5000],
  lanes: [["workers", "lanes"], 3000],
  chat: [["workers"], 5000],
};
const VIEWS = Object.keys(WATCHES);

const at = (id) => document.getElementById(id);
themeButton(at("theme"));
const openKey = keyButton(at("key"), "baton keys add --admin");

const notice = (error) => {
  at("notice").hidden = !error;
  if (!error) return;
  const needsKey = error.status === 401 || error.status === 403;
  at("notice").replaceChildren(make("span", {}, capital(error.message)), ...(needsKey ? [make("button", { type: "button", onclick: openKey }, "Set a key")] : []));
};
const STATES = { live: ["Live", "good"], waiting: ["Not connected", "off"], refused: ["Refused", "off"] };
const onState = (state, error) => {
  const [text, dot] = STATES[state];
  setText(at("state-text"), text);
  at("state").firstElementChild.className = `dot ${dot}`;
  notice(error);
};
const refused = (error) => onState(error.status ? "refused" : "waiting", error);

let view = "";
const feed = new Feed((snapshot) => show[view]?.(snapshot), onState);
const again = () => {
  feed.follow([], 0);
  feed.follow(...WATCHES[view]);
};
const show = { workers: workersView(at("workers"), again), lanes: lanesView(at("lanes")) };
const requests = requestsView(at("requests"), refused);
let talk = null;

function go() {
  const [wanted, id = ""] = location.hash.slice(1).split("/");
  if (wanted === "main") return;
  const next = VIEWS.includes(wanted) ? wanted : "workers";
  const moved = next !== view;
  view = next;
  for (const name of VIEWS) at(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · Baton`;
  if (moved) scrollTo(0, 0);
  if (view === "requests") requests.show(decodeURIComponent(id));
  else requests.hide();
  if (view === "chat") {
    talk ??= chat(at("chat"), { openKey, explains: true });
    talk.focus();
  }
  feed.follow(...WATCHES[view]);
}

addEventListener("hashchange", go);
go();
