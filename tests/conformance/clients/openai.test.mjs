// OpenAI's client for Node, against the service at LLM_URL. CLIENTS is where its packages are.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";

const { LLM_URL, CLIENTS } = process.env;
const OpenAI = createRequire(join(CLIENTS, "package.json"))("openai").default;
// No retries: a refusal is to be seen, not to be smoothed over.
const client = new OpenAI({ baseURL: `${LLM_URL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];
const PARIS = "The capital of France is Paris.";

const ask = (more) => client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 48, ...more });

test("a chat, whole", async () => {
  const answer = await ask();
  const [choice] = answer.choices;
  assert.deepEqual([choice.message.role, choice.message.content, choice.finish_reason], ["assistant", PARIS, "stop"]);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer._request_id);
});

test("a stream says the same, and its usage", async () => {
  const chunks = [];
  for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), PARIS);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, (await ask()).usage.completion_tokens);
});

test("the helper for streams joins them", async () => {
  const runner = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 48 });
  assert.equal((await runner.finalChatCompletion()).choices[0].message.content, PARIS);
});

test("a stream that is dropped harms no other", async () => {
  const story = [{ role: "user", content: "Tell me a long story." }];
  const stream = await ask({ stream: true, max_tokens: 400, messages: story });
  for await (const _ of stream) break;
  assert.equal((await ask()).choices[0].message.content, PARIS);
});

test("a tool is called and answered", async () => {
  const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
  const read_file = { name: "read_file", description: "Returns the text of a file.", parameters };
  const tools = [{ type: "function", function: read_file }];
  const asked = [{ role: "user", content: "What does notes.txt say?" }];
  const called = (await ask({ messages: asked, tools })).choices[0];
  assert.equal(called.finish_reason, "tool_calls");
  const [call] = called.message.tool_calls;
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["read_file", { path: "notes.txt" }]);
  const result = { role: "tool", tool_call_id: call.id, content: "Buy bread and milk." };
  const answer = await ask({ messages: [...asked, called.message, result], tools });
  assert.match(answer.choices[0].message.content, /Buy bread and milk\./);
});

test("a completion", async () => {
  const prompt = "The capital of France is";
  const answer = await client.completions.create({ model, prompt, temperature: 0, max_tokens: 4 });
  assert.equal(answer.object, "text_completion");
  assert.match(answer.choices[0].text, /Paris/);
});

test("errors have the client's classes", async () => {
  const check = (more, kind, param) =>
    assert.rejects(ask(more), (error) => error instanceof kind && error.param === param && Boolean(error.requestID));
  await check({ model: "gpt-4" }, OpenAI.NotFoundError, "model");
  await check({ model: "gpt-4", stream: true }, OpenAI.NotFoundError, "model");
  await check({ temperature: 3 }, OpenAI.BadRequestError, "temperature");
  await check({ colour: "red" }, OpenAI.BadRequestError, "colour");
});
