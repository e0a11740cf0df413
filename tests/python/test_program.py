"""The Python package: compile, look inside, prove, save, run."""

import inspect
import json
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import megalith

QWEN = Path("models/configs/qwen3-moe-small.test.json")
MIXTRAL = Path("models/configs/mixtral-small.test.json")
TOLERANCE = 4e-3  # models/reference/compare.h


@pytest.fixture(scope="module")
def program():
    return megalith.compile(QWEN, rows=2, sms=4)


@pytest.fixture(scope="module")
def results(program):
    return program.run(sequences=[{"start": 70}, megalith.Sequence(start=3)], steps=2, seed=7)


def test_config_as_path_text_and_dict(program):
    text = QWEN.read_text()
    for config in [str(QWEN), text, "\n" + text, json.loads(text)]:
        other = megalith.compile(config, rows=2, sms=4, name=str(QWEN))
        assert other.sources == program.sources and other.plan == program.plan


def test_progress():
    work = []
    program = megalith.compile(QWEN, sms=2, progress=work.append)
    assert work == [*program.passes, "proof"]


def test_ir(program):
    assert program.passes[:3] == ["import", "moe-cut-launches", "moe-convert-to-task"]
    assert program.passes[-1] == "task-lower-to-roles"
    assert "moe.step" in program.ir("import") and "task.kernel" not in program.ir("import")
    assert program.ir() == program.ir("task-lower-to-roles")
    assert len({program.ir(name) for name in program.passes}) >= len(program.passes) - 1


def test_sources(program):
    assert program.kernels == ["embed", "layer", "last", "advance"] == list(program.sources)
    source = program.source("layer")
    assert source == program.sources["layer"] and "codegen/device/" in source
    plain = program.source("layer", digests=False)
    assert plain != source and set(plain.splitlines()) < set(source.splitlines())


def test_plan(program):
    plan = program.plan
    assert [launch["kernel"] for launch in plan["launches"]] == ["embed", "layer", "layer", "last"]
    assert (plan["rows"], plan["sms"], plan["target"], plan["vocab"]) == (2, 4, "sm_90a", 512)
    plan["rows"] = 99  # the caller's own
    assert program.plan["rows"] == 2
    assert "rows 2, 4 SMs: embed, layer, last, advance" in repr(program)


def test_default_sms():
    assert megalith.compile(MIXTRAL, target="sm_100a", verify=False).plan["sms"] == 148


def test_verify(program):
    assert program.verify() is None
    assert megalith.verify(program.ir()) == 3


def test_save_is_what_the_command_line_writes(program, tmp_path):
    folder = Path(program.save(tmp_path / "ours", cubins=False, ir=True))
    assert folder == tmp_path / "ours/sm_90a/rows2"
    command = ["tools/megalith/megalith", "compile", QWEN, "--target", "sm_90a", "--rows", "2", "--sms", "4"]
    subprocess.run([*command, "-o", tmp_path / "theirs", "--no-cubins", "--save-ir"], check=True, capture_output=True)
    theirs = tmp_path / "theirs/sm_90a/rows2"
    (theirs / "report.html").unlink()  # the command line's alone
    files = sorted(f.relative_to(folder) for f in folder.rglob("*") if f.is_file())
    assert files == sorted(f.relative_to(theirs) for f in theirs.rglob("*") if f.is_file())
    for file in files:
        assert (folder / file).read_bytes() == (theirs / file).read_bytes(), file
    assert json.loads((folder / "plan.json").read_text()) == program.plan
    program.save(tmp_path / "ours", cubins=False)  # replaces the first as a whole
    assert not (folder / "ir").exists()


def test_run_shapes(results):
    shapes = {name: (value.dtype.name, value.shape) for name, value in results.items() if isinstance(value, np.ndarray)}
    assert shapes == {
        "tokens": ("int32", (2, 2)),
        "positions": ("int64", (2, 2)),
        "sequences": ("int32", (2, 2)),
        "live": ("bool", (2, 2)),
        "layers": ("int64", (4,)),
        "residual": ("float32", (2, 4, 2, 256)),
        "qkv": ("float32", (2, 3, 2, (8 + 2 + 2) * 64)),
        "logits": ("float32", (2, 2, 512)),
        "router_logits": ("float32", (2, 3, 2, 16)),
        "expert_weights": ("float32", (2, 3, 2, 4)),
        "expert_ids": ("int32", (2, 3, 2, 4)),
        "near_ties": ("int64", (2, 4)),
        "wrong_rows": ("int64", (2, 4)),
    }
    assert set(results) <= set(megalith.Results.__annotations__)


