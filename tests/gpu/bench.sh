#!/bin/bash
# Times a model at real size: everything for one call on a machine with a GPU, under 4 minutes.
#   tests/gpu/bench.sh FOLDER [all]
# With "all": rows 1 and 8 at every context from 1 to 131,072 instead.
# FOLDER holds megalith-bench and sm_90a/rows<n>, sm_90a/rows<n>-per-stage (tests/gpu/bench_prepare.sh
# makes it). JSON files go to $OUT, or to a new folder that is named at the end.
set -u
folder=${1:?usage: bench.sh FOLDER}
out=${OUT:-$(mktemp -d)}
status=0
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,memory.used --format=csv,noheader
bench() { # NAME OPTIONS...: one process, since a fault loses the GPU's context
  echo "== $1: ${*:2}"
  timeout 110 "$folder/megalith-bench" "$folder/sm_90a" --json "$out/bench-$1.json" "${@:2}" || {
    echo "== $1 FAILED: exit code $?"
    status=1
  }
}
if [ "${2:-}" = all ]; then
  bench all-rows1 --rows 1 --context 1,129,2048,8192,32768,131072
  bench all-rows8 --rows 8 --context 1,129,2048,8192,32768,131072
else
  bench rows1 --rows 1 --context 129,2048,8192
  bench rows248 --rows 2,4,8 --context 8192
  bench launches --rows 1,8 --launch fused,per-stage --context 8192
fi
nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader
echo "JSON: $out"
exit $status
