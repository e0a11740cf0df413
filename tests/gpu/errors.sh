#!/bin/bash
# What a user is told on a machine with a GPU when something does not fit. Each line: what was tried,
# and the message that it must give; exit code 0 or 1.
#   errors.sh FOLDER   FOLDER: megalith-bench, check, qwen3-moe-small*/… and qwen3-30b-a3b-step/…, as
#                      prepare_real.sh makes them
set -u
folder=${1:?usage: errors.sh FOLDER}
small=$folder/qwen3-moe-small/sm_90a/rows1
large=$folder/qwen3-30b-a3b-step/sm_90a/rows8
broken=$(mktemp -d)
trap 'rm -rf "$broken"' EXIT
failed=0
expect() { # NAME PATTERN COMMAND...: fails with a message of the pattern
  local output code=0
  output=$(timeout 60 "${@:3}" 2>&1) || code=$?
  if [ "$code" != 0 ] && [ "$code" -lt 124 ] && grep -qE "$2" <<<"$output"; then
    echo "ok   $1: $(grep -E "$2" <<<"$output" | head -1 | cut -c1-400)"
  else
    echo "FAIL $1: exit code $code: $(tail -3 <<<"$output")"
    failed=1
  fi
}
variant() { # NAME: a copy of the small plan
  rm -rf "${broken:?}/$1"
  mkdir -p "$broken/$1"
  cp -r "$small/." "$broken/$1"
}
bench=$folder/megalith-bench
expect "another architecture" "plan is for sm_100a, the GPU \(.*\) is sm_90: compile with --target" \
  "$bench" "$folder/qwen3-moe-small/sm_100a/rows1" --context 1
expect "more SMs than there are" "needs 200 SMs, the GPU \(.*\) has 132: compile with --sms 132" \
  "$bench" "$folder/qwen3-moe-small-200/sm_90a/rows1" --context 1
variant cut
truncate -s -100 "$broken/cut/kernels/layer.cubin"
expect "a cubin cut short" "kernel 'layer': .*layer.cubin is damaged or of another compilation" \
  "$bench" "$broken/cut" --context 1
variant flipped
printf 'x' | dd of="$broken/flipped/kernels/layer.cubin" bs=1 seek=9000 conv=notrunc status=none
expect "a cubin with another byte" "layer.cubin is damaged or of another compilation" \
  "$bench" "$broken/flipped" --context 1
variant missing
rm "$broken/missing/kernels/last.cubin"
expect "a cubin that is not there" "kernel 'last': .*last.cubin: No such file.*compile the plan again" \
  "$bench" "$broken/missing" --context 1
expect "no NVRTC" "NVRTC.*no-such-file" env MEGALITH_NVRTC=/no-such-file "$bench" "$small" --context 1
mkdir "$broken/driver"
: >"$broken/driver/libcuda.so.1"
expect "no driver" "no GPU driver: .*install NVIDIA's driver" \
  env LD_LIBRARY_PATH="$broken/driver" "$bench" "$small" --context 1
expect "no such GPU" "no GPU 9: this machine has [0-9]" "$bench" "$small" --context 1 --device 9
expect "no GPU visible" "no GPU: CUDA_ERROR_NO_DEVICE" env CUDA_VISIBLE_DEVICES= "$bench" "$small" --context 1
expect "a history beyond the memory" "expected a shorter context" "$bench" "$large" --rows 8 --context 1000000
expect "rows and contexts beyond the memory" "GPU memory: [0-9]+ bytes do not fit, [0-9]+ of [0-9]+ are free" \
  "$folder/check" record "$large" "$broken" 131072
[ "$failed" = 0 ] && echo "errors: passed" || echo "errors: FAILED"
exit "$failed"
