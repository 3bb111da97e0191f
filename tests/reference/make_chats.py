"""Makes goldens/chats.json: what Hugging Face transformers answers with the small chat model, on a CPU.

    scripts/fetch-model
    venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_chats.py

The model is a GGUF file that scripts/fetch-model fetches. Transformers widens its weights to f32. The chats below were
written down once, and none was left out for its answer. Of each, the golden holds `messages`; `prompt`, the tokens that
transformers makes of them by the chat template of the file; the greedy answer, at most ANSWER_MAX tokens, the one that
ends it included, with the leads of its tokens (see greedy.py); and its `text` without that token.
"""

import json
import os
from pathlib import Path

import greedy
import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("BATON_MODELS", HERE / "../../models/fetched"))
FILE = "SmolLM2-135M-Instruct-Q4_1.gguf"

# Tokens of an answer, at most.
ANSWER_MAX = 48
# The token that ends an answer: <|im_end|>.
END = 2

PASSAGE = (
    "The lighthouse at the end of the pier was built in 1861, after a winter in which eleven ships were lost on the rocks "
    "outside the harbour. It is 34 metres tall and made of granite that was cut on the islands and brought across the "
    "sound by barge. For its first forty years the lamp burned oil, and two keepers and their families lived in the "
    "cottage below. They kept a log of every ship that passed, of the weather, and of the birds that struck the glass "
    "in fog. In 1902 the oil lamp was replaced by an incandescent mantle, and in 1934 by an electric bulb of 500 watts. "
    "The last keeper, Margaret Olsen, left in 1978, when the light was automated. She had kept it for 22 years, alone for "
    "the last nine of them, and she is said to have known every fishing boat on the coast by the sound of its engine. The "
    "cottage stood empty until 1991. Then the town bought it for a single crown and turned it into a small museum, which "
    "shows the logs, the old lens and a model of the pier as it was before the storm of 1926. About nine thousand people "
    "visit it each year, most of them in July. The light itself still turns: three white flashes every fifteen seconds, "
    "which can be seen from 19 nautical miles away on a clear night. Pilots of the ferries say that they no longer need "
    "it, since their instruments show them the way in, but that they look for it all the same."
)
LIST_OF_PLANETS = "1. Mercury\n2. Venus\n3. Earth\n4. Mars\n5. Jupiter\n6. Saturn\n7. Uranus\n8. Neptune"


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


CHATS = {
    "capital": [user("What is the capital of France?")],
    "author": [user("Who wrote Romeo and Juliet, and when?")],
    "reason": [user("Explain in one sentence why the sky is blue.")],
    "python": [user("Write a Python function that reverses a string.")],
    "rust": [user("Write a Rust function `add` that adds two numbers of type i32. Only the code, please.")],
    "list": [user("List five fruits, one per line, with a dash in front of each.")],
    "german": [system("Du bist ein hilfreicher Assistent."), user("Grüß dich! Was ist die Hauptstadt von Österreich?")],
    "french": [user("Translate into French: \"Good morning, how are you?\"")],
    "sum": [user("What is 1234567 + 7654321? Show the steps.")],
    "pirate": [system("You are a pirate. You answer in one short sentence."), user("Where did you hide the gold?")],
    "signs": [user("What does this emoji mean: 🦀? And these signs: ∑, é, 世界?")],
    "indented": [user("What is wrong here?\n\n```python\ndef mean(xs):\n    total = 0\n\tfor x in xs:\n        total += x\n    return total / len(xs)\n```\n")],
    "story": [user("Begin a story about a fox that learns to read. Do not finish it.")],
    "planets": [user("Name the planets."), assistant(LIST_OF_PLANETS), user("Which of them is the largest?")],
    "turns": [
        system("You are a patient teacher who uses simple words."),
        user("What is a fraction?"),
        assistant("A fraction is a part of a whole. If you cut a cake into 4 equal pieces and eat 1, you ate 1/4 of it."),
        user("And what is 1/2 + 1/4?"),
        assistant("1/2 is the same as 2/4. So 1/2 + 1/4 = 2/4 + 1/4 = 3/4."),
        user("Give me one more example, with thirds."),
    ],
    "passage": [user(f"{PASSAGE}\n\nWho was the last keeper of the light, and for how long did she keep it?")],
}  # fmt: skip


@torch.no_grad()
def decode(model, prompt):
    """Greedy tokens after the prompt."""
    answer, past, step = [], None, torch.tensor([prompt])
    while len(answer) < ANSWER_MAX and END not in answer:
        output = model(step, past_key_values=past, use_cache=True)
        past = output.past_key_values
        answer.append(int(output.logits[0, -1].argmax()))
        step = torch.tensor([[answer[-1]]])
    return answer


def main():
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)
    # Transformers does not read `tokenizer.ggml.pre`. This is how the model's own tokenizer.json cuts a text.
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    model = AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    chats = []
    for name, messages in CHATS.items():
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        answer = decode(model, prompt)
        text = tokenizer.decode(answer[:-1] if answer[-1] == END else answer)
        golden = greedy.golden(model, prompt, answer)
        chats.append(dict(name=name, messages=messages, text=text, **golden))
        print(f"{name}: {len(prompt)} + {len(answer)} tokens, smallest lead {min(golden['leads'])}: {text!r}", flush=True)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    chats = ",\n".join(json.dumps(chat) for chat in chats)
    (HERE / "goldens/chats.json").write_text(f'{{"made_with": "{made_with}", "chats": [\n{chats}\n]}}\n')


if __name__ == "__main__":
    main()
