// The AI SDK of Vercel, against the service at LLM_URL. CLIENTS is where its packages are.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";

const { LLM_URL, CLIENTS } = process.env;
const require = createRequire(join(CLIENTS, "package.json"));
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } = require("ai");
const { data } = await (await fetch(`${LLM_URL}/v1/models`)).json();
const baton = createOpenAICompatible({ name: "baton", baseURL: `${LLM_URL}/v1`, includeUsage: true });
const asked = { model: baton(data[0].id), temperature: 0, maxOutputTokens: 48, maxRetries: 0 };
const prompt = "What is the capital of France? Answer in one sentence.";
const PARIS = "The capital of France is Paris.";

test("an answer and a stream say the same", async () => {
  const whole = await generateText({ ...asked, prompt });
  assert.deepEqual([whole.text, whole.finishReason], [PARIS, "stop"]);
  const streamed = streamText({ ...asked, prompt });
  const pieces = [];
  for await (const piece of streamed.textStream) pieces.push(piece);
  assert.equal(pieces.join(""), PARIS);
  assert.ok(pieces.length > 1);
  assert.equal((await streamed.usage).outputTokens, whole.usage.outputTokens);
});

test("a tool is called and answered, whole and as a stream", async () => {
  const paths = [];
  const read_file = tool({
    description: "Returns the text of a file.",
    inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" } }, required: ["path"] }),
    execute: async ({ path }) => {
      paths.push(path);
      return "Buy bread and milk.";
    },
  });
  const told = { ...asked, prompt: "What does notes.txt say?", tools: { read_file }, stopWhen: stepCountIs(3) };
  const whole = await generateText(told);
  assert.match(whole.text, /Buy bread and milk\./);
  assert.equal(await streamText(told).text, whole.text);
  assert.deepEqual(paths, ["notes.txt", "notes.txt"]);
});

test("a refusal is an error of its own", async () => {
  const unknown = generateText({ ...asked, model: baton("gpt-4"), prompt });
  await assert.rejects(unknown, (error) => APICallError.isInstance(error) && error.statusCode === 404);
});
