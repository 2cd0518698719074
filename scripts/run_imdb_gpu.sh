#!/usr/bin/env bash
# IMDb with 20 labels, BERT-base, 128 word pieces, one augmented copy (AUG_OPS, default bt-0.9).
# AUG_OPS=tf_idf-0.7, given to both scripts, goes without translation.
#
#   AUG_OPS=bt-0.9 bash scripts/preprocess_imdb.sh
#   AUG_OPS=bt-0.9 bash scripts/run_imdb_gpu.sh [--draws=N] [more flags of text.main]
#
# Hardware: one GPU with 11 GB. With less memory add --accumulation_parts=2 (or 4); on recent GPUs
# --mixed_precision=bfloat16 or float16 saves half of the time.
# Accuracy, the original release's: about 90 %.
# Accuracy and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=imdb --data_dir=data/imdb --sup_size=20 --aug_ops="${AUG_OPS:-bt-0.9}" --aug_copy=1)
records+=(--max_seq_length=128 --init_checkpoint=bert-base)
train_draws text.main runs/imdb_gpu --train_batch_size=8 --unsup_ratio=3 --tsa=linear --unsup_coeff=1 \
  --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 "$@"
