# Run: pip install openai && python examples/openai_chat.py
"""A chat with OpenAI's client for Python: whole, then token by token."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("LLM_URL", "http://127.0.0.1:8000") + "/v1", api_key="unused")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]

answer = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=64)
print(answer.choices[0].message.content)

messages += [answer.choices[0].message, {"role": "user", "content": "Name three fruits."}]
for chunk in client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=64, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
