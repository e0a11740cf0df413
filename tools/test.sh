#!/bin/bash
# Installs what is missing, builds, and runs all tests, or those named: tools/test.sh //tests/ir/...
# tools/test.sh --full [...]: the host matrix under 200 schedules a cell instead of a few.
# The last line counts test cases: N passed, N failed[, N skipped].
cd "$(dirname "$0")/.." || exit 1
full=()
if [ "${1:-}" = --full ]; then
  full=(--test_env=MEGALITH_FULL=1 --test_timeout=10800)
  shift
fi
tools/setup.sh || { echo "0 passed, 1 failed"; exit 1; }
. tools/nvrtc.sh
# Tests run without the user's environment: they are told which NVRTC set-up found.
MEGALITH_NVRTC=$(find_nvrtc) || exit 1
export MEGALITH_NVRTC
events=$(mktemp) || exit 1
trap 'rm -f "$events"' EXIT
# A line now and then on what is running, for those who watch; the sum comes last all the same.
bazel test --show_progress --curses=no --show_progress_rate_limit=20 --keep_going --build_event_json_file="$events" "${full[@]}" "${@:-//...}"
status=$?
/usr/bin/python3 tools/summarize_tests.py "$events" "$status"
exit "$status"
