#!/usr/bin/env bash
# Sourced by the scripts that train. Their argument --draws=N trains N times, one after the other, each with another
# draw of the labelled examples and another seed, 0 to N − 1. A run that has its result.json is finished and skipped;
# one that was stopped goes on. The end is the comparison: a table and report.html.
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

# MODULE MODEL_DIR FLAGS...: one run in MODEL_DIR or, with --draws=N among the flags, N of them in MODEL_DIR/draw_0 and
# so on. The array `records` has the flags of the records that preprocessing takes, too, and `sources` those that it
# takes alone; without them the draws are seeds only. `first_run` is the folder of the first run.
train_draws() {
  local module=$1 model_dir=$2 draw run seeds report=()
  take_draws "${@:3}"
  first_run=$model_dir
  if [[ -z $draws ]]; then
    python -m "$module" --do_train --do_eval --model_dir="$model_dir" "${records[@]}" "${others[@]}"
    return
  fi
  first_run=$model_dir/draw_0
  for ((draw = 0; draw < draws; draw++)); do
    run=$model_dir/draw_$draw seeds=(--seed="$draw")
    report+=(--run="$(basename "$model_dir")=$run")
    [[ -f $run/result.json ]] && echo "$run is finished" && continue
    if [[ ${#records[@]} -gt 0 ]]; then
      seeds+=(--label_seed="$draw")
      python -m "${module/main/preprocess}" "${records[@]}" "${sources[@]}" --data_type=sup --label_seed="$draw"
    fi
    python -m "$module" --do_train --do_eval --model_dir="$run" "${records[@]}" "${others[@]}" "${seeds[@]}"
  done
  if [[ -f $first_run/result.json ]]; then
    python -m "${module/main/report}" "${report[@]}" --output="$model_dir/report.html"
  fi # without test data there is nothing to compare
}
records=() sources=()
