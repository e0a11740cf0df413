#!/bin/bash
# Fills a folder with what steps.sh and errors.sh need on the machine with the GPU.
#   tests/gpu/prepare_real.sh FOLDER [COMPILE OPTIONS]
# From the checkout's root; needs NVRTC, no GPU. The options go to the large model's compilation.
set -eu
folder=${1:?usage: prepare_real.sh FOLDER [COMPILE OPTIONS]}
bazel build --config=static //tools/megalith //tests/gpu:check //tools/bench:megalith-bench
mkdir -p "$folder"
for program in tests/gpu/check tools/bench/megalith-bench; do
  strip -o "$folder/$(basename $program)" "build/bin/$program"
done
compile() { # NAME CONFIG OPTIONS...
  rm -rf "${folder:?}/$1"
  mkdir -p "$folder/$1"
  cp "$2" "$folder/$1/config.json"
  build/bin/tools/megalith/megalith compile "$2" -o "$folder/$1" "${@:3}"
  find "$folder/$1" -name '*.mlir' -delete -o -name '*.cu' -delete
}
compile qwen3-30b-a3b-step models/configs/qwen3-30b-a3b.json --target sm_90a --rows 1,8 "${@:2}"
small=models/configs/qwen3-moe-small.test.json
compile qwen3-moe-small-200 $small --target sm_90a --rows 1 --sms 200
compile qwen3-moe-small $small --target sm_90a,sm_100a --rows 1
install -m 755 tests/gpu/steps.sh tests/gpu/errors.sh "$folder"
du -sh "$folder"
