"""Work as `baton bench engine` does it, by Hugging Face transformers on the CPU: a peer for docs/performance/lab/kernels-and-engine.md.

    target/release/baton model random --shape 125m target/125m-bf16
    python bench/lab/peers/transformers_cpu.py target/125m-bf16 [bfloat16|float32]

Needs torch and transformers. Prints the best of some repeats, since what disturbs a measurement only makes it slower.
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache

REPEATS = 5
# (sequences, tokens of context before, tokens of the step)
RUNS = [(1, 0, 512), (1, 1536, 512), (1, 128, 1), (1, 2048, 1), (4, 128, 1), (16, 128, 1)]


def tokens(sequences, count, vocab):
    return torch.randint(0, vocab, (sequences, count))


@torch.inference_mode()
def measure(model, sequences, start, rows):
    vocab = model.config.vocab_size
    best = float("inf")
    repeats = REPEATS if rows > 1 else 4 * REPEATS
    cache = DynamicCache(config=model.config)
    if start:
        model(tokens(sequences, start, vocab), past_key_values=cache, logits_to_keep=1)
    for _ in range(repeats):
        step = tokens(sequences, rows, vocab)
        begin = time.perf_counter()
        model(step, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1)
        best = min(best, time.perf_counter() - begin)
        # Back to the context alone.
        if start:
            cache.crop(-rows)
        else:
            cache = DynamicCache(config=model.config)
    return best


def main():
    torch.manual_seed(1)
    dtype = getattr(torch, sys.argv[2] if len(sys.argv) > 2 else "bfloat16")
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=dtype).eval()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {dtype}")
    for sequences, start, rows in RUNS:
        seconds = measure(model, sequences, start, rows)
        work = f"decode, batch {sequences} after {start}" if rows == 1 else f"prompt, {rows} tokens after {start}"
        print(f"{work}: {sequences * rows / seconds:.0f} tokens/s, {seconds * 1e3:.2f} ms a step")


if __name__ == "__main__":
    main()
