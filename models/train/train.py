"""Trains the model. Stopped at any time, the same command goes on where the last checkpoint was.

    python train.py --data data --tokenizer tokenizer --out run

What a step sees is a function of the seed and the step's number alone, so that a run that was resumed has the same
losses as one that was not. Writes to --out: checkpoint.pt and log.jsonl (one line a step).
"""

import argparse
import contextlib
import json
import math
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F

from model import Llama, Shape
from optim import optimizers
from tokenizer import ASSISTANT, BOS, END, USER

MATRIX_LR = 0.02
OTHER_LR = 3e-3
WARM_UP_STEPS = 100
LR_END = 0.02  # part of the peak
LENGTHS = (256, 512)
LONG_SHARE = 0.2
CHAT_SHARES = (0.4, 0.7, 0.9)  # of the rows, in each third of the run
OWN_SHARE = 0.3  # of the conversations: questions.json against those made from headings
NO_TARGET = -100
HELD_OUT_ROWS = 64


class Data:
    """Token streams, and the batches that are drawn from them."""

    def __init__(self, folder: Path, tokenizer: tokenizers.Tokenizer):
        rows = lambda name: [json.loads(line) for line in (folder / f"{name}.jsonl").open()]
        special = lambda text: tokenizer.token_to_id(text)
        encode = lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        self.bos, self.end = special(BOS), special(END)
        self.text, self.text_starts = self.join(encode([row["text"] for row in rows("text")]))
        self.held_out, self.held_out_starts = self.join(encode([row["text"] for row in rows("held_out")]))
        chat = rows("chat")
        questions, answers = (encode([row[key] for row in chat]) for key in ("question", "answer"))
        self.own, self.made = [], []
        for row, question, answer in zip(chat, questions, answers):
            prompt = [self.bos, special(USER), *question, self.end, special(ASSISTANT)]
            (self.own if row["source"] == "own" else self.made).append((prompt, [*answer, self.end]))

    def join(self, documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """All documents in one stream, and for each token where its document begins in it."""
        documents = [[self.bos, *document, self.end] for document in documents]
        lengths = np.array([len(document) for document in documents])
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.concatenate(documents).astype(np.int64), starts

    @staticmethod
    def window(stream: np.ndarray, starts: np.ndarray, at: int, length: int):
        """(tokens, starts, targets) of `length` tokens from `at` on."""
        tokens = stream[at : at + length]
        first = np.maximum(starts[at : at + length] - at, 0)
        same_document = starts[at + 1 : at + 1 + length] == starts[at : at + length]
        return tokens, first, np.where(same_document, stream[at + 1 : at + 1 + length], NO_TARGET)

    def chat_row(self, rng: np.random.Generator, length: int):
        """Conversations, one after the other; targets are in answers only."""
        tokens, first, targets = [], [], []
        while len(tokens) < length:
            source = self.own if self.own and rng.random() < OWN_SHARE else self.made
            prompt, answer = source[rng.integers(len(source))]
            first += [len(tokens)] * (len(prompt) + len(answer))
            tokens += prompt + answer
            targets += [NO_TARGET] * (len(prompt) - 1) + answer + [NO_TARGET]
        return tuple(np.array(x[:length]) for x in (tokens, first, targets))

    def batch(self, seed: int, step: int, steps: int, tokens_per_step: int):
        """What step `step` of `steps` sees: tokens, starts and targets, each [rows, length]."""
        rng = np.random.default_rng([seed, step])
        length = LENGTHS[int(rng.random() < LONG_SHARE)]
        rows = []
        for _ in range(max(1, tokens_per_step // length)):
            if rng.random() < chat_share(step, steps):
                rows.append(self.chat_row(rng, length))
            else:
                rows.append(self.window(self.text, self.text_starts, rng.integers(len(self.text) - length), length))
        return tuple(torch.from_numpy(np.stack(column)) for column in zip(*rows))

    def held_out_batch(self):
        """Rows at even distances over the pages that were kept back."""
        length = LENGTHS[0]
        at = np.linspace(0, len(self.held_out) - length - 1, HELD_OUT_ROWS).astype(int)
        rows = [self.window(self.held_out, self.held_out_starts, i, length) for i in at]
        return tuple(torch.from_numpy(np.stack(column)) for column in zip(*rows))


def chat_share(step: int, steps: int) -> float:
    return CHAT_SHARES[min(len(CHAT_SHARES) * step // steps, len(CHAT_SHARES) - 1)]


def lr_factor(step: int, steps: int) -> float:
    """Warm-up, then a cosine down to `LR_END`."""
    warm_up = min(WARM_UP_STEPS, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return LR_END + (1 - LR_END) * (1 + math.cos(math.pi * progress)) / 2


def loss_of(model, batch, device: str, precision: str) -> torch.Tensor:
    tokens, starts, targets = (x.to(device) for x in batch)
    context = torch.autocast(device, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    with context:
        logits = model(tokens, starts)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


def save(path: Path, state: dict) -> None:
    """In one piece or not at all."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="output of corpus.py [data]")
    parser.add_argument("--tokenizer", type=Path, default=Path("tokenizer"), help="output of tokenizer.py [tokenizer]")
    parser.add_argument("--out", type=Path, default=Path("run"), help="where checkpoint and log go [run]")
    parser.add_argument("--steps", type=int, default=3400, help="length of the whole run [3400]")
    parser.add_argument("--stop-at", type=int, help="save and stop after this step, to go on later")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a step [4096]")
    parser.add_argument("--seed", type=int, default=1, help="of weights and data [1]")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--precision", choices=["bf16", "f32"], default="bf16", help="of the products; weights are f32 [bf16]")
    parser.add_argument("--threads", type=int, help="on cpu [all cores]")
    parser.add_argument("--compile", action="store_true", help="torch.compile: faster, after some minutes")
    parser.add_argument("--measure-every", type=int, default=200, help="steps between losses on held-out pages [200]")
    parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints [200]")
    for name, default in asdict(Shape()).items():
        if name != "vocab_size":
            parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default, help=f"[{default}]")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.tokenizer / "tokenizer.json"))
    data = Data(arguments.data, tokenizer)
    sizes = {name: getattr(arguments, name) for name in asdict(Shape()) if name != "vocab_size"}
    shape = Shape(vocab_size=tokenizer.get_vocab_size(), **sizes)
    model = Llama(shape).to(arguments.device)
    chosen = optimizers(model, MATRIX_LR, OTHER_LR)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(data.text):,} tokens of text, "
          f"{len(data.own) + len(data.made):,} conversations")

    # A checkpoint of another run must not be taken for one of this.
    run = {"shape": asdict(shape), "steps": arguments.steps, "tokens": arguments.tokens, "seed": arguments.seed}
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkpoint, log = arguments.out / "checkpoint.pt", arguments.out / "log.jsonl"
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=arguments.device, weights_only=True)
        if state["run"] != run:
            raise SystemExit(f"{checkpoint} is of another run ({state['run']}): choose another --out")
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(chosen, state["optimizers"]):
            optimizer.load_state_dict(saved)
        torch.set_rng_state(state["rng"].cpu())
        first = state["step"]
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:first]))
        print(f"goes on after step {first}")

    stop = {"now": False}
    signal.signal(signal.SIGINT, lambda *_: stop.update(now=True))
    forward = torch.compile(model) if arguments.compile else model
    last = min(arguments.steps, arguments.stop_at or arguments.steps)
    for step in range(first, last):
        begun = time.perf_counter()
        batch = data.batch(arguments.seed, step, arguments.steps, arguments.tokens)
        loss = loss_of(forward, batch, arguments.device, arguments.precision)
        loss.backward()
        factor = lr_factor(step, arguments.steps)
        for optimizer, peak in zip(chosen, (MATRIX_LR, OTHER_LR)):
            optimizer.param_groups[0]["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad()
        row = {"step": step + 1, "loss": loss.item(), "tokens_per_s": round(batch[0].numel() / (time.perf_counter() - begun))}
        is_last = step + 1 == last or stop["now"]
        if (step + 1) % arguments.measure_every == 0 or step + 1 == arguments.steps:
            with torch.no_grad():
                row["held_out"] = loss_of(model, data.held_out_batch(), arguments.device, arguments.precision).item()
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if (step + 1) % 10 == 0 or is_last or "held_out" in row:
            print(json.dumps(row), flush=True)
        if (step + 1) % arguments.save_every == 0 or is_last:
            save(checkpoint, {
                "run": run, "step": step + 1, "model": model.state_dict(), "rng": torch.get_rng_state(),
                "optimizers": [optimizer.state_dict() for optimizer in chosen],
            })
        if is_last:
            break


if __name__ == "__main__":
    main()
