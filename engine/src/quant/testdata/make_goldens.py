"""Writes goldens.json: blocks of random bytes in each format, and the numbers that the Python package `gguf` (0.19.0) sees.

    python engine/src/quant/testdata/make_goldens.py

Needs gguf and numpy.
"""

import json
import pathlib

import gguf
import numpy

BLOCKS = 2
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
}


def golden(generator, name, halves):
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = generator.integers(0, 256, (BLOCKS, size), dtype=numpy.uint8)
    for at in halves:
        scales = generator.normal(0, 0.01, BLOCKS).astype("<f2")
        blocks[:, at : at + 2] = scales.view(numpy.uint8).reshape(BLOCKS, 2)
    numbers = gguf.quants.dequantize(blocks.reshape(-1), kind).astype(numpy.float32)
    return {"bytes": blocks.tobytes().hex(), "bits": numbers.view(numpy.uint32).tolist()}


def main():
    generator = numpy.random.default_rng(1)
    goldens = {name: golden(generator, name, halves) for name, halves in HALVES.items()}
    text = ",\n".join(f'"{name}": {json.dumps(golden)}' for name, golden in goldens.items())
    (pathlib.Path(__file__).parent / "goldens.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
