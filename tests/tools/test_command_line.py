"""megalith's command line: help, exit codes, one clear line for every mistake, no half-written output."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
CONFIG = os.path.abspath("models/configs/qwen3-moe-small.test.json")
M0 = os.path.abspath("tests/ir/task/m0.mlir")
COMMANDS = ["import", "compile", "run", "bench", "calibrate", "verify", "explain", "report"]


def megalith(*words, cwd=None, cache=None):
    env = {**os.environ, "MEGALITH_CACHE": str(cache)} if cache else None
    return subprocess.run([MEGALITH, *words], capture_output=True, text=True, cwd=cwd, timeout=120, env=env)


def replaced(words, folder):
    """CONFIG and M0 stand for the files; TMP for the test's folder."""
    names = {"CONFIG": CONFIG, "M0": M0}
    return [names.get(w, w.replace("TMP", str(folder))) for w in words.split(" ") if w]


# The command line, the exit code, and what the line on stderr must say.
MISTAKES = [
    # Which command.
    ("", 2, "expected a command (import, compile, run, bench, calibrate, verify"),
    ("imports CONFIG", 2, "got 'imports', did you mean import?"),
    ("frobnicate", 2, "got 'frobnicate'; see megalith --help"),
    ("--rows 1 import CONFIG", 2, "expected a command"),
    ("IMPORT CONFIG", 2, "got 'IMPORT'"),
    # What it takes.
    ("import", 2, "expected <config.json> but got nothing; for example: megalith import "),
    ("import CONFIG CONFIG", 2, "expected one <config.json> but got"),
    ("import CONFIG --row 1", 2, "unknown option '--row', did you mean --rows?"),
    ("import CONFIG --frobnicate", 2, "unknown option '--frobnicate'; see megalith import --help"),
    ("import CONFIG --target=sm_90a", 2, "unknown option '--target'"),
    ("import CONFIG -x", 2, "unknown option '-x'"),
    ("import CONFIG --rows 1 --rows 2", 2, "--rows is given twice; give it once"),
    ("verify", 2, "but got nothing; for example: megalith verify "),
    ("verify M0 M0", 2, "but got"),
    # Values.
    ("import CONFIG --rows", 2, "--rows: expected <n> but got nothing"),
    ("import CONFIG --rows --max-context 8", 2, "--rows: expected <n> but got '--max-context'"),
    ("import CONFIG --rows=", 2, "--rows: expected <n> but got an empty value"),
    ("import CONFIG --rows 0", 2, "--rows: expected a number from 1 to 16 but got '0'"),
    ("import CONFIG --rows 17", 2, "--rows: expected a number from 1 to 16 but got '17'"),
    ("import CONFIG --rows -1", 2, "--rows: expected a number from 1 to 16 but got '-1'"),
    ("import CONFIG --rows two", 2, "--rows: expected a number from 1 to 16 but got 'two'"),
    ("import CONFIG --rows 1.5", 2, "but got '1.5'"),
    ("import CONFIG --rows 99999999999999999999", 2, "but got '99999999999999999999'"),
    ("compile CONFIG --target sm_90a --rows 1 -o out --least-context 0", 2,
     "--least-context: expected a number from 1 to 134217728 but got '0'"),
    ("import CONFIG --max-context 1e5", 2, "--max-context: expected a number from 1"),
    ("import CONFIG --act fp8", 2, "--act: expected one of bf16, nvfp4 but got 'fp8'"),
    ("import CONFIG --act nvfp4", 1, "NVFP4 activations: expected experts with NVFP4 weights but got none"),
    ("import CONFIG --choose combine", 2, "--choose: expected name=value, separated by commas, but got 'combine'"),
    ("import CONFIG --choose combine=f32", 1, "choice combine: expected no choices for qwen3_moe but got combine=f32"),
    ("import CONFIG --quant TMP/none", 1, "expected a hf_quant_config.json but cannot read it"),
    ("import CONFIG --tp 0", 2, "--tp: expected a number from 1 to 64 but got '0'"),
    ("import CONFIG --tp 3", 1, "--tp 3: expected "),
    ("import CONFIG --tp 2 --tp-experts kn", 2, "--tp-experts: expected one of auto, nn, nn-sums, nk but got 'kn'"),
    ("verify M0 --cases many", 2, "--cases: expected a number from 0 to 10000 but got 'many'"),
    ("bench CONFIG --steps 19", 2, "--steps: expected a number from 20"),
    ("bench CONFIG --rows 1,3", 2, "--rows: expected some of 1, 2, 4, 8, 16 but got 3"),
    ("bench CONFIG --context 1,x", 2, "--context: expected"),
    ("bench TMP --rows 2", 1, "rows2/plan.json but neither is there; megalith compile <config.json> --rows 2 -o out"),
    ("bench TMP --rows 2 --launch per-stage", 1, "rows2-per-stage/plan.json but neither is there; megalith compile"),
    ("bench CONFIG --launch stage", 2, "--launch: expected one of fused, per-stage but got 'stage'"),
    ("bench TMP --sms 4", 2, "--sms: expected with a config only"),
    ("bench TMP/none", 1, "cannot read it: No such file or directory"),
    ("compile CONFIG", 2, "expected --target <list> but got no such option; for example: megalith compile "),
    ("compile CONFIG --target sm_90a", 2, "expected --rows <list> but got no such option"),
    ("compile CONFIG --target sm_90a --rows 1", 2, "expected -o <folder> but got no such option"),
    ("compile CONFIG --target sm_90 --rows 1 -o TMP/out", 2,
     "--target: expected one of sm_90a, sm_100a but got 'sm_90'; did you mean sm_90a?"),
    ("compile CONFIG --target h200 --rows 1 -o TMP/out", 2, "expected one of sm_90a, sm_100a but got 'h200'"),
    ("compile CONFIG --target sm_90a, --rows 1 -o TMP/out", 2, "expected one of sm_90a, sm_100a but got ''"),
    ("compile CONFIG --target sm_90a,sm_90a --rows 1 -o TMP/out", 2, "each value once but got 'sm_90a' twice"),
    ("compile CONFIG --target sm_90a --rows 3 -o TMP/out", 2, "--rows: expected one of 1, 2, 4, 8, 16 but got '3'"),
    ("compile CONFIG --target sm_90a --rows 1,32 -o TMP/out", 2, "expected one of 1, 2, 4, 8, 16 but got '32'"),
    ("compile CONFIG --target sm_90a --rows 1 --sms 0 -o TMP/out", 2, "--sms: expected a number from 1 to 1024"),
    ("compile CONFIG --target sm_90a --rows 1 --tp 3 -o TMP/out", 2,
     "--tp: expected one of 1, 2, 4, 8 but got '3'"),
    ("compile CONFIG --target sm_90a --rows 1 --tp-experts nk -o TMP/out", 2,
     "--tp-experts, --tp-o-proj, --tp-sums: expected with several ranks"),
    ("compile CONFIG --target sm_90a --rows 1 --tp 2 --tp-sums bf16 -o TMP/out", 2,
     "--tp-sums bf16: expected with --tp-experts nk or --tp-o-proj k"),
    ("compile CONFIG --target sm_90a --rows 1 --save-ir=yes -o TMP/out", 2, "--save-ir: expected no value"),
    ("run CONFIG --backend gpu", 2, "--backend: expected one of host, cuda but got 'gpu'"),
    ("run CONFIG --context 1,x", 2, "--context: expected a number from 0 to 1048575 but got 'x'"),
    ("run CONFIG --context 5,6 --new-rows 1", 2, "for each of the 2 sequences of --context but got 1"),
    ("run CONFIG --context 5 --new-rows 0", 2, "--new-rows: expected a number from 1 to 16 but got '0'"),
    ("run CONFIG --seed -1", 2, "--seed: expected a number from 0 to 4294967295 but got '-1'"),
    ("run TMP --rows 2", 2, "--rows: expected with a config only, but got the folder of a plan"),
    # Files.
    ("compile TMP/none.json --target sm_90a --rows 1 -o TMP/out", 1, "cannot read it: No such file or directory"),
    ("compile CONFIG --target sm_90a --rows 1 -o TMP/empty.mlir", 1, "expected a folder but got a file"),
    ("compile CONFIG --target sm_90a --rows 1 -o TMP/empty.mlir/out", 1, "expected a folder but got a file"),
    ("compile CONFIG --target sm_90a --rows 1 -o /proc/out", 1, "cannot write into this folder"),
    ("compile CONFIG --target sm_90a --rows 1 -o TMP/used", 1, "something else; move it away or choose another -o"),
    ("run TMP", 1, "plan.json"),
    ("import TMP/none.json", 1, "cannot read it: No such file or directory; check the path"),
    ("import TMP", 1, "expected a Hugging Face config.json but got a folder; name the file"),
    ("import CONFIG --max-context 1000000", 1, "maximum context: expected 1 to max_position_embeddings"),
    ("import CONFIG -o TMP/none/out.mlir", 1, "cannot write it: No such file or directory; choose another place"),
    ("import CONFIG -o TMP", 1, "cannot write it: Is a directory"),
    ("import CONFIG -o /proc/out.mlir", 1, "cannot write it"),
    ("import M0", 1, "expected a complete JSON object"),
    ("import /dev/zero", 1, "but got a device; name a file"),
    ("verify TMP/a\nb", 1, r"a\x0Ab: expected a .mlir file"),
    ("verify TMP/none.mlir", 1, "cannot read it: No such file or directory"),
    ("verify M0 --ptx TMP/empty.mlir/ptx", 1, "ptx: expected a folder, or a place for a new one, but got: "),
    ("verify TMP/empty.mlir", 1, "expected at least one task.kernel but got none; give the IR after task-lower"),
]


