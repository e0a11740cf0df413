#!/bin/bash
# Prediction against measurement, at a model's real size.
#   predict.sh prepare FOLDER [CONFIG]
#       here, from the checkout's root; needs NVRTC, no GPU: calibration and benchmark without the
#       compiler, and plans of 1 and 8 rows whose kernels record. CONFIG: qwen3-30b-a3b's.
#   predict.sh compile FOLDER
#       here, some minutes: kernels of the calibration, which else are compiled there.
#   FOLDER/predict.sh record FOLDER
#       there, some 75 s: a cost table by kernels of the same device code, to $OUT/costs.json, and
#       timelines of the plans at each context, to $OUT/timelines.tgz.
#   tests/gpu/predict.sh table COSTS.json
#       here again: makes it the H200's table, passes/costs/h200.json, which keeps what it has of
#       costs that need a second GPU; then build again.
#   tests/gpu/predict.sh compare FOLDER TIMELINES.tgz [OPTIONS OF SIMULATE]
#       megalith simulate --against each of the timelines, tables in Markdown, and whether all are
#       within the limits (tools/trace/Import.h): exit code 1 if not. With --costs COSTS.json by that
#       table in place of the one built in.
set -u
usage="usage: predict.sh prepare FOLDER [CONFIG], predict.sh compile FOLDER, predict.sh record \
FOLDER, predict.sh table COSTS.json, or predict.sh compare FOLDER TIMELINES.tgz [OPTIONS OF SIMULATE]"
what=${1:?$usage}
folder=${2:?$usage}
rows="1 8"
contexts="129 2048 8192 32768"

prepare() { # CONFIG
  set -e
  bazel build --config=static //tools/bench:megalith-bench //tools/calibrate:megalith-calibrate
  mkdir -p "$folder"
  for tool in bench calibrate; do
    strip -o "$folder/megalith-$tool" "build/bin/tools/$tool/megalith-$tool"
  done
  bazel build //tools/megalith
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  build/bin/tools/megalith/megalith compile "$1" --target sm_90a --rows "${rows// /,}" --trace \
    -o "$made"
  rm -rf "${folder:?}/sm_90a"
  for plan in "$made"/sm_90a/rows*; do
    to=$folder/sm_90a/$(basename "$plan")
    mkdir -p "$to/kernels"
    cp "$plan"/{plan.json,kernels.mlir,model.mlir} "$to" # the IR for simulate
    cp "$plan"/kernels/*.cubin "$to/kernels"
  done
  install -m 755 tests/gpu/predict.sh "$folder"
  du -sh "$folder"
}

compile() {
  set -e
  bazel build //tests/gpu/calibrate:nvrtc_test
  MEGALITH_CACHE=$folder/cache build/bin/tests/gpu/calibrate/nvrtc_test
  du -sh "$folder"
}

record() {
  out=${OUT:-$(mktemp -d)}
  calibrated=0
  [ ! -d "$folder/cache" ] || export MEGALITH_CACHE=$folder/cache
  "$folder/megalith-calibrate" -o "$out/costs.json" >"$out/costs.txt" 2>"$out/costs.log" || {
    calibrated=$?
    echo "predict.sh: no table of costs: $(tail -1 "$out/costs.log")"
  }
  # Of several contexts each has a file of its own: trace.rows1-context129.json.
  "$folder/megalith-bench" "$folder/sm_90a" --rows "${rows// /,}" --context "${contexts// /,}" \
    --steps 20 --json "$out/bench.json" --trace "$out/trace.json" >"$out/bench.txt" || return
  (cd "$out" && tar czf timelines.tgz trace.*.json && rm trace.*.json)
  echo "timelines: $out/timelines.tgz, costs: $out/costs.json"
  return $calibrated
}

table() { # COSTS
  python3 - "$1" passes/costs/h200.json <<'PYTHON'
import json, re, sys

new, old = (open(name).read() for name in sys.argv[1:])
of_new, of_old = (json.loads(text) for text in (new, old))
name = lambda table: f"{table['device']['name']}, {table['target']}"
if name(of_new) != name(of_old):
    sys.exit(f"predict.sh: expected a table of {name(of_old)} but got one of {name(of_new)}")
# A cost a line.
line = re.compile(r'^  (\{"name":"([^"]+)".*\})(,?)$', re.M)
before = {found[2]: found[1] for found in line.finditer(old) if '"value":null' not in found[1]}
kept = []


def of(found):
    if '"value":null' not in found[1] or found[2] not in before:
        return found[0]
    kept.append(found[2])
    return f"  {before[found[2]]}{found[3]}"


text = line.sub(of, new)
print(f"{len(json.loads(text)['costs'])} costs, of them not measured anew: {', '.join(kept) or 'none'}")
open(sys.argv[2], "w").write(text)
PYTHON
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
compile) compile ;;
record) record ;;
table) table "$folder" ;;
compare) compare "${3:?$usage}" "${@:4}" ;;
*)
  echo "predict.sh: expected prepare, compile, record, table or compare but got $what" >&2
  exit 2
  ;;
esac
