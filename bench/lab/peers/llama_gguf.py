"""Writes a Hugging Face directory of the Llama family as GGUF, so that llama.cpp computes the same function.

    bench/lab/peers/install_llama
    target/release/baton model random --shape 125m target/peers/125m
    target/peers/llama.cpp/venv/bin/python bench/lab/peers/llama_gguf.py target/peers/125m target/peers/125m-bf16.gguf [f32|f16|bf16]

The tokenizer must be a byte-level BPE one in tokenizer.json, which is what `baton model random` writes. Quantised files are made
of an unquantised one by `target/peers/llama.cpp/bin/llama-quantize`.

llama.cpp rotates pairs of neighbours in a head where Hugging Face rotates its halves: the rows of the query and key
projections are put into that order, and back by who reads the file.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy
from safetensors import safe_open

FORMATS = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def widened(file, name):
    """A tensor as f32. NumPy has no bfloat16, so its bits are taken as they are."""
    part = file.get_slice(name)
    if part.get_dtype() != "BF16":
        return file.get_tensor(name).astype(numpy.float32)
    raw = raw_tensor(file, name)
    return (raw.astype(numpy.uint32) << 16).view(numpy.float32).reshape(part.get_shape())


def raw_tensor(file, name):
    """The 16-bit words of a tensor, read by the offsets of the file's header."""
    with open(file.path, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        begin, end = json.loads(opened.read(length))[name]["data_offsets"]
        opened.seek(8 + length + begin)
        return numpy.frombuffer(opened.read(end - begin), dtype="<u2")


class Writer(gguf.GGUFWriter):
    """Writes empty lists of strings as well: llama.cpp asks for the list of merges also where there are none."""

    def _pack_val(self, val, vtype, add_vtype, sub_type=None):
        if vtype == gguf.GGUFValueType.ARRAY and len(val) == 0:
            return struct.pack("<IIQ", gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING, 0)
        return super()._pack_val(val, vtype, add_vtype, sub_type)


class File:
    """A safetensors file with its path."""

    def __init__(self, path):
        self.path, self.opened = path, safe_open(path, "numpy")

    def __getattr__(self, name):
        return getattr(self.opened, name)


def neighbours(weight, heads):
    """Rows of a projection, with the halves of each head interleaved."""
    outputs = weight.shape[0]
    return weight.reshape(heads, 2, outputs // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}.{kind}"


def add_model(writer, config):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(theta)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def add_tokenizer(writer, folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    about = json.loads((folder / "tokenizer_config.json").read_text())
    words = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types([gguf.TokenType.CONTROL if word in special else gguf.TokenType.NORMAL for word, _ in words])
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in tokenizer["model"]["merges"]]
    writer.add_key_value(gguf.Keys.Tokenizer.MERGES, merges, gguf.GGUFValueType.ARRAY)
    writer.add_bos_token_id(special[about["bos_token"]])
    writer.add_eos_token_id(special[about["eos_token"]])
    writer.add_add_bos_token(True)
    writer.add_chat_template(about["chat_template"])


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    kind = FORMATS[sys.argv[3] if len(sys.argv) > 3 else "bf16"]
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        sys.exit(f"{folder} is of the family {config['model_type']}: only llama is written")
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    writer = Writer(target, "llama")
    add_model(writer, config)
    add_tokenizer(writer, folder)
    for path in sorted(folder.glob("*.safetensors")):
        file = File(path)
        for name in file.keys():
            tensor = widened(file, name)
            count = heads.get(name.split(".")[-2])
            if count:
                tensor = neighbours(tensor, count)
            # Norms and biases stay f32: llama.cpp asks for it.
            stored = kind if tensor.ndim == 2 else FORMATS["f32"]
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(tensor, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
