// The page of the API's port: a chat, and nothing else.

import { chat } from "./chat.js";
import { themeButton } from "./dom.js";
import { keyButton } from "./key.js";

themeButton(document.getElementById("theme"));
const openKey = keyButton(document.getElementById("key"), "baton keys add");
chat(document.getElementById("main"), { openKey }).focus();
