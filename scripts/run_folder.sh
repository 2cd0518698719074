#!/usr/bin/env bash
# Your own images: folders in, predictions out. Images are augmented while training; docs/images.md tells what becomes of
# photos of other shapes and kinds.
#
#   TRAIN_DIR=photos/train UNLABELED_DIR=photos/more TEST_DIR=photos/test PREDICT_DIR=photos/new SUP_SIZE=100 \
#     bash scripts/run_folder.sh [more flags of image.main]
#
#   photos/train/cat/*.jpg, photos/train/dog/*.jpg     labelled: SUP_SIZE of them are used, equally many of each class
#   photos/more/**.jpg                                 unlabelled; the images of TRAIN_DIR are used so, too
#   photos/test/cat/*.jpg, photos/test/dog/*.jpg       for the error rate, in runs/folder/result.json
#   photos/new/**.jpg                                  to classify, into runs/folder/predictions.csv
#
# Only TRAIN_DIR and SUP_SIZE are needed. EQUAL=false draws from all images instead, as for SUP_SIZE=<all of them>;
# LABEL_SEED (0) is another draw; DEV_SIZE (0) further labelled images choose the best checkpoint; IMAGE_SIZE (found
# from the images) is their side in pixels; FLIP=true if mirrored images belong to the same class. DATA_DIR (data/folder)
# and MODEL_DIR (runs/folder) are written.
# Hardware: one GPU. Few images of 32 pixels train on two CPU cores with the network of scripts/quickstart.sh.
# Error rate, measured with scikit-learn's digits as PNG files, 20 of them labelled, and that network: 5.4 %, and 21.4 %
# on the labelled images alone (--unsup_ratio=0); one run each.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

model_dir=${MODEL_DIR:-runs/folder}
records=(--task_name=folder --data_dir="${DATA_DIR:-data/folder}" --aug_mode=online --sup_size="${SUP_SIZE:?}")
records+=(--use_equal_split="${EQUAL:-true}" --label_seed="${LABEL_SEED:-0}" --dev_size="${DEV_SIZE:-0}")
python -m image.preprocess "${records[@]}" --train_dir="${TRAIN_DIR:?}" \
  --unlabeled_dir="${UNLABELED_DIR:-}" --test_dir="${TEST_DIR:-}" \
  --image_size="${IMAGE_SIZE:-0}" --flip="${FLIP:-false}"
python -m image.main --do_train --do_eval "${records[@]}" --model_dir="$model_dir" \
  --train_steps=20000 --ema_decay=0.999 --save_steps=2000 --log_steps=200 "$@"
if [[ -n ${PREDICT_DIR:-} ]]; then
  python -m image.main --do_predict --model_dir="$model_dir" --predict_input="$PREDICT_DIR"
fi
