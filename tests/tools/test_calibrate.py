"""megalith calibrate on a fake driver: whole tables or none, failures by name; tables printed again."""

import json
import os
import shutil
import subprocess

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
CALIBRATE = os.path.abspath("tools/calibrate/megalith-calibrate")
FAKE = os.path.abspath("tests/tools/libfake_cuda.so")
TABLE = os.path.abspath("passes/costs/h200.json")


@pytest.fixture
def calibrate(tmp_path):
    shutil.copy(FAKE, tmp_path / "libcuda.so.1")

    def run(*words, **settings):
        done = subprocess.run([CALIBRATE, *words], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path),
                                   "FAKE_NO_FILLS": "1", **settings})
        if "NVRTC" in done.stderr and "expected" not in done.stderr and done.returncode == 4:
            pytest.skip("no NVRTC: " + done.stderr.splitlines()[-1])
        return done

    return run


def test_a_table_is_written_whole_and_shown_again(calibrate, tmp_path):
    file = tmp_path / "costs.json"
    done = calibrate("-o", str(file))
    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    assert progress[0] == "compile the kernels" and any("measure hop" in line for line in progress)
    assert "fake: 0 allocations left" in done.stderr
    table = json.loads(file.read_text())
    assert table["device"] == {"name": "Fake GPU", "sms": 132, "driver_cuda": 13000, "nvrtc": "13.0"}
    missing = [c["name"] for c in table["costs"] if c["value"] is None]
    assert missing == [
        "nvlink.one_way",
        "nvlink.hop.4k",
        "nvlink.local.4k",
        "nvlink.hop.16k",
        "nvlink.local.16k",
        "nvlink.hop.64k",
        "nvlink.local.64k",
        "dsmem.reduce",
    ]
    # By the made-up samples 200 rounds take 5 us and 100 ns each.
    merge = next(c for c in table["costs"] if c["name"] == "merge.32x11")
    assert merge["value"] == merge["p10"] == merge["p90"] == 0.125 and merge["runs"] == 7
    shown = calibrate("--show", str(file))
    assert shown.returncode == 0 and shown.stdout == done.stdout
    assert len(shown.stdout.splitlines()) == len(table["costs"]) + 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_measure_that_fails_is_named_and_nothing_is_written(calibrate, tmp_path):
    file = tmp_path / "costs.json"
    file.write_text("old")
    done = calibrate("-o", str(file), FAKE_WRONG_IN="calibrate_gather_32x6")
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == (
        f"megalith-calibrate: error: 1 measures failed (merge.32x6), so {file} is not written; the first: "
        "calibrate_gather_32x6: 3 words on SM 1 are not what was sent or stored")
    assert file.read_text() == "old"
    assert "merge.32x11" in done.stdout  # the others are told


def test_a_missed_deadline_ends_it(calibrate):
    done = calibrate(FAKE_FAULT_IN="calibrate_boundary")
    assert done.returncode == 4
    assert "boundary.plain.pieces1" in done.stderr and "clock.idle" in done.stderr
    assert ("the first: calibrate_boundary: a wait missed its deadline of 500 ms: edge 7, SM 5, warp 2, "
            "round 3, expected 1, seen 0") in done.stderr
    assert "not run, for an earlier kernel lost the GPU's context" in done.stdout


def test_a_part_is_measured_alone(calibrate):
    done = calibrate("--only", "topk.")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        "topk.64", "topk.128", "topk.256", "topk.512"]
    done = calibrate("--only", "none")
    assert done.returncode == 4 and "no measure whose name begins with 'none'" in done.stderr


def test_too_little_memory_is_told(calibrate):
    done = calibrate(FAKE_MEMORY_MB="1024")
    assert done.returncode == 4
    assert "expected 5120 MiB of free device memory but got 1024;" in done.stderr


def test_without_a_gpu(tmp_path):
    done = subprocess.run([MEGALITH, "calibrate", "-o", str(tmp_path / "c.json")], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 4 and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("words, code, says", [
    (["extra"], 2, "expected options only but got 'extra'"),
    (["--target", "sm_80"], 2, "--target: expected one of sm_90a, sm_100a"),
    (["-o", "/none/c.json"], 1, "-o /none/c.json: expected a folder /none but there is none"),
    (["--show", TABLE, "-o", "x"], 2, "--show: expected alone but got -o too"),
    (["--show", TABLE, "--device", "1"], 2, "--show: expected alone but got --device too"),
    (["--only", "hop", "-o", "x"], 2, "-o: expected a whole table but --only hop measures a part"),
    (["--show", "/none.json"], 1, "/none.json: No such file or directory"),
    (["--show", "BAD"], 1, "version: expected 1 but got 7"),
    (["--show", "DEEP"], 1, "expected nesting of at most 64 levels but got more"),
    (["--show", "/dev/zero"], 1, "/dev/zero: expected a cost table but got a device"),
])
def test_mistakes_are_one_line(words, code, says, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"version": 7, "costs": []}')
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 1000000)
    words = [{"BAD": str(bad), "DEEP": str(deep)}.get(w, w) for w in words]
    done = subprocess.run([MEGALITH, "calibrate", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == code and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def test_the_repository_s_table_is_shown():
    done = subprocess.run([MEGALITH, "calibrate", "--show", TABLE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sm_90a on NVIDIA H200 (132 SMs), driver for CUDA 13.0, NVRTC 13.0\n")
    assert "\nhop.4k.one.window0 " in done.stdout
