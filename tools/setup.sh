#!/bin/bash
# Makes a Debian 12 machine ready: the packages that building and testing need, and NVRTC 13 where
# there is no CUDA. Run it as often as you like: what is there is left alone. As root, or as a user
# who may use sudo.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/nvrtc.sh

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

packages=(
  bazel-bootstrap g++ git clang-format                            # build, format
  llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools libzstd-dev zlib1g-dev
  catch2 libfmt-dev pybind11-dev                                  # C++ libraries
  python3 python3-dev python3-numpy python3-pytest python3-venv   # tests, Python package
  chromium                                                        # tests of the report's page
)

missing_of() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

apt() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fail "installing packages needs root: run this as root once, or: apt-get install --no-install-recommends $*"
    as_root=(sudo)
  fi
  say "installing $*"
  "${as_root[@]}" apt-get update -q ||
    fail "apt-get update failed (above): check /etc/apt/sources.list and the network"
  if ! apt-cache show llvm-22-dev >/dev/null 2>&1; then
    fail "no enabled suite has llvm-22-dev: LLVM 22 comes with Debian 12's suite 'bookworm-security'; enable it (component main) in /etc/apt/sources.list and run this again"
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" ||
    fail "apt-get install failed (above); the packages wanted: $*"
}

command -v dpkg-query >/dev/null ||
  fail "this is not Debian: expected Debian 12 (bookworm), found $(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-an unknown system}")"
mapfile -t missing < <(missing_of "${packages[@]}")
if ((${#missing[@]})); then
  apt "${missing[@]}"
else
  say "all ${#packages[@]} packages are installed"
fi

if [ -n "${MEGALITH_NVRTC:-}" ] && [ ! -e "$MEGALITH_NVRTC" ]; then
  fail "\$MEGALITH_NVRTC names '$MEGALITH_NVRTC', which does not exist: point it at a libnvrtc.so.13 or unset it"
fi
nvrtc=$(find_nvrtc)
if [ -z "$nvrtc" ]; then
  mapfile -t missing < <(missing_of python3-venv)
  ((${#missing[@]})) && apt "${missing[@]}"
  say "no CUDA 13 found: putting NVRTC into $nvrtc_venv"
  # Made beside its place and moved, so that an interrupted run leaves nothing that looks whole.
  part="$nvrtc_venv.part.$$"
  trap 'rm -rf "$part"' EXIT
  mkdir -p "$(dirname "$nvrtc_venv")" && /usr/bin/python3 -m venv "$part" &&
    "$part/bin/python" -m pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc==13.*' ||
    fail "pip could not install nvidia-cuda-nvrtc 13 into $part (above): check the network, or set CUDA_HOME to a CUDA 13 toolkit"
  rm -rf "$nvrtc_venv" && mv "$part" "$nvrtc_venv" || fail "cannot write $nvrtc_venv"
  nvrtc=$(find_nvrtc)
  [ -n "$nvrtc" ] || fail "nvidia-cuda-nvrtc was installed, but $nvrtc_venv has no libnvrtc.so.13"
fi
say "NVRTC: $nvrtc"
