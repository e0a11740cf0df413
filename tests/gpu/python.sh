#!/bin/bash
# The Python package on a GPU machine that has neither it nor Debian 12's Python.
#   tests/gpu/python.sh prepare FOLDER   here (Debian 12, from the checkout's root): packs Python 3.11,
#                                        NumPy and the package, LLVM inside, into FOLDER/python.tar.xz
#   FOLDER/python.sh run FOLDER          there (driver, NVRTC, g++): compiles, runs on GPU and host
set -eu
verb=${1:?usage: python.sh prepare|run FOLDER}
folder=${2:?usage: python.sh prepare|run FOLDER}
if [ "$verb" = prepare ]; then
  bazel build --config=static //tools/python:python
  pack=$(mktemp -d)
  trap 'rm -rf "$pack"' EXIT
  mkdir -p "$pack/lib/python3.11" "$pack/libs" "$pack/site"
  cp -L /usr/bin/python3.11 "$pack/python"
  tar -C /usr/lib/python3.11 --exclude=test --exclude='config-*' --exclude=__pycache__ --exclude=idlelib \
    --exclude=tkinter --exclude=lib2to3 --exclude=ensurepip --exclude=pydoc_data -c . | tar -C "$pack/lib/python3.11" -x
  tar -C /usr/lib/python3/dist-packages --exclude=tests --exclude=__pycache__ --exclude='*.pyx' --exclude=include \
    -c numpy | tar -C "$pack/site" -x
  for library in "$pack/python" "$pack"/site/numpy/core/*.so "$pack"/site/numpy/linalg/*.so; do
    ldd "$library" | awk '/=> \//{print $3}'
  done | sort -u | grep -vE '/(libc|libm|libdl|libpthread|ld-linux[^/]*)\.so' | xargs cp -Lt "$pack/libs"
  mkdir "$pack/site/megalith"
  cp tools/python/megalith/*.py "$pack/site/megalith"
  strip -o "$pack/site/megalith/_native.so" build/bin/tools/python/megalith/_native.so
  cp tests/gpu/python_check.py models/configs/qwen3-moe-small.test.json "$pack"
  mkdir -p "$folder"
  tar -C "$pack" -cJf "$folder/python.tar.xz" .
  install -m 755 tests/gpu/python.sh "$folder"
  du -sh "$folder/python.tar.xz"
else
  there=$(mktemp -d)
  trap 'rm -rf "$there"' EXIT
  tar -C "$there" -xJf "$folder/python.tar.xz"
  cd "$there"
  # -B: no byte code; PYTHONHOME: its own standard library.
  LD_LIBRARY_PATH="$there/libs:${LD_LIBRARY_PATH:-}" PYTHONHOME="$there" PYTHONPATH="$there/site" \
    "$there/python" -B python_check.py qwen3-moe-small.test.json
fi