@pytest.mark.parametrize("words,code,says", MISTAKES, ids=[m[0] or "nothing" for m in MISTAKES])
def test_mistake(words, code, says, tmp_path):
    (tmp_path / "empty.mlir").write_text("")
    (tmp_path / "used/sm_90a/rows1").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    done = megalith(*replaced(words, tmp_path))
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert re.fullmatch(r"megalith( \w+)?: error: [^\n]+\n", done.stderr), "not one line: " + done.stderr
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before, "left something behind"


# Sizes that a model may have but no kernel has yet: a field, its value, and what the line says.
SIZES = [
    ("hidden_size", 260, "a hidden size of 260; expected a multiple of 8"),
    ("head_dim", 32, "a head size of 32; expected a multiple of 64"),
    ("head_dim", 96, "a head size of 96; expected a multiple of 64"),
    ("rope_theta", 1.0, "a base of at most 1; expected one above 1"),
    ("num_experts", 18, "a number of experts of 18; expected a multiple of 4"),
    ("num_experts", 516, "516 experts; expected at most 512"),
    ("num_experts_per_tok", 17, "17 experts a token; expected at most 16"),
    ("moe_intermediate_size", 132, "an intermediate size of 132; expected a multiple of 8"),
    ("vocab_size", 511, "a vocabulary of 511; expected a multiple of 2"),
]


