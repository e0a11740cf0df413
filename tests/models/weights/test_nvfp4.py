"""The NumPy and the C++ NVFP4 weights agree bit by bit, and with the specification's vectors."""

import os
import subprocess

import numpy as np
import pytest

from models.weights import nvfp4

DUMP = os.path.join(os.path.dirname(__file__), "dump_weights")


@pytest.mark.parametrize("columns", [16, 64, 4096])
def test_cpp_equals_numpy(columns):
    seed, name, rows = 9, "model.layers.1.mlp.experts.down_proj", 5
    command = [DUMP, "nvfp4", str(seed), name, str(rows), str(columns)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    codes, scales, scale_2 = nvfp4.matrix(seed, name, (rows, columns))
    assert text[0] == f"{int(scale_2.view(np.uint32)):08x}"
    for row in range(rows):
        assert bytes.fromhex(text[1 + 2 * row]) == nvfp4.pack(codes[row]).tobytes()
        assert bytes.fromhex(text[2 + 2 * row]) == scales[row].tobytes()
    assert len(np.unique(codes)) >= 15 or columns == 16


def test_specification_vector():
    block = np.array(
        [0.03, -0.011, 0, 0.007, 0.0255, -0.0198, 0.0009, 0.0149]
        + [-0.03, 0.0021, 0.0123, -0.0062, 0.018, 0.001, -0.0003, 0.024],
        dtype=np.float32,
    )
    scale_2 = nvfp4.global_scale(0.03)
    codes, scales = nvfp4.quantize(block, scale_2)
    assert list(scales) == [0x7E]
    assert nvfp4.pack(codes).tobytes().hex() == "c730e7501fa40668"
    dequantized = nvfp4.dequantize(codes, scales)[:4] * scale_2
    assert np.allclose(dequantized, [0.03, -0.01, 0, 0.0075], rtol=1e-6)
    codes, scales = nvfp4.quantize(np.clip(block, -0.02, 0.02), scale_2)
    assert list(scales) == [0x79]
    assert nvfp4.pack(codes).tobytes().hex() == "d740f7611fc61778"
