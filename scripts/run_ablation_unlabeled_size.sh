#!/usr/bin/env bash
# Fewer unlabelled images on CIFAR-10: UDA with SIZES of them (0 for all 50,000), SUP_SIZE labels; SEEDS runs each.
#
#   bash scripts/download_cifar10.sh
#   SEEDS="0 1 2" SIZES="5000 10000 20000 0" SUP_SIZE=4000 bash scripts/run_ablation_unlabeled_size.sh [more flags]
#
# Images are augmented while training. A run that is finished is skipped; one that was stopped goes
# on.
# --draws=5 is short for SEEDS="0 1 2 3 4".
# Table: runs/ablation_unlabeled_size/report.md and .csv, with curves in report.html.
# Hardware: one GPU for each run (DATA_DIR, RAW_DATA_DIR, OUTPUT_DIR, PREPROCESS_FLAGS for other places and data).
# Error rate, the paper's (appendix), 5,000 / 10,000 / 20,000 / 50,000 unlabelled images:
#   250 labels: 35.41 ± 0.75, 23.17 ± 0.71, 11.01 ± 1.01, 5.43 ± 0.96 %
#   4,000 labels: 13.19 ± 0.12, 10.32 ± 0.20, 7.31 ± 0.24, 4.32 ± 0.08 %
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || SEEDS=$(seq -s " " 0 $((draws - 1)))

output_dir=${OUTPUT_DIR:-runs/ablation_unlabeled_size}
data=(--task_name=cifar10 --data_dir="${DATA_DIR:-data/cifar10}" --aug_mode=online --sup_size="${SUP_SIZE:-4000}")
read -ra preprocess_flags <<< "${PREPROCESS_FLAGS:-}"
report=(--output="$output_dir/report.html")
train() { # NAME FLAGS...
  for seed in ${SEEDS:-0 1 2}; do
    local model_dir="$output_dir/${1// /_}_$seed"
    report+=(--run="$1=$model_dir")
    train_once image.main "$model_dir" "${data[@]}" --seed="$seed" \
      --model_name=wrn --wrn_depth=28 --wrn_size=32 --train_batch_size=64 --unsup_ratio=7 \
      --uda_softmax_temp=0.4 --uda_confidence_thresh=0.8 --unsup_coeff=1 --learning_rate=0.03 \
      --weight_decay_rate=5e-4 --ema_decay=0.9999 --train_steps=500000 --eval_steps=50000 "${@:2}"
  done
}
for size in ${SIZES:-5000 10000 20000 0}; do
  python -m image.preprocess "${data[@]}" --unsup_size="$size" \
    --raw_data_dir="${RAW_DATA_DIR:-data/raw/cifar10}" "${preprocess_flags[@]}"
  [[ $size == 0 ]] && name="all unlabelled" || name="$size unlabelled"
  train "$name" --unsup_size="$size" "$@"
done
python -m image.report "${report[@]}"
