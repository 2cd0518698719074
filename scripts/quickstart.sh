#!/usr/bin/env bash
# The main job on embedded data: 20 labels of 1,297 handwritten digits, the other images unlabelled. Trains the same
# network three times for the same number of steps: on the 20 images; on RandAugment copies of them; with UDA. Prints
# their error rates on 500 test images and writes the page runs/quickstart/report.html.
#
#   bash scripts/quickstart.sh [--draws=N] [LABEL_SEED ...]     seeds of draws of the 20 images; default 0
#
# --draws=5 is short for 0 1 2 3 4. A run that is finished is skipped.
# Hardware: two CPU cores, about four minutes for one seed after the install.
# Error rate, measured, seeds 0 to 4: supervised 27.3 ± 6.2 %, with RandAugment 16.1 ± 5.7 %, UDA 4.6 ± 1.1 %.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

data=data/digits
report=(--data_dir=$data --output=runs/quickstart/report.html)
take_draws "$@"
[[ -z $draws ]] || mapfile -t others < <(seq 0 $((draws - 1)))
for seed in "${others[@]:-0}"; do
  records=(--task_name=digits --data_dir=$data --sup_size=20 --use_equal_split --label_seed="$seed" --aug_copy=20)
  python -m image.preprocess "${records[@]}" --sup_aug_ops=randaugment
  train() { # NAME FLAGS...
    local model_dir="runs/quickstart/seed_$seed/${1// /_}"
    report+=(--run="$1=$model_dir")
    echo "=== $1, label seed $seed"
    train_once image.main "$model_dir" "${records[@]}" --seed="$seed" \
      --wrn_depth=10 --wrn_size=16 --wrn_stem_stride=2 --train_batch_size=16 --train_steps=800 --ema_decay=0.99 \
      --log_steps=40 --save_steps=200 --eval_steps=40 "${@:2}"
  }
  train "supervised" --unsup_ratio=0
  train "supervised with RandAugment" --unsup_ratio=0 --sup_aug_ops=randaugment
  train "UDA" --unsup_ratio=4
done
python -m image.report "${report[@]}"
