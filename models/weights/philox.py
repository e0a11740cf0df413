"""Deterministic weights in NumPy: the twin of philox.h, bit by bit (DESIGN section 5)."""

import numpy as np

GAIN_SCALE = np.float32(2.0**-4)
KV_SCALE = np.float32(1.0)
_MASK = np.uint64(0xFFFFFFFF)


def fnv1a32(name):
    """FNV-1a, 32 bits, of the UTF-8 bytes of `name`."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def philox4x32(key, counter):
    """Ten rounds of Philox4x32. key: two ints; counter: four uint64 arrays holding 32 bits each."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def hash_word(seed, name, index):
    """Output word 0 for each element index (uint64 array)."""
    index = np.asarray(index, dtype=np.uint64)
    zero = np.zeros_like(index)
    counter = (index & _MASK, index >> np.uint64(32), zero, zero)
    return philox4x32((seed, fnv1a32(name)), counter)[0]


def r16(values):
    """float32 values rounded to the nearest bf16, ties to even, still as float32 (no NaN)."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def weight_scale(k):
    """2^round(log2 sqrt(3 / k)), halves away from zero, as a float32."""
    if k == 1:
        return np.float32(2.0)
    e, bound = 0, 6
    while k >= bound:
        e, bound = e + 1, bound * 4
    return np.float32(2.0**-e)


def weight_values(seed, name, index, scale):
    """r16((2u - 1) * scale) for each element index, as float32."""
    u = (hash_word(seed, name, index) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return r16(((2.0 * u - 1.0) * float(scale)).astype(np.float32))


def matrix(seed, name, shape):
    """A whole weight matrix; the last dimension is the contracted one."""
    values = weight_values(seed, name, np.arange(np.prod(shape)), weight_scale(shape[-1]))
    return values.reshape(shape)


def gain(seed, name, width):
    """A norm gain, r16(1 + w)."""
    w = weight_values(seed, name, np.arange(width), GAIN_SCALE)
    return r16(np.float32(1.0) + w)


def kv(seed, layer, which, sequence, positions, kv_heads, head_dim):
    """Made-up KV contents of positions 0 .. positions-1: [positions, kv_heads, head_dim]; `which` is
    "k" or "v"."""
    first = (sequence << 20) * kv_heads * head_dim
    index = np.arange(positions * kv_heads * head_dim, dtype=np.uint64) + np.uint64(first)
    values = weight_values(seed, f"kv.{layer}.{which}", index, KV_SCALE)
    return values.reshape(positions, kv_heads, head_dim)


def tokens(seed, sequence, positions, vocab):
    """Made-up tokens of positions 0 .. positions-1 of a sequence."""
    index = np.arange(positions, dtype=np.uint64) + np.uint64(sequence << 20)
    return (hash_word(seed, "tokens", index) % np.uint64(vocab)).astype(np.int64)
