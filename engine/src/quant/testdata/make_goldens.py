"""Writes goldens.json: blocks of random bytes in each format, and the numbers that the Python package `gguf` (0.19.0) sees.
It does not read Q8_1 and Q8_K, which are widened here as ggml's `ggml-common.h` defines them: a scale, and integers.

    python engine/src/quant/testdata/make_goldens.py

Needs gguf and numpy.
"""

import json
import pathlib

import gguf
import numpy

BLOCKS = 2
# Bytes of a block, where the scale ends and where the integers are, of formats that the package does not read.
SCALED = {"Q8_1": (36, 2, slice(4, 36)), "Q8_K": (292, 4, slice(4, 260))}
# Where the f16 scales are: random bits there could be infinite.
HALVES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q4_K": [0, 2],
    "Q6_K": [208],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q5_K": [0, 2],
    "Q8_1": [0, 2],
    "Q8_K": [],
}


def golden(generator, name, halves):
    kind = gguf.GGMLQuantizationType[name]
    size = SCALED[name][0] if name in SCALED else gguf.GGML_QUANT_SIZES[kind][1]
    blocks = generator.integers(0, 256, (BLOCKS, size), dtype=numpy.uint8)
    for at in halves:
        scales = generator.normal(0, 0.01, BLOCKS).astype("<f2")
        blocks[:, at : at + 2] = scales.view(numpy.uint8).reshape(BLOCKS, 2)
    if name == "Q8_K":
        blocks[:, :4] = generator.normal(0, 0.01, BLOCKS).astype("<f4").view(numpy.uint8).reshape(BLOCKS, 4)
    if name in SCALED:
        _, end, integers = SCALED[name]
        scales = blocks[:, :end].copy().view(f"<f{end}").astype(numpy.float32)
        numbers = (scales * blocks[:, integers].view(numpy.int8)).reshape(-1)
    else:
        numbers = gguf.quants.dequantize(blocks.reshape(-1), kind).astype(numpy.float32)
    return {"bytes": blocks.tobytes().hex(), "bits": numbers.view(numpy.uint32).tolist()}


def main():
    generator = numpy.random.default_rng(1)
    goldens = {name: golden(generator, name, halves) for name, halves in HALVES.items()}
    text = ",\n".join(f'"{name}": {json.dumps(golden)}' for name, golden in goldens.items())
    (pathlib.Path(__file__).parent / "goldens.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