def test_run_agrees_with_the_reference(results):
    assert results["passes"] and results["difference"] == ""
    errors = results["errors"]
    assert list(errors) == ["residual", "router", "kv", "qkv", "head", "whole"]
    assert np.all(errors["residual"] <= 2 * TOLERANCE)
    # The embedding routes nothing; only the last launch has logits.
    assert np.isnan(errors["router"][:, 0]).all() and np.all(errors["router"][:, 1:] <= 2 * TOLERANCE)
    assert np.isnan(errors["head"][:, :3]).all() and np.all(errors["head"][:, 3] <= 2 * TOLERANCE)
    assert "residual" in results["table"]


def test_run_values_make_sense(results):
    """Against NumPy, not against our reference."""
    assert results["layers"].tolist() == [-1, 0, 1, 2]
    assert results["positions"].tolist() == [[70, 3], [71, 4]]
    assert results["live"].all()
    # Top-k of the router's logits, ties to the lower index; softmax of the chosen, which is what a
    # renormalised softmax of all comes to.
    logits = results["router_logits"]
    ids = np.argsort(-logits, axis=-1, kind="stable")[..., :4]
    assert np.array_equal(results["expert_ids"], ids)
    chosen = np.exp(np.take_along_axis(logits, ids, -1).astype(np.float64))
    np.testing.assert_allclose(results["expert_weights"], chosen / chosen.sum(-1, keepdims=True), rtol=1e-5)
    # bf16 values: the low halves of the float32 words are zero.
    assert not np.any(results["residual"].view(np.uint32) & 0xFFFF)


def test_same_seed_same_bits(program, results):
    again = program.run(sequences=[{"start": 70}, {"start": 3}], steps=2, seed=7, schedule_seed=5)
    for name in ["residual", "qkv", "logits", "router_logits"]:
        assert np.array_equal(again[name], results[name]), name


def test_own_tokens(program):
    mine = program.run(sequences=[{"start": 0, "rows": 2, "tokens": [5, 300]}])
    assert mine["tokens"].tolist() == [[5, 300]]
    other = program.run(sequences=[{"start": 0, "rows": 2, "tokens": [5, 301]}])
    # The first row does not see the second.
    assert np.array_equal(mine["logits"][0, 0], other["logits"][0, 0])
    assert not np.array_equal(mine["logits"][0, 1], other["logits"][0, 1])


def test_dead_rows(program):
    results = program.run(sequences=[{"start": 9, "first_row": 1}])
    assert results["live"].tolist() == [[False, True]]
    assert results["sequences"].tolist() == [[-1, 0]]
    assert not results["residual"][:, :, 0].any() and results["residual"][:, :, 1].any()
    assert (results["expert_ids"][:, :, 0] == -1).all()


def test_one_layer(program):
    results = program.run(layer=1, contexts=[129])
    assert results["layers"].tolist() == [1]
    assert results["residual"].shape == (1, 1, 2, 256)
    assert "logits" not in results and results["qkv"].shape[1] == 1


def test_mixtral():
    assert megalith.compile(MIXTRAL, sms=3).run(contexts=[17])["expert_ids"].shape == (1, 3, 1, 2)


def test_out_of_tolerance(program):
    with pytest.raises(megalith.ToleranceError, match="within tolerance.*row 0") as raised:
        program.run(contexts=[20], fault="combine-unweighted")
    assert raised.value.exit_code == 4
    results = raised.value.results
    assert not results["passes"] and results["difference"] in str(raised.value)
    assert program.run(contexts=[20], fault="combine-unweighted", check=False)["difference"] == results["difference"]


def test_two_threads(program):
    """Calls release the GIL, and wait for each other."""
    beats, done, results = [0], threading.Event(), []

    def beat():
        while not done.wait(0.001):
            beats[0] += 1

    heart = threading.Thread(target=beat)
    runs = [threading.Thread(target=lambda: results.append(program.run(contexts=[5]))) for _ in range(2)]
    for thread in [heart, *runs]:
        thread.start()
    for thread in runs:
        thread.join()
    done.set()
    heart.join()
    assert np.array_equal(results[0]["residual"], results[1]["residual"])
    assert beats[0] > 5


def test_emit_prints_what_compile_prints(program):
    """The IR's text says everything that the source says, but for where things came from."""

    def code(text):
        return [line.split("//")[0].rstrip() for line in text.splitlines() if not line.lstrip().startswith("//")]

    emitted = megalith.emit(program.ir())
    # advance only counts on: it is no kernel of the IR.
    assert [*emitted, "advance"] == program.kernels
    assert code(emitted["layer"]) == code(program.source("layer")) and len(code(emitted["layer"])) > 200


def test_everything_is_documented():
    for name in megalith.__all__:
        thing = getattr(megalith, name)
        assert inspect.getdoc(thing), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else []:
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_cuda_or_a_precise_error(program):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU: tests/gpu runs kernels on it")
    with pytest.raises(megalith.RunError, match="libcuda|driver|GPU"):
        program.run(backend="cuda")
