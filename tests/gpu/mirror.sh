#!/bin/bash
# One rank of Muse Spark Open at its real sizes on one GPU: rank 0 of 8 runs alone with all SMs, and
# what it sends to the others falls into its own memory (runtime::RankOptions::mirror).
#   mirror.sh prepare FOLDER CONFIG [LAYERS [FORMAT]]
#       here, from the checkout's root; needs NVRTC, no GPU. CONFIG is muse-spark-open's; a model of
#       its first LAYERS (10) layers, experts in FORMAT: bf16 (3.2 GB a layer), nvfp4 (0.9), both (default).
#   FOLDER/mirror.sh run FOLDER [STEPS]
#       there, some minutes, at 1 and 16 rows: records what launches leave; STEPS (1000) steps with the
#       same bits, a fifth more of them with start delays; then times at 0, 800 and 1500 ns a hop. Files go to $OUT.
#   mirror.sh prepare-trace FOLDER CONFIG [LAYERS [FORMAT]]
#   FOLDER/mirror.sh trace FOLDER [CONTEXT]
#       likewise, of plans that record (--trace), at 1 and 16 rows: where a layer's time goes at CONTEXT
#       (2048) positions, under a minute. Tables are printed, timelines go to $OUT for
#       `megalith simulate FOLDER/traced-bf16/sm_90a/rows1-tp8 --context 2048 --against FILE`.
#   build/bin/tests/gpu/check compare FOLDER/muse-bf16/sm_90a/rows1-tp8 OUT 2047,8192
#       here again: what was recorded against the reference; likewise muse-nvfp4, and rows16-tp8 at 2047
#       (a quarter of an hour and more on two cores).
set -u
usage="usage: mirror.sh prepare|prepare-trace FOLDER CONFIG [LAYERS [FORMAT]], or mirror.sh run FOLDER \
[STEPS], or mirror.sh trace FOLDER [CONTEXT]"
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
  build/bin/tools/megalith/megalith compile "$folder/$name/$name.json" --target sm_90a --tp 8 \
    -o "$made" "${@:4}"
  mv "$folder/$name/$name.json" "$folder/$name/config.json"
  rm -rf "${folder:?}/$name/sm_90a"
  for plan in "$made"/sm_90a/rows*; do
    to=$folder/$name/sm_90a/$(basename "$plan")
    mkdir -p "$to/kernels"
    cp "$plan"/{plan.json,kernels.mlir,model.mlir} "$to" # the IR for simulate
    cp "$plan"/kernels/*.cubin "$to/kernels"
  done
  rm -rf "$made"
}

prepare() { # CONFIG LAYERS FORMAT NAME OPTIONS...
  set -e
  bazel build --config=static //tests/gpu:check //tools/bench:megalith-bench
  mkdir -p "$folder"
  for program in tests/gpu/check tools/bench/megalith-bench; do
    strip -o "$folder/$(basename $program)" "build/bin/$program"
  done
  bazel build //tools/megalith
  install -m 755 tests/gpu/mirror.sh "$folder"
  [ "$3" = nvfp4 ] || prepare_model "$4-bf16" "$1" "$2" "${@:5}"
  [ "$3" = bf16 ] || prepare_model "$4-nvfp4" "$1" "$2" "${@:5}" --quant nvfp4
  du -sh "$folder"
}

out=${OUT:-$(mktemp -d)}
failed=0
try() { # SECONDS WORDS...
  timeout "$1" "${@:2}" || {
    echo "mirror: FAILED, exit code $?: ${*:2}"
    failed=1
  }
}
finish() {
  echo "files: $out"
  [ "$failed" = 0 ] && echo "mirror: passed" || echo "mirror: FAILED"
  return "$failed"
}

run() { # STEPS
  for model in "$folder"/muse-*/; do
    name=$(basename "$model")
    echo "== $name"
    for rows in 1 16; do
      plan=$folder/$name/sm_90a/rows$rows-tp8
      try 120 "$folder/check" record "$plan" "$out" "$([ $rows = 1 ] && echo 2047,8192 || echo 2047)"
      MEGALITH_HOP_NS=800 try 120 "$folder/check" steps "$plan" 2047 "$1" "$(($1 / 5))"
    done
    try 240 "$folder/megalith-bench" "$folder/$name/sm_90a" --tp 8 --mirror-ranks --rows 1,16 \
      --hop 0,800,1500 --context 2048,8192,131072 --json "$out/$name.json"
  done
  finish
}

trace() { # CONTEXT
  for model in "$folder"/traced-*/; do
    name=$(basename "$model")
    for rows in 1 16; do
      echo "== $name, rows $rows"
      try 60 "$folder/megalith-bench" "$folder/$name/sm_90a" --tp 8 --mirror-ranks --rows "$rows" \
        --hop 0 --context "$1" --steps 100 --trace "$out/$name-rows$rows.json"
    done
  done
  finish
}

case $what in
prepare) prepare "${3:?$usage}" "${4:-10}" "${5:-both}" muse --rows 1,16 ;;
prepare-trace) prepare "${3:?$usage}" "${4:-10}" "${5:-both}" traced --rows 1,16 --trace ;;
run) run "${3:-1000}" ;;
trace) trace "${3:-2048}" ;;
*)
  echo "mirror.sh: expected prepare, prepare-trace, run or trace but got $what" >&2
  exit 2
  ;;
esac
