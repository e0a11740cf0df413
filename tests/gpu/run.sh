#!/bin/bash
# usage: run.sh FOLDER [LAUNCHES]: on a GPU machine, everything in a folder made by
#   bazel build --config=static //tests/gpu:check && build/bin/tests/gpu/check prepare FOLDER
#   cp build/bin/tests/gpu/check tests/gpu/run.sh FOLDER
# Compares each plan with the reference, repeats LAUNCHES (1000) launches of it, and runs memcheck
# and synccheck on small plans of each kind. The last line says what passed; exit code 0 or 1.
folder=${1:?usage: run.sh FOLDER [LAUNCHES]}
launches=${2:-1000}
check="$folder/check"
passed=0 failed=0
"$check" heading
while read -r plan; do
  if timeout 120 "$check" run "$plan" "$launches"; then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAILED $plan"; fi
done < <("$check" list "$folder")
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
sanitized="not run: no compute-sanitizer"
if [ -n "$sanitizer" ]; then
  sanitized="clean"
  for plan in qwen3-moe-small/sm_90a/rows4 mixtral-small/sm_90a/rows4 \
    qwen3-moe-small-kv8/sm_90a/rows4 muse-spark-mini-nvfp4/sm_90a/rows8; do
    [ -d "$folder/$plan" ] || continue
    # Not racecheck: an arrival by one lane for its warp is a hazard to it.
    for tool in memcheck synccheck; do
      if ! MEGALITH_SANITIZER=1 timeout 200 "$sanitizer" --tool $tool --error-exitcode 9 \
        "$check" run "$folder/$plan" 16; then
        sanitized="FAILED"; failed=$((failed + 1))
      fi
    done
  done
fi
echo "check: $passed plans passed, $failed failed; memcheck and synccheck $sanitized"
[ "$failed" = 0 ]
