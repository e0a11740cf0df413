"""megalith compile, run and verify on whole small models."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MEGALITH = os.path.abspath("tools/megalith/megalith")
CONFIGS = Path("models/configs").resolve()
QWEN = str(CONFIGS / "qwen3-moe-small.test.json")
MUSE = str(CONFIGS / "muse-spark-mini.test.json")
MIXTRAL = str(CONFIGS / "mixtral-small.test.json")


def megalith(*words, code=0):
    done = subprocess.run([MEGALITH, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr[-2000:] + done.stdout
    return done


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """A compiled small model, sources only."""
    out = tmp_path_factory.mktemp("artifact") / "out"
    megalith("compile", QWEN, "--target", "sm_90a", "--rows", "2", "--sms", 6, "-o", out, "--no-cubins", "--save-ir")
    return out / "sm_90a/rows2"


def test_files(artifact):
    assert sorted(f.name for f in artifact.iterdir()) == ["ir", "kernels", "kernels.mlir", "model.mlir", "plan.json",
                                                            "report.html"]
    assert sorted(f.name for f in (artifact / "kernels").iterdir()) == ["advance.cu", "embed.cu", "last.cu",
                                                                             "layer.cu"]
    steps = sorted(f.name for f in (artifact / "ir").iterdir())
    assert steps[0].endswith("moe-cut-launches.mlir") and steps[-1].endswith("task-lower-to-roles.mlir")
    plan = json.loads((artifact / "plan.json").read_text())
    assert [k["kernel"] for k in plan["launches"]] == ["embed", "layer", "layer", "last"]
    assert (plan["rows"], plan["sms"], plan["target"], plan["vocab"]) == (2, 6, "sm_90a", 512)


def test_same_command_same_bytes(artifact, tmp_path):
    for _ in range(2):  # the second replaces the first
        megalith("compile", QWEN, "--target", "sm_90a", "--rows", "2", "--sms", 6, "-o", tmp_path, "--no-cubins")
    for file in ["plan.json", "kernels.mlir", "kernels/layer.cu"]:
        assert (tmp_path / "sm_90a/rows2" / file).read_bytes() == (artifact / file).read_bytes()
    assert not (tmp_path / "sm_90a/rows2/ir").exists()
    assert [f.name for f in (tmp_path / "sm_90a").iterdir()] == ["rows2"]


SCALES = {  # a checkpoint with NVFP4 experts and scales for an FP8 cache
    "quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8",
                     "exclude_modules": ["lm_head", "*self_attn*", "*mlp.gate"]}}


@pytest.mark.parametrize("words", [[QWEN, "--new-rows", "3,1"], [MIXTRAL, "--launch", "per-stage", "--conformance"],
                                   [QWEN, "--scope", "step"], [QWEN, "--tp", 2],
                                   [str(CONFIGS / "muse-spark-mini.test.json"), "--new-rows", "2,1"],
                                   [QWEN, "--quant"]],
                         ids=["rows", "per-stage", "step", "ranks", "window", "scales"])
def test_kv_of_e4m3(words, tmp_path):
    if words[-1] == "--quant":
        (tmp_path / "quant.json").write_text(json.dumps(SCALES))
        words = [*words, tmp_path / "quant.json"]
    done = megalith("run", *words, "--kv", "e4m3", "--sms", 8, "--rows", 4, "--context", "78,0", "--steps", 2)
    assert "FAILS" not in done.stdout
    assert "kv" in done.stdout.splitlines()[1].split()


@pytest.mark.parametrize("config", [QWEN, MIXTRAL], ids=["qwen", "mixtral"])
def test_run_a_config(config):
    done = megalith("run", config, "--sms", 4, "--rows", 4, "--context", "70,0", "--new-rows", "2,1", "--repeat", 2)
    assert re.findall(r"^  0 +(\d) +\w+ +[-\d] ", done.stdout, flags=re.M) == ["0", "1", "2", "3"]
    assert "FAILS" not in done.stdout
    assert "2 more runs, launches overlapping, all with the same bits" in done.stdout


def test_run_slices_that_do_not_divide(tmp_path):
    # 129 strips on 2 SMs: slices of 65 and 64, 9 tiles of up to 8 and 8.
    config = {**json.loads(Path(QWEN).read_text()), "vocab_size": 258, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "FAILS" not in megalith("run", tmp_path / "config.json", "--sms", 2, "--context", 1).stdout


def test_run_an_artifact(artifact):
    assert "rows 2, 6 SMs, on host" in megalith("run", artifact).stdout


def check_path(found):
    """Segments join end to end from begin to end, and totals are theirs."""
    path, stages = found["path"], {k: v["stages"] for k, v in found["names"].items()}
    time, sums = path["begin"], {}
    for segment in path["segments"]:
        assert abs(segment["begin"] - time) < 0.2 and segment["end"] > segment["begin"] - 0.2
        assert segment["kind"] in ("work", "wait", "stream", "boundary")
        time = segment["end"]
        key = stages[segment["kernel"]][segment["stage"]], segment["kind"], segment.get("edge")
        sums[key] = sums.get(key, 0) + segment["end"] - segment["begin"]
    assert abs(time - path["end"]) < 0.2 and path["launches"] >= 1
    totals = {(t["stage"], t["kind"], t.get("edge")): t["ns"] for t in path["totals"]}
    assert totals.keys() == sums.keys()
    assert all(abs(sums[key] - ns * path["launches"]) <= 0.5 * len(path["segments"]) for key, ns in totals.items())
    span = path["end"] - path["begin"]
    assert abs(sum(totals.values()) * path["launches"] - span) < 0.5 * len(totals) * path["launches"]


def test_records(tmp_path):
    """Every stage of every role once a launch, in an order that the exchanges between them allow."""
    config = ["--sms", 4, "--rows", 2]
    megalith("compile", QWEN, "--target", "sm_90a", *config, "--trace", "--no-cubins", "-o", tmp_path)
    folder, trace, perfetto = tmp_path / "sm_90a/rows2", tmp_path / "trace.json", tmp_path / "perfetto.json"
    assert "the sources are theirs" in megalith("verify", folder).stdout
    done = megalith("run", folder, "--context", "129,40", "--trace", trace, "--perfetto", perfetto)
    assert "kernel layer, 2 launches, one every " in done.stdout
    found = json.loads(trace.read_text())
    assert (found["format"], found["version"]) == ("megalith-trace", 2)
    kernels = {k["name"]: k["trace"] for k in json.loads((folder / "plan.json").read_text())["kernels"] if "trace" in k}
    assert sorted(kernels) == ["embed", "last", "layer"]
    slack = 2 * found["largest_alignment_error"]
    roles = ["producer", "poller", *["consumer"] * 8, "epilogue"]
    assert len(found["launches"]) == 3
    for launch in found["launches"]:
        stages, hops = kernels[launch["kernel"]]["stages"], kernels[launch["kernel"]]["hops"]
        computed = {}  # (stage, SM) -> when its workers could begin, and were done
        assert len(launch["warps"]) == 4 * 11
        for warp in launch["warps"]:
            role = roles[warp["warp"]]
            mine = [i for i, s in enumerate(stages)
                    if warp["sm"] < s["sms"] and role in [r["role"] for r in s["roles"]]]
            assert [entry[0] for entry in warp["stages"]] == mine
            time = warp["begin"]
            for stage, begin, end, waited, stalled, *points in warp["stages"]:
                assert abs(begin - time) < 0.2 and begin <= end
                assert all(begin <= p <= end for p in points if p is not None)
                assert waited >= 0 and stalled >= 0 and waited + stalled <= end - begin + slack + 0.2
                time = end
                worker = [r for r in ("consumer", "epilogue") if r in [x["role"] for x in stages[stage]["roles"]]]
                if worker and role == worker[0]:
                    ready, _, last = points
                    computed.setdefault((stages[stage]["name"], warp["sm"]), []).append((ready, last or end))
            assert time <= warp["end"] + 0.2
        checked = 0
        for hop in hops:  # exchanges that everyone reads whole
            if hop.get("previous") or hop.get("pieces") or hop["from"] in ("attention", "embed"):
                continue
            over = max(last for (stage, _), all_ in computed.items() if stage == hop["from"] for _, last in all_)
            if hop["from"] == "merge":
                continue  # its epilogue is over some time after it stored
            # Each warp may wait for its own part, all together for everything.
            ready = [max((r for r, _ in all_ if r is not None), default=None)
                     for (stage, _), all_ in computed.items() if stage == hop["to"]]
            assert ready and all(r is None or r >= over - slack for r in ready), (hop, over, ready)
            checked += 1
        assert checked >= (3 if launch["kernel"] != "embed" else 0)
    assert found["source"] == "measured"
    check_path(found)
    assert "critical path, 1 launches: " in done.stdout
    bars = [e for e in json.loads(perfetto.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["name"] for e in bars if e["cat"] == "stage"} >= {s["name"] for s in kernels["layer"]["stages"]}
    assert any(e["cat"] == "wait" and e["name"] == "mid_words" for e in bars)


def test_records_of_rank_0(tmp_path):
    """Of several ranks the first's records are shown, those of layers of every kind."""
    config = ["--sms", 4, "--rows", 1, "--tp", 2]
    megalith("compile", MUSE, "--target", "sm_90a", *config, "--trace", "--no-cubins", "-o", tmp_path)
    folder, trace = tmp_path / "sm_90a/rows1-tp2", tmp_path / "trace.json"
    done = megalith("run", folder, "--context", "319", "--trace", trace)
    found = json.loads(trace.read_text())
    assert [launch["kernel"] for launch in found["launches"]] == ["full", "sliding", "sliding"]
    assert all(len(launch["warps"]) == 4 * 11 for launch in found["launches"])
    for kernel in ("sliding", "full"):
        summary = next(k for k in found["summary"]["kernels"] if k["kernel"] == kernel)
        assert {s["stage"] for s in summary["stages"] if s["role"] == "consumer"} >= {"mid_rows", "out_rows", "pooler"}
        assert f"kernel {kernel}, " in done.stdout
    check_path(found)


