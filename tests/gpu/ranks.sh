#!/bin/bash
# usage: ranks.sh FOLDER [LAUNCHES]: virtual ranks on one GPU, in a folder made by
#   bazel build --config=static //tests/gpu:check && build/bin/tests/gpu/check prepare-ranks FOLDER
#   cp build/bin/tests/gpu/check tests/gpu/ranks.sh FOLDER
# (the first line where NVRTC is, no GPU). Small models on 2, 4 and 8 ranks that share every launch:
# each launch against the reference, then LAUNCHES (1000) launches with the same bits, with words of
# other ranks 0, 800 and 1500 ns longer on their way. Under a minute; exit code 0 or 1.
folder=${1:?usage: ranks.sh FOLDER [LAUNCHES]}
launches=${2:-1000}
check="$folder/check"
status=0
for hop in 0 800 1500; do
  echo "== hop + $hop ns"
  "$check" heading
  while read -r plan; do
    # With a hop only the largest plans, for time.
    [ "$hop" = 0 ] || [[ $plan == *medium* || $plan == *held* ]] || continue
    MEGALITH_HOP_NS=$hop timeout 60 "$check" run "$plan" "$launches" || {
      echo "FAILED $plan, hop $hop"
      status=1
    }
  done < <("$check" list "$folder")
done
exit $status
