"""Makes the models of tests/reference/quantised: a tiny Llama, quantised in the ways that safetensors files have.

    venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_quantised.py [NAME ...]

Each folder has a model (config.json, model.safetensors) and a golden:

* some rows of each quantised matrix, dequantised by other code: `compressed-tensors` for its formats, which it also
  packs, and for AWQ, which is packed here as AutoAWQ does it (awq/utils/packing_utils.py); transformers and
  `compressed-tensors`, which agree, for fp8; AutoGPTQ for GPTQ, which it also packs. Of AutoGPTQ one file is fetched,
  since its package needs a GPU's libraries to be installed;
* what transformers computes in f32 with all dequantised weights: greedy tokens after a prompt, and logits. Of the
  prompts where the best logit leads the second by MARGIN at each step it is the one that the most different tokens
  follow.
"""

import functools
import hashlib
import io
import json
import sys
import tarfile
import types
import urllib.request
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

FOLDER = Path(__file__).resolve().parent / "quantised"
HIDDEN, FFN, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 64, 128, 64, 2, 1, 32
MODULES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (FFN, HIDDEN),
    "mlp.up_proj": (FFN, HIDDEN),
    "mlp.down_proj": (HIDDEN, FFN),
}
AUTO_GPTQ = (
    "https://files.pythonhosted.org/packages/90/e5/b22697903982284fe284568fb2663a2196694a8eee637f5cf4ccfe435a38/"
    "auto_gptq-0.7.1.tar.gz"
)
AUTO_GPTQ_SHA256 = "5c61ad380e9b4c603757c254765e9083a90a820cd0aff1b5d2c6f7fd96c85e80"
AUTO_GPTQ_FILE = "auto_gptq-0.7.1/auto_gptq/nn_modules/qlinear/qlinear_cuda.py"
# Of each matrix a golden has every seventh row.
ROW_STRIDE = 7
PROMPT, STEPS, PROMPTS = 40, 32, 4096
# Lead of the best logit, as a share of the largest.
MARGIN = 0.03


# --- GPTQ and AWQ


def min_max_groups(weight, groups, bits, symmetric):
    """Scales in f16 and zero points, [outputs, groups], by the group of each input."""
    count = int(groups.max()) + 1
    parts = [weight[:, groups == group] for group in range(count)]
    low = torch.stack([part.amin(1) for part in parts], 1).clamp(max=0)
    high = torch.stack([part.amax(1) for part in parts], 1).clamp(min=0)
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scale = ((high - low) / (2**bits - 1)).half()
    zero = torch.full_like(low, 2 ** (bits - 1)) if symmetric else (-low / scale.float()).round()
    return scale, zero.clamp(0, 2**bits - 1).int()


