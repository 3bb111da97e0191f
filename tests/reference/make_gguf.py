"""Makes the files of tests/reference/gguf with the package `gguf`, which is llama.cpp's own.

    venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_gguf.py

* `names.json`: what the tensors of each architecture are called, by their names in Hugging Face checkpoints.
* `mixed.gguf`: a random Llama whose tensors have all number formats that are read, and what transformers computes with
  the same weights, widened by `gguf`.
* `pieces.gguf`: the vocabulary of a small tokenizer that sentencepiece trained, and `pieces.json`: the tokens that
  sentencepiece itself makes of awkward texts.
"""

import io
import json
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "gguf"

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral3": gguf.MODEL_ARCH.MISTRAL3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "granite": gguf.MODEL_ARCH.GRANITE,
}
# The tensors of any family, without `.weight` and `.bias`.
TENSORS = ["model.embed_tokens", "model.norm", "lm_head"] + [
    f"model.layers.0.{part}"
    for part in (
        "input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm "
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.qkv_proj self_attn.o_proj self_attn.q_norm "
        "self_attn.k_norm mlp.gate_proj mlp.up_proj mlp.gate_up_proj mlp.down_proj"
    ).split()
]
TEXTS = [
    "", " ", "   ", "a", " a", "a  b   c", "The rotary embedding of a head.", "Grüße, 🦀!\n end", "\n\n\t tab", "0123456789 3.14",
    "< s > is no token here", "naïve café résumé", "日本語のテキスト", "don't we'll I've", "x" * 40, "▁ a mark", "\u0000 nul", "e\u0301",
    "fn main() { println!(\"hi\"); }", "مرحبا بالعالم", "\r\n\r\n", "the the the the", "trailing ", "\u200b\ufeff",
]


def make_names():
    names = {}
    for name, architecture in ARCHITECTURES.items():
        table = gguf.get_tensor_name_map(architecture, 1)
        found = {tensor: table.get_name(tensor) for tensor in TENSORS}
        names[name] = {tensor: stored for tensor, stored in found.items() if stored}
    (FOLDER / "names.json").write_text(json.dumps(names, indent=1) + "\n")


def random_blocks(rng, kind, shape):
    """Bytes of a matrix of this shape whose numbers are about 1/16."""
    rows, columns = shape
    if kind not in (Kind.Q4_K, Kind.Q6_K):
        return quantize(rng.standard_normal(shape).astype(np.float32) / 16, kind)
    blocks = rows * columns // 256
    d = (rng.uniform(0.5, 1.5, blocks) * (4.2e-4 if kind == Kind.Q4_K else 1.9e-4)).astype(np.float16)
    bytes_of = lambda values: values.reshape(blocks, -1).view(np.uint8)
    integers = lambda count: rng.integers(0, 256, (blocks, count), dtype=np.uint8)
    if kind == Kind.Q4_K:
        parts = [bytes_of(d), bytes_of((7.5 * d).astype(np.float16)), integers(12), integers(128)]
    else:
        scales = rng.integers(-31, 32, (blocks, 16), dtype=np.int8)
        parts = [integers(128), integers(64), scales.view(np.uint8), bytes_of(d)]
    return np.concatenate(parts, axis=1).reshape(rows, -1)


def without_interleaving(rows, heads):
    """Undoes what llama.cpp's converter does to the rows of queries and keys (`LlamaModel.permute`)."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


@torch.no_grad()
def make_mixed():
    rng = np.random.default_rng(7)
    config = LlamaConfig(
        vocab_size=96, hidden_size=256, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5,
    )  # fmt: skip
    matrices = {
        "token_embd": ("model.embed_tokens", Kind.Q6_K, (96, 256)),
        "output": ("lm_head", Kind.Q4_K, (96, 256)),
        "blk.0.attn_q": ("model.layers.0.self_attn.q_proj", Kind.Q4_K, (64, 256)),
        "blk.0.attn_k": ("model.layers.0.self_attn.k_proj", Kind.Q8_0, (32, 256)),
        "blk.0.attn_v": ("model.layers.0.self_attn.v_proj", Kind.Q6_K, (32, 256)),
        "blk.0.attn_output": ("model.layers.0.self_attn.o_proj", Kind.F16, (256, 64)),
        "blk.0.ffn_gate": ("model.layers.0.mlp.gate_proj", Kind.Q4_K, (64, 256)),
        "blk.0.ffn_up": ("model.layers.0.mlp.up_proj", Kind.BF16, (64, 256)),
        "blk.0.ffn_down": ("model.layers.0.mlp.down_proj", Kind.Q8_0, (256, 64)),
    }
    norms = {
        "output_norm": "model.norm",
        "blk.0.attn_norm": "model.layers.0.input_layernorm",
        "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
    }
    writer = gguf.GGUFWriter(FOLDER / "mixed.gguf", "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    weights = {}
    for stored, (name, kind, shape) in matrices.items():
        data = random_blocks(rng, kind, shape)
        writer.add_tensor(f"{stored}.weight", data, raw_dtype=kind)
        widened = dequantize(data, kind).reshape(shape)
        if stored.endswith(("attn_q", "attn_k")):
            widened = without_interleaving(widened, 4 if stored.endswith("q") else 2)
        weights[f"{name}.weight"] = torch.tensor(widened)
    for stored, name in norms.items():
        gain = 4 if stored == "output_norm" else 1
        data = (gain + 0.1 * rng.standard_normal(256)).astype(np.float32)
        writer.add_tensor(f"{stored}.weight", data)
        weights[f"{name}.weight"] = torch.tensor(data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict(weights)
    prompt = rng.integers(0, 96, 70).tolist()
    logits = model(torch.tensor([prompt]), use_cache=False).logits[0]
    (FOLDER / "mixed.json").write_text(json.dumps({"prompt": prompt}) + "\n")
    save_file({"logits": logits[-1:].contiguous()}, FOLDER / "mixed.safetensors")


def make_pieces():
    text = [line for path in sorted((HERE / "../../docs").glob("*.md")) for line in path.read_text().splitlines()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, model_type="bpe", vocab_size=600, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, num_threads=1,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = []
    for token in range(len(pieces)):
        if pieces.IsUnknown(token):
            kinds.append(gguf.TokenType.UNKNOWN)
        elif pieces.IsControl(token):
            kinds.append(gguf.TokenType.CONTROL)
        elif pieces.IsByte(token):
            kinds.append(gguf.TokenType.BYTE)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    writer = gguf.GGUFWriter(FOLDER / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.IdToPiece(token) for token in range(len(pieces))])
    writer.add_token_scores([pieces.GetScore(token) for token in range(len(pieces))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    writer.add_unk_token_id(pieces.unk_id())
    writer.add_chat_template("{{ bos_token }}{% for message in messages %}[{{ message['content'] }}]{% endfor %}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    cases = [{"text": text, "tokens": pieces.EncodeAsIds(text)} for text in TEXTS]
    (FOLDER / "pieces.json").write_text(json.dumps(cases, indent=1) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    make_names()
    make_mixed()
    make_pieces()


if __name__ == "__main__":
    main()
