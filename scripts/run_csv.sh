#!/usr/bin/env bash
# Your own texts: a CSV, TSV or JSONL file with labelled texts, one with unlabelled ones, one to test on.
#
#   TRAIN_FILE=train.csv UNLABELED_FILE=more.csv TEST_FILE=test.csv SUP_SIZE=20 bash scripts/run_csv.sh [more flags of text.main]
#
# SUP_SIZE of the labelled texts are used, equally many of each class; DEV_SIZE (default 0) further ones choose the
# best checkpoint. TEXT_COLUMN (text) and LABEL_COLUMN (label) name the columns. TEST_FILE and UNLABELED_FILE may be
# left out. ENCODER (e5-small) is a name of docs/texts.md or a folder. RECIPE is frozen on a machine without a GPU, else
# finetune; layers lies between them. MAX_SEQ_LENGTH (128) cuts longer texts.
# Then, for predictions in runs/csv/predictions.csv:
#
#   python -m text.main --do_predict --model_dir=runs/csv --predict_input=new.csv
#
# Hardware: two CPU cores or one GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

if [[ -z ${RECIPE:-} ]]; then
  RECIPE=frozen
  ! command -v nvidia-smi > /dev/null || RECIPE=finetune
fi
records=(--recipe="$RECIPE" --task_name=csv --data_dir=data/csv --sup_size="${SUP_SIZE:?}" --dev_size="${DEV_SIZE:-0}")
records+=(--max_seq_length="${MAX_SEQ_LENGTH:-128}" --init_checkpoint="${ENCODER:-e5-small}")
[[ -z ${AUG_OPS:-} ]] || records+=(--aug_ops="$AUG_OPS")
python -m text.preprocess "${records[@]}" --train_file="${TRAIN_FILE:?}" \
  --unlabeled_file="${UNLABELED_FILE:-}" --test_file="${TEST_FILE:-}" \
  --text_column="${TEXT_COLUMN:-text}" --label_column="${LABEL_COLUMN:-label}"
python -m text.main --do_train --do_eval "${records[@]}" --model_dir=runs/csv "$@"
