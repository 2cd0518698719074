#!/usr/bin/env bash
# CIFAR-10 with 4,000 labels, Shake-Shake 26 2x96d (26 million parameters), on TPUs (paper, table 3 and appendix E).
#
#   bash scripts/preprocess_cifar10.sh
#   TPU=my-tpu bash scripts/run_cifar10_shake_shake_tpu.sh [--draws=N] [more flags]
#
# For a remote TPU copy data/cifar10 to cloud storage, and add DATA=gs://bucket/cifar10 RUNS=gs://bucket/runs.
# The learning rate falls by one whole cosine, as in the paper. What the paper leaves open is as for the Wide ResNet:
# temperature, threshold, weight decay, moving average.
# Batch-norm statistics are computed over all cores, as one GPU would.
# Hardware: the paper's was 32 TPU v3 cores.
# --mixed_precision=bfloat16 computes in 16 bits, with half the memory for activations; not measured here.
# Error rate, the paper's: 3.7 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=cifar10 --data_dir="${DATA:-data/cifar10}" --sup_size=4000 --aug_copy=100)
train_draws image.main "${RUNS:-runs}/cifar10_shake_shake_tpu" --strategy=tpu --tpu="${TPU:-local}" \
  --model_name=shake_shake --shake_shake_width=96 --sync_batch_norm --train_batch_size=128 --unsup_ratio=4 \
  --uda_softmax_temp=0.4 --uda_confidence_thresh=0.8 --unsup_coeff=1 --learning_rate=0.03 --lr_schedule=whole_cosine \
  --weight_decay_rate=5e-4 --ema_decay=0.9999 --train_steps=300000 --eval_batch_size=1024 --iterations=1000 "$@"
