"""The NumPy model still gives the golden numbers that were made of it, and imports nothing of ours."""

import ast
import json
import pathlib
import struct

import numpy as np
import pytest

from tests.models.reference import muse_spark

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load(name):
    data = (ROOT / f"tests/golden/models/muse_spark/{name}.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for key, entry in header.items():
        if key != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype="<f4")
            tensors[key] = flat.reshape(entry["shape"])
    return tensors


def relative_rms(actual, expected):
    return np.sqrt(np.mean(np.square(actual - expected)) / np.mean(np.square(expected)))


def test_goldens_are_what_the_model_gives():
    config = json.loads((ROOT / "models/configs/muse-spark-mini.test.json").read_text())
    # The first two layers are of both kinds; all would take four times as long.
    made = muse_spark.Model(config, layers=2).run()
    golden, mlx = load("numpy"), load("mlx")
    assert len(made) == 2 * 2 * len(muse_spark.STEPS)
    for key, value in made.items():
        assert relative_rms(value, golden[key]) <= 1e-6, key
        # Two implementations that know nothing of each other; one computes in float32.
        if "layer" in key:
            assert relative_rms(mlx[key], golden[key]) <= 2e-5, key


def test_residual_gate_is_the_specifications_table():
    model = muse_spark.Model({"text_config": {"residual_gate_temperature": 0.3, "num_hidden_layers": 1}})
    for gate, alpha, beta in [(-2, 0.999999, 0.001271), (0.5, 0.540832, 0.841131), (3, 0.031623, 0.999955)]:
        a, b = model.coefficients(np.array([gate]))
        assert a[0] == pytest.approx(alpha, abs=1e-6)
        assert b[0] == pytest.approx(beta, abs=1e-6)


def test_nvfp4_is_the_specifications_vector():
    # Section 7.2: a block of a tensor whose largest magnitude is 0.03.
    values = [0.03, -0.011, 0, 0.007, 0.0255, -0.0198, 0.0009, 0.0149]
    values += [-0.03, 0.0021, 0.0123, -0.0062, 0.018, 0.001, -0.0003, 0.024]
    coded = muse_spark.nvfp4(np.array([values]), 0.03 / 2688)[0]
    codes = [6, -2, 0, 1.5, 6, -4, 0, 3, -6, 0.5, 2, -1, 4, 0, 0, 4]
    assert np.array_equal(coded, 448 * np.array(codes))


def test_the_model_imports_nothing_of_the_project():
    tree = ast.parse(pathlib.Path(muse_spark.__file__).read_text())
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported == {"json", "pathlib", "struct", "numpy"}
