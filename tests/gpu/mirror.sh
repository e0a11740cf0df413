#!/bin/bash
# One rank of Muse Spark Open at its real sizes on one GPU: rank 0 of 8 runs alone with all SMs, and
# what it sends to the others falls into its own memory (runtime::RankOptions::mirror).
#   mirror.sh prepare FOLDER CONFIG [LAYERS [FORMAT]]
#       here, from the checkout's root; needs NVRTC, no GPU. CONFIG is muse-spark-open's; a model of
#       its first LAYERS (10) layers, experts in FORMAT: bf16 (3.2 GB a layer), nvfp4 (0.9), both (default).
#   FOLDER/mirror.sh run FOLDER [STEPS]
#       there, some minutes: records what launches leave; STEPS (1000) steps with the same bits, a
#       fifth of them with start delays; then times at 0, 800 and 1500 ns a hop. Files go to $OUT.
#   build/bin/tests/gpu/check compare FOLDER/muse-bf16/sm_90a/rows1-tp8 OUT 2047,8192
#       here again: what was recorded against the reference; likewise muse-nvfp4.
set -u
usage="usage: mirror.sh prepare FOLDER CONFIG [LAYERS [FORMAT]], or mirror.sh run FOLDER [STEPS]"
what=${1:?$usage}
folder=${2:?$usage}

# NAME CONFIG LAYERS OPTIONS...: the name ends in the format, by which check knows it.
prepare_model() {
  name=$1
  mkdir -p "$folder/$name"
  python3 - "$2" "$3" >"$folder/$name/$name.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
layers, text = int(sys.argv[2]), config["text_config"]
was, text["num_hidden_layers"] = text["num_hidden_layers"], layers
for key, value in text.items():
    if isinstance(value, list) and len(value) == was:
        text[key] = value[:layers]
json.dump(config, sys.stdout, indent=1)
PYTHON
  made=$(mktemp -d)
  build/bin/tools/megalith/megalith compile "$folder/$name/$name.json" --target sm_90a --rows 1 \
    --tp 8 -o "$made" "${@:4}"
  mv "$folder/$name/$name.json" "$folder/$name/config.json"
  rm -rf "${folder:?}/$name/sm_90a"
  for plan in "$made"/sm_90a/rows*; do
    to=$folder/$name/sm_90a/$(basename "$plan")
    mkdir -p "$to/kernels"
    cp "$plan/plan.json" "$to"
    cp "$plan"/kernels/*.cubin "$to/kernels"
  done
  rm -rf "$made"
}

prepare() { # CONFIG LAYERS FORMAT
  set -e
  bazel build --config=static //tests/gpu:check //tools/bench:megalith-bench
  mkdir -p "$folder"
  for program in tests/gpu/check tools/bench/megalith-bench; do
    strip -o "$folder/$(basename $program)" "build/bin/$program"
  done
  bazel build //tools/megalith
  install -m 755 tests/gpu/mirror.sh "$folder"
  [ "$3" = nvfp4 ] || prepare_model muse-bf16 "$1" "$2"
  [ "$3" = bf16 ] || prepare_model muse-nvfp4 "$1" "$2" --quant nvfp4
  du -sh "$folder"
}

run() { # STEPS
  out=${OUT:-$(mktemp -d)}
  failed=0
  try() { # SECONDS WORDS...
    timeout "$1" "${@:2}" || {
      echo "mirror: FAILED, exit code $?: ${*:2}"
      failed=1
    }
  }
  for model in "$folder"/muse-*/; do
    name=$(basename "$model")
    plan=$folder/$name/sm_90a/rows1-tp8
    echo "== $name"
    try 120 "$folder/check" record "$plan" "$out" 2047,8192
    MEGALITH_HOP_NS=800 try 120 "$folder/check" steps "$plan" 8192 "$1" "$(($1 / 5))"
    try 240 "$folder/megalith-bench" "$folder/$name/sm_90a" --tp 8 --mirror-ranks \
      --hop 0,800,1500 --context 2048,8192,131072 --json "$out/$name.json"
  done
  echo "files: $out"
  [ "$failed" = 0 ] && echo "mirror: passed" || echo "mirror: FAILED"
  return "$failed"
}

case $what in
prepare) prepare "${3:?$usage}" "${4:-10}" "${5:-both}" ;;
run) run "${3:-1000}" ;;
*)
  echo "mirror.sh: expected prepare or run but got $what" >&2
  exit 2
  ;;
esac
