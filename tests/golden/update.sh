#!/bin/bash
# Writes the goldens that the compiler makes (IR after each pass, emitted sources, the outputs in
# docs/python.md) again and says what changed: look at it before you commit it. The numbers in
# tests/golden/models are another implementation's (make_model_goldens.py): no change of ours may
# change them.
set -euo pipefail
cd "$(dirname "$0")/../.."
bazel run --ui_event_filters=-info //tests/golden:update
