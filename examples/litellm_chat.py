# Run: pip install litellm openai && python examples/litellm_chat.py
"""A chat with LiteLLM: whole, then token by token. `openai/` says that the service speaks OpenAI's API."""

import os

import litellm
from openai import OpenAI

url = os.environ.get("LLM_URL", "http://127.0.0.1:8000") + "/v1"
asked = {
    "model": "openai/" + OpenAI(base_url=url, api_key="unused").models.list().data[0].id,
    "api_base": url,
    "api_key": "unused",
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
    "temperature": 0,
    "max_tokens": 64,
}
print(litellm.completion(**asked).choices[0].message.content)
for chunk in litellm.completion(**asked, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