def pack(values, bits):
    """[lines, integers] as [lines, words]: a stream of bits in each line."""
    lines, count = values.shape
    words = torch.zeros(lines, count * bits // 32, dtype=torch.int64)
    for index in range(count):
        word, shift = divmod(index * bits, 32)
        value = values[:, index].long() << shift
        words[:, word] |= value & 0xFFFFFFFF
        if shift + bits > 32:
            words[:, word + 1] |= value >> 32
    return torch.where(words >= 2**31, words - 2**32, words).int()


def integers(weight, groups, scale, zero, bits):
    q = (weight / scale.float()[:, groups]).round() + zero[:, groups]
    return q.clamp(0, 2**bits - 1).int()


def widened(q, groups, scale, zero):
    return (q - zero[:, groups]).float() * scale.float()[:, groups]


@functools.cache
def auto_gptq():
    """AutoGPTQ's layer, which computes with torch alone where there is no GPU."""
    source = urllib.request.urlopen(AUTO_GPTQ).read()
    assert hashlib.sha256(source).hexdigest() == AUTO_GPTQ_SHA256
    with tarfile.open(fileobj=io.BytesIO(source)) as files:
        code = files.extractfile(AUTO_GPTQ_FILE).read()
    module = types.ModuleType("qlinear_cuda")
    exec(compile(code, AUTO_GPTQ_FILE, "exec"), module.__dict__)
    return module.QuantLinear


def gptq(weight, bits, size, symmetric, order, first):
    """Tensors of a module and its weights. `first`: the first version, which stores zero points one too small."""
    groups = torch.arange(weight.shape[1]) // size
    if order:
        groups = groups[torch.randperm(len(groups))]
    scale, zero = min_max_groups(weight, groups, bits, symmetric)
    assert zero.min() > 0, "the first version cannot say 0"
    linear = types.SimpleNamespace(bias=None)
    linear.weight = widened(integers(weight, groups, scale, zero, bits), groups, scale, zero)
    layer = auto_gptq()(bits, size, *reversed(weight.shape), bias=False, weight_dtype=torch.float32)
    layer.pack(linear, scale.float(), zero.float(), groups.int())
    dequantised = layer(torch.eye(weight.shape[1])).T.contiguous()
    assert torch.equal(dequantised, linear.weight)
    parts = {
        "qweight": layer.qweight,
        "qzeros": layer.qzeros if first else pack(zero.T, bits),
        "scales": scale.T.contiguous(),
        "g_idx": groups.int(),
    }
    return parts, dequantised


def awq(weight, size):
    groups = torch.arange(weight.shape[1]) // size
    scale, zero = min_max_groups(weight, groups, 4, False)
    q = integers(weight, groups, scale, zero, 4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    reordered = lambda rows: rows.reshape(rows.shape[0], -1, 8)[:, :, order].reshape(rows.shape)
    parts = {"qweight": pack(reordered(q.T), 4), "qzeros": pack(reordered(zero.T), 4), "scales": scale.T.contiguous()}
    read = AutoAWQConverter(group_size=size)._convert_gemm_module(parts["qweight"], parts["scales"], parts["qzeros"])
    args = QuantizationArgs(num_bits=4, strategy="group", group_size=size, symmetric=False)
    return parts, dequantize(x_q=read[0], scale=read[1].float(), zero_point=read[2], args=args)


# --- compressed-tensors


def ranges(weight, args):
    """Smallest and largest numbers that share a scale, of the shape of the scales."""
    rows, columns = weight.shape
    if args.strategy == "tensor":
        return weight.amin().reshape(1), weight.amax().reshape(1)
    if args.strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if args.strategy == "group":
        parts = weight.reshape(rows, -1, args.group_size)
        return parts.amin(2), parts.amax(2)
    height, width = args.block_structure
    padded = torch.nn.functional.pad(weight, (0, -columns % width, 0, -rows % height))
    parts = padded.reshape(padded.shape[0] // height, height, padded.shape[1] // width, width)
    return parts.amin((1, 3)), parts.amax((1, 3))


def compressed(weight, form, scale_dtype=torch.bfloat16, **args):
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    scale, zero = calculate_qparams(*ranges(weight, args), args)
    state = {"weight": weight.to(scale_dtype), "weight_scale": scale.to(scale_dtype)}
    if not args.symmetric:
        state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(form)
    parts = compressor.compress(state, scheme)
    dequantised = compressor.decompress(parts, scheme)["weight"]
    return parts, dequantised


def compressed_with_order(weight):
    """As versions before 0.18 stored activation ordering: groups are not consecutive, `weight_g_idx` names them."""
    args = QuantizationArgs(num_bits=4, strategy="group", group_size=32, symmetric=True)
    groups = torch.arange(weight.shape[1]) // 32
    groups = groups[torch.randperm(len(groups))]
    order = torch.argsort(groups)
    back = torch.argsort(order)
    sorted_weight = weight[:, order]
    scale, zero = calculate_qparams(*ranges(sorted_weight, args), args)
    scale = scale.bfloat16()
    q = quantize(x=sorted_weight, scale=scale, zero_point=zero, args=args, dtype=torch.int8)
    parts = {
        "weight_packed": pack_to_int32(q[:, back].contiguous(), 4),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape),
        "weight_g_idx": groups.int(),
    }
    return parts, dequantize(x_q=q, scale=scale, zero_point=zero, args=args)[:, back].contiguous()


# --- fp8 without compressed-tensors


def fp8(weight, height, width, end):
    rows, columns = weight.shape
    largest = weight.abs().reshape(rows // height, height, columns // width, width).amax((1, 3))
    scale = largest / 448
    spread = scale.repeat_interleave(height, 0).repeat_interleave(width, 1)
    q = (weight / spread).to(torch.float8_e4m3fn)
    dequantised = Fp8Dequantize(None)._dequantize_one(q, scale, output_dtype=torch.float32)
    again = FP8BlockDequantizer(weight_block_size=(height, width), dtype=torch.float32)
    assert torch.equal(again._create_dequantized_weight(q, scale), dequantised)
    parts = {"weight": q, end: scale.reshape(()) if scale.numel() == 1 else scale}
    # What is said of activations is not for weights.
    parts["input_scale"] = torch.tensor(0.5)
    return parts, dequantised


# --- cases: the dtype of what stays plain, quantization_config, and a function from a module to its tensors


def config_group(targets, form, **args):
    return {"targets": targets, "format": form, "weights": QuantizationArgs(**args).model_dump()}


def compressed_config(form, groups, **more):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]} | more


# Modules that are plain beside quantised ones which are multiplied with the same activations.
PLAIN = ["self_attn.q_proj", "mlp.up_proj"]
ATTENTION, GATE_UP = ["re:.*self_attn.*"], ["re:.*gate_proj$", "re:.*up_proj$"]
INT4 = dict(num_bits=4, strategy="group", group_size=32, symmetric=False)
INT8_CHANNEL = dict(num_bits=8, strategy="channel", symmetric=True)
FP8 = dict(num_bits=8, type="float", symmetric=True)
FP8_BLOCK = FP8 | dict(strategy="block", block_structure=[24, 48])
BITS = {"q_proj": 2, "k_proj": 3, "v_proj": 4, "o_proj": 8, "gate_proj": 2, "up_proj": 3, "down_proj": 8}


def by_part(attention, gate_up, down):
    def make(name, weight):
        part = attention if "self_attn" in name else down if "down" in name else gate_up
        return part(name, weight)

    return make


CASES = {
    "gptq": (
        torch.float16,
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False},
        lambda name, weight: gptq(weight, 4, 32, True, False, True),
    ),
    "gptq-order": (
        torch.float16,
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True}
        | {"checkpoint_format": "gptq_v2"},
        lambda name, weight: gptq(weight, 4, 32, False, True, False),
    ),
    "gptq-bits": (
        torch.float16,
        {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False, "checkpoint_format": "gptq"}
        | {"dynamic": {f"+:.*{name}": {"bits": bits} for name, bits in BITS.items()}},
        lambda name, weight: gptq(weight, BITS[name.split(".")[-1]], 64, "8" in name or "o_proj" in name, False, True),
    ),
    "awq": (
        torch.float16,
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
        lambda name, weight: awq(weight, 64),
    ),
    "compressed-mixed": (
        torch.bfloat16,
        compressed_config(
            "mixed-precision",
            {
                "group_0": config_group(ATTENTION, "pack-quantized", **INT4),
                "group_1": config_group(GATE_UP, "pack-quantized", **INT8_CHANNEL),
            },
            ignore=["lm_head", "model.layers.0.mlp.down_proj"],
        ),
        by_part(
            lambda name, weight: compressed(weight, "pack-quantized", **INT4),
            lambda name, weight: compressed(weight, "pack-quantized", **INT8_CHANNEL),
            lambda name, weight: ({"weight": weight.bfloat16()}, weight.bfloat16()),
        ),
    ),
    "compressed-plain": (
        torch.bfloat16,
        compressed_config(
            "pack-quantized",
            {"group_0": config_group(["Linear"], None, **INT4)},
            ignore=["lm_head", *(f"model.layers.0.{module}" for module in PLAIN)],
        ),
        lambda name, weight: ({"weight": weight.bfloat16()}, weight.bfloat16())
        if name in PLAIN
        else compressed(weight, "pack-quantized", **INT4),
    ),
    "compressed-order": (
        torch.bfloat16,
        compressed_config(
            "pack-quantized",
            {"group_0": config_group(["Linear"], None, num_bits=4, strategy="group", group_size=32, symmetric=True)},
        ),
        lambda name, weight: compressed_with_order(weight),
    ),
    "compressed-int8": (
        torch.bfloat16,
        compressed_config(
            "int-quantized",
            {
                "group_0": config_group(ATTENTION, None, **INT8_CHANNEL),
                "group_1": config_group(GATE_UP, None, num_bits=8, strategy="tensor", symmetric=False),
                "group_2": config_group(["re:.*down_proj"], None, num_bits=8, strategy="group", group_size=64),
            },
        ),
        by_part(
            lambda name, weight: compressed(weight, "int-quantized", **INT8_CHANNEL),
            lambda name, weight: compressed(weight, "int-quantized", num_bits=8, strategy="tensor", symmetric=False),
            lambda name, weight: compressed(weight, "int-quantized", num_bits=8, strategy="group", group_size=64),
        ),
    ),
    "compressed-fp8": (
        torch.bfloat16,
        compressed_config(
            "float-quantized",
            {
                "group_0": config_group(ATTENTION, None, strategy="channel", **FP8),
                "group_1": config_group(GATE_UP, None, strategy="tensor", **FP8),
                "group_2": config_group(["re:.*down_proj"], None, **FP8_BLOCK),
            },
        ),
        by_part(
            lambda name, weight: compressed(weight, "float-quantized", strategy="channel", **FP8),
            lambda name, weight: compressed(weight, "float-quantized", torch.float32, strategy="tensor", **FP8),
            lambda name, weight: compressed(weight, "float-quantized", torch.float32, **FP8_BLOCK),
        ),
    ),
    "fp8": (
        torch.bfloat16,
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 64]},
        lambda name, weight: fp8(weight, 32, 64, "weight_scale_inv"),
    ),
    "modelopt": (
        torch.bfloat16,
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "ignore": ["lm_head"]},
        lambda name, weight: fp8(weight, *weight.shape, "weight_scale"),
    ),
}


