"""NVFP4 in NumPy: the twin of nvfp4.h, bit by bit (docs/spec/muse-spark-open.md section 7)."""

import numpy as np

from models.weights import philox

BLOCK = 16
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
# Finite e4m3 magnitudes by their byte, 0x00 .. 0x7E.
E4M3 = np.array(
    [m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:-1],
    dtype=np.float32,
)


def _nearest(table, magnitudes):
    """Index of the nearest entry of an ascending table, ties to the even index, saturating."""
    middles = (table[1:].astype(np.float64) + table[:-1]) / 2
    x = np.asarray(magnitudes, dtype=np.float64)
    below = np.searchsorted(middles, x, side="left")  # a tie stays below
    tie = (below < len(middles)) & (middles[np.minimum(below, len(middles) - 1)] == x)
    return below + (tie & (below % 2 == 1))


def global_scale(amax):
    """fp32 factor of a tensor whose largest magnitude is `amax`."""
    return np.float32(amax) / np.float32(2688)


def quantize(values, scale_2):
    """Codes (one a number, 0..15) and e4m3 scale bytes (one for 16) of float32 values without NaN;
    the last dimension is a multiple of 16. `scale_2` is the tensor's global_scale."""
    values = np.asarray(values, dtype=np.float32)
    scale_2 = np.float32(scale_2)
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)
    amax = np.abs(blocks).max(axis=-1)
    scales = np.maximum(_nearest(E4M3, amax / (np.float32(6) * scale_2)), 1)
    scales = np.where(amax == 0, 0x38, scales).astype(np.uint8)
    scaled = blocks / (E4M3[scales] * scale_2)[..., None]
    codes = _nearest(E2M1, np.abs(scaled)) | (np.signbit(blocks) << 3)
    return codes.astype(np.uint8).reshape(values.shape), scales


def pack(codes):
    """Two codes a byte, the even column in the low half."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def dequantize(codes, scales):
    """code * scale, without the global factor: exact."""
    values = E2M1[codes & 7] * np.repeat(E4M3[scales], BLOCK, axis=-1)
    return np.where(codes & 8, -values, values)


def matrix(seed, name, shape):
    """Made-up weights: philox.matrix quantised with the largest magnitude s = weight_scale(K).
    Returns codes, scales and the global factor."""
    scale_2 = global_scale(philox.weight_scale(shape[-1]))
    return *quantize(philox.matrix(seed, name, shape), scale_2), scale_2
