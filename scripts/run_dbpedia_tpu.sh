#!/usr/bin/env bash
# DBpedia with 140 labels, BERT-large, 512 word pieces. Unlabelled: the training texts.
#
#   python -m text.preprocess --task_name=dbpedia --export_texts=data/dbpedia.txt
#   bash back_translate/run.sh --input_file=data/dbpedia.txt --output_dir=data/dbpedia_bt --sampling_temp=0.9 \
#     --model=FORWARD,BACKWARD
#   python -m text.preprocess --task_name=dbpedia --data_dir=data/dbpedia --sup_size=140 --max_seq_length=512 \
#     --aug_ops=bt-0.9 --aug_copy=1 --back_translation_dir=data/dbpedia_bt \
#     --init_checkpoint=bert-large
#   bash scripts/run_dbpedia_tpu.sh --tpu=NAME [--draws=N] [more flags of text.main]
#
# FORWARD and BACKWARD are folders of translation models (docs/back_translation.md).
# Hardware: a TPU v3-32 (the paper's kind); a smaller one with --accumulation_parts.
# Error rate, the paper's: 1.09 % with BERT-large.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=dbpedia --data_dir=data/dbpedia --sup_size=140 --aug_ops=bt-0.9 --aug_copy=1 --max_seq_length=512)
records+=(--init_checkpoint=bert-large)
train_draws text.main runs/dbpedia_tpu --train_batch_size=32 --unsup_ratio=7 --uda_softmax_temp=0.85 --unsup_coeff=1 \
  --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 "$@"
