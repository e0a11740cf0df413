"""Texts as reviewed: IR after each pass of a small model, emitted sources, the outputs in docs/python.md.

test_goldens.py compares them with what the compiler makes now; run as a program, this
writes them again and says what changed (update.sh).
"""

import contextlib
import difflib
import io
import os
import re
import sys
from pathlib import Path

import megalith

CONFIGS = {"qwen3_moe": "qwen3-moe-small.test.json", "mixtral": "mixtral-small.test.json"}
FOLDER = Path("tests/golden")
DOCUMENT = "docs/python.md"
MOST_LINES = 60  # of one file's difference that are shown


def compiled(family: str) -> megalith.Program:
    # Of a size at which every stage is spread over several SMs, and rows over several tiles.
    return megalith.compile(Path("models/configs", CONFIGS[family]), rows=2, sms=4)


def documented() -> str:
    """docs/python.md with what its examples print now, each in the block after it."""
    names = {}

    def rerun(example):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example[1], names)
        return f"```python\n{example[1]}```\n\n```\n{printed.getvalue()}```\n"

    return re.sub(r"```python\n(.*?)```\n\n```\n.*?```\n", rerun, Path(DOCUMENT).read_text(), flags=re.S)


def texts():
    """File below tests/golden -> what should be in it. From the checkout's root."""
    result = {}
    program = compiled("qwen3_moe")
    for number, name in enumerate(program.passes):
        result[f"ir/qwen3_moe/{number:02}-{name}.mlir"] = program.ir(name)
    result["source/qwen3_moe-layer.cu"] = program.source("layer", digests=False)
    step = megalith.compile(Path("models/configs", CONFIGS["qwen3_moe"]), rows=2, sms=4, scope="step")
    result["source/qwen3_moe-step.cu"] = step.source("step", digests=False)
    result["source/mixtral-layer.cu"] = compiled("mixtral").source("layer", digests=False)
    m0 = megalith.emit(Path("tests/ir/task/m0.mlir").read_text(), "m0.mlir", digests=False)
    result["source/m0.cu"] = "".join(m0.values())
    result[f"../../{DOCUMENT}"] = documented()
    return result


def present():
    """The same as it is in the files."""
    files = [*FOLDER.glob("ir/*/*.mlir"), *FOLDER.glob("source/*.cu")]
    found = {str(f.relative_to(FOLDER)): f.read_text() for f in files}
    return {**found, f"../../{DOCUMENT}": Path(DOCUMENT).read_text()}


def difference(name: str, old: str, new: str) -> str:
    """As a patch, of at most MOST_LINES lines."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "old " + name, "new " + name, lineterm=""))
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"... {len(lines) - MOST_LINES} more lines"]
    return "\n".join(lines)


def update() -> None:
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    old, new = present(), texts()
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    for name in changed:
        path = FOLDER / name
        if name not in new:
            path.unlink()
            print(f"gone: {name}")
            continue
        print(difference(name, old[name], new[name]) if name in old else f"new: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new[name])
    print(f"{len(changed)} of {len(new)} goldens changed" + "".join("\n  " + name for name in changed))


if __name__ == "__main__":
    sys.exit(update())
