#!/bin/bash
set -euo pipefail # args: LIT CFG NTOOLS TOOL... FILE...; lit resolves symlinks, so the suite is copied first
lit=$(readlink -f "$1"); cfg=$2; n=$3; shift 3
suite="$TEST_TMPDIR/suite"; path=$(dirname "$lit")
while ((n-- > 0)); do path="$PWD/$(dirname "$1"):$path"; shift; done
for f in "$cfg" "$@"; do rel=${f#"$(dirname "$cfg")"/}; mkdir -p "$suite/$(dirname "$rel")"; cp -L "$f" "$suite/$rel"; done
export MEGALITH_LIT_PATH="$path:/usr/bin:/bin" MEGALITH_LIT_OUT="$TEST_TMPDIR/out"
exec "$lit" -v -j2 --xunit-xml-output="$XML_OUTPUT_FILE" "$suite"
