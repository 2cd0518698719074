#!/usr/bin/env bash
# Yelp-2 with 20 labels, BERT-large, 512 word pieces. Unlabelled: all of the Yelp reviews (--unlabeled_file).
#
#   bash scripts/run_yelp2_tpu.sh --tpu=NAME [more flags of text.main]
#
# Records: python -m text.preprocess --task_name=yelp-2 --output_dir=data/yelp-2 --sup_size=20 \
#   --max_seq_length=512 --aug_ops=bt-0.9 --back_translation_dir=DIR --vocab_file=data/bert/uncased_L-24_H-1024_A-16/vocab.txt
# Hardware: a TPU v3-32 (the paper's kind); a smaller one with --accumulation_parts.
# Error rate, the paper's: 2.05 % with BERT-large fine-tuned in domain, 2.50 % with plain BERT-large.
# Error rate and time, measured with this code: (not measured yet)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

python -m text.main --do_train --do_eval \
  --task_name=yelp-2 --data_dir=data/yelp-2 --sup_size=20 --aug_ops=bt-0.9 --aug_copy=1 --max_seq_length=512 \
  --model_dir=runs/yelp2_tpu --init_checkpoint=data/bert/uncased_L-24_H-1024_A-16 \
  --train_batch_size=32 --unsup_ratio=7 --uda_softmax_temp=0.85 --uda_coeff=1 \
  --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 --tsa=linear "$@"