def test_records_of_kernels_that_record_nothing(artifact):
    done = megalith("run", artifact, "--trace", "-", code=4)
    assert "record nothing; compile with --trace" in done.stderr


def test_run_one_layer(artifact):
    done = megalith("run", artifact, "--layer", 1, "--context", 129, "--repeat", 2)
    assert re.findall(r"^  0 +(\d) +layer +1 ", done.stdout, flags=re.M) == ["2"]


def test_wrong_kernels_are_noticed(artifact, tmp_path):
    """A kernel that leaves expert weights as they are runs, and is told apart: exit code 4."""
    broken = tmp_path / "rows2"
    shutil.copytree(artifact, broken)
    source = broken / "kernels/layer.cu"
    text = source.read_text()
    changed = text.replace("ExpertWeights::softmax_renormalised", "ExpertWeights::softmax")
    assert changed != text
    source.write_text(changed)
    done = megalith("run", broken, code=4)
    assert "FAILS" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("megalith run: error: expected results within tolerance")


def test_verify_an_artifact(artifact):
    done = megalith("verify", artifact)
    assert "proved: 3 kernels without deadlock or race, and the sources are theirs; " in done.stdout
    assert done.stdout.endswith(("; each edge stands in their PTX as it was proved\n", "no NVRTC here\n"))


