#!/bin/bash
# Whole steps of Qwen3-30B-A3B on a GPU: what launches leave is recorded for `check compare`, and
# thousands of steps must have the same bits.
#   steps.sh FOLDER   FOLDER as prepare_real.sh makes it
# Recordings go to $OUT, or to a new folder that is named at the end; compare them here:
#   check compare FOLDER/qwen3-30b-a3b-step/sm_90a/rows8 OUT 1,129,8192
set -u
folder=${1:?usage: steps.sh FOLDER}
out=${OUT:-$(mktemp -d)}
failed=0
try() { # SECONDS WORDS...
  timeout "$1" "$folder/check" "${@:2}" || {
    echo "steps: FAILED, exit code $?: ${*:2}"
    failed=1
  }
}
model=$folder/qwen3-30b-a3b-step/sm_90a
for rows in 1 8; do
  try 120 record "$model/rows$rows" "$out" 1,129,8192
done
try 120 steps "$model/rows1" 8192 10000 500
try 120 steps "$model/rows8" 8192 1000 200
echo "recordings: $out"
[ "$failed" = 0 ] && echo "steps: passed" || echo "steps: FAILED"
exit "$failed"
