"""The NumPy and the C++ counter hash agree bit by bit, at small and at huge indices."""

import os
import subprocess

import numpy as np
import pytest

from models.weights import philox

DUMP = os.path.join(os.path.dirname(__file__), "dump_weights")


@pytest.mark.parametrize(
    "seed, name, columns, first, stride",
    [
        (1, "model.embed_tokens.weight", 2048, 0, 1),
        (7, "model.layers.0.self_attn.q_proj.weight", 1536, 2**32 - 500, 1),
        (0xFFFFFFFF, "model.layers.47.mlp.experts.127.down_proj.weight", 768, 2**40 + 3, 1),
        (0, "lm_head.weight", 8192, 0, 2**33 + 12345),
        (3, "kv.11.k", 1, 5 << 30, 7),
    ],
)
def test_cpp_equals_numpy(seed, name, columns, first, stride):
    count = 2000
    numbers = [seed, name, columns, first, count, stride]
    text = subprocess.run([DUMP, *map(str, numbers)], capture_output=True, text=True, check=True)
    cpp = np.array([int(line, 16) for line in text.stdout.split()], dtype=np.uint32)
    index = np.uint64(first) + np.arange(count, dtype=np.uint64) * np.uint64(stride)
    values = philox.weight_values(seed, name, index, philox.weight_scale(columns))
    assert len(set(cpp)) > 500
    # Compared as numbers: a zero has no sign in either.
    assert np.array_equal((cpp << 16).astype(np.uint32).view(np.float32), values)


def test_known_answers():
    zeros = [np.zeros(1, dtype=np.uint64)] * 4
    words = [int(w[0]) for w in philox.philox4x32((0, 0), zeros)]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox.fnv1a32("foobar") == 0xBF9CF968


def test_tokens_and_gains():
    assert list(philox.tokens(7, 3, 5, 512)) == [360, 280, 497, 301, 208]
    gain = philox.gain(5, "norm", 1000)
    assert np.all(np.abs(gain - 1) <= philox.GAIN_SCALE) and len(np.unique(gain)) > 10
