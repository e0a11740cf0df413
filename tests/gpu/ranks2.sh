#!/bin/bash
# usage: ranks2.sh FOLDER [LAUNCHES]: two GPUs of one machine, a process a GPU, memory mapped from one
# to the other by CUDA IPC; a folder as ranks.sh's. Each launch against the reference, then LAUNCHES
# (1000) launches with the same bits. Under a minute; exit code 0 or 1.
folder=${1:?usage: ranks2.sh FOLDER [LAUNCHES]}
launches=${2:-1000}
nvidia-smi topo -m 2>/dev/null | head -8
"$folder/check" heading
status=0 port=29500
while read -r plan; do
  [[ $plan == *-tp2 ]] || continue
  port=$((port + 2)) pids=()
  for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout 60 "$folder/check" run "$plan" "$launches" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || { echo "FAILED $plan"; status=1; }
  done
done < <("$folder/check" list "$folder")
exit $status
