#!/usr/bin/env bash
# Augmentations compared on Yelp-5 with 2,500 labels and a random Transformer: none (supervised), uniform word
# replacement (Switchout), TF-IDF word replacement, back-translation; SEEDS runs each.
#
#   python -m text.preprocess --task_name=yelp-5 --export_texts=data/yelp-5.txt
#   bash back_translate/run.sh --input_file=data/yelp-5.txt --output_dir=data/yelp-5_bt --sampling_temp=0.9 --copies=4 \
#     --model=FORWARD,BACKWARD
#   python -m text.preprocess --task_name=yelp-5 --data_dir=data/yelp-5 --sup_size=2500 --max_seq_length=512 \
#     --aug_ops=unif-0.1+tf_idf-0.7+bt-0.9 --aug_copy=4 --back_translation_dir=data/yelp-5_bt \
#     --init_checkpoint=bert-large
#   SEEDS="0 1 2" bash scripts/run_ablation_text_augmentation.sh [more flags of text.main]
#
# FORWARD and BACKWARD are folders of translation models (docs/back_translation.md). AUG_OPS="unif-0.1 tf_idf-0.7" goes
# without them; DATA_DIR is the folder of other records.
# Hardware: as for run_yelp5_tpu.sh.
# --draws=5 is short for SEEDS="0 1 2 3 4".
# Table: runs/ablation_text_augmentation/report.md and .csv, with curves in report.html.
# Error rate, the paper's: none 50.80, Switchout 43.38, back-translation 41.35 %.
# Error rate and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

take_draws "$@"
set -- "${others[@]}"
[[ -z $draws ]] || SEEDS=$(seq -s " " 0 $((draws - 1)))

data_dir=${DATA_DIR:-data/yelp-5}
read -ra aug_ops <<< "${AUG_OPS:-unif-0.1 tf_idf-0.7 bt-0.9}"
report=(--data_dir="$data_dir" --aug_ops="${aug_ops[0]}" --output=runs/ablation_text_augmentation/report.html)
train() { # NAME FLAGS...
  for seed in ${SEEDS:-0}; do
    local model_dir="runs/ablation_text_augmentation/${1}_$seed"
    report+=(--run="$1=$model_dir")
    train_once text.main "$model_dir" --seed="$seed" \
      --task_name=yelp-5 --data_dir="$data_dir" --sup_size=2500 --aug_copy=4 --max_seq_length=512 \
      --model_name=transformer --train_batch_size=32 --tsa=exp --learning_rate=2e-5 \
      --train_steps=500000 --warmup_steps=10000 --save_steps=10000 --log_steps=1000 "${@:2}"
  done
}
train none --unsup_ratio=0 --tsa= "$@"
for aug_op in "${aug_ops[@]}"; do
  train "$aug_op" --unsup_ratio=7 --aug_ops="$aug_op" "$@"
done
python -m text.report "${report[@]}"
