#!/usr/bin/env bash
# Starts N workers of one training on this machine, joined over loopback: for trials, and for hosts with several CPU
# sockets or GPUs. Worker 0 is the chief; each line of the others is shown with their number.
#
#   bash scripts/launch_workers.sh 2 .venv/bin/python -m image.main --do_train --do_eval --model_dir=runs/cifar10
#
# When one fails, all end, with its exit code. SIGTERM and Ctrl-C go to all of them: see docs/scaling.md. Needs bash 5.1.
# Hardware: any; give each worker its own GPU with CUDA_VISIBLE_DEVICES, in which {} becomes the worker's number.
set -euo pipefail
cd "$(dirname "$0")/.."

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then # its `wait` has no -p
  echo "error: bash 5.1 or later is needed, found $BASH_VERSION." >&2
  exit 1
fi
num_workers=${1:-}
if ! [[ "$num_workers" =~ ^[1-9][0-9]*$ ]] || [ $# -lt 2 ]; then
  echo "error: expected the number of workers and a command: bash scripts/launch_workers.sh 2 COMMAND" >&2
  exit 1
fi
shift

# Free ports, all held at once so that they differ.
addresses=$(python3 -c '
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(", ".join(f"\"127.0.0.1:{s.getsockname()[1]}\"" for s in sockets))' "$num_workers")

processes=()
stop() {
  for process in "${processes[@]}"; do kill -s "$1" "$process" 2> /dev/null || true; done
}
trap 'stop TERM' TERM
trap 'stop INT' INT

start() {
  export TF_CONFIG="{\"cluster\": {\"worker\": [$addresses]}, \"task\": {\"type\": \"worker\", \"index\": $1}}"
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES//\{\}/$1}; fi
  if [ "$1" = 0 ]; then exec "${@:2}"; fi
  exec "${@:2}" > >(sed -u "s/^/[worker $1] /" >&2) 2>&1
}

for ((worker = 0; worker < num_workers; worker++)); do
  (start "$worker" "$@") &
  processes+=($!)
done

# A signal ends a wait, not the workers: they are waited for until they have ended.
code=0
left=$num_workers
while [ "$left" -gt 0 ]; do
  ended=0
  wait -n -p process "${processes[@]}" || ended=$?
  if [ -z "${process:-}" ]; then continue; fi
  left=$((left - 1))
  if [ "$ended" -ne 0 ] && [ "$code" -eq 0 ]; then
    code=$ended
    # The others notice by themselves within seconds, and say so; who does not, is ended.
    # It waits without a process of its own (sleep), which would outlive it and hold the output open.
    (read -rt 60 <> <(:) || true; stop KILL) &
    guard=$!
  fi
  for index in "${!processes[@]}"; do
    if [ "${processes[$index]}" = "$process" ]; then unset "processes[$index]"; fi
  done
  process=""
done
if [ -n "${guard:-}" ]; then kill "$guard" 2> /dev/null || true; fi
exit "$code"
