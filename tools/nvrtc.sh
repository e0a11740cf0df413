# Sourced by the other scripts: where NVRTC 13 is. The order is that of runtime/nvrtc.cpp, which
# explains it; keep both alike.

nvrtc_venv="${XDG_CACHE_HOME:-$HOME/.cache}/megalith/nvrtc-venv"

# Prints the file that the runtime would load, or nothing.
find_nvrtc() {
  local home file
  if [ -n "${MEGALITH_NVRTC:-}" ]; then
    [ -e "$MEGALITH_NVRTC" ] && echo "$MEGALITH_NVRTC"
    return 0
  fi
  for home in "${MEGALITH_CUDA_HOME:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    for file in "$home"/lib64/libnvrtc.so.13 "$home"/lib/libnvrtc.so.13; do
      [ -n "$home" ] && [ -e "$file" ] && echo "$file" && return 0
    done
  done
  for home in "${VIRTUAL_ENV:-}" "$nvrtc_venv"; do
    for file in "$home"/lib/python*/site-packages/nvidia/cu13/lib/libnvrtc.so.13; do
      [ -n "$home" ] && [ -e "$file" ] && echo "$file" && return 0
    done
  done
  # Last, what the loader knows; its cache may name files that are gone.
  file=$("$(PATH="$PATH:/sbin:/usr/sbin" command -v ldconfig || echo true)" -p |
    sed -n 's/.*libnvrtc\.so\.13 .*=> //p' | head -n 1)
  [ -n "$file" ] && [ -e "$file" ] && echo "$file"
  return 0
}
