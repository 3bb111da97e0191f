// The console and the page to chat, in a real Chromium, over a cluster of processes: see run.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Cluster, freeAddress } from "./cluster.mjs";

const { BATON, CHROMIUM, TOOLS, SHOTS, MODEL } = process.env;
const require = createRequire(`${TOOLS}/`);
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;

/** Time for something to show, in milliseconds. */
const PATIENCE = 30_000;
/** Widths of a desk and of a phone. */
const SIZES = [{ width: 1280, height: 860 }, { width: 390, height: 844 }];

const cluster = new Cluster(BATON, MODEL);
const folder = mkdtempSync(join(tmpdir(), "baton-console-"));
let [browser, api, ops, late, first] = [];

before(async () => {
  const [p0, d0, d1] = await Promise.all([freeAddress(), freeAddress(), freeAddress()]);
  [late, first] = [d1, [p0, d0]];
  await Promise.all([cluster.worker("p0", "prefill", p0), cluster.worker("d0", "decode", d0)]);
  ({ api, ops } = await cluster.router("router", [p0, d0, d1]));
  // Chromium does not sandbox what root starts; and a name that leads here is what a page of others would bring.
  const args = ["--host-resolver-rules=MAP elsewhere.example 127.0.0.1", "--no-sandbox"];
  browser = await chromium.launch({ executablePath: CHROMIUM, args });
  mkdirSync(SHOTS, { recursive: true });
});

after(async () => {
  await browser?.close();
  await cluster.end();
  rmSync(folder, { recursive: true, force: true });
});

/** Opens a page in a tab of its own. What it does wrong, or loads from elsewhere, fails the test at its end. */
async function open(t, url, options = {}) {
  const context = await browser.newContext({ viewport: SIZES[0], permissions: ["clipboard-read", "clipboard-write"], ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.stack));
  page.on("console", (message) => /Content.Security.Policy|TrustedHTML/.test(message.text()) && faults.push(message.text()));
  page.on("request", (request) => new URL(request.url()).origin === new URL(url).origin || faults.push(request.url()));
  t.after(async () => {
    await context.close();
    assert.deepEqual(faults, []);
  });
  await page.goto(url);
  return page;
}

/** Asks in a chat, and waits for the end of the answer, which is returned. */
async function chats(page, text) {
  const answer = page.locator(".turn.assistant").last();
  const asked = await page.locator(".turn.user").count();
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
  await page.locator(".turn.user").nth(asked).waitFor();
  await answer.getByRole("button", { name: "Regenerate" }).waitFor();
  return answer;
}

/** Has answers end soon. */
async function few(page) {
  await page.getByText("Settings", { exact: true }).click();
  await page.getByLabel("Most tokens").fill("16");
}

/** Says yes, or what else a dialog offers. */
const answers = (page, name) => page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
const card = (page, name) => page.getByRole("article", { name, exact: true });

test("the page of the API chats, stops and asks again", async (t) => {
  const page = await open(t, api);
  await few(page);
  const first = await chats(page, "What is ownership?");
  assert.match(await first.locator(".below").innerText(), /\d+ tokens · first after \d+ ms/);
  assert.notEqual((await first.locator(".said").innerText()).trim(), "");
  await first.getByRole("button", { name: "Copy" }).first().click();
  await first.getByRole("button", { name: "Copied" }).waitFor();
  assert.notEqual(await page.evaluate(() => navigator.clipboard.readText()), "");
  // What was said before is sent with what is said now, and Regenerate leaves the old answer out.
  const sent = [];
  page.on("request", (request) => request.method() === "POST" && sent.push(request.postDataJSON().messages.map(({ role }) => role)));
  await page.getByLabel("System prompt").fill("Be short.");
  await chats(page, "And borrowing?");
  const again = page.getByRole("button", { name: "Regenerate" });
  await again.click();
  await again.waitFor();
  assert.deepEqual(sent, Array(2).fill(["system", "user", "assistant", "user"]));
  assert.equal(await page.locator(".turn.assistant").count(), 2);
  // An answer that would go on for long is stopped.
  await page.route("**/v1/chat/completions", (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, max_tokens: 3000 }) }));
  await page.getByRole("textbox", { name: "Message" }).fill("Tell me everything.");
  await page.getByRole("button", { name: "Send" }).click();
  const last = page.locator(".turn.assistant").last();
  await last.locator(".said > :not(.waits)").first().waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await last.getByText(/stopped/).waitFor();
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.locator(".turn").count(), 0);
});

