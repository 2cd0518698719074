#!/usr/bin/env bash
# Fewer operations in RandAugment on CIFAR-10: UDA with NUM_OPS of the 15, chosen at random anew for each of the SEEDS.
#
#   bash scripts/download_cifar10.sh
#   SEEDS="0 1 2" NUM_OPS="1 2 4 8 15" SUP_SIZE=4000 bash scripts/run_ablation_num_ops.sh [flags of image.main]
#
# Images are augmented while training. A run that is finished is skipped; one that was stopped goes
# on.
# --draws=5 is short for SEEDS="0 1 2 3 4".
# Table: runs/ablation_num_ops/report.md and .csv, with curves in report.html.
# Hardware: one GPU for each run (DATA_DIR, RAW_DATA_DIR, OUTPUT_DIR, PREPROCESS_FLAGS for other places and data).
# Error rate, the paper's: a figure without numbers, in which the error falls as operations are added; with all 15 and
# 4,000 labels 4.32 %. Which operations it used is not said.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || SEEDS=$(seq -s " " 0 $((draws - 1)))

output_dir=${OUTPUT_DIR:-runs/ablation_num_ops}
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
      --weight_decay_rate=5e-4 --ema_decay=0.9999 --train_steps=500000 --eval_steps=50000 --ops_seed="$seed" "${@:2}"
  done
}
python -m image.preprocess "${data[@]}" \
  --raw_data_dir="${RAW_DATA_DIR:-data/raw/cifar10}" "${preprocess_flags[@]}"
for num_ops in ${NUM_OPS:-1 2 4 8 15}; do
  train "$num_ops operations" --num_ops="$num_ops" "$@"
done
python -m image.report "${report[@]}"
