"""Makes the goldens of tests/reference: what Hugging Face transformers computes, on a CPU, with the models of cases.json.

    python3 -m venv venv && venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make.py [NAME ...]

The checkpoints come from their seeds (`cargo run --example reference-checkpoints`), so that no weights are committed.
With names of goldens only those are made. The models `saved` and `saved-...` go the other way: transformers makes and
saves them, in several files and in the spelling of transformers 5, and they are committed.

Of each model a golden holds the prompt, the tokens that greedy decoding adds, config.json as this transformers writes
it, and the logits at some positions:

* f32 models: logits and tokens of the f32 run. The prompt is one where the best logit leads the second, at each step,
  by ten times the error that the test allows: else rounding would decide which token comes.
* f16 and bf16 models: logits and tokens of a run in f64 (transformers keeps norms' and attention's inner sums in f32 even
  then, four orders of magnitude below the errors that are compared), and how far transformers' own run in f16 or bf16 is
  from them.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoTokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
)

HERE = Path(__file__).resolve().parent
GOLDENS = HERE / "goldens"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# Tokens that are decoded after the prompt.
STEPS = 64
# Error that the test allows in f32, as a share of the largest absolute logit; main.rs says the same.
TOLERANCE = 1e-4
# The lead of the best logit, in multiples of that error.
MARGIN = 10
# Prompts that are tried for such a lead.
PROMPTS_MAX = 200
# Positions of the prompt (multiples of every chunk size that the test takes) and decoded ones whose logits are kept.
PROMPT_STRIDE = 64
DECODE_STRIDE = 4


def load(folder, dtype):
    # The class that config.json names: of those that read images too, some are no AutoModelForCausalLM.
    model_class = getattr(transformers, AutoConfig.from_pretrained(folder).architectures[0])
    model = model_class.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def logits_of(model, tokens):
    """Logits at every position, [tokens, vocab]."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


@torch.no_grad()
def decode(model, prompt):
    """Greedy tokens after the prompt, and the smallest lead of the best logit as a share of the largest logit."""
    tokens, margin, past, step = [], float("inf"), None, torch.tensor([prompt])
    for _ in range(STEPS):
        output = model(step, past_key_values=past, use_cache=True)
        past, logits = output.past_key_values, output.logits[0, -1]
        best, second = torch.topk(logits, 2).values.tolist()
        margin = min(margin, (best - second) / logits.abs().max().item())
        tokens.append(int(logits.argmax()))
        step = torch.tensor([[tokens[-1]]])
    return tokens, margin


def find_prompt(model, length, needed):
    for seed in range(PROMPTS_MAX):
        prompt = random.Random(seed).choices(range(model.config.get_text_config().vocab_size), k=length)
        tokens, margin = decode(model, prompt)
        if margin >= needed:
            return prompt, tokens, margin
    sys.exit(f"none of {PROMPTS_MAX} prompts has a lead of {needed}: take another seed in cases.json")


def saved_config(model):
    """config.json as this transformers writes it."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        return json.loads((Path(folder) / "config.json").read_text())


def make(name, folder, dtype, length):
    exact = dtype == "f32"
    model = load(folder, torch.float32 if exact else torch.float64)
    prompt, generated, margin = find_prompt(model, length, MARGIN * TOLERANCE if exact else 0)
    tokens = prompt + generated[:-1]
    logits = logits_of(model, tokens)
    assert logits[length - 1 :].argmax(-1).tolist() == generated, f"{name}: one pass and many steps disagree"
    positions = list(range(PROMPT_STRIDE - 1, length - 1, PROMPT_STRIDE))
    positions += list(range(length - 1, len(tokens), DECODE_STRIDE))

    native = load(folder, DTYPES[dtype])
    golden = {
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
        "prompt": prompt,
        "generated": generated,
        "margin": margin,
        "positions": positions,
        "config": saved_config(native),
    }
    if not exact:
        error = (logits_of(native, tokens).double() - logits)[positions].abs().max().item()
        golden["transformers_error"] = error
    (GOLDENS / f"{name}.json").write_text(json.dumps(golden) + "\n")
    save_file({"logits": logits[positions].float().contiguous()}, GOLDENS / f"{name}.safetensors")
    distinct = len(set(generated))
    print(f"{name}: margin {margin:.1e}, {distinct} distinct tokens, error {golden.get('transformers_error', 0):.1e}")


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# Shape of the text models that transformers saves.
TEXT = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
}
# Parts that read images: as small as they can be, since only their names count.
VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def with_uneven_norms(model):
    """The model with norms whose weights differ, which fresh ones do not."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def saved_llama():
    return LlamaForCausalLM(
        LlamaConfig(**TEXT, intermediate_size=88, num_hidden_layers=3, rope_parameters=LLAMA3, eos_token_id=[2, 3])
    )


