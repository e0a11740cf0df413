"""megalith explain: reasons are the passes' own, so another decision has another reason."""

import json
import os
import re
import subprocess

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
CONFIG = os.path.abspath("models/configs/qwen3-moe-small.test.json")
REAL = os.path.abspath("models/configs/qwen3-30b-a3b.json")


def megalith(*words, cwd=None):
    return subprocess.run([MEGALITH, *words], capture_output=True, text=True, cwd=cwd, timeout=120)


def said(*words):
    done = megalith(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan's folder, compiled once for each set of options."""
    made = {}

    def compile(config=CONFIG, rows=1, **options):
        key = (config, rows, *options.items())
        if key not in made:
            out = tmp_path_factory.mktemp("plan")
            options = {"target": "sm_90a", **options}
            words = [w for name, value in options.items() for w in ("--" + name, str(value))]
            said("compile", config, "--rows", str(rows), "--no-cubins", "-o", str(out), *words)
            made[key] = str(next(out.glob("*/rows*")))
        return made[key]

    return compile


def test_another_number_of_sms(plan):
    assert "slice: 16 strips (32 channels) on each of 8 of 8 SMs" in said("explain", plan(sms=8), "layer/o_proj")
    text = said("explain", plan(sms=5), "layer/o_proj")
    assert "slice: 26 strips (52 channels) on each of 5 of 5 SMs" in text
    assert "128 strips over 5 SMs are at least 26 on one; the last SM has 24" in text


def test_another_bucket(plan):
    """At eight rows shared memory is short: the passes give slots up, and say which layouts they tried."""
    one, eight = (said("explain", plan(REAL, rows, sms=132), "layer/ring") for rows in (1, 8))
    slots = [re.search(r"slots: (\d+), (\d+) bytes\n    because of 231424 bytes", text) for text in (one, eight)]
    assert int(slots[0][1]) > int(slots[1][1]) and int(slots[0][2]) > int(slots[1][2])
    kernel = said("explain", plan(REAL, 8, sms=132), "layer")
    assert "attention and the dense phase apart: needs " in kernel
    assert "of 231424 bytes; attention and the dense phase share bytes: leaves the ring" in kernel


def test_who_polls_and_how(plan):
    text = said("explain", plan(sms=8), "layer/act_words")
    assert "as sentinel words, 2 sets" in text
    assert "stored by @expert_up (epilogue)" in text
    assert "polled by @expert_down (poller, expert by expert)" in text
    text = said("explain", plan(sms=8), "partials")
    assert "as epoch words, 1 set " in text and "none can be re-armed" in text
    text = said("explain", plan(sms=8), "layer/resid")
    assert "@o_proj (epilogue, of the launch before)" in text


def test_what_was_elided(plan):
    text = said("explain", plan(sms=8), "layer/expert_down")
    assert "elided, slice of @mid" in text and "the slice stays in shared memory" in text
    assert "@router before it left the same rows" in said("explain", plan(sms=8), "layer/expert_up")


def test_launches_of_stages_wait_otherwise(plan):
    text = said("explain", plan(sms=8, launch="per-stage"), "attn")
    assert "as plain words, 1 set" in text and "handed on by the end of a launch" in text


def test_a_loop_has_the_reasons_of_all_its_kernels(plan):
    text = said("explain", plan(sms=8, scope="step"), "resid")
    for stage in ("qkv_proj", "head"):
        assert f"@{stage} read whole rows" in text


def test_limits(plan):
    """The real model: bytes as in docs/performance.md, times from the table of the target."""
    text = said("explain", plan(REAL, 1, sms=132))
    layer = text[text.index("kernel layer"):text.index("kernel last")]
    assert "memory         130.55 MB: " in layer
    assert re.search(r"exchanges +6 one after another: \d+\.\d\d us", layer)
    long = said("explain", plan(REAL, 1, sms=132), "--context", "40959")
    assert "memory         197.65 MB: " in long[long.index("kernel layer"):]


def test_json_tells_the_same(plan):
    facts = json.loads(said("explain", plan(sms=8), "--json", "--context", "100"))
    assert facts["format"] == "megalith-explain" and facts["version"] == 1 and facts["context"] == 100
    layer = next(k for k in facts["kernels"] if k["name"] == "layer")
    for kind in ("stages", "exchanges"):
        for one in layer[kind]:
            assert one["why"], one["name"]
    ring = next(m for m in layer["memory"] if m["kind"] == "ring")
    assert ring["offset"] + ring["bytes"] == layer["smem_bytes"]


def test_a_target_without_costs_has_no_times(plan):
    text = said("explain", plan(sms=8, target="sm_100a"))
    assert "No table of costs: no times." in text and not re.search(r"\d us\b", text)


@pytest.mark.parametrize("words,code,says", [
    (["nothing"], 2, "expected a kernel, stage, exchange, edge, buffer or ring of the plan, or KERNEL/NAME, but got"),
    (["layer/embed"], 2, "but got 'layer/embed'; there are "),
    (["o_proj", "router"], 2, "expected one <stage or edge> but got 'o_proj' and 'router'"),
    (["o_proj", "--json"], 2, "--json: expected without a stage or edge"),
    (["--experts", "3"], 2, "--experts: expected a number from 4 to 4 but got '3'"),  # one row chooses four
    (["--experts", "5"], 2, "--experts: expected a number from 4 to 4 but got '5'"),
    (["--context", "4096"], 2, "--context: expected a number from 0 to 4095 but got '4096'"),
    (["--costs", CONFIG], 1, "qwen3-moe-small.test.json: expected a cost table, with "),
])
def test_mistakes(plan, words, code, says):
    done = megalith("explain", plan(sms=8), *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_as_many_experts_as_rows_can_choose(plan):
    assert "expected a number from 4 to 8 " in megalith("explain", plan(rows=2, sms=8), "--experts", "9").stderr
    assert "expected a number from 4 to 16 " in megalith("explain", plan(rows=8, sms=8), "--experts", "17").stderr
    assert "weights of 7.0 of 16 experts" in said("explain", plan(rows=2, sms=8), "--experts", "7")


def test_as_many_positions_as_there_are(plan):
    """The usual 8,192 are more than the small model has."""
    assert json.loads(said("explain", plan(sms=8), "--json"))["context"] == 4095
    assert json.loads(said("explain", plan(REAL, 1, sms=132), "--json"))["context"] == 8192


def copied(folder, to, find="", other=""):
    """The artifact without what nothing here reads; in its plan.json other words."""
    to.mkdir()
    for name in ("plan.json", "kernels.mlir", "model.mlir"):
        (to / name).write_text(open(os.path.join(folder, name)).read())
    text = (to / "plan.json").read_text()
    assert find in text
    (to / "plan.json").write_text(text.replace(find, other))
    return to


@pytest.mark.parametrize("command", [["explain"], ["simulate", "--context", "40"], ["report", "-o", "out.html"]])
def test_a_plan_that_is_not_its_kernels(plan, command, tmp_path):
    done = megalith(command[0], str(copied(plan(sms=8), tmp_path / "same")), *command[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "out.html").unlink(missing_ok=True)
    edited = copied(plan(sms=8), tmp_path / "edited", '"sms": 8,', '"sms": 7,')
    mixed = copied(plan(sms=8), tmp_path / "mixed")
    (mixed / "kernels.mlir").write_text(open(os.path.join(plan(rows=2, sms=8), "kernels.mlir")).read())
    for folder, says in ((edited, '"sms": 8 as kernels.mlir and model.mlir say but got "sms": 7; compile again'),
                         (mixed, "compile again instead of editing it")):
        done = megalith(command[0], str(folder), *command[1:], cwd=tmp_path)
        assert done.returncode == 1 and says in done.stderr and "plan.json, line " in done.stderr, done.stderr
        assert done.stdout == "" and not (tmp_path / "out.html").exists()


def test_no_plan(tmp_path):
    done = megalith("explain", str(tmp_path))
    assert done.returncode == 1 and "but it has no plan.json" in done.stderr
