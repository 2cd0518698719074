#!/usr/bin/env bash
# In-domain pre-training (the paper's BERT_FINETUNE): BERT-large goes on as a language model on the reviews of IMDb.
# The result, runs/imdb_pretrained/bert, is what run_imdb_tpu.sh starts from.
#
#   bash scripts/download_imdb.sh
#   bash scripts/pretrain_imdb_tpu.sh --tpu=NAME [more flags of text.pretrain]
#
# Hardware: a TPU v3-8 or larger.
# Held-out loss and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

python -m text.pretrain \
  --task_name=imdb --raw_data_dir=data/raw/imdb --init_checkpoint=bert-large \
  --model_dir=runs/imdb_pretrained --max_seq_length=512 "$@"
