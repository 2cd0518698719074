#!/usr/bin/env bash
# CIFAR-10 with SUP_SIZE labels (250, 500, 1000, 2000 or 4000; default 4000), Wide ResNet-28-2.
#
#   bash scripts/preprocess_cifar10.sh
#   SUP_SIZE=250 bash scripts/run_cifar10_gpu.sh [--draws=N] [more flags of image.main]
#
# Hardware: one GPU (the paper: one V100).
# --mixed_precision=float16 computes in 16 bits, which GPUs with tensor cores do faster; not measured here, and the
# published runs were in 32.
# Error rate, the paper's, 10 runs: 5.43 ± 0.96, 4.80 ± 0.09, 4.75 ± 0.10, 4.73 ± 0.14, 4.32 ± 0.08 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

sup_size=${SUP_SIZE:-4000}
records=(--task_name=cifar10 --data_dir=data/cifar10 --sup_size="$sup_size" --aug_copy=100)
train_draws image.main "runs/cifar10_gpu_$sup_size" --model_name=wrn --wrn_depth=28 --wrn_size=32 \
  --train_batch_size=64 --unsup_ratio=7 --uda_softmax_temp=0.4 --uda_confidence_thresh=0.8 --unsup_coeff=1 \
  --learning_rate=0.03 --weight_decay_rate=5e-4 --ema_decay=0.9999 --train_steps=500000 "$@"