@pytest.mark.parametrize("field,value,says", SIZES)
def test_size_without_kernel(field, value, says, tmp_path):
    config = {**json.loads(Path(CONFIG).read_text()), field: value}
    if field == "num_experts_per_tok":
        config["num_experts"] = 32
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = megalith("compile", str(tmp_path / "config.json"), "--target", "sm_90a", "--rows", "1",
                    "--sms", "2", "--no-cubins", "-o", str(tmp_path / "out"))
    assert done.returncode == 1, done.stderr
    assert "has no kernel form yet: " + says in done.stderr
    assert not (tmp_path / "out").exists()


def test_there_are_enough_mistakes():
    assert sum(code == 2 for _, code, _ in MISTAKES) >= 20


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    for flag in ["--help", "-h"]:
        done = megalith(command, flag)
        assert done.returncode == 0 and done.stderr == ""
        assert f"usage: megalith {command} " + ("[" if command == "calibrate" else "<") in done.stdout
        assert f"\nexample:\n  megalith {command} " in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 110


def test_overview():
    for words in [["--help"], ["-h"], ["help"]]:
        done = megalith(*words)
        assert done.returncode == 0
        assert all(f"\n  {c} " in done.stdout for c in COMMANDS)
        assert "\nexample:\n" in done.stdout


