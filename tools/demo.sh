#!/bin/bash
# The main job, from a fresh machine: set up, build, and show the compiler at work.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
bazel build //tools/megalith-opt
