"""The wheel installs into a fresh environment and works there, away from the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path("tools/python/megalith")
USE = """
import megalith, sys
assert sys.prefix in megalith.__file__, megalith.__file__
program = megalith.compile(sys.argv[1], sms=2)
results = program.run(contexts=[3], layer=1)
print(program.kernels, results["residual"].shape, results["passes"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    done = subprocess.run([sys.executable, "tools/python/wheel.py", PACKAGE, tmp_path_factory.mktemp("out")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_contents(wheel):
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert wheel.name == f"megalith-0.1.0-{python}-{python}-linux_{os.uname().machine}.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert "megalith/py.typed" in names and "megalith/_native.pyi" in names
    assert not [n for n in names if not n.startswith(("megalith/", "megalith-0.1.0.dist-info/"))]
    assert wheel.stat().st_size < 8 << 20


def test_equal_contents_equal_bytes(wheel, tmp_path):
    subprocess.run([sys.executable, "tools/python/wheel.py", PACKAGE, tmp_path], check=True, capture_output=True)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_package_that_is_not_built(tmp_path):
    (tmp_path / "__init__.py").write_text("")
    done = subprocess.run([sys.executable, "tools/python/wheel.py", tmp_path, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "expected _native.so" in done.stderr


def test_installed(wheel, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", venv], check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = venv / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True, env=clean)
    done = subprocess.run([python, "-c", USE, Path("models/configs/mixtral-small.test.json").resolve()],
                          capture_output=True, text=True, env=clean, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['embed', 'layer', 'last', 'advance'] (1, 1, 1, 256) True\n"
    assert done.stderr == ""
