#!/bin/bash
# Prediction against measurement, at a model's real size.
#   predict.sh prepare FOLDER [CONFIG]
#       here, from the checkout's root; needs NVRTC, no GPU: the benchmark without the compiler, and
#       plans of 1 and 8 rows whose kernels record. CONFIG: qwen3-30b-a3b's.
#   FOLDER/predict.sh record FOLDER
#       there, under a minute: timelines of the plans at each context, to $OUT/timelines.tgz.
#   tests/gpu/predict.sh compare FOLDER TIMELINES.tgz [OPTIONS OF SIMULATE]
#       here again: megalith simulate --against each of the timelines, tables in Markdown, and whether
#       all are within the limits (tools/trace/Import.h): exit code 1 if not.
set -u
usage="usage: predict.sh prepare FOLDER [CONFIG], predict.sh record FOLDER, or predict.sh compare \
FOLDER TIMELINES.tgz [OPTIONS OF SIMULATE]"
what=${1:?$usage}
folder=${2:?$usage}
rows="1 8"
contexts="129 2048 8192 32768"

prepare() { # CONFIG
  set -e
  bazel build --config=static //tools/bench:megalith-bench
  mkdir -p "$folder"
  strip -o "$folder/megalith-bench" build/bin/tools/bench/megalith-bench
  bazel build //tools/megalith
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  build/bin/tools/megalith/megalith compile "$1" --target sm_90a --rows "${rows// /,}" --trace \
    -o "$made"
  rm -rf "${folder:?}/sm_90a"
  for plan in "$made"/sm_90a/rows*; do
    to=$folder/sm_90a/$(basename "$plan")
    mkdir -p "$to/kernels"
    cp "$plan"/{plan.json,kernels.mlir} "$to" # the IR for simulate
    cp "$plan"/kernels/*.cubin "$to/kernels"
  done
  install -m 755 tests/gpu/predict.sh "$folder"
  du -sh "$folder"
}

record() {
  out=${OUT:-$(mktemp -d)}
  # Of several contexts each has a file of its own: trace.rows1-context129.json.
  "$folder/megalith-bench" "$folder/sm_90a" --rows "${rows// /,}" --context "${contexts// /,}" \
    --steps 20 --json "$out/bench.json" --trace "$out/trace.json" >"$out/bench.txt" || return
  (cd "$out" && tar czf timelines.tgz trace.*.json && rm trace.*.json)
  echo "timelines: $out/timelines.tgz"
}

compare() { # TIMELINES OPTIONS...
  texts=$(mktemp -d)
  tar xzf "$1" -C "$texts" || return
  trap 'rm -rf "$texts"' EXIT
  for r in $rows; do
    for context in $contexts; do
      build/bin/tools/megalith/megalith simulate "$folder/sm_90a/rows$r" --context "$context" \
        --layers 16 "${@:2}" --against "$texts/trace.rows$r-context$context.json" \
        >"$texts/$r-$context" || return
    done
  done
  python3 - "$texts" "$rows" "$contexts" <<'PYTHON'
import re, sys

folder, rows, contexts = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
cells, names, count, beyond = {}, [], 0, 0
for r in rows:
    for context in contexts:
        text = open(f"{folder}/{r}-{context}").read()
        table = text[text.index("measured  predicted"):]
        for line in table.splitlines()[1:]:
            found = re.match(r"  (\S.*?)  +([\d.]+) +(of measured|[\d.]+) +(-?[\d.]+) %(.*)", line)
            if not found:
                within, of = map(int, re.match(r"(\d+) of (\d+) within", line).groups())
                count, beyond = count + of, beyond + of - within
                break
            name, measured, predicted, error, mark = found.groups()
            if name not in names:
                names.append(name)
            shown = measured if predicted == "of measured" else f"{measured} / {predicted}"
            cells[r, context, name] = f"{shown} ({float(error):+.1f} %){' **beyond**' if mark else ''}"
for r in rows:
    print(f"| rows {r}, us: measured / predicted | " + " | ".join(contexts) + " |")
    print("| --- " * (1 + len(contexts)) + "|")
    for name in names:
        found = [cells.get((r, context, name), "-") for context in contexts]
        if any(cell != "-" for cell in found):
            print(f"| {name} | " + " | ".join(found) + " |")
    print()
print(f"predict: {'passed' if not beyond else 'FAILED'}, {count - beyond} of {count} within the limits")
sys.exit(beyond > 0)
PYTHON
}

case $what in
prepare) prepare "${3:-models/configs/qwen3-30b-a3b.json}" ;;
record) record ;;
compare) compare "${3:?$usage}" "${@:4}" ;;
*)
  echo "predict.sh: expected prepare, record or compare but got $what" >&2
  exit 2
  ;;
esac
