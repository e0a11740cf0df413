#!/bin/bash
# Builds the Python package and packs it into a wheel in the folder given, or out/:
# tools/python/build_wheel.sh [--static] [folder]. The wheel runs where Debian 12's Python 3.11, NumPy
# and LLVM 22 (libmlir-22) are installed; with --static LLVM is inside, and any system whose glibc is as
# new as this one's will do.
set -euo pipefail
config=()
if [ "${1:-}" = --static ]; then
  config=(--config=static)
  shift
fi
if (($# > 1)) || [[ "${1:-}" == -* ]]; then
  echo "usage: $0 [--static] [folder]" >&2
  exit 2
fi
out=$(realpath -m "${1:-$(dirname "$0")/../../out}")
cd "$(dirname "$0")/../.."
bazel build "${config[@]}" //tools/python
/usr/bin/python3 tools/python/wheel.py tools/python/megalith build/bin/tools/python/megalith "$out"
