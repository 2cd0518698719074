#!/usr/bin/env bash
# CIFAR-10 with SUP_SIZE labels (250, 500, 1000, 2000 or 4000; default 4000), Wide ResNet-28-2, on a TPU.
#
#   bash scripts/preprocess_cifar10.sh
#   TPU=my-tpu bash scripts/run_cifar10_tpu.sh [--draws=N] [more flags]
#
# TPU is the name or address of the TPU, or "local" on a TPU VM. A remote TPU reads and writes cloud storage
# only: copy data/cifar10 there, and add DATA=gs://bucket/cifar10 RUNS=gs://bucket/runs.
# Batch-norm statistics are computed over all cores, as one GPU would.
# Hardware: 8 TPU cores.
# --mixed_precision=bfloat16 computes in 16 bits, with half the memory for activations; not measured here.
# Error rate, the paper's (on a GPU), 10 runs: 5.43 ± 0.96, 4.80 ± 0.09, 4.75 ± 0.10, 4.73 ± 0.14, 4.32 ± 0.08 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

sup_size=${SUP_SIZE:-4000}
records=(--task_name=cifar10 --data_dir="${DATA:-data/cifar10}" --sup_size="$sup_size" --aug_copy=100)
train_draws image.main "${RUNS:-runs}/cifar10_tpu_$sup_size" --strategy=tpu --tpu="${TPU:-local}" --model_name=wrn \
  --wrn_depth=28 --wrn_size=32 --sync_batch_norm --train_batch_size=64 --unsup_ratio=7 --uda_softmax_temp=0.4 \
  --uda_confidence_thresh=0.8 --unsup_coeff=1 --learning_rate=0.03 --weight_decay_rate=5e-4 --ema_decay=0.9999 \
  --train_steps=500000 --eval_batch_size=1024 --iterations=1000 "$@"
