#!/usr/bin/env bash
# Sourced by the scripts that train. Their argument --draws=N trains N times, one after the other, each with another
# draw of the labelled examples and another seed, 0 to N − 1. A run that has its result.json, by the same flags, is
# finished and skipped; one that was stopped goes on. The end is the comparison: a table and report.html.
set -euo pipefail

take_draws() { # ARGUMENTS...: sets `draws` to N, or to nothing if there is no --draws=N, and `others` to the others
  local argument
  draws="" others=()
  for argument in "$@"; do
    case $argument in
      --draws=*) draws=${argument#--draws=} ;;
      *) others+=("$argument") ;;
    esac
  done
  if [[ $* == *--draws=* && ! $draws =~ ^[1-9][0-9]*$ ]]; then
    echo "error: draws=$draws: expected a whole number, at least 1." >&2
    return 1
  fi
}

is_finished() { # MODULE MODEL_DIR FLAGS...: whether this run has its result, and by these flags
  [[ -f $2/result.json && $(cat "$2/flags" 2> /dev/null) == "$(printf '%q ' "$1" "${@:3}")" ]] && echo "$2 is finished"
}

# MODULE MODEL_DIR FLAGS...: one run, unless it is finished. Where there is one of other flags, the program decides: it
# refuses another run, and evaluates the same again.
train_once() {
  is_finished "$@" && return
  python -m "$1" --do_train --do_eval --model_dir="$2" "${@:3}"
  [[ ! -d $2 ]] || printf '%q ' "$1" "${@:3}" > "$2/flags"
}

# MODULE MODEL_DIR FLAGS...: one run in MODEL_DIR or, with --draws=N among the flags, N of them in MODEL_DIR/draw_0 and
# so on; --model_dir= among the flags is another MODEL_DIR. The array `records` has the flags of the records that
# preprocessing takes, too, and `sources` those that it takes alone; without them the draws are seeds only. Sets
# `model_dir`, and `first_run` to the folder of the first run.
train_draws() {
  local module=$1 argument draw run flags seeds more=() report=()
  model_dir=$2
  take_draws "${@:3}"
  for argument in "${others[@]}"; do
    if [[ $argument == --model_dir=* ]]; then model_dir=${argument#*=}; else more+=("$argument"); fi
  done
  first_run=$model_dir
  if [[ -z $draws ]]; then
    python -m "$module" --do_train --do_eval --model_dir="$model_dir" "${records[@]}" "${more[@]}"
    return
  fi
  first_run=$model_dir/draw_0
  for ((draw = 0; draw < draws; draw++)); do
    run=$model_dir/draw_$draw seeds=(--seed="$draw")
    [[ ${#records[@]} -eq 0 ]] || seeds+=(--label_seed="$draw")
    flags=("${records[@]}" "${more[@]}" "${seeds[@]}")
    report+=(--run="$(basename "$model_dir")=$run")
    is_finished "$module" "$run" "${flags[@]}" && continue
    if [[ ${#records[@]} -gt 0 ]]; then
      python -m "${module/main/preprocess}" "${records[@]}" "${sources[@]}" --data_type=sup --label_seed="$draw"
    fi
    train_once "$module" "$run" "${flags[@]}"
  done
  if has_result "$first_run"; then
    python -m "${module/main/report}" "${report[@]}" --output="$model_dir/report.html"
  fi # without test data there is nothing to compare
}

has_result() { # MODEL_DIR, on this machine or elsewhere, such as gs://...
  if [[ $1 != *://* ]]; then [[ -f $1/result.json ]]; return; fi
  python -c 'import sys; import tensorflow as tf; sys.exit(not tf.io.gfile.exists(sys.argv[1]))' "$1/result.json"
}
records=() sources=()