# --- the models


@torch.no_grad()
def decode(model, prompts):
    """Greedy tokens after each prompt, and each one's smallest lead of the best logit."""
    tokens, margins, past, step = [], torch.full((len(prompts),), float("inf")), None, prompts
    for _ in range(STEPS):
        output = model(step, past_key_values=past, use_cache=True)
        past, logits = output.past_key_values, output.logits[:, -1]
        best = torch.topk(logits, 2).values
        margins = torch.minimum(margins, (best[:, 0] - best[:, 1]) / logits.abs().amax(1))
        step = logits.argmax(1, keepdim=True)
        tokens.append(step)
    return torch.cat(tokens, 1), margins


@torch.no_grad()
def make(name):
    dtype, quantisation, quantise = CASES[name]
    torch.manual_seed(22)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=256, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    stored = {
        "model.embed_tokens.weight": torch.randn(VOCAB, HIDDEN).to(dtype),
        "lm_head.weight": (torch.randn(VOCAB, HIDDEN) / 8).to(dtype),
        "model.norm.weight": (1 + 0.1 * torch.randn(HIDDEN)).to(dtype),
        "model.layers.0.input_layernorm.weight": (1 + 0.1 * torch.randn(HIDDEN)).to(dtype),
        "model.layers.0.post_attention_layernorm.weight": (1 + 0.1 * torch.randn(HIDDEN)).to(dtype),
    }
    weights = {key: tensor.float() for key, tensor in stored.items()}
    golden = {}
    for module, shape in MODULES.items():
        key = f"model.layers.0.{module}"
        parts, dequantised = quantise(module, torch.randn(shape) / shape[1] ** 0.5)
        assert dequantised.shape == shape
        stored |= {f"{key}.{part}": tensor for part, tensor in parts.items()}
        weights[f"{key}.weight"] = dequantised.float()
        golden[f"{key}.weight"] = dequantised[::ROW_STRIDE].contiguous()

    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict(weights)
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(0, VOCAB, (PROMPTS, PROMPT), generator=generator)
    generated, margins = decode(model, prompts)
    distinct = [len(set(tokens)) if margin >= MARGIN else 0 for tokens, margin in zip(generated.tolist(), margins)]
    best = distinct.index(max(distinct))
    assert distinct[best] > 0, f"{name}: no prompt has a lead of {MARGIN}, the best has {margins.max()}"
    tokens = torch.cat([prompts[best], generated[best]])[:-1]
    logits = model(tokens[None], use_cache=False).logits[0]
    assert logits[PROMPT - 1 :].argmax(1).tolist() == generated[best].tolist()

    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    config_json = config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": str(dtype).split(".")[-1]}
    config_json |= {"quantization_config": quantisation}
    config_json = {key: value for key, value in config_json.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config_json, indent=1) + "\n")
    save_file({key: tensor.contiguous() for key, tensor in stored.items()}, folder / "model.safetensors")
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    said = {"made_with": made_with, "prompt": prompts[best].tolist(), "generated": generated[best].tolist()}
    (folder / "golden.json").write_text(json.dumps(said | {"margin": float(margins[best])}) + "\n")
    save_file(golden | {"logits": logits[PROMPT - 1 :: 4].contiguous()}, folder / "golden.safetensors")
    print(f"{name}: margin {margins[best]:.3f}, {distinct[best]} distinct tokens")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
