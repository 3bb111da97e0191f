"""Writes a checkpoint as a Hugging Face directory: bf16 weights, configuration, tokenizer, model card.

    python export.py --run run --tokenizer tokenizer --out ../tiny-rust-new
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tokenizer import BOS, END, PAD

CARD = """---
license: mit OR apache-2.0
language: en
pipeline_tag: text-generation
---

# {name}

A Llama-layout chat model of {parameters:,} parameters, trained from scratch on the documentation of the Rust toolchain
with `models/train` of Baton: {steps:,} steps of {tokens:,} tokens. Loss at the end: {loss:.2f} in training, {held_out} on
pages kept back.

It recites; it does not reason. Measure what it answers with `evaluate.py` before you ship it.

Training data: Copyright The Rust Project Developers and contributors, MIT OR Apache-2.0. The Embedded Rust Book was left
out.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("run"), help="output of train.py [run]")
    parser.add_argument("--tokenizer", type=Path, default=Path("tokenizer"), help="output of tokenizer.py [tokenizer]")
    parser.add_argument("--out", type=Path, required=True, help="the directory to write")
    arguments = parser.parse_args()

    state = torch.load(arguments.run / "checkpoint.pt", map_location="cpu", weights_only=True)
    run, weights = state["run"], {name: tensor.bfloat16().contiguous() for name, tensor in state["model"].items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, arguments.out / "model.safetensors", metadata={"format": "pt"})

    tokenizer = Tokenizer.from_file(str(arguments.tokenizer / "tokenizer.json"))
    bos, end, pad = (tokenizer.token_to_id(token) for token in (BOS, END, PAD))
    ids = {"bos_token_id": bos, "eos_token_id": end, "pad_token_id": pad}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", **run["shape"], **ids, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "rope_scaling": None,
        "torch_dtype": "bfloat16", "use_cache": True,
    }
    generation = {**ids, "do_sample": False, "max_new_tokens": 256}
    for name, content in [("config", config), ("generation_config", generation)]:
        (arguments.out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(arguments.tokenizer / name, arguments.out / name)

    log = [json.loads(line) for line in (arguments.run / "log.jsonl").open()]
    held_out = [row["held_out"] for row in log if "held_out" in row]
    (arguments.out / "README.md").write_text(CARD.format(
        name=arguments.out.name, parameters=sum(tensor.numel() for tensor in weights.values()), steps=state["step"],
        tokens=run["tokens"], loss=log[-1]["loss"], held_out=f"{held_out[-1]:.2f}" if held_out else "not measured",
    ))
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
