"""Small models of both families on a GPU: within tolerance of the reference, and the same bits in every run."""

import ctypes
import os
import subprocess

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
CONFIGS = os.path.abspath("models/configs")


def gpus():
    """How many GPUs the driver finds; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


pytestmark = pytest.mark.skipif(gpus() == 0, reason="no GPU")

# Rows bucket, positions held, new rows: live rows below the bucket leave dead ones.
CELLS = [
    (1, "0", "1"),
    (1, "1000", "1"),
    (2, "129", "2"),
    (4, "129,17,0", "1,1,1"),
    (8, "300,64,63", "3,1,2"),
    (8, "5,6,7,8,9,10,11,12", "1,1,1,1,1,1,1,1"),
]


@pytest.mark.parametrize("config", ["qwen3-moe-small.test.json", "mixtral-small.test.json"], ids=["qwen", "mixtral"])
@pytest.mark.parametrize("rows,context,new_rows", CELLS, ids=[f"{r}-{c}" for r, c, _ in CELLS])
def test_run(config, rows, context, new_rows):
    command = [MEGALITH, "run", f"{CONFIGS}/{config}", "--backend", "cuda", "--rows", str(rows), "--context", context,
               "--new-rows", new_rows, "--steps", "3", "--repeat", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout
    assert "100 more runs, launches overlapping, all with the same bits" in done.stdout
