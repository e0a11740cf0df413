"""The checkout's form: clang-format, and links of the Markdown files."""

import os
import re
import subprocess
from pathlib import Path

# The test's folder holds links into the checkout.
ROOT = Path(os.path.realpath("WORKSPACE")).parent
CLANG_FORMAT = "/usr/bin/clang-format"  # Debian 12's, version 14: others format differently
SKIPPED = {"build", "out"}


def files(*suffixes):
    """All files of the checkout with one of these suffixes."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(d for d in folders if d[0] != "." and d not in SKIPPED and not d.startswith("bazel-"))
        found += [Path(folder, n) for n in sorted(names) if n.endswith(suffixes)]
    return found


def broken_links(text, folder):
    """The targets of a Markdown text's links, and paths in backquotes of a map, that do not exist."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", t)]
    return [t for t in targets if not Path(folder, t.split("#")[0]).exists()]


def test_clang_format():
    version = subprocess.run([CLANG_FORMAT, "--version"], capture_output=True, text=True).stdout
    assert "version 14." in version, f"expected clang-format 14, got: {version}"
    sources = files(".cpp", ".h", ".cuh", ".cu")
    assert len(sources) > 50
    done = subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", *sources], capture_output=True, text=True, cwd=ROOT)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, flags=re.M)))
    assert done.returncode == 0, "to mend: clang-format -i " + " ".join(os.path.relpath(w, ROOT) for w in wrong)


def test_markdown_links():
    broken = {str(f.relative_to(ROOT)): b for f in files(".md") if (b := broken_links(f.read_text(), f.parent))}
    assert not broken, f"links to files that do not exist: {broken}"


def test_broken_link_is_found(tmp_path):
    (tmp_path / "there.md").write_text("")
    assert broken_links("[a](there.md#part) [b](gone.md) [c](#part)", tmp_path) == ["gone.md"]


def test_readme_paths():
    """Each `path/` or `path/file` that README.md names in backquotes exists."""
    readme = ROOT / "README.md"
    text = re.sub(r"^```.*?^```", "", readme.read_text(), flags=re.M | re.S)
    paths = [p for p in re.findall(r"`([\w.-]+/[\w./-]*)`", text) if p.split("/")[0] not in SKIPPED]
    assert paths and not [p for p in paths if not Path(ROOT, p).exists()]
