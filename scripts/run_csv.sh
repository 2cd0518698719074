#!/usr/bin/env bash
# Your own texts: a CSV, TSV or JSONL file with labelled texts, one with unlabelled ones, one to test on.
#
#   TRAIN_FILE=train.csv UNLABELED_FILE=more.csv TEST_FILE=test.csv SUP_SIZE=100 BERT=data/bert/uncased_L-12_H-768_A-12 \
#     bash scripts/run_csv.sh [more flags of text.main]
#
# SUP_SIZE of the labelled texts are used, equally many of each class; DEV_SIZE (default 0) further ones choose the
# best checkpoint. TEXT_COLUMN (text) and LABEL_COLUMN (label) name the columns. TEST_FILE and UNLABELED_FILE may be
# left out.
# Then, for predictions in runs/csv/predictions.csv:
#
#   python -m text.main --do_predict --model_dir=runs/csv --predict_input=new.csv
#
# Hardware: one GPU.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

records=(--task_name=csv --data_dir=data/csv --sup_size="${SUP_SIZE:?}" --dev_size="${DEV_SIZE:-0}" --max_seq_length=128)
records+=(--aug_ops="${AUG_OPS:-tf_idf-0.3}" --aug_copy=2 --init_checkpoint="${BERT:?}")
python -m text.preprocess "${records[@]}" --train_file="${TRAIN_FILE:?}" \
  --unlabeled_file="${UNLABELED_FILE:-}" --test_file="${TEST_FILE:-}" \
  --text_column="${TEXT_COLUMN:-text}" --label_column="${LABEL_COLUMN:-label}"
python -m text.main --do_train --do_eval "${records[@]}" --model_dir=runs/csv \
  --train_batch_size=8 --unsup_ratio=3 --tsa=linear --learning_rate=2e-5 --train_steps=10000 --warmup_steps=1000 "$@"
