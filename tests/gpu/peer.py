"""Measures transformers on this card with the shape of Llama 3.1 8B in bf16: random weights, a static cache, compiled.

Prints a line of JSON for each figure as soon as it is there, so that what was measured stays when time is over.
"""

import argparse
import json
import statistics
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, StaticCache

ROUNDS = 3
# Tokens of a decode sample.
DECODED = 32
# Rows and columns of the product that tells the card's matrix rate.
SIDE = 8192


def tell(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def seconds(work):
    """Returns the median time of work on the card, after once that does not count."""
    taken = []
    for sample in range(ROUNDS + 1):
        torch.cuda.synchronize()
        began = time.monotonic()
        work()
        torch.cuda.synchronize()
        if sample:
            taken.append(time.monotonic() - began)
    return statistics.median(taken)


def products(side):
    one, other = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    taken = seconds(lambda: [one @ other for _ in range(8)])
    tell("bf16 products", 8 * 2 * side**3 / taken / 1e12, "TFLOP/s")


def prompt(model, tokens):
    asked = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")
    taken = seconds(lambda: model(asked, use_cache=True, logits_to_keep=1))
    tell(f"prompt of {tokens}", tokens / taken, "tokens/s")


def decode(model, step, batch, context):
    cache = StaticCache(config=model.config, max_cache_len=context + DECODED)
    token = torch.randint(0, model.config.vocab_size, (batch, 1), device="cuda")
    # The cache is made by the first step; its numbers do not matter to how long a step takes.
    places = [torch.tensor([context + at], device="cuda") for at in range(DECODED)]

    def work():
        nonlocal token
        for place in places:
            logits = step(token, past_key_values=cache, cache_position=place, position_ids=place[None].expand(batch, 1)).logits
            token = logits[:, -1].argmax(-1, keepdim=True)

    taken = seconds(work)
    tell(f"decode, batch {batch} after {context}", batch * DECODED / taken, "tokens/s")


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=numbers, required=True)
    parser.add_argument("--prompts", type=numbers, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    ends = time.monotonic() + asked.seconds
    size = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    if not asked.tiny:
        size = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
    config = LlamaConfig(vocab_size=128_256, max_position_embeddings=131_072, rope_theta=500_000.0, **size)
    products(256 if asked.tiny else SIDE)
    with torch.no_grad(), torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        for tokens in asked.prompts:
            prompt(model, tokens)
        step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        # The smallest and the largest first: each size is compiled, which takes long.
        order = sorted(asked.batches, key=lambda batch: (batch not in (1, 32), batch))
        for batch in order:
            if time.monotonic() < ends:
                decode(model, step, batch, asked.context)


if __name__ == "__main__":
    main()
