#!/usr/bin/env python3
"""Writes tokenizer.json, cases.json and goldens.json: what transformers makes of tokens that take the spaces around them, are whole
words, or are looked for in the normalized text.

Usage, with the packages of tests/reference/requirements.txt: ./make_goldens.py
"""

import json
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

HERE = Path(__file__).parent

# The text of each token and the flags that it has where a case says "flags".
TOKENS = {
    "<|left|>": {"special": True, "lstrip": True},
    "<|right|>": {"special": True, "rstrip": True},
    "<|both|>": {"special": True, "lstrip": True, "rstrip": True},
    "<|plain|>": {"special": True},
    "whole": {"special": False, "single_word": True, "normalized": False},
    "Folded": {"special": False, "normalized": True},
}

TEXTS = [
    "a <|left|> b",
    "a <|right|>\nb",
    "a  <|both|>\n\n b",
    "a <|plain|> b",
    "whole wholes a whole",
    "Folded FOLDED folded",
    "<|right|>\n<|left|> <|both|> <|plain|>\n",
]

NAMED = {"bos_token": "<|left|>", "eos_token": "<|right|>", "additional_special_tokens": ["<|both|>", "<|plain|>"]}


def entry(text, flags):
    special = flags.get("special", False)
    names = ["single_word", "lstrip", "rstrip"]
    return {"content": text, **{name: flags.get(name, False) for name in names},
            "normalized": flags.get("normalized", not special), "special": special}


def plain(flags):
    return {"special": flags["special"], "normalized": False}


def tokenizer_json(flags_of):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: id for id, text in enumerate(alphabet)}, merges=[]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for text, flags in TOKENS.items():
        entry_ = entry(text, flags_of(flags))
        tokenizer.add_tokens([AddedToken(entry_.pop("content"), **entry_)])
    return json.loads(tokenizer.to_str())


def decoder_of(base, flags_of):
    ids = {token["content"]: token["id"] for token in base["added_tokens"]}
    return {str(ids[text]): entry(text, flags_of(flags)) for text, flags in TOKENS.items()}


def tokens(json_, config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(json_))
        Path(folder, "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
        )
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


base = tokenizer_json(lambda flags: flags)
cases = {
    "flags in tokenizer.json alone": {"added_tokens": base["added_tokens"], "config": NAMED},
    "flags in added_tokens_decoder alone": {
        "added_tokens": tokenizer_json(plain)["added_tokens"],
        "config": {**NAMED, "added_tokens_decoder": decoder_of(base, lambda flags: flags)},
    },
    "flags that added_tokens_decoder takes away": {
        "added_tokens": base["added_tokens"],
        "config": {**NAMED, "added_tokens_decoder": decoder_of(base, plain)},
    },
    "flags of names, which do not count": {
        "added_tokens": base["added_tokens"],
        "config": {**NAMED, "eos_token": {"__type": "AddedToken", **entry("<|right|>", {"special": True})}},
    },
}
goldens = {name: tokens({**base, "added_tokens": case["added_tokens"]}, case["config"]) for name, case in cases.items()}
write = lambda name, value: (HERE / name).write_text(json.dumps(value, ensure_ascii=False) + "\n")
write("tokenizer.json", {**base, "added_tokens": []})
write("cases.json", {"texts": TEXTS, "cases": cases})
write("goldens.json", goldens)
