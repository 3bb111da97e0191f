"""Makes the files of tests/reference/formats: one small model in every number format of GGUF that is read.

    venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_formats.py

All files hold the same random Llama, written by the package `gguf`, which is llama.cpp's own. It quantises Q4_0, Q4_1,
Q5_0, Q5_1 and Q8_0; the other formats are packed here, simply and not as well as llama.cpp does, and `gguf` says what
they mean. It knows no Q8_1 (blocks of another size) and no Q8_K: what these mean stands in ggml's `ggml-common.h`.

`goldens.json` has, for each format, what transformers decodes greedily with the widened weights (see greedy.py), and the
largest logit. The prompt is the first of many random ones whose leads are all at least
LEAD_MIN of the largest logit: else rounding would decide which token comes.
"""

import json
from pathlib import Path

import gguf
import greedy
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "formats"

KINDS = [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q8_1]
KINDS += [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.Q8_K]
# Numbers and bytes of a block, as ggml has them. The package has 40 bytes for Q8_1, as ggml once did.
gguf.GGML_QUANT_SIZES[Kind.Q8_1] = (32, 36)

VOCAB, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 64, 256, 32, 2, 1, 16
CONFIG = LlamaConfig(
    vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=512, rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)  # fmt: skip
MATRICES = {
    "token_embd": ("model.embed_tokens", (VOCAB, HIDDEN)),
    "output": ("lm_head", (VOCAB, HIDDEN)),
    "blk.0.attn_q": ("model.layers.0.self_attn.q_proj", (HEADS * HEAD_DIM, HIDDEN)),
    "blk.0.attn_k": ("model.layers.0.self_attn.k_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
    "blk.0.attn_v": ("model.layers.0.self_attn.v_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
    "blk.0.attn_output": ("model.layers.0.self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)),
    "blk.0.ffn_gate": ("model.layers.0.mlp.gate_proj", (FFN, HIDDEN)),
    "blk.0.ffn_up": ("model.layers.0.mlp.up_proj", (FFN, HIDDEN)),
    "blk.0.ffn_down": ("model.layers.0.mlp.down_proj", (HIDDEN, FFN)),
}
NORMS = {
    "output_norm": "model.norm",
    "blk.0.attn_norm": "model.layers.0.input_layernorm",
    "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
}

# Tokens of a prompt, and those that are decoded.
PROMPT, STEPS = 20, 32
# The smallest lead of the best logit, as a share of the largest: more than 8 bits of activations cost; see formats.rs.
LEAD_MIN = 0.03
# Prompts that are tried for such leads, and how many at once.
PROMPTS_MAX, BATCH = 65536, 512


def halves(numbers):
    """One f16 for each block, as bytes."""
    return numbers.astype("<f2").reshape(-1, 1).view(np.uint8)


def in_steps(numbers, step):
    """Numbers in steps of this size; 0 where the step is 0."""
    return np.round(np.divide(numbers, step, out=np.zeros_like(numbers), where=step != 0))


def offset_parts(blocks, part, q_max, scale_max):
    """Blocks of 256 as `d * scale * q - dmin * min`: d, dmin, the scales and minima of the parts, and the integers."""
    parts = blocks.reshape(len(blocks), -1, part)
    low, high = np.minimum(parts.min(-1), 0), parts.max(-1)
    scales, mins = (high - low) / q_max, -low
    d, dmin = scales.max(-1) / scale_max, mins.max(-1) / scale_max
    scales, mins = in_steps(scales, d[:, None]), in_steps(mins, dmin[:, None])
    steps = (d[:, None] * scales)[:, :, None]
    q = in_steps(parts + (dmin[:, None] * mins)[:, :, None], np.broadcast_to(steps, parts.shape))
    return d, dmin, scales.astype(np.uint8), mins.astype(np.uint8), q.clip(0, q_max).astype(np.uint8)


def signed_parts(blocks, q_min, scale_max):
    """Blocks of 256 as `d * scale * q`, in parts of 16: d, the scales and the integers."""
    parts = blocks.reshape(len(blocks), 16, 16)
    largest = np.take_along_axis(parts, np.abs(parts).argmax(-1)[:, :, None], -1)[:, :, 0]
    # The number of the largest magnitude becomes the smallest integer.
    scales = largest / q_min
    d = np.abs(scales).max(-1) / scale_max
    scales = in_steps(scales, d[:, None])
    q = in_steps(parts, np.broadcast_to((d[:, None] * scales)[:, :, None], parts.shape))
    return d, scales.astype(np.int8), q.clip(q_min, -q_min - 1).astype(np.int8)


def interleave(q, bits, run):
    """Integers of so many bits, `run` of them beside each other in the lowest bits of bytes, the next ones above them."""
    q = q.reshape(len(q), -1, 8 // bits, run).astype(np.uint8)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits).reshape(1, 1, -1, 1)
    return np.bitwise_or.reduce(q << shifts, axis=2).reshape(len(q), -1)


def six_bits(scales, mins):
    """The scales and minima of Q4_K and Q5_K: 8 of each, in 12 bytes."""
    high = lambda x: (x[:, 4:] >> 4) << 6
    return np.hstack([scales[:, :4] | high(scales), mins[:, :4] | high(mins), (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)])


def pack(blocks, kind):
    """Blocks as bytes, in the formats that `gguf` does not write."""
    if kind in (Kind.Q8_1, Kind.Q8_K):
        d = np.abs(blocks).max(-1, keepdims=True) / 127
        d = d.astype(np.float16).astype(np.float32) if kind == Kind.Q8_1 else d.astype(np.float32)
        q = in_steps(blocks, np.broadcast_to(d, blocks.shape)).clip(-127, 127).astype(np.int8)
        if kind == Kind.Q8_1:
            return np.hstack([halves(d), halves(d[:, 0] * q.sum(-1)), q.view(np.uint8)])
        sums = q.reshape(len(q), 16, 16).sum(-1).astype("<i2")
        return np.hstack([d.view(np.uint8), q.view(np.uint8), sums.view(np.uint8)])
    if kind == Kind.Q2_K:
        d, dmin, scales, mins, q = offset_parts(blocks, 16, 3, 15)
        return np.hstack([scales | (mins << 4), interleave(q, 2, 32), halves(d), halves(dmin)])
    if kind in (Kind.Q4_K, Kind.Q5_K):
        d, dmin, scales, mins, q = offset_parts(blocks, 32, 15 if kind == Kind.Q4_K else 31, 63)
        high = [] if kind == Kind.Q4_K else [interleave(q >> 4, 1, 32)]
        return np.hstack([halves(d), halves(dmin), six_bits(scales, mins), *high, interleave(q & 15, 4, 32)])
    if kind == Kind.Q6_K:
        d, scales, q = signed_parts(blocks, -32, 127)
        q = (q + 32).astype(np.uint8)
        return np.hstack([interleave(q & 15, 4, 64), interleave(q >> 4, 2, 32), scales.view(np.uint8), halves(d)])
    d, scales, q = signed_parts(blocks, -4, 31)
    q, scales = (q + 4).astype(np.uint8), (scales + 32).astype(np.uint8)
    scales = np.hstack([interleave(scales & 15, 4, 8), interleave(scales >> 4, 2, 4)])
    return np.hstack([interleave(q >> 2, 1, 32), interleave(q & 3, 2, 32), scales, halves(d)])


def widen(data, kind):
    """What the bytes of blocks mean, [blocks, numbers]."""
    if kind == Kind.Q8_1:
        return data[:, :2].copy().view("<f2").astype(np.float32) * data[:, 4:].view(np.int8)
    if kind == Kind.Q8_K:
        return data[:, :4].copy().view("<f4") * data[:, 4:260].view(np.int8)
    return dequantize(data, kind)


def stored(weights, kind):
    """The matrix in this format: the format, its bytes, and the numbers that they mean. Rows that are no whole blocks are Q8_0."""
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    if weights.shape[1] % numbers:
        return stored(weights, Kind.Q8_0)
    by_gguf = kind in (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
    blocks = weights.reshape(-1, numbers)
    data = quantize(blocks, kind) if by_gguf else pack(blocks, kind)
    assert data.shape == (len(blocks), size), (kind, data.shape)
    widened = widen(data, kind).reshape(weights.shape)
    error = np.sqrt(np.mean((widened - weights) ** 2) / np.mean(weights**2))
    assert error < 0.5, f"{kind.name}: packed wrongly, error {error}"
    return kind, data.reshape(weights.shape[0], -1), widened


def without_interleaving(rows, heads):
    """Undoes what llama.cpp's converter does to the rows of queries and keys (`LlamaModel.permute`)."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write(kind, matrices, norms):
    """Writes the file and returns the weights as transformers takes them."""
    writer = gguf.GGUFWriter(FOLDER / f"{kind.name}.gguf", "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    weights = {}
    for name, (known, _) in MATRICES.items():
        found, data, widened = stored(matrices[name], kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=found)
        if name.endswith(("attn_q", "attn_k")):
            widened = without_interleaving(widened, HEADS if name.endswith("q") else KV_HEADS)
        weights[f"{known}.weight"] = torch.tensor(widened)
    for name, known in NORMS.items():
        writer.add_tensor(f"{name}.weight", norms[name])
        weights[f"{known}.weight"] = torch.tensor(norms[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@torch.no_grad()
def decode(model, prompts):
    """Greedy tokens after each prompt, [prompts, STEPS]; the smallest leads as shares of the largest logits, which come last."""
    steps, past, inputs = [], None, prompts
    for _ in range(STEPS):
        output = model(inputs, past_key_values=past, use_cache=True)
        past, logits = output.past_key_values, output.logits[:, -1]
        token, _, lead = greedy.best(logits)
        steps.append((token, lead, logits.abs().amax(-1)))
        inputs = token[:, None]
    tokens, leads, largest = [torch.stack(column, dim=1) for column in zip(*steps)]
    return tokens, leads.amin(1) / largest.amax(1), largest.amax(1)


def golden(kind, model, rng):
    for _ in range(0, PROMPTS_MAX, BATCH):
        prompts = torch.tensor(rng.integers(0, VOCAB, (BATCH, PROMPT)))
        for prompt, answer, lead, largest in zip(prompts, *decode(model, prompts)):
            answer = answer.tolist()
            # Texts that go round in a short circle show little.
            if lead >= LEAD_MIN and len(set(answer)) >= STEPS // 3:
                print(f"{kind.name}: smallest lead {lead:.3f}, {len(set(answer))} distinct tokens")
                return {**greedy.golden(model, prompt.tolist(), answer), "largest": largest.item()}
    raise SystemExit(f"{kind.name}: none of {PROMPTS_MAX} prompts has such leads")


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(11)
    matrices = {name: rng.standard_normal(shape).astype(np.float32) / 16 for name, (_, shape) in MATRICES.items()}
    norms = {name: (1 + 0.1 * rng.standard_normal(HIDDEN)).astype(np.float32) for name in NORMS}
    goldens = {}
    for kind in KINDS:
        model = LlamaForCausalLM(CONFIG).float().eval()
        model.load_state_dict(write(kind, matrices, norms))
        goldens[kind.name] = golden(kind, model, np.random.default_rng(1))
    text = ",\n".join(f'"{name}": {json.dumps(golden)}' for name, golden in goldens.items())
    (FOLDER / "goldens.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
