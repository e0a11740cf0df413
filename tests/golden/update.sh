#!/bin/bash
# Writes the emitted sources under tests/golden/source again and prints what changed.
set -euo pipefail
cd "$(dirname "$0")/../.."
bazel build //tools/megalith-translate
changed=0
update() { # golden.cu kernel.mlir
  local new
  new=$(mktemp)
  build/bin/tools/megalith-translate/megalith-translate --emit-kernels --no-digests "$2" >"$new"
  if ! diff -u --label "old $1" --label "new $1" <(cat "$1" 2>/dev/null) "$new"; then
    changed=$((changed + 1))
    cp "$new" "$1"
  fi
  rm -f "$new"
}
update tests/golden/source/m0.cu tests/ir/task/m0.mlir
echo "$changed golden sources changed"
