#!/usr/bin/env bash
# Amazon-5 with 2,500 labels, BERT-large, 512 word pieces. Unlabelled: the Amazon reviews.
#
#   python -m text.preprocess --task_name=amazon-5 --export_texts=data/amazon-5.txt
#   bash back_translate/run.sh --input_file=data/amazon-5.txt --output_dir=data/amazon-5_bt --sampling_temp=0.9 \
#     --model=FORWARD,BACKWARD
#   python -m text.preprocess --task_name=amazon-5 --data_dir=data/amazon-5 --sup_size=2500 --max_seq_length=512 \
#     --aug_ops=bt-0.9 --aug_copy=1 --back_translation_dir=data/amazon-5_bt \
#     --init_checkpoint=bert-large
#   bash scripts/run_amazon5_tpu.sh --tpu=NAME [--draws=N] [more flags of text.main]
#
# FORWARD and BACKWARD are folders of translation models (docs/back_translation.md).
# Add --unlabeled_file=REVIEWS to both text.preprocess: the published reviews as JSON lines. Without it, the training
# texts are the unlabelled ones.
# Hardware: a TPU v3-32 (the paper's kind); a smaller one with --accumulation_parts.
# Error rate, the paper's: 37.12 % with BERT-large fine-tuned in domain, 37.80 % with plain BERT-large.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

records=(--task_name=amazon-5 --data_dir=data/amazon-5 --sup_size=2500 --aug_ops=bt-0.9 --aug_copy=1)
records+=(--max_seq_length=512 --init_checkpoint=bert-large)
train_draws text.main runs/amazon5_tpu --train_batch_size=32 --unsup_ratio=7 --uda_softmax_temp=0.85 --unsup_coeff=1 \
  --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 "$@"
