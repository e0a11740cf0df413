#!/bin/bash
cd "$(dirname "$0")/.." && bep=$(mktemp) || exit 1
bazel test --keep_going --build_event_json_file="$bep" "${@:-//...}"; rc=$?
/usr/bin/python3 tools/summarize_tests.py "$bep" "$rc"; rm -f "$bep"; exit "$rc"
