"""Packs the built package into a wheel: wheel.py PACKAGE_FOLDER... OUT_FOLDER.

A wheel is a zip file with a list of its contents, so nothing but the standard library is needed.
The package's files may be spread over several folders (sources and build outputs). The name of the
wheel is printed.
"""

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

NAME = "megalith"
VERSION = "0.1.0"
SUFFIXES = {".py", ".pyi", ".typed", ".so"}

METADATA = f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: From a Mixture-of-Experts model's config to proved CUDA kernels, one per layer
Requires-Python: >=3.11
Requires-Dist: numpy
"""


def tag() -> str:
    """The native module is made for one Python version, and for the LLVM of this system."""
    python = "cp" + sysconfig.get_config_var("py_version_nodot")
    return f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def package_files(folders):
    """Name in the package -> file."""
    found = {}
    for folder in folders:
        for file in sorted(Path(folder).iterdir()):
            if file.suffix in SUFFIXES:
                found.setdefault(file.name, file)
    for needed in ["__init__.py", "_native.so"]:
        if needed not in found:
            sys.exit(f"wheel.py: expected {needed} in {', '.join(map(str, folders))} but found none")
    return found


def write_wheel(folders, out) -> Path:
    contents = {}
    for name, file in package_files(folders).items():
        if name == "_native.so":  # so that another Python does not try to load it
            name = "_native" + sysconfig.get_config_var("EXT_SUFFIX")
        contents[f"{NAME}/{name}"] = file.read_bytes()
    info = f"{NAME}-{VERSION}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: megalith\nRoot-Is-Purelib: false\nTag: {tag()}\n"
    contents[f"{info}/METADATA"] = METADATA.encode()
    contents[f"{info}/WHEEL"] = wheel.encode()
    record = ""
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    Path(out).mkdir(parents=True, exist_ok=True)
    path = Path(out, f"{NAME}-{VERSION}-{tag()}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name)  # dated 1980: equal contents, equal bytes
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: wheel.py PACKAGE_FOLDER... OUT_FOLDER")
    print(write_wheel(sys.argv[1:-1], sys.argv[-1]))
