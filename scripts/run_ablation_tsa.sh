#!/usr/bin/env bash
# Training signal annealing on Yelp-5 with 2,500 labels and a random Transformer: none, log, linear, exp; SEEDS runs each.
#
#   python -m text.preprocess --task_name=yelp-5 --export_texts=data/yelp-5.txt
#   bash back_translate/run.sh --input_file=data/yelp-5.txt --output_dir=data/yelp-5_bt --sampling_temp=0.9 --copies=4 \
#     --model=FORWARD,BACKWARD
#   python -m text.preprocess --task_name=yelp-5 --data_dir=data/yelp-5 --sup_size=2500 --max_seq_length=512 \
#     --aug_ops=bt-0.9 --aug_copy=4 --back_translation_dir=data/yelp-5_bt \
#     --init_checkpoint=bert-large
#   SEEDS="0 1 2" bash scripts/run_ablation_tsa.sh [more flags of text.main]
#
# FORWARD and BACKWARD are folders of translation models (docs/back_translation.md). For other records set DATA_DIR and
# AUG_OPS, and add their flags.
# Hardware: as for run_yelp5_tpu.sh.
# --draws=5 is short for SEEDS="0 1 2 3 4".
# Table: runs/ablation_tsa/report.md and .csv, with curves in report.html.
# Error rate, the paper's: none 50.81, log 49.06, linear 45.41, exp 41.35 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || SEEDS=$(seq -s " " 0 $((draws - 1)))

report=(--data_dir="${DATA_DIR:-data/yelp-5}" --aug_ops="${AUG_OPS:-bt-0.9}" --output=runs/ablation_tsa/report.html)
for tsa in none log linear exp; do
  for seed in ${SEEDS:-0}; do
    model_dir="runs/ablation_tsa/${tsa}_$seed"
    report+=(--run="$tsa=$model_dir")
    train_once text.main "$model_dir" --seed="$seed" --tsa="${tsa/none/}" \
      --task_name=yelp-5 --data_dir="${DATA_DIR:-data/yelp-5}" --sup_size=2500 --aug_ops="${AUG_OPS:-bt-0.9}" \
      --aug_copy=4 --max_seq_length=512 --model_name=transformer --train_batch_size=32 --unsup_ratio=7 \
      --learning_rate=2e-5 --train_steps=500000 --warmup_steps=10000 --save_steps=10000 --log_steps=1000 "$@"
  done
done
python -m text.report "${report[@]}"
