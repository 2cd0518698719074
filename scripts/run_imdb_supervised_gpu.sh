#!/usr/bin/env bash
# The supervised baseline of run_imdb_gpu.sh: 20 labels and nothing else.
#
#   AUG_OPS=tf_idf-0.7 bash scripts/preprocess_imdb.sh --data_type=sup
#   bash scripts/run_imdb_supervised_gpu.sh [--draws=N] [more flags of text.main]
#
# The records of run_imdb_gpu.sh will do, too.
# Hardware: one GPU with 11 GB.
# Accuracy, the original release's: about 68 %.
# Accuracy and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=imdb --data_dir=data/imdb --sup_size=20 --max_seq_length=128 --init_checkpoint=bert-base)
train_draws text.main runs/imdb_supervised_gpu --unsup_ratio=0 --train_batch_size=32 --learning_rate=3e-5 \
  --train_steps=3000 --warmup_steps=300 "$@"
