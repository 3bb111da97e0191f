"""Trains the byte-level BPE tokenizer and writes it as Hugging Face keeps one.

    python tokenizer.py --data data --out tokenizer
"""

import argparse
import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

VOCAB = 4096
BOS, USER, ASSISTANT, END, PAD = SPECIAL = ["<|bos|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]

# System messages are dropped: the model was trained without any.
TEMPLATE = (
    "{{ '<|bos|>' }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' + (message['content'] | trim) + '<|end|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + (message['content'] | trim) + '<|end|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train(texts: list[str]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: tokenizers.Tokenizer, out: Path, context: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    names = {"bos_token": BOS, "eos_token": END, "pad_token": PAD, "additional_special_tokens": [USER, ASSISTANT]}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", **names, "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "model_max_length": context, "chat_template": TEMPLATE,
    }
    (out / "special_tokens_map.json").write_text(json.dumps(names, indent=1) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of corpus.py [data]")
    parser.add_argument("--out", type=Path, default=Path("tokenizer"), help="where the tokenizer goes [tokenizer]")
    parser.add_argument("--context", type=int, default=4096, help="position limit of the model [4096]")
    arguments = parser.parse_args()
    rows = [json.loads(line) for name in ("text", "chat") for line in (arguments.data / f"{name}.jsonl").open()]
    tokenizer = train([row.get("text") or row["question"] + "\n" + row["answer"] for row in rows])
    save(tokenizer, arguments.out, arguments.context)
    text = "".join(row.get("text", "") for row in rows)
    print(f"{tokenizer.get_vocab_size()} tokens; {len(text.encode()) / len(tokenizer.encode(text).ids):.2f} bytes a token")


if __name__ == "__main__":
    main()