@pytest.mark.parametrize("was, edited", [
    ('"target": "sm_90a"', '"target": "sm_100a"'),
    ('"model": "qwen3-moe-small.test"', '"model": "another"'),
    ('"layer": 1', '"layer": 0'),
])
def test_verify_sees_a_change_of_the_plan(was, edited, artifact, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(artifact, changed)
    text = (changed / "plan.json").read_text()
    assert was in text
    (changed / "plan.json").write_text(text.replace(was, edited, 1))
    error = megalith("verify", changed, code=3).stderr
    assert f"but got {edited}; compile again" in error and "plan.json, line " in error


@pytest.mark.parametrize("was, edited, said", [
    (r'"layers": 3', '"layers": 4', "layers"),
    (r'"shape": \[[^\]]*\]', '"shape": []', "expected at least one value"),
])
def test_an_edited_plan_is_input_that_is_refused(was, edited, said, artifact, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(artifact, changed)
    text = (changed / "plan.json").read_text()
    (changed / "plan.json").write_text(re.sub(was, edited, text, count=1))
    error = megalith("run", changed, code=1).stderr
    assert said in error and "reference" not in error


def leaves(value, path=()):
    """(path, value) of everything in a plan that is no object or list, once for each kind of place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, path + (key,))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from leaves(inner, path + (i,))
    else:
        yield path, value


def test_every_edited_field_of_a_plan_is_refused_as_input(artifact, tmp_path):
    """Before anything runs; but for what a compiler reported of the kernels, which the host does not use."""
    changed = tmp_path / "changed"
    shutil.copytree(artifact, changed)
    plan = json.loads((artifact / "plan.json").read_text())
    kinds = {}
    for path, value in leaves(plan):
        kinds.setdefault(tuple("[]" if isinstance(p, int) else p for p in path), (path, value))
    assert len(kinds) > 40
    wrong = []
    for kind, (path, value) in kinds.items():
        edited = not value if isinstance(value, bool) else value + "x" if isinstance(value, str) else \
            value + 1 if isinstance(value, (int, float)) else [1]
        copy = json.loads(json.dumps(plan))
        at = copy
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = edited
        (changed / "plan.json").write_text(json.dumps(copy, indent=2))
        done = subprocess.run([MEGALITH, "run", str(changed)], capture_output=True, text=True, timeout=100)
        is_reported = kind[-1] in ("cuda_version", "cubin", "cubin_digest") or "resources" in kind
        if done.returncode != 1 and not (is_reported and done.returncode == 0):
            wrong.append((kind, done.returncode, done.stderr))
        elif done.returncode == 1 and "plan.json" not in done.stderr:
            wrong.append((kind, "names no plan", done.stderr))
    assert not wrong


def test_a_record_that_cannot_be_written_is_refused_first(artifact):
    error = megalith("run", artifact, "--trace", "/no/such/folder/trace.json", code=1).stderr
    assert "expected a file in a folder that exists but got /no/such/folder/trace.json" in error


def test_conformance(artifact):
    done = megalith("run", artifact, "--context", "129,17", "--conformance")
    assert re.search(r"^  conforms to the role regions: 4 launches, \d+ steps, \d+ uses of barriers, ", done.stdout,
                     flags=re.M)
    assert "host" in megalith("run", artifact, "--conformance", "--backend", "cuda", code=2).stderr


def test_conformance_of_a_step_launch_by_launch():
    done = megalith("run", QWEN, "--sms", 3, "--scope", "step", "--conformance")
    assert re.search(r"^  conforms to the role regions: 4 launches, \d+ steps, \d+ uses of barriers, ", done.stdout,
                     flags=re.M)


def test_a_launch_a_stage(tmp_path):
    megalith("compile", QWEN, "--target", "sm_90a", "--rows", "1", "--sms", 3, "--launch", "fused,per-stage", "-o",
             tmp_path, "--no-cubins")
    folder = tmp_path / "sm_90a/rows1-per-stage"
    assert sorted(f.name for f in (tmp_path / "sm_90a").iterdir()) == ["rows1", "rows1-per-stage"]
    plan = json.loads((folder / "plan.json").read_text())
    stages = ["qkv_proj", "attention", "merge", "o_proj", "router", "expert_up", "expert_down"]
    assert plan["launch_mode"] == "per-stage"
    assert [(k["kernel"], k["layer"]) for k in plan["launches"]] == [
        ("embed", 0), *((s, layer) for layer in range(3) for s in stages), ("head", 2)]
    assert "proved: 9 kernels" in megalith("verify", folder).stdout
    done = megalith("run", folder, "--context", 129, "--steps", 2, "--repeat", 2)
    assert "3 SMs, a launch a stage, on host" in done.stdout and "FAILS" not in done.stdout
    assert re.findall(r"^  0 +(\d+) +(\w+) \.\. (\w+) ", done.stdout, flags=re.M) == [
        ("1", "embed", "qkv_proj"), ("8", "attention", "qkv_proj"), ("15", "attention", "qkv_proj"),
        ("22", "attention", "head")]
    # A stage that does not wait for the launch before, by hand: no longer what was proved, nor provable.
    kernels = folder / "kernels.mlir"
    text = kernels.read_text()
    at = text.index("task.launch_wait", text.index("task.kernel @merge"))
    kernels.write_text(text[:at] + text[text.index("\n", at):])
    done = megalith("verify", folder, code=3)
    assert "needs the previous launch to be complete" in done.stderr


def test_verify_notices_a_source_that_was_changed(artifact, tmp_path):
    """A wait removed by hand from the source alone: what was proved is not what would run."""
    changed = tmp_path / "rows2"
    shutil.copytree(artifact, changed)
    source = changed / "kernels/layer.cu"
    source.write_text(re.sub(r"\n *wait<routed>\(cta\);", "", source.read_text(), count=1))
    done = megalith("verify", changed, code=3)
    assert re.search(r"layer\.cu: expected the source that kernels\.mlir prints as but got another one", done.stderr)


def test_verify_a_folder_without_kernels(artifact):
    assert "cannot read it" in megalith("verify", artifact / "kernels", code=1).stderr


def test_a_layer_that_is_not_there(artifact):
    done = megalith("run", artifact, "--layer", 3, code=2)
    assert done.stderr == "megalith run: error: --layer: expected a number from 0 to 2 but got '3'\n"


def test_more_positions_than_the_model_has(artifact):
    done = megalith("run", artifact, "--context", 4096, code=2)
    assert "--context: expected at most the model's 4096 positions, new rows included, but got 4097" in done.stderr


def test_more_rows_than_the_bucket(artifact):
    done = megalith("run", artifact, "--context", 1, "--new-rows", 3, code=2)
    assert "expected at most 2 rows in a step, as the plan was compiled for, but got 3" in done.stderr


def test_steps_that_feed_each_other(artifact):
    done = megalith("run", artifact, "--context", "63,0", "--steps", 3, "--feedback")  # into the next page
    tokens = [line.split(":")[1].split() for line in done.stdout.splitlines() if "tokens of sequence" in line]
    assert [len(t) for t in tokens] == [3, 3]
    assert "the same without the host between steps" in done.stdout and "0 otherwise" in done.stdout
    done = megalith("run", artifact, "--feedback", "--repeat", 2, code=2)
    assert "expected neither --repeat nor --layer" in done.stderr


def test_a_bucket_that_does_not_fit(tmp_path):
    """Refused by name, and the bucket that fits is not written either."""
    done = megalith("compile", CONFIGS / "mixtral-8x7b.json", "--target", "sm_90a", "--rows", "1,8",
                    "--launch", "per-stage", "-o", tmp_path / "out", "--no-cubins", code=1)
    line = done.stderr.splitlines()[-1]
    assert re.search(r"mixtral-8x7b\.json: rows 8, sm_90a: rows bucket 8 of mixtral-8x7b does not fit sm_90a: needs "
                     r"\d+ bytes of shared memory of \d+; compile smaller buckets", line)
    assert not (tmp_path / "out").exists()
