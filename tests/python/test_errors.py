"""Mistakes become exceptions with one clear line, and nothing is printed."""

import json
import re
import signal
from pathlib import Path

import pytest

import megalith

QWEN = Path("models/configs/qwen3-moe-small.test.json")
M0 = Path("tests/ir/task/m0.mlir")


@pytest.fixture(scope="module")
def program():
    return megalith.compile(QWEN, rows=2, sms=2, verify=False)


def config(**changes):
    return {**json.loads(QWEN.read_text()), **changes}


# What is called, and what the message must say.
CONFIGS = [
    ("no/such.json", "no/such.json: expected a Hugging Face config.json but cannot read it: No such file"),
    (Path("models"), "models: expected a Hugging Face config.json but got a folder; name the file"),
    ("{", "config: "),
    ('{"model_type": "qwen3_moe"}', "config: "),
    (config(model_type="llama"), "config: .*model_type.*llama"),
    (config(num_experts_per_tok=99), "config: .*num_experts_per_tok"),
    (config(hidden_size="wide"), "config: .*hidden_size"),
]


@pytest.mark.parametrize("given,says", CONFIGS, ids=range(len(CONFIGS)))
def test_configs(given, says, capfd):
    with pytest.raises(megalith.InputError, match=says) as raised:
        megalith.compile(given)
    assert raised.value.exit_code == 1 and isinstance(raised.value, ValueError)
    one_line_and_silent(raised, capfd)


OPTIONS = [
    (dict(target="sm_90"), "target: expected one of sm_90a, sm_100a but got 'sm_90'"),
    (dict(target=90), "target: expected a string but got 90"),
    (dict(rows=3), "rows: expected one of 1, 2, 4, 8, 16 but got 3"),
    (dict(rows="2"), "rows: expected a whole number but got '2'"),
    (dict(rows=1.0), "rows: expected a whole number but got 1.0"),
    (dict(sms=0), "sms: expected a number from 1 to 1024 but got 0"),
    (dict(sms=10**30), "sms: expected a number from 1 to 1024 but got 10+"),
    (dict(config=None), "config: expected a path but got None"),
    (dict(config={"a": {1, 2}}), "config: expected a dict of JSON values but got others"),
]


@pytest.mark.parametrize("given,says", OPTIONS, ids=range(len(OPTIONS)))
def test_options(given, says, capfd):
    with pytest.raises(megalith.OptionError, match=says) as raised:
        megalith.compile(**{"config": QWEN, **given})
    assert raised.value.exit_code == 2
    one_line_and_silent(raised, capfd)


RUNS = [
    (dict(backend="gpu"), "backend: expected one of host, cuda but got 'gpu'"),
    (dict(contexts=[1], sequences=[]), "contexts, sequences: expected one of them but got both"),
    (dict(contexts=[]), "expected at least one sequence but got none"),
    (dict(contexts=[1, 2, 3]), "sequence 2: expected rows within the 2 that the plan was compiled for"),
    (dict(contexts=[-1]), "sequence 0, start: expected a number from 0"),
    (dict(contexts=["x"]), "sequence 0, start: expected a whole number but got 'x'"),
    (dict(contexts=7), "contexts: expected a list but got 7"),
    (dict(contexts=[4096]), "sequence 0: expected at most the model's 4096 positions, new rows included"),
    (dict(contexts=[4000], steps=97), "sequence 0: expected at most the model's 4096 positions"),
    (dict(sequences=[{"begin": 1}]), "sequence 0: expected start, rows, .* but got 'begin'"),
    (dict(sequences=[5]), "sequence 0: expected a Sequence or a dict but got 5"),
    (dict(sequences=[{"rows": 0}]), "sequence 0, rows: expected a number from 1"),
    (dict(sequences=[{"first_row": 2}]), "sequence 0: expected rows within the 2"),
    (dict(sequences=[{}, {"first_row": 0}]), "sequence 1: expected rows of its own but row 0 is another's"),
    (dict(sequences=[{"tokens": [1, 2]}]), "sequence 0: expected 1 tokens, .* but got 2"),
    (dict(sequences=[{"tokens": []}]), "sequence 0: expected tokens or None but got an empty list"),
    (dict(sequences=[{"tokens": [512]}]), "sequence 0: expected tokens from 0 to 511 but got 512"),
    (dict(steps=0), "steps: expected a number from 1"),
    (dict(seed=-1), "seed: expected a number from 0 to 4294967295 but got -1"),
    (dict(layer=3), "layer: expected a number from 0 to 2 but got 3"),
    (dict(fault="typo"), "fault: expected one of norm-eps, .* but got 'typo'"),
]


