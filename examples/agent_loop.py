# Run: pip install anthropic && python examples/agent_loop.py "What does notes.txt say?"
"""An agent in the style of coding agents, over /v1/messages: the model asks for files of this folder, until it answers.

The model must have been trained to call tools, as Qwen3 and Llama 3.1 were.
"""

import os
import sys
from pathlib import Path

from anthropic import Anthropic

TURNS_MAX = 8
FILE_CHARACTERS_MAX = 20_000
TOOLS = [{
    "name": "read_file",
    "description": "Returns the text of a file of the working folder.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The file, from the working folder."}},
        "required": ["path"],
    },
}]


def read_file(path):
    """Returns what a file says. Nothing outside of the working folder is read, whatever the model asks for."""
    file = Path(path).resolve()
    if not file.is_relative_to(Path.cwd()):
        raise ValueError(f"{path} is not in the working folder")
    return file.read_text()[:FILE_CHARACTERS_MAX]


def run(call):
    """Runs the call of a tool, and returns its result as a block. What goes wrong, the model is told."""
    result = {"type": "tool_result", "tool_use_id": call.id}
    try:
        if call.name != "read_file":
            raise ValueError(f"there is no tool {call.name}")
        return {**result, "content": read_file(**call.input)}
    except (OSError, TypeError, ValueError) as error:
        return {**result, "content": str(error), "is_error": True}


client = Anthropic(base_url=os.environ.get("LLM_URL", "http://127.0.0.1:8000"), api_key="unused")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": " ".join(sys.argv[1:]) or "What does notes.txt say?"}]

for _ in range(TURNS_MAX):
    limits = {"max_tokens": 512, "extra_body": {"temperature": 0}}
    answer = client.messages.create(model=model, tools=TOOLS, messages=messages, **limits)
    for block in answer.content:
        print(block.text if block.type == "text" else f"[{block.type}] {getattr(block, 'input', '')}")
    if answer.stop_reason != "tool_use":
        break
    results = [run(block) for block in answer.content if block.type == "tool_use"]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
