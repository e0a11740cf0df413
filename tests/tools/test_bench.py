"""megalith-bench from end to end on a fake driver: what it launches, counts, writes and says when something breaks."""

import json
import os
import shutil
import subprocess

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
BENCH = os.path.abspath("tools/bench/megalith-bench")
FAKE = os.path.abspath("tests/tools/libfake_cuda.so")
CONFIG = os.path.abspath("models/configs/qwen3-moe-small.test.json")
LAUNCHES = 4  # embed, two layers, last
STEPS = 20


@pytest.fixture(scope="session")
def plans(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    words = ["compile", CONFIG, "--target", "sm_90a", "--rows", "1,4", "--launch", "fused,per-stage",
             "--least-context", "65600", "-o", str(out)]
    done = subprocess.run([MEGALITH, *words], capture_output=True, text=True, timeout=300)
    if "NVRTC" in done.stderr and done.returncode:
        pytest.skip("no NVRTC: " + done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return out / "sm_90a"


@pytest.fixture
def bench(plans, tmp_path):
    shutil.copy(FAKE, tmp_path / "libcuda.so.1")

    def run(*words, **settings):
        file = tmp_path / "bench.json"
        command = [BENCH, str(plans), "--steps", str(STEPS), "--json", str(file), *words]
        settings = {k: str(v) for k, v in settings.items()}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), **settings})
        return done, json.loads(file.read_text()) if file.exists() else None

    return run


def test_every_mode_of_every_cell(bench):
    done, found = bench("--rows", "1,4", "--context", "0,129,2048")
    assert done.returncode == 0, done.stderr
    # Wrong numbers of launches would have been told.
    assert [line for line in done.stderr.splitlines() if "fake" in line] == ["fake: 0 allocations left"]
    assert found["error"] == "" and found["device"]["name"] == "Fake GPU"
    assert [(c["rows"], c["context"], c["histories"]) for c in found["cells"]] == [
        (r, c, r) for r in (1, 4) for c in (0, 129, 2048)]
    for cell in found["cells"]:
        assert all(cell[mode]["us"]["median"] > 0 for mode in ("separate", "stream", "graph"))
        assert [(k["kernel"], k["launches"]) for k in cell["kernels"]] == [("embed", 1), ("layer", 2), ("last", 1)]
        for bytes_ in ("dense", "experts", "kv", "total"):
            assert sum(k["bytes"][bytes_] for k in cell["kernels"]) == cell["bytes"][bytes_]
        assert cell["layers_in_turn"]["us"]["median"] > 0
        # Kernels that compute nothing leave the logits poisoned, and that is told.
        assert cell["finite_logits"] == 0
        assert f"context {cell['context']}: " in done.stdout and "not finite" in done.stdout
    by_context = {c["context"]: c["bytes"]["kv"] for c in found["cells"] if c["rows"] == 1}
    assert by_context[0] == 0 and by_context[2048] * 129 == by_context[129] * 2048


def test_a_layer_a_launch_beside_a_stage_a_launch(bench):
    done, found = bench("--rows", "4", "--context", "129", "--launch", "fused,per-stage")
    assert done.returncode == 0, done.stderr
    fused, apart = found["cells"]
    assert (fused["launch"], apart["launch"]) == ("fused", "per-stage")
    assert [(k["kernel"], k["launches"]) for k in apart["kernels"]] == [
        ("embed", 1), ("qkv_proj", 3), ("attention", 3), ("merge", 3), ("o_proj", 3), ("router", 3),
        ("expert_up", 3), ("expert_down", 3), ("head", 1)]
    assert all(apart[mode]["us"]["median"] > 0 for mode in ("separate", "stream", "graph"))
    assert apart["bytes"]["experts"] == fused["bytes"]["experts"] and apart["bytes"]["kv"] == fused["bytes"]["kv"]
    assert fused["layers_in_turn"]["us"]["median"] > 0 and apart["layers_in_turn"]["us"]["median"] > 0
    assert "per-stage" in done.stdout