test("text is never markup, and code is in blocks", async (t) => {
  const page = await open(t, api);
  const text = "<img src=x onerror=alert(1)>\n\n```rust\nfn main() { \"</code>\"; }\n```\n\nand `<b>`";
  await page.route("**/v1/chat/completions", (route) => {
    const chunk = JSON.stringify({ choices: [{ delta: { content: text } }] });
    return route.fulfill({ contentType: "text/event-stream", body: `data: ${chunk}\n\ndata: [DONE]\n\n` });
  });
  const said = (await chats(page, text)).locator(".said");
  assert.equal(await said.locator("p").first().innerText(), "<img src=x onerror=alert(1)>");
  assert.equal(await said.locator("pre code").innerText(), 'fn main() { "</code>"; }');
  assert.equal(await said.locator("p code").innerText(), "<b>");
  assert.equal(await page.locator(".turn :is(img, b)").count(), 0);
});

test("a worker appears, dies, drains and changes its role", async (t) => {
  const page = await open(t, ops);
  await card(page, "p0").waitFor();
  await card(page, "d0").getByText("serving").waitFor();
  // The last decode worker is kept, unless somebody insists.
  await card(page, "d0").getByRole("button", { name: "Drain" }).click();
  await answers(page, "Drain");
  await page.getByRole("dialog").getByText(/last decode worker/).waitFor();
  await answers(page, "Cancel");
  await page.getByRole("status").getByText(/last decode worker/).waitFor();

  await cluster.worker("d1", "decode", late);
  await card(page, "d1").waitFor();
  await page.locator(".changes").getByText("d1 joined as a decode worker.").waitFor();
  await card(page, "d1").getByRole("button", { name: "Drain" }).click();
  await answers(page, "Cancel");
  await card(page, "d1").getByText("serving").waitFor();
  await card(page, "d1").getByRole("button", { name: "Drain" }).click();
  await answers(page, "Drain");
  await card(page, "d1").getByText("drained").waitFor();
  await card(page, "d1").getByRole("button", { name: "Undrain" }).click();
  await card(page, "d1").getByText("serving").waitFor();

  const prefill = page.getByRole("region", { name: "Prefill workers" });
  await card(page, "d1").getByRole("button", { name: "Make prefill" }).click();
  await answers(page, "Make prefill");
  await card(prefill, "d1").waitFor();
  await card(page, "d1").getByText("More").click();
  await card(page, "d1").getByRole("button", { name: "Flush" }).click();
  await answers(page, "Flush");
  await page.getByRole("status").getByText(/d1 dropped \d+ blocks/).waitFor();

  await cluster.kill("d1");
  await card(page, "d1").waitFor({ state: "detached" });
  await page.locator(".changes").getByText("d1 left.").waitFor();
});

test("a system prompt is pinned and parked", async (t) => {
  const page = await open(t, ops);
  await page.getByRole("button", { name: "Pin or park a prompt" }).click();
  const dialog = page.getByRole("dialog");
  const does = (name) => dialog.getByRole("button", { name, exact: true }).click();
  await does("Pin");
  const request = { messages: [{ role: "user", content: "You answer in one sentence. ".repeat(16) }] };
  await dialog.getByLabel("System prompt").fill(JSON.stringify(request));
  await dialog.getByLabel("Pin for").selectOption("7 days");
  await dialog.getByLabel("At").selectOption("p0");
  await does("Pin");
  await dialog.getByRole("listitem").filter({ hasText: "p0" }).getByText(/0 of \d+ tokens on the device, pinned/).waitFor();
  assert.equal(await dialog.getByRole("listitem").count(), 1);
  await dialog.getByLabel("At").selectOption("All workers");
  await does("Unpin");
  await dialog.getByRole("listitem").filter({ hasText: "d0" }).getByText("it is not pinned").waitFor();
  await does("Park");
  await dialog.getByRole("listitem").filter({ hasText: "p0" }).getByText("nothing of it is on the device").waitFor();
  await dialog.getByLabel("System prompt").fill("Hi");
  await does("Unpark");
  await dialog.getByText(/fewer tokens/).first().waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
});