def saved_gemma3():
    """As the models with 4 billion parameters and more: a part that reads images, and linear scaling in layers without
    a window."""
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    text = {**TEXT, "intermediate_size": 48, "num_hidden_layers": 6, "sliding_window": 24, "query_pre_attn_scalar": 24}
    config = Gemma3Config(
        text_config={**text, "rope_parameters": rope},
        vision_config={"model_type": "siglip_vision_model", **VISION},
        mm_tokens_per_image=4,
        image_token_index=127,
        boi_token_index=126,
        eoi_token_index=125,
        eos_token_id=[1, 106],
    )
    model = Gemma3ForConditionalGeneration(config)
    # Small beside what the layers add; else the model would only repeat its last token.
    model.get_input_embeddings().weight.data *= 0.1
    return with_uneven_norms(model)


def saved_mistral3():
    text = {**TEXT, "intermediate_size": 88, "num_hidden_layers": 2, "sliding_window": None, "rms_norm_eps": 1e-5}
    config = Mistral3Config(
        text_config={"model_type": "mistral", **text, "rope_theta": 1000000000.0},
        vision_config={"model_type": "pixtral", "head_dim": 4, **VISION},
        tie_word_embeddings=False,
    )
    return with_uneven_norms(Mistral3ForConditionalGeneration(config))


# Models that transformers itself writes: several files, the spelling of transformers 5.
SAVED = {"saved": saved_llama, "saved-gemma3": saved_gemma3, "saved-mistral3": saved_mistral3}


def make_saved(name):
    torch.manual_seed(13)
    model = SAVED[name]().float()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*"):
        path.unlink()
    model.save_pretrained(folder, max_shard_size="48KB")
    assert (folder / "model.safetensors.index.json").exists()
    make(name, folder, "f32", 147)


def check_tokenizer(folder):
    """Transformers takes the tokenizer and the chat template that random models come with."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Grüße, \U0001f980!\n end"
    ids = tokenizer(text).input_ids
    assert ids == [256, *text.encode()], ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False)
    assert chat == "<|begin|><|user|>Hi<|end|><|assistant|>", chat
    assert AutoConfig.from_pretrained(folder).eos_token_id == tokenizer.eos_token_id


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    GOLDENS.mkdir(exist_ok=True)
    wanted = lambda name: not sys.argv[1:] or name in sys.argv[1:]
    cases = [case for case in json.loads((HERE / "cases.json").read_text()) if wanted(case["name"])]
    with tempfile.TemporaryDirectory() as folder:
        if cases:
            run = ["cargo", "run", "--release", "-p", "tests", "--example", "reference-checkpoints", "--", folder]
            subprocess.run(run, check=True, cwd=HERE)
        for case in cases:
            check_tokenizer(Path(folder) / case["name"])
            make(case["name"], Path(folder) / case["name"], case["dtype"], case["prompt_tokens"])
    for name in filter(wanted, SAVED):
        make_saved(name)


if __name__ == "__main__":
    main()
