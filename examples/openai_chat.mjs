// Run: npm install --prefix examples && node examples/openai_chat.mjs
// A chat with OpenAI's client for Node: whole, then token by token.

import OpenAI from "openai";

const url = process.env.LLM_URL ?? "http://127.0.0.1:8000";
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];

const answer = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 64 });
console.log(answer.choices[0].message.content);

messages.push(answer.choices[0].message, { role: "user", content: "Name three fruits." });
const stream = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 64, stream: true });
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0].delta.content ?? "");
}
console.log();
