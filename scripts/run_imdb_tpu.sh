#!/usr/bin/env bash
# IMDb with 20 labels, BERT-large after pretrain_imdb_tpu.sh, 512 word pieces, 32 labelled and 224 unlabelled texts.
#
#   bash scripts/download_imdb.sh
#   bash scripts/pretrain_imdb_tpu.sh --tpu=NAME
#   bash scripts/preprocess_imdb.sh --data_dir=data/imdb_512 --max_seq_length=512 \
#     --init_checkpoint=runs/imdb_pretrained/bert
#   bash scripts/run_imdb_tpu.sh --tpu=NAME [--draws=N] [more flags of text.main]
#
# Hardware: a TPU v3-32 (the paper's kind); a smaller one with --accumulation_parts.
# Error rate, the paper's: 4.20 % (BERT-large fine-tuned in domain).
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=imdb --data_dir=data/imdb_512 --sup_size=20 --aug_ops=bt-0.9 --aug_copy=1 --max_seq_length=512)
records+=(--init_checkpoint=runs/imdb_pretrained/bert)
train_draws text.main runs/imdb_tpu --train_batch_size=32 --unsup_ratio=7 --uda_softmax_temp=0.85 --unsup_coeff=1 \
  --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 --tsa=linear "$@"
