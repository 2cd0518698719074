#!/usr/bin/env bash
# What more labels give: the small network of quickstart.sh on handwritten digits, trained on SIZES numbers of labels
# alone and with UDA, and the learning curve of both (as the paper's figures for CIFAR-10 and SVHN).
#
#   SIZES="10 20 50 100" bash scripts/run_label_curve.sh [--draws=3] [more flags of image.main]
#
# It begins with the records (python -m image.preprocess --task_name=digits). SIZES are multiples of 10, the classes;
# --draws=3 trains three times at each, with other labels. A run that is finished is skipped; one
# that was stopped goes on. OUTPUT_DIR (runs/label_curve) has curve.png and curve.csv, report.md and report.html.
# How many labels the theory asks for is told by utils.label_budget (docs/label_budget.md).
# Hardware: two CPU cores, about two minutes for each size and draw.
# Error rate, measured, 20 labels, draw 0: supervised 23.0 %, UDA 4.8 %; docs/label_budget.md has the others.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
output_dir=${OUTPUT_DIR:-runs/label_curve}
runs=() report=(--data_dir=data/digits --output="$output_dir/report.html")
train() { # METHOD SIZE DRAW FLAGS...
  local model_dir="$output_dir/$1_$2_$3"
  runs+=(--run="$1=$model_dir") report+=(--run="$1, $2 labels=$model_dir")
  train_once image.main "$model_dir" "${records[@]}" --seed="$3" \
    --wrn_depth=10 --wrn_size=16 --wrn_stem_stride=2 --train_batch_size=16 --train_steps=800 --ema_decay=0.99 \
    --log_steps=40 --save_steps=800 "${@:4}" "${others[@]}"
}
for ((draw = 0; draw < ${draws:-1}; draw++)); do
  for size in ${SIZES:-10 20 50 100}; do
    records=(--task_name=digits --data_dir=data/digits --sup_size="$size" --use_equal_split --label_seed="$draw")
    records+=(--aug_copy=20)
    python -m image.preprocess "${records[@]}"
    train supervised "$size" "$draw" --unsup_ratio=0
    train UDA "$size" "$draw" --unsup_ratio=4
  done
done
python -m image.report "${report[@]}"
python -m utils.label_curve "${runs[@]}" --output="$output_dir/curve.png"