def test_help_wins_over_mistakes():
    assert megalith("import", "--frobnicate", "--help").returncode == 0


def test_output_through_links_and_into_pipes(tmp_path):
    printed = megalith("import", CONFIG).stdout
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("before")
    assert megalith("import", CONFIG, "-o", str(tmp_path / "link")).returncode == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == printed
    # What is not a file is written, not replaced by one.
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        assert megalith("import", CONFIG, "-o", str(tmp_path / "pipe")).returncode == 0
        assert reader.communicate(timeout=60)[0] == printed
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("words", [["--help"], ["import", "--help"], ["import", CONFIG]])
def test_a_full_disk_is_one_line(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([MEGALITH, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(r"megalith( import)?: error: cannot write to standard output: [^\n]+\n", done.stderr)


def test_import_prints_and_writes_the_same(tmp_path):
    printed = megalith("import", CONFIG, "--rows", "2")
    assert printed.returncode == 0 and printed.stderr == ""
    assert "moe.step" in printed.stdout
    out = tmp_path / "out.mlir"
    assert megalith("import", CONFIG, "--rows=2", "-o", str(out)).returncode == 0
    assert out.read_text() == printed.stdout
    assert list(tmp_path.iterdir()) == [out]


def test_import_keeps_the_old_output_on_a_mistake(tmp_path):
    out = tmp_path / "out.mlir"
    out.write_text("old")
    (tmp_path / "config.json").write_text(Path(CONFIG).read_text()[:-20])
    assert megalith("import", str(tmp_path / "config.json"), "-o", str(out)).returncode == 1
    assert out.read_text() == "old"


def test_full_disk():
    with open("/dev/full", "w") as full:
        done = subprocess.run([MEGALITH, "import", CONFIG], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "cannot write to standard output: No space left on device" in done.stderr


def test_verify_proves_m0():
    done = megalith("verify", M0)
    assert done.returncode == 0, done.stderr
    assert "proved: 1 kernel without deadlock or race" in done.stdout


def test_verify_rejects_a_missing_wait(tmp_path):
    """Exit code 3, with the place and then one closing line."""
    lines = Path(M0).read_text().splitlines(keepends=True)
    wait = next(i for i, line in enumerate(lines) if "task.wait" in line)
    broken = tmp_path / "broken.mlir"
    broken.write_text("".join(lines[:wait] + lines[wait + 1 :]))
    done = megalith("verify", str(broken))
    assert done.returncode == 3
    assert re.search(r"broken\.mlir:\d+:\d+: error: ", done.stderr)
    assert done.stderr.endswith("broken.mlir: not proved, for the reasons above\n")
    assert done.stdout == ""


def test_verify_of_text_that_is_no_ir(tmp_path):
    (tmp_path / "bad.mlir").write_text("task.kernel @x {")
    done = megalith("verify", str(tmp_path / "bad.mlir"))
    assert done.returncode == 1
    assert re.search(r"bad\.mlir:\d+:\d+: error: ", done.stderr)
    assert done.stderr.splitlines()[-1].startswith("megalith verify: error: ")


def compile_small(folder, cache, *more):
    """What was said of the proof: "proof", or "proof, done before"."""
    done = megalith("compile", CONFIG, "--target", "sm_90a", "--rows", "2", "--sms", "2", "--no-cubins",
                    "-o", str(folder / "out"), *more, cache=cache)
    assert done.returncode == 0, done.stderr
    return re.search(r"^sm_90a rows 2: (proof.*)$", done.stderr, re.M).group(1)


@pytest.mark.parametrize("mode, count", [([], 4), (["--launch", "per-stage"], 10), (["--scope", "step"], 2)])
def test_verify_of_an_artifact_sees_a_change_of_any_source(mode, count, tmp_path):
    """Also of the kernel between steps, which is printed without a task.kernel."""
    compile_small(tmp_path, tmp_path / "cache", *mode)
    [folder] = (tmp_path / "out/sm_90a").iterdir()
    done = megalith("verify", str(folder))
    assert done.returncode == 0 and "the sources are theirs; no cubins" in done.stdout, done.stderr
    sources = sorted(folder.glob("kernels/*.cu"))
    assert len(sources) == count
    for source in sources:
        text = source.read_text()
        source.write_text(text.replace("namespace", "namespacf", 1))
        done = megalith("verify", str(folder))
        assert done.returncode == 3 and f"{source.name}: expected the source that kernels.mlir" in done.stderr
        source.write_text(text)


def pointed(stderr, file):
    """(kind, line of the file, message) of each diagnostic, which must quote that line with a caret below its place."""
    said, lines, found = stderr.splitlines(), file.read_text().splitlines(), []
    for i, line in enumerate(said):
        if place := re.fullmatch(re.escape(str(file)) + r":(\d+):(\d+): (error|note): (.*)", line):
            quoted = lines[int(place[1]) - 1]
            assert said[i + 1 : i + 3] == [quoted, " " * (int(place[2]) - 1) + "^"]
            assert quoted[int(place[2]) - 1 :].startswith("task."), quoted
            found.append((place[3], quoted.strip(), place[4]))
    assert len(said) == 3 * len(found) + 1, "says more than faults, with no op dumped: " + stderr
    return found


def without(file, *words):
    """The text again, but not the first line of each of these words."""
    lines = file.read_text().splitlines(keepends=True)
    for word in words:
        lines.pop(next(i for i, line in enumerate(lines) if word in line))
    file.write_text("".join(lines))


def test_verify_of_an_artifact_points_into_its_kernels(tmp_path):
    """At both tasks of a deadlock, though the passes' own places, behind the ops, are all in the config."""
    compile_small(tmp_path, tmp_path / "cache")
    file = tmp_path / "out/sm_90a/rows2/kernels.mlir"
    assert Path(CONFIG).name in file.read_text()
    without(file, "task.signal @qkv_full")
    done = megalith("verify", str(file.parent))
    assert done.returncode == 3 and done.stdout == ""
    found = pointed(done.stderr, file)
    assert any(kind == "error" and "task.wait @qkv_full" in line and "deadlock: the consumer of @attention waits" in says
               for kind, line, says in found)
    assert any(kind == "note" and "task.acquire @qkv_free" in line and "the poller of @attention is blocked here" in says
               for kind, line, says in found)


def test_verify_tells_faults_of_whole_kernels_apart(tmp_path):
    compile_small(tmp_path, tmp_path / "cache")
    file = tmp_path / "out/sm_90a/rows2/kernels.mlir"
    without(file, *3 * ["task.launch_dependents"])
    done = megalith("verify", str(file))
    assert done.returncode == 3
    names = [re.match(r"task.kernel @(\w+)", line)[1] for _, line, says in pointed(done.stderr, file)
             if "lets the next launch start 0 times" in says]
    assert names == ["embed", "layer", "last"]


def test_verify_points_at_what_is_no_valid_op(tmp_path):
    compile_small(tmp_path, tmp_path / "cache")
    file = tmp_path / "out/sm_90a/rows2/kernels.mlir"
    file.write_text(file.read_text().replace("task.wait @qkv_full", "task.wait @nothing", 1))
    done = megalith("verify", str(file))
    assert done.returncode == 1
    kind, line, says = pointed(done.stderr, file)[0]
    assert kind == "error" and "task.wait @nothing" in line and "@nothing" in says


def test_verify_of_an_artifact_compares_cubins(tmp_path):
    """By the digests of its plan. Made-up bytes do: they are not looked into."""
    compile_small(tmp_path, tmp_path / "cache")
    folder = tmp_path / "out/sm_90a/rows2"
    plan = json.loads((folder / "plan.json").read_text())
    kernel = next(kernel for kernel in plan["kernels"] if kernel["name"] == "layer")
    kernel["cubin"] = "kernels/layer.cubin"
    cubin = folder / kernel["cubin"]
    cubin.write_bytes(b"\x7fELF, made up")

    def told(code):
        (folder / "plan.json").write_text(json.dumps(plan))
        done = megalith("verify", str(folder), "--cases", "0")
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    assert "layer.cubin: expected a digest of it in plan.json" in told(3)
    kernel["cubin_digest"] = 32 * "0"
    says = told(3)
    assert f"layer.cubin: expected the cubin of kernel 'layer', of digest {32 * '0'} as plan.json says" in says
    kernel["cubin_digest"] = re.search(r"but got 13 bytes of digest (\w{32}); compile again", says)[1]
    assert "the sources are theirs; 1 cubin is the plan's" in told(0)
    cubin.write_bytes(b"")
    assert "layer.cubin: expected the cubin of kernel 'layer'" in (says := told(3)) and "got 0 bytes" in says
    cubin.unlink()
    assert "layer.cubin: expected a kernel's cubin but cannot read it" in told(1)


def test_verify_makes_the_folder_for_ptx(tmp_path):
    done = megalith("verify", M0, "--ptx", str(tmp_path / "new/ptx"))
    if done.returncode == 4 and "NVRTC" in done.stderr:
        pytest.skip("no NVRTC here")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "new/ptx").iterdir()] == ["m0.ptx"]


def test_a_proof_is_kept(tmp_path):
    cache = tmp_path / "cache"
    assert compile_small(tmp_path, cache) == "proof"
    assert compile_small(tmp_path, cache) == "proof, done before"
    assert compile_small(tmp_path, cache, "--no-cache") == "proof"


@pytest.mark.parametrize("find, other", [
    ("proved\n", ""),  # cut short
    ("prover ", "prover 0"),  # by another prover
    ("kernels ", "kernels 0"),  # of other kernels
    ("random cases 8", "random cases 9"),
    ("megalith proof 1", "megalith proof 2"),
])
def test_a_record_that_says_anything_else_is_none(find, other, tmp_path):
    cache = tmp_path / "cache"
    assert compile_small(tmp_path, cache) == "proof"
    (record,) = cache.glob("proofs/*/proof.txt")
    right = record.read_text()
    assert find in right
    record.write_text(right.replace(find, other))
    assert compile_small(tmp_path, cache) == "proof"
    assert record.read_text() == right


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path):
    assert compile_small(tmp_path, "/proc/nowhere") == "proof"


def test_timing(tmp_path):
    done = megalith("compile", CONFIG, "--target", "sm_90a", "--rows", "2", "--sms", "2", "--no-cubins", "--timing",
                    "-o", str(tmp_path / "out"), cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    table = done.stderr[done.stderr.index("phase "):].splitlines()
    assert re.fullmatch(r"phase +wall ms +CPU ms", table[0])
    names = [line.strip().rsplit(None, 2)[0] for line in table[1:]]
    assert names[0] == "start of the program" and names[-1] == "all"
    assert "sm_90a rows 2: proof" in names and "sm_90a rows 2: print" in names
    assert all(float(number) >= 0 for line in table[1:] for number in line.split()[-2:])


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(Path(CONFIG).read_text())
    return tmp_path


def test_import_takes_a_checkpoints_folder(checkpoint):
    done = megalith("import", str(checkpoint))
    assert done.returncode == 0, done.stderr
    assert "moe.step" in done.stdout


QUANTISED = [
    ('{"quantization": {"quant_algo": "FP8"}}', '$.quantization.quant_algo: expected "NVFP4" but got "FP8"'),
    ('{"quantization": {"quant_algo": {"a": 1}}}', '$.quantization.quant_algo: expected "NVFP4" but got {"a":1}'),
    ('{"quantization": {"quant_algo": "NVFP4"}}', "$.quantization.exclude_modules: expected a pattern for model.layers.0"),
    ('{"other": 1}', "$.quantization: expected an object but got nothing"),
    ("[]", "hf_quant_config.json: $: expected a JSON object but got []"),
    ("{", "hf_quant_config.json: $: expected a complete JSON object"),
    ("", "hf_quant_config.json: expected a hf_quant_config.json but the file is empty"),
    ("[" * 1000000, "hf_quant_config.json: "),
]


@pytest.mark.parametrize("text, says", QUANTISED, ids=range(len(QUANTISED)))
@pytest.mark.parametrize("place", ["config.json", ""])
def test_quantisation_told_beside_the_config(text, says, place, checkpoint):
    """Tools that quantise checkpoints say so in a file of its own: without it the weights would be read as bf16."""
    (checkpoint / "hf_quant_config.json").write_text(text)
    for words in (["import"], ["compile", "--target", "sm_90a", "--rows", "1", "-o", str(checkpoint / "out")]):
        done = megalith(words[0], str(checkpoint / place), *words[1:])
        assert done.returncode == 1
        assert done.stdout == ""
        assert words[0] != "import" or len(done.stderr.splitlines()) == 1
        assert says in done.stderr and "hf_quant_config.json" in done.stderr


def test_what_quant_says_wins(checkpoint):
    beside = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*mlp.gate"]}}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps(beside))

    def formats(*words):
        done = megalith("import", str(checkpoint), *words)
        assert done.returncode == 0, done.stderr
        weights = [line.split() for line in done.stdout.splitlines() if "moe.weight" in line]
        return {words[1] for words in weights if "!moe.block_format<f4E2M1FN," in words}

    experts = {"@experts_gate_nvfp4", "@experts_up_nvfp4", "@experts_down_nvfp4"}
    attention = {f"@{name}_proj_nvfp4" for name in "qkvo"}
    assert formats() == experts | attention
    assert formats("--quant", "nvfp4") == experts
    assert formats("--quant", "none") == set()
    assert formats("--quant", str(checkpoint / "hf_quant_config.json")) == experts | attention
    done = megalith("import", str(checkpoint), "--quant", "nvfp4", "--act", "nvfp4")
    assert done.stdout.count("moe.quantize") == 2
    done = megalith("import", str(checkpoint), "--quant", "none", "--act", "nvfp4")
    assert done.returncode == 1 and "expected experts with NVFP4 weights but got none" in done.stderr


def test_no_quantisation_told_beside_the_config(checkpoint):
    (checkpoint / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": null}}')
    assert megalith("import", "config.json", cwd=checkpoint).returncode == 0


def test_import_for_ranks():
    """What a rank computes on stdout; what every way of cutting the model exchanges on stderr."""
    folder = os.path.dirname(CONFIG)
    done = megalith(
        "import", f"{folder}/muse-spark-mini.test.json", "--act", "nvfp4", "--tp", "8",
        "--quant", f"{folder}/muse-spark-open-nvfp4.quant.assembled.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "megalith.ranks = 8" in done.stdout and "@sliding_nvfp4" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0] == "8 ranks: what a rank receives for a row, and stops, per layer"
    kinds = [line for line in lines if line.startswith("@")]
    assert kinds == ["@sliding, 1 layer(s)", "@full_nvfp4, 1 layer(s)", "@sliding_nvfp4, 3 layer(s)", "@full, 1 layer(s)"]
    assert sum("experts nn-sums, o_proj k-ordered" in line for line in lines) == len(kinds)
