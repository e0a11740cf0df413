#!/bin/bash
# The main job, from a fresh machine: set up, build, compile a real model for two GPUs, then run the
# same architecture at small dimensions on this CPU and compare it with the reference.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
bazel build //tools/megalith
megalith=build/bin/tools/megalith/megalith

echo
echo "Qwen3-30B-A3B, one row at a time, for H100/H200 and B200 (files in out/):"
"$megalith" compile models/configs/qwen3-30b-a3b.json --target sm_90a,sm_100a --rows 1 -o out
echo
echo "The same architecture at small dimensions: the emitted kernels on the host platform, beside the"
echo "reference evaluator; relative RMS errors."
"$megalith" run models/configs/qwen3-moe-small.test.json --target sm_90a --sms 8 --rows 4 \
  --context 129,17,0 --new-rows 1,2,1 --repeat 10
