#!/usr/bin/env bash
# Your own texts: a CSV, TSV or JSONL file with labelled texts, one with unlabelled ones, one to test on.
#
#   TRAIN_FILE=train.csv UNLABELED_FILE=more.csv TEST_FILE=test.csv SUP_SIZE=20 \
#     bash scripts/run_csv.sh [--draws=N] [more flags of text.main]
#
# SUP_SIZE of the labelled texts are used, equally many of each class; DEV_SIZE (default 0) further ones choose the
# best checkpoint. TEXT_COLUMN (text) and LABEL_COLUMN (label) name the columns. TEST_FILE and UNLABELED_FILE may be
# left out. ENCODER (e5-small) is a name of docs/texts.md or a folder. RECIPE is frozen where TensorFlow finds no GPU, else
# finetune; layers lies between them. MAX_SEQ_LENGTH (128) cuts longer texts. LABEL_SEED (-1) is another draw.
# Batch sizes and steps are chosen from the data, and printed (docs/settings.md#auto); every flag counts more.
# --minutes=30 trains about so long. --draws=5 trains five times, with other draws of the labels, in runs/csv/draw_0 and
# so on, and compares them in runs/csv/report.html.
# Then, for predictions in runs/csv/predictions.csv:
#
#   python -m text.main --do_predict --model_dir=runs/csv --predict_input=new.csv
#
# Hardware: two CPU cores or one GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

if [[ -z ${RECIPE:-} ]]; then
  gpus='import tensorflow as tf; print(len(tf.config.list_physical_devices("GPU")))'
  if [[ $(python -c "$gpus" 2> /dev/null) =~ [1-9] ]]; then RECIPE=finetune; else RECIPE=frozen; fi
fi
records=(--recipe="$RECIPE" --task_name=csv --data_dir=data/csv --sup_size="${SUP_SIZE:?}" --dev_size="${DEV_SIZE:-0}")
records+=(--max_seq_length="${MAX_SEQ_LENGTH:-128}" --init_checkpoint="${ENCODER:-e5-small}")
[[ -z ${AUG_OPS:-} ]] || records+=(--aug_ops="$AUG_OPS")
records+=(--label_seed="${LABEL_SEED:--1}")
sources=(--train_file="${TRAIN_FILE:?}" --unlabeled_file="${UNLABELED_FILE:-}" --test_file="${TEST_FILE:-}")
sources+=(--text_column="${TEXT_COLUMN:-text}" --label_column="${LABEL_COLUMN:-label}")
python -m text.preprocess "${records[@]}" "${sources[@]}"
train_draws text.main runs/csv --settings=auto "$@"
