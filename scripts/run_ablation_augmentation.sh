#!/usr/bin/env bash
# Augmentations compared on CIFAR-10 (the paper's table 1): crop and flip, Cutout, RandAugment; for the labelled images
# of supervised training with ALL_SIZE labels, and for the unlabelled images of UDA with SUP_SIZE labels; SEEDS runs.
#
#   bash scripts/download_cifar10.sh
#   SEEDS="0 1 2" ALL_SIZE=50000 SUP_SIZE=4000 bash scripts/run_ablation_augmentation.sh [flags of image.main]
#
# Images are augmented while training. A run that is finished is skipped; one that was stopped goes
# on.
# --draws=5 is short for SEEDS="0 1 2 3 4".
# Table: runs/ablation_augmentation/report.md and .csv, with curves in report.html.
# Hardware: one GPU for each run (DATA_DIR, RAW_DATA_DIR, OUTPUT_DIR, PREPROCESS_FLAGS for other places and data).
# Error rate, the paper's: supervised 5.36, 4.42, 4.23 %; UDA 10.94, 5.43, 4.32 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || SEEDS=$(seq -s " " 0 $((draws - 1)))

output_dir=${OUTPUT_DIR:-runs/ablation_augmentation}
data=(--task_name=cifar10 --data_dir="${DATA_DIR:-data/cifar10}" --aug_mode=online)
read -ra preprocess_flags <<< "${PREPROCESS_FLAGS:-}"
report=(--output="$output_dir/report.html")
train() { # NAME FLAGS...
  for seed in ${SEEDS:-0 1 2}; do
    local model_dir="$output_dir/${1// /_}_$seed"
    report+=(--run="$1=$model_dir")
    train_once image.main "$model_dir" "${data[@]}" --seed="$seed" \
      --model_name=wrn --wrn_depth=28 --wrn_size=32 --train_batch_size=64 \
      --uda_softmax_temp=0.4 --uda_confidence_thresh=0.8 --unsup_coeff=1 --learning_rate=0.03 \
      --weight_decay_rate=5e-4 --ema_decay=0.9999 --train_steps=500000 --eval_steps=50000 "${@:2}"
  done
}
all_size=${ALL_SIZE:-50000} sup_size=${SUP_SIZE:-4000}
for size in "$all_size" "$sup_size"; do
  python -m image.preprocess "${data[@]}" --sup_size="$size" \
    --raw_data_dir="${RAW_DATA_DIR:-data/raw/cifar10}" "${preprocess_flags[@]}"
done
for aug_ops in crop_flip cutout randaugment; do
  train "supervised $aug_ops" --sup_size="$all_size" --sup_aug_ops=$aug_ops "$@" --unsup_ratio=0
  train "UDA $aug_ops" --sup_size="$sup_size" --aug_ops=$aug_ops --unsup_ratio=7 "$@"
done
python -m image.report "${report[@]}"
