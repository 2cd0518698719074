#!/usr/bin/env bash
# CIFAR-10 on a CPU, all 50,000 images: a small Wide ResNet trained for equally many steps on the labels alone, on
# RandAugment copies of the labelled images, and with UDA.
#
#   bash scripts/download_cifar10.sh
#   SIZES="4000 1000 250" DRAWS="0 1 2" STEPS=16000 bash scripts/run_cifar10_cpu.sh [more flags of image.main]
#
# SIZES are numbers of labels, DRAWS seeds of the labelled images and of the training. METHODS ("supervised randaugment
# uda") may be some of them. The network is WRN-DEPTH-2 (10) whose first convolution has stride 2; BATCH (64) labelled
# images a step, and with UDA RATIO (2) times as many unlabelled ones and their copies; RATE (0.1, with fewer than 1,000
# labels 0.03: supervised training, when it knows so few by heart, bursts with more); THRESHOLD (0.5), the paper's β; EMA
# (0.999). COPIES (0) of each image are written before the training, 0.3 GB each; without them, images are augmented while
# training.
# To choose settings without the test images: DEV_SIZE=2000 OUTPUT_DIR=runs/cifar10_cpu_dev, and compare dev_accuracy in
# the best.json of each run.
# PRECISION is bfloat16 on processors that compute in it (avx512_bf16 in /proc/cpuinfo), where a step takes two thirds of
# the time, and 32 bits on others; PRECISION= is 32 bits everywhere.
# TF_ENABLE_ONEDNN_OPTS=1, which TensorFlow does not set on every processor, makes the step faster: docs/performance.md.
# A run that is finished is skipped; one that was stopped goes on. RAW_DATA_DIR, DATA_DIR and
# OUTPUT_DIR are for other places; MODEL_DIR is the folder of a single run.
# --draws=5 is short for DRAWS="0 1 2 3 4".
# Table: runs/cifar10_cpu/report.md and .csv, with curves in report.html.
# Hardware: one CPU core for each run. In bfloat16, on an AMD EPYC of 2022 or later, UDA's take half an hour and the others
# seven minutes. Several at once, started with taskset or by scripts/reproduce_small.sh --jobs=2, use the cores better than
# one after the other.
# Error rate and time, measured here: see docs/results.md.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || DRAWS=$(seq -s " " 0 $((draws - 1)))

if [[ -z ${PRECISION+given} ]] && grep -qsw avx512_bf16 /proc/cpuinfo; then PRECISION=bfloat16; fi
export TF_ENABLE_ONEDNN_OPTS=${TF_ENABLE_ONEDNN_OPTS:-1}
declare -A flags=([supervised]="--unsup_ratio=0" [randaugment]="--unsup_ratio=0 --sup_aug_ops=randaugment")
flags[uda]="--unsup_ratio=${RATIO:-2} --uda_confidence_thresh=${THRESHOLD:-0.5}"
declare -A names=([supervised]="supervised" [randaugment]="supervised with RandAugment" [uda]="UDA")
steps=${STEPS:-16000} output_dir=${OUTPUT_DIR:-runs/cifar10_cpu} copies=${COPIES:-0}
data=(--task_name=cifar10 --data_dir="${DATA_DIR:-data/cifar10}" --dev_size="${DEV_SIZE:-0}" --use_equal_split)
if [[ $copies == 0 ]]; then data+=(--aug_mode=online); else data+=(--aug_copy="$copies"); fi
report=(--output="$output_dir/report.html")
for draw in ${DRAWS:-0 1 2}; do
  for size in ${SIZES:-4000 1000 250}; do
    records=("${data[@]}" --sup_size="$size" --label_seed="$draw")
    if ((size < 1000)); then rate=${RATE:-0.03}; else rate=${RATE:-0.1}; fi
    for method in ${METHODS:-supervised randaugment uda}; do
      read -ra method_flags <<< "${flags[$method]}"
      model_dir=${MODEL_DIR:-$output_dir/${method}_${size}_$draw}
      report+=(--run="${names[$method]}, $size labels=$model_dir")
      run=("${records[@]}" --seed="$draw")
      run+=(--wrn_depth="${DEPTH:-10}" --wrn_size=32 --wrn_stem_stride=2 --train_batch_size="${BATCH:-64}")
      run+=(--learning_rate="$rate" --lr_schedule=whole_cosine --warmup_steps=100 --train_steps="$steps")
      run+=(--ema_decay="${EMA:-0.999}" --mixed_precision="${PRECISION:-}")
      run+=(--save_steps=1000 --max_save=2 --log_steps=200 --eval_steps=1000 "${method_flags[@]}" "$@")
      is_finished image.main "$model_dir" "${run[@]}" && continue
      python -m image.preprocess "${records[@]}" --raw_data_dir="${RAW_DATA_DIR:-data/raw/cifar10}" \
        --sup_aug_ops=randaugment
      train_once image.main "$model_dir" "${run[@]}"
    done
  done
done
[[ -n ${MODEL_DIR:-} ]] || python -m image.report "${report[@]}"
