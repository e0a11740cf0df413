#!/bin/bash
# One rank of Muse Spark Open at its real sizes on one GPU: rank 0 of 8 runs alone with all SMs, and
# what it sends to the others falls into its own memory (runtime::RankOptions::mirror).
#   mirror.sh prepare FOLDER CONFIG [LAYERS [COMPILE OPTIONS]]
#       here, from the checkout's root; needs NVRTC, no GPU. CONFIG is muse-spark-open's; a model of
#       its first LAYERS (10) layers, since bf16 experts of a rank take 3.2 GB a layer.
#   FOLDER/mirror.sh run FOLDER [STEPS]
#       there, two minutes: records what launches leave; STEPS (1000) steps with the same bits, with
#       and without start delays; then times at 0, 800 and 1500 ns a hop. Files go to $OUT.
#   build/bin/tests/gpu/check compare FOLDER/muse/sm_90a/rows1-tp8 OUT 2047,8192
#       here again: what was recorded against the reference.
set -u
what=${1:?usage: mirror.sh prepare FOLDER CONFIG [LAYERS [COMPILE OPTIONS]], or mirror.sh run FOLDER [STEPS]}
folder=${2:?usage: mirror.sh $what FOLDER ...}

prepare() { # CONFIG LAYERS OPTIONS...
  set -e
  bazel build --config=static //tests/gpu:check //tools/bench:megalith-bench
  bazel build //tools/megalith
  mkdir -p "$folder/muse"
  for program in tests/gpu/check tools/bench/megalith-bench; do
    strip -o "$folder/$(basename $program)" "build/bin/$program"
  done
  install -m 755 tests/gpu/mirror.sh "$folder"
  python3 - "$1" "$2" >"$folder/muse/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
layers, text = int(sys.argv[2]), config["text_config"]
was, text["num_hidden_layers"] = text["num_hidden_layers"], layers
for key, value in text.items():
    if isinstance(value, list) and len(value) == was:
        text[key] = value[:layers]
json.dump(config, sys.stdout, indent=1)
PYTHON
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
  build/bin/tools/megalith/megalith compile "$folder/muse/config.json" --target sm_90a --rows 1 --tp 8 -o "$build" "${@:3}"
  rm -rf "$folder/muse/sm_90a"
  for plan in "$build"/sm_90a/rows*; do
    to=$folder/muse/sm_90a/$(basename "$plan")
    mkdir -p "$to/kernels"
    cp "$plan/plan.json" "$to"
    cp "$plan"/kernels/*.cubin "$to/kernels"
  done
  du -sh "$folder"
}

run() { # STEPS
  out=${OUT:-$(mktemp -d)}
  plan=$folder/muse/sm_90a/rows1-tp8
  failed=0
  try() { # SECONDS WORDS...
    timeout "$1" "${@:2}" || {
      echo "mirror: FAILED, exit code $?: ${*:2}"
      failed=1
    }
  }
  try 120 "$folder/check" record "$plan" "$out" 2047,8192
  MEGALITH_HOP_NS=800 try 120 "$folder/check" steps "$plan" 8192 "$1" "$(($1 / 5))"
  try 240 "$folder/megalith-bench" "$folder/muse/sm_90a" --tp 8 --mirror-ranks --hop 0,800,1500 \
    --context 2048,8192,131072 --json "$out/mirror.json"
  echo "files: $out"
  [ "$failed" = 0 ] && echo "mirror: passed" || echo "mirror: FAILED"
  return "$failed"
}

case $what in
prepare) prepare "${3:?usage: mirror.sh prepare FOLDER CONFIG}" "${4:-10}" "${@:5}" ;;
run) run "${3:-1000}" ;;
*) echo "mirror.sh: expected prepare or run but got $what" >&2; exit 2 ;;
esac
