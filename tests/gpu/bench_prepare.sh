#!/bin/bash
# Fills a folder with what bench.sh needs on the machine with the GPU: the benchmark without the
# compiler, plans and cubins of Qwen3-30B-A3B.
#   tests/gpu/bench_prepare.sh FOLDER [CONFIG]
# From the checkout's root; needs NVRTC, no GPU.
set -eu
folder=${1:?usage: bench_prepare.sh FOLDER [CONFIG]}
config=${2:-models/configs/qwen3-30b-a3b.json}
bazel build --config=static //tools/bench:megalith-bench
bazel build //tools/megalith
mkdir -p "$folder"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
build/bin/tools/megalith/megalith compile "$config" --target sm_90a --rows 1,2,4,8 \
  --launch fused,per-stage --least-context 131200 -o "$build"
build/bin/tools/megalith/megalith compile "$config" --target sm_90a --rows 1,2,4,8 \
  --scope step --least-context 131200 -o "$build"
rm -rf "$folder/sm_90a"
for plan in "$build"/sm_90a/rows*; do
  to=$folder/sm_90a/$(basename "$plan")
  mkdir -p "$to/kernels"
  cp "$plan/plan.json" "$to"
  cp "$plan"/kernels/*.cubin "$to/kernels"
done
install -m 755 tests/gpu/bench.sh "$folder"
strip -o "$folder/megalith-bench" build/bin/tools/bench/megalith-bench
du -sh "$folder"