@pytest.mark.parametrize("given,says", RUNS, ids=range(len(RUNS)))
def test_runs(program, given, says, capfd):
    with pytest.raises(megalith.OptionError, match=says) as raised:
        program.run(**given)
    one_line_and_silent(raised, capfd)


def test_names(program):
    with pytest.raises(megalith.OptionError, match="pass_name: expected one of import, .* but got 'cse'"):
        program.ir("cse")
    with pytest.raises(megalith.OptionError, match="kernel: expected one of embed, layer, last, advance but got 'x'"):
        program.source("x")


def test_a_bucket_that_does_not_fit(capfd):
    wide = json.loads(Path("models/configs/mixtral-8x7b.json").read_text())
    wide.update(hidden_size=16384, head_dim=128)
    with pytest.raises(megalith.InputError, match="rows bucket 8 of wide does not fit sm_90a") as raised:
        megalith.compile(wide, rows=8, name="wide")
    one_line_and_silent(raised, capfd)


def test_save_into_what_is_no_folder(program, tmp_path, capfd):
    (tmp_path / "file").write_text("")
    with pytest.raises(megalith.InputError, match="expected a folder but got a file") as raised:
        program.save(tmp_path / "file", cubins=False)
    one_line_and_silent(raised, capfd)
    (tmp_path / "used/sm_90a/rows2").mkdir(parents=True)
    with pytest.raises(megalith.InputError, match="something else; move it away"):
        program.save(tmp_path / "used", cubins=False)
    assert not list((tmp_path / "used/sm_90a/rows2").iterdir())


def test_a_missing_wait_is_told_with_both_sides(capfd):
    lines = M0.read_text().splitlines(keepends=True)
    wait = next(i for i, line in enumerate(lines) if "task.wait" in line)
    with pytest.raises(megalith.VerificationError, match=r"^m0: not proved: m0:\d+:\d+: error: ") as raised:
        megalith.verify("".join(lines[:wait] + lines[wait + 1 :]), "m0")
    assert raised.value.exit_code == 3
    assert all(re.match(r"m0:\d+:\d+: error: ", message) for message in raised.value.messages)
    one_line_and_silent(raised, capfd)


def test_a_whole_model_without_a_wait(program):
    lines = program.ir().splitlines(keepends=True)
    wait = next(i for i, line in enumerate(lines) if "task.wait" in line and "w_full" in line)
    with pytest.raises(megalith.VerificationError):
        megalith.verify("".join(lines[:wait] + lines[wait + 1 :]))


def test_faults_are_where_the_text_says_them(program, tmp_path):
    """Though an artifact's kernels name places in the config."""
    program.save(tmp_path, cubins=False)
    [file] = tmp_path.rglob("kernels.mlir")
    lines = file.read_text().splitlines(keepends=True)
    wait = next(i for i, line in enumerate(lines) if "task.wait @w_full" in line)
    assert " loc(" in lines[wait]
    with pytest.raises(megalith.VerificationError) as raised:
        megalith.verify("".join(lines[:wait] + lines[wait + 1 :]), "k")
    assert all(re.match(r"k:\d+:\d+: error: ", message) for message in raised.value.messages)


@pytest.mark.parametrize("function", [megalith.verify, megalith.emit])
def test_text_that_is_no_kernels(function, program, capfd):
    for text, says in [
        ("task.kernel @x {", r"^t: t:\d+:\d+: error: "),
        ("", "t: expected at least one task.kernel but got none"),
        (program.ir("task-plan-memory"), "t: expected kernels with role regions but @embed has none"),
    ]:
        with pytest.raises(megalith.InputError, match=says) as raised:
            function(text, "t")
        one_line_and_silent(raised, capfd)


def test_an_exception_in_progress_ends_the_compilation():
    def stop(work):
        if work == "task-plan-streams":
            raise KeyError(work)

    with pytest.raises(KeyError, match="task-plan-streams"):
        megalith.compile(QWEN, sms=2, progress=stop)


def test_a_signal_ends_a_compilation():
    """As Ctrl-C does, between two passes."""

    def stop(signum, frame):
        raise KeyboardInterrupt

    work = []
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            megalith.compile("models/configs/qwen3-30b-a3b.json", progress=work.append)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "proof" not in work


def test_no_nvrtc(program, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MEGALITH_NVRTC", "/no/libnvrtc.so")
    with pytest.raises(megalith.RunError, match="/no/libnvrtc.so") as raised:
        program.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    one_line_and_silent(raised, capfd)


def one_line_and_silent(raised, capfd):
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")