def test_rank_0_of_several_alone(tmp_path):
    config = os.path.abspath("models/configs/muse-spark-mini.test.json")
    words = ["compile", config, "--target", "sm_90a", "--rows", "1", "--tp", "8", "-o", str(tmp_path / "out")]
    done = subprocess.run([MEGALITH, *words], capture_output=True, text=True, timeout=300)
    if "NVRTC" in done.stderr and done.returncode:
        pytest.skip("no NVRTC: " + done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    shutil.copy(FAKE, tmp_path / "libcuda.so.1")

    def bench(*words):
        return subprocess.run([BENCH, str(tmp_path / "out/sm_90a"), "--steps", str(STEPS), "--tp", "8", *words],
                              capture_output=True, text=True, timeout=300,
                              env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})

    file = tmp_path / "bench.json"
    done = bench("--mirror-ranks", "--hop", "0,800", "--context", "100,1000", "--json", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert [(c["hop_ns"], c["context"], c["ranks"]) for c in found["cells"]] == [
        (h, c, 8) for h in (0, 800) for c in (100, 1000)]
    assert "rank 0 of 8, mirrored" in done.stdout and "fused +800" in done.stdout
    for cell in found["cells"]:
        # Layers 0, 2, 3, 4 of 6 look back at 256 positions, the others at all; a rank has one head of 64.
        positions = 4 * min(256, cell["context"]) + 2 * cell["context"]
        assert cell["bytes"]["kv"] == positions * 2 * 64 * 2
        layer = next(k for k in cell["kernels"] if k["kernel"] == "sliding")
        assert layer["launches"] == 4
        # q, gate 128 rows, k, v 64 each, o_proj 128 of 1024; pooler 64 of 1024; unpooler 128 of 512; an eighth
        # of the router's 16 fp32 rows, and of vectors.
        matrices = 2 * ((128 + 128 + 64 + 64 + 128 + 64) * 1024 + 128 * 512) + 4 * 16 * 1024 // 8
        assert 0 <= layer["bytes"]["dense"] / 4 - matrices < 8000
        assert layer["bytes"]["experts"] % (3 * 64 * 512 * 2) == 0
    refused = bench()
    assert refused.returncode == 2 and "--mirror-ranks" in refused.stderr, refused.stderr


def test_steps_that_feed_each_other(bench):
    done, found = bench("--rows", "4", "--context", "63", "--feedback")  # into the next page
    assert done.returncode == 0, done.stderr
    assert "fake: 0 allocations left" in done.stderr and "steps that feed each other" in done.stdout
    cell = found["cells"][0]
    assert cell["feedback"]["us"]["median"] > 0 and len(cell["tokens"]) == 5 + STEPS
    first = cell["tokens"][0]
    assert len(first) == 4 and cell["tokens"] == [[t + i for t in first] for i in range(5 + STEPS)]


def test_kernels_that_record_nothing(bench, tmp_path):
    done, _ = bench("--trace", str(tmp_path / "trace.json"))
    assert done.returncode == 4 and "the plan's kernels record nothing; compile with --trace" in done.stderr
    assert not (tmp_path / "trace.json").exists()


def test_sequences_share_histories_where_memory_is_short(bench):
    done, found = bench("--rows", "4", "--context", "65536", FAKE_MEMORY_MB=4096 + 1024 + 300)
    assert done.returncode == 0, done.stderr
    cell = found["cells"][0]
    assert 1 <= cell["histories"] < 4
    one = bench("--rows", "1", "--context", "65536")[1]["cells"][0]
    assert cell["bytes"]["kv"] == cell["histories"] * one["bytes"]["kv"]


def test_a_context_beyond_the_plan(bench):
    # 65,600 positions with the new row are the plan's; one more is not.
    assert bench("--context", "65599")[0].returncode == 0
    done, found = bench("--context", "129,65600")
    assert done.returncode == 4 and found["cells"][0]["context"] == 129
    assert ("rows 1, context 65600: step: sequence 0: expected at most the plan's 65600 positions, new rows included, "
            "but got 65601" in done.stderr and "--least-context" in done.stderr)


def test_too_little_memory(bench):
    done, found = bench("--context", "65536", FAKE_MEMORY_MB=4096 + 1024 + 60)
    assert done.returncode == 4 and "expected a shorter context" in done.stderr
    done, found = bench(FAKE_MEMORY_MB=4096 + 10)
    assert done.returncode == 4 and "bytes of weights" in done.stderr and "expected room for KV pages" in done.stderr
    done, found = bench(FAKE_MEMORY_MB=1000)
    assert done.returncode == 4 and "'memory for the read ceiling': GPU memory: 4294967296 bytes do not fit" in done.stderr
    assert found["cells"] == [] and "do not fit" in found["error"]


@pytest.mark.parametrize("steps_before,launch,kernel", [
    # A cell is 1 step launch by launch, 7 of separate launches, 25 in a stream, 25 graphs.
    (0, 2, "kernel layer, layer 1"),
    (5, 1, "kernel layer, layer 0"),
    (10, 3, "kernel last, layer 2"),
    (35, 0, "kernel embed, layer 0"),
    # And the layers in turn: the shorter graph is an embedding and two layers, replayed.
    (58, 4, "kernel layer, layer 0"),
])
def test_a_fault_names_launch_and_edge(bench, steps_before, launch, kernel):
    number = steps_before * LAUNCHES + launch
    done, found = bench("--context", "129", FAKE_FAULT_AT=number)
    assert done.returncode == 4
    assert f"rows 1, context 129: launch {number} ({kernel}): SM 5, warp 2 waited longer than" in done.stderr
    assert "edge 0 '" in done.stderr and "CUDA_ERROR_LAUNCH_FAILED" in done.stderr
    assert found["error"] in done.stderr and found["cells"] == []


def test_a_fault_keeps_the_cells_before_it(bench):
    done, found = bench("--context", "0,129", FAKE_FAULT_AT=800 * LAUNCHES)
    assert done.returncode == 4 and "context 129: launch" in done.stderr
    assert [c["context"] for c in found["cells"]] == [0]
    assert "Steps." in done.stdout


def test_logits_that_change_between_modes(bench, plans):
    plan = json.loads((plans / "rows1/plan.json").read_text())
    last = next(k for k in plan["kernels"] if k["name"] == "last")
    slot = next(s["slot"] for s in last["slots"] if s["name"] == "out")
    done, found = bench("--context", "129", FAKE_CHANGING=slot)
    assert done.returncode == 4
    assert "separate launches: expected the logits of the launch-by-launch run but 1 of 512 have other bits" in done.stderr


def test_plans_of_different_models(bench, plans, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(plans, mixed)
    file = mixed / "rows4/plan.json"
    file.chmod(0o600)
    file.write_text(file.read_text().replace("qwen3-moe-small.test", "another"))
    done = subprocess.run([BENCH, str(mixed), "--rows", "1,4"], capture_output=True, text=True)
    assert done.returncode == 4 and "expected a plan of qwen3-moe-small.test for sm_90a" in done.stderr


def test_machines_and_files_that_do_not_fit(bench, plans, tmp_path):
    """Each error says what, expected, got, where and how to mend."""

    def refused(*texts, **settings):
        done, _ = bench(**settings)
        assert done.returncode == 4, done.stdout + done.stderr
        for text in texts:
            assert text in done.stderr, done.stderr

    refused("the cubins were made by CUDA 13.0, the GPU driver supports CUDA 12.8", "580 or newer", FAKE_DRIVER=12080)
    refused("the plan needs 132 SMs, the GPU (Fake GPU) has 78", "--sms 78", FAKE_SMS=78)
    refused("no GPU 0: this machine has 0", FAKE_DEVICES=0)
    refused("does not exist", "no-such-nvrtc", MEGALITH_NVRTC="/no-such-nvrtc")

    cubin = plans / "rows1/kernels/layer.cubin"
    whole = cubin.read_bytes()
    try:
        for damaged in (whole[:-1], whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], b""):
            cubin.write_bytes(damaged)
            refused("kernel 'layer'", "layer.cubin", "damaged or of another compilation", "compile the plan again")
        cubin.unlink()
        refused("kernel 'layer'", "layer.cubin", "No such file", "compile the plan again")
    finally:
        cubin.write_bytes(whole)
    plan = plans / "rows1/plan.json"
    text = plan.read_text()
    try:
        plan.write_text(text.replace('"target": "sm_90a"', '"target": "sm_100a"'))
        refused("the plan is for sm_100a, the GPU (Fake GPU) is sm_90", "--target")
    finally:
        plan.write_text(text)


def test_no_driver(plans, tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(b"")  # found before any other, and no library
    done = subprocess.run([BENCH, str(plans)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 4 and "no GPU driver" in done.stderr and "install NVIDIA's driver" in done.stderr