test("a request is a waterfall that says why", async (t) => {
  const page = await open(t, `${ops}#chat`);
  await few(page);
  const answer = await chats(page, "What is a lifetime?");
  await answer.getByRole("link", { name: "How it was served" }).click();
  const panel = page.getByRole("article");
  await panel.getByText(/ended: \w+, at p0 to d0/).waitFor();
  for (const phase of ["prefill", "handoff", "decode"]) {
    await panel.locator(`.fall .${phase}`).first().waitFor({ state: "attached" });
  }
  assert.equal(await panel.locator("tr.chosen").count(), 2);
  // What took time: each chunk, each layer with its lane, and the moments of the request.
  for (const text of ["Tokenize", "Prefill chunk", "Transfer", "First token", "Decode", "End"]) {
    await panel.locator(".phases li", { hasText: text }).first().waitFor();
  }
  await panel.locator(".phases li", { hasText: /(layers? \d|all layers).*over \w+ from p0/ }).first().waitFor();
  await page.locator("a.line[aria-current]").waitFor();
  await panel.getByRole("button", { name: "Close" }).click();
  await panel.waitFor({ state: "hidden" });
  await page.goto(`${ops}#requests/req_00000000000000aa`);
  await panel.getByText(/no request .* is known/).waitFor();
  await page.goto(`${ops}#lanes`);
  await page.getByRole("row", { name: /d0 p0 (shm|tcp)/ }).waitFor();
});

test("a console that lost its router says so and comes back", async (t) => {
  const address = await freeAddress();
  const start = () => cluster.router("other", [late], `router.ops_listen=${address}`);
  await start();
  const page = await open(t, `http://${address}`);
  await page.getByText("No worker is here yet").waitFor();
  await cluster.kill("other");
  await page.getByText("Not connected").waitFor();
  await start();
  await page.getByText("Live").waitFor();
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await cluster.kill("other");
});

test("where keys are needed, the page asks for one and keeps it for the tab", async (t) => {
  const file = join(folder, "keys.json");
  const key = execFileSync(BATON, ["keys", "add", "--file", file, "--tenant", "acme"], { encoding: "utf8" }).match(/\S{24,}/)[0];
  const guarded = await cluster.router("guarded", [late], `router.keys_file=${file}`);
  const page = await open(t, guarded.api);
  await page.getByRole("dialog").getByLabel("Key").fill(key);
  await page.keyboard.press("Enter");
  await page.getByRole("combobox", { name: "Model" }).getByText("tiny-rust").waitFor({ state: "attached" });
  const kept = await page.evaluate(() => [Object.values(sessionStorage), Object.keys(localStorage), document.cookie]);
  assert.deepEqual(kept, [[key], [], ""]);
  await page.getByRole("button", { name: "Key set" }).click();
  await page.getByRole("button", { name: "Forget it" }).click();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await cluster.kill("guarded");
});

test("a key of an operator drains a worker, and that of a client is refused", async (t) => {
  const file = join(folder, "operators.json");
  const add = (...more) => execFileSync(BATON, ["keys", "add", "--file", file, "--tenant", "acme", ...more], { encoding: "utf8" }).match(/\S{24,}/)[0];
  const [operator, client] = [add("--admin"), add()];
  const address = await freeAddress();
  await cluster.worker("d2", "decode", address);
  const keyed = await cluster.router("keyed", [...first, address], "admin.beyond_loopback=true", `admin.keys_file=${file}`);
  // What comes through a proxy needs a key, whatever the host.
  const page = await open(t, keyed.ops, { extraHTTPHeaders: { "x-forwarded-for": "192.0.2.1" } });
  const use = async (key, button = "Set a key") => {
    await page.getByRole("button", { name: button, exact: true }).click();
    await page.getByRole("dialog").getByLabel("Key").fill(key);
    await answers(page, "Use it");
  };
  await page.getByRole("alert").getByText(/No key is shown/).waitFor();
  await page.getByText("Refused", { exact: true }).waitFor();
  assert.equal(await page.getByRole("article").count(), 0);
  await use(client);
  await page.getByRole("alert").getByText(/is not that of an operator: `baton keys add --admin` makes one that is/).waitFor();
  assert.equal(await page.getByRole("article").count(), 0);
  await use(operator);
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await card(page, "d2").getByText("serving").waitFor();
  await card(page, "d2").getByRole("button", { name: "Drain" }).click();
  await answers(page, "Drain");
  await page.getByRole("status").getByText(/d2 is drain/).waitFor();
  await card(page, "d2").getByText("drained").waitFor();
  // The right is looked at for each change, whatever the page showed before.
  await use(client, "Key set");
  await page.getByRole("alert").getByText(/is not that of an operator/).waitFor();
  await card(page, "d2").getByRole("button", { name: "Undrain" }).click();
  await page.getByRole("status").getByText(/Not allowed: the key \S+ is not that of an operator/).waitFor();
  await use(operator);
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await card(page, "d2").getByText("drained").waitFor();
  await card(page, "d2").getByRole("button", { name: "Undrain" }).click();
  await card(page, "d2").getByText("serving").waitFor();
  await cluster.kill("keyed");
  await cluster.kill("d2");
});

