// Run: npm install --prefix examples && node examples/vercel_ai.mjs
// The AI SDK of Vercel: an answer, then one token by token.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const url = process.env.LLM_URL ?? "http://127.0.0.1:8000";
const { data } = await (await fetch(`${url}/v1/models`)).json();
const baton = createOpenAICompatible({ name: "baton", baseURL: `${url}/v1`, includeUsage: true });
const asked = { model: baton(data[0].id), temperature: 0, maxOutputTokens: 64 };

const prompt = "What is the capital of France? Answer in one sentence.";
const { text, usage } = await generateText({ ...asked, prompt });
console.log(text, `(${usage.inputTokens} tokens in, ${usage.outputTokens} out)`);

for await (const piece of streamText({ ...asked, prompt: "Name three fruits." }).textStream) {
  process.stdout.write(piece);
}
console.log();
