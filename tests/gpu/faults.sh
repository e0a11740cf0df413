#!/bin/bash
# usage: faults.sh FOLDER: on a GPU machine, every planted fault of a folder made by
#   bazel build --config=static //tests/gpu:faults && build/bin/tests/gpu/faults prepare FOLDER
#   cp build/bin/tests/gpu/faults tests/gpu/faults.sh FOLDER
# Each in a process of its own, which must end in the message that names the edge where it is stuck;
# at last the good plan again, which must end well: a fault harms nobody else. Under a minute.
folder=${1:?usage: faults.sh FOLDER}
passed=0 failed=0
for name in $("$folder/faults" list "$folder") none; do
  if timeout 20 "$folder/faults" run "$folder" "$name"; then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAILED $name"; fi
done
echo "faults: $passed passed, $failed failed"
[ "$failed" = 0 ]
