#!/bin/bash
# Builds the Python package and packs it into a wheel in the folder given, or out/:
# tools/python/build_wheel.sh [folder]. The wheel runs where Debian 12's Python 3.11, NumPy and LLVM 22
# (libmlir-22) are installed.
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "$0")/../../out}")
cd "$(dirname "$0")/../.."
bazel build //tools/python
/usr/bin/python3 tools/python/wheel.py tools/python/megalith build/bin/tools/python/megalith "$out"
