# Run: pip install anthropic && python examples/anthropic_message.py
"""A message with Anthropic's client: its prompt counted, whole, then token by token."""

import os

from anthropic import Anthropic

client = Anthropic(base_url=os.environ.get("LLM_URL", "http://127.0.0.1:8000"), api_key="unused")
asked = {
    "model": client.models.list().data[0].id,
    "system": "You answer in one sentence.",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}
# This client has no argument for the temperature.
limits = {"max_tokens": 64, "extra_body": {"temperature": 0}}
print("tokens of the prompt:", client.messages.count_tokens(**asked).input_tokens)

answer = client.messages.create(**asked, **limits)
print(answer.content[0].text, f"({answer.stop_reason})")

with client.messages.stream(**asked, **limits) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
