#!/bin/bash
# Writes the goldens that the compiler makes (IR after each pass, emitted sources) again and says what
# changed: look at it before you commit it. tests/golden/models has numbers of another implementation,
# which no change of ours may change: make_model_goldens.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
bazel run --ui_event_filters=-info //tests/golden:update