test("pages of others reach nothing, by whatever name", async (t) => {
  const { port } = new URL(ops);
  const server = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html>"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  const drain = (mode, type) => page.evaluate(async ([ops, mode, type]) => {
    const body = JSON.stringify({ worker: "p0" });
    return fetch(`${ops}/admin/v1/DrainWorker`, { method: "POST", mode, headers: { "content-type": type }, body }).then(() => "sent", () => "stopped");
  }, [ops.replace(/\/$/, ""), mode, type]);
  // The browser asks first whether it may, and is not told so; or it sends what the service does not take.
  assert.equal(await drain("cors", "application/json"), "stopped");
  assert.equal(await drain("no-cors", "text/plain"), "sent");
  const response = await page.goto(`http://elsewhere.example:${port}/`);
  assert.equal(response.status(), 403);
  const console = await open(t, ops);
  await card(console, "p0").getByText("serving").waitFor();
});

test("it is usable by keyboard, and its themes are chosen", async (t) => {
  const page = await open(t, ops, { reducedMotion: "reduce" });
  await card(page, "d0").waitFor();
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  const seen = [];
  for (let at = 0; at < 9; at += 1) {
    await page.keyboard.press("Tab");
    seen.push(await focused());
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", `${seen.at(-1)} shows no focus`);
  }
  assert.deepEqual(seen, ["To the content", "Baton", "Workers", "Requests", "Lanes", "Chat", "Key", "Auto", "Make decode"]);
  // A dialog keeps the focus, and gives it back. What is drawn anew each second does not take it.
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await focused(), "Make decode");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const theme = page.getByRole("button", { name: /Theme/ });
  await theme.click();
  const light = await ground();
  await theme.click();
  assert.notEqual(await ground(), light);
  await page.reload();
  assert.equal(await theme.innerText(), "Dark");
});

test("axe finds no serious fault, nothing is cut off, and it looks as it looks", async (t) => {
  const found = [];
  for (const viewport of SIZES) {
    for (const colorScheme of ["light", "dark"]) {
      const shot = async (page, name) => {
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => globalThis.axe.run());
        const bad = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
        found.push(...bad.map(({ id, nodes }) => `${name} ${viewport.width} ${colorScheme}: ${id} ${nodes[0].html}`));
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) found.push(`${name} ${viewport.width}: ${over} pixels too wide`);
        await page.screenshot({ path: `${SHOTS}/${name}-${viewport.width}-${colorScheme}.png` });
      };
      const page = await open(t, ops, { viewport, colorScheme });
      await card(page, "d0").getByText("serving").waitFor();
      await shot(page, "workers");
      await card(page, "d0").getByText("More").click();
      await card(page, "d0").getByRole("button", { name: "Drain" }).click();
      await shot(page, "confirm");
      await answers(page, "Cancel");
      await page.getByRole("button", { name: "Pin or park a prompt" }).click();
      await page.getByRole("dialog").getByLabel("System prompt").fill("You answer in one sentence. ".repeat(16));
      await page.getByRole("dialog").getByRole("button", { name: "Unpark", exact: true }).click();
      await page.getByRole("dialog").getByRole("listitem").first().waitFor();
      await shot(page, "prefixes");
      await page.keyboard.press("Escape");
      await page.getByRole("link", { name: "Requests" }).click();
      await page.locator("a.line").first().click();
      await page.getByRole("article").getByText(/ended/).waitFor();
      await shot(page, "requests");
      await page.getByRole("link", { name: "Lanes" }).click();
      await page.getByRole("row").filter({ hasText: "shm" }).first().waitFor();
      await shot(page, "lanes");
      await page.getByRole("button", { name: "Key" }).click();
      await shot(page, "key");
      await answers(page, "Cancel");
      await page.goto(`${ops}#chat`);
      await page.getByRole("textbox", { name: "Message" }).waitFor();
      await shot(page, "console-chat");
      const refused = await open(t, ops, { viewport, colorScheme, extraHTTPHeaders: { "x-forwarded-for": "192.0.2.1" } });
      await refused.getByRole("alert").waitFor();
      await shot(refused, "refused");
      const talk = await open(t, api, { viewport, colorScheme });
      await few(talk);
      await chats(talk, "What is `Option`?");
      await shot(talk, "chat");
      await talk.getByRole("button", { name: "Key" }).click();
      await shot(talk, "chat-key");
    }
  }
  assert.deepEqual(found, []);
});
