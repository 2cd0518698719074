#!/usr/bin/env bash
# Your own images: folders in, predictions out. Images are augmented while training; docs/images.md tells what becomes of
# photos of other shapes and kinds.
#
#   TRAIN_DIR=photos/train UNLABELED_DIR=photos/more TEST_DIR=photos/test PREDICT_DIR=photos/new SUP_SIZE=100 \
#     bash scripts/run_folder.sh [--draws=N] [more flags of image.main]
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
# Batch sizes, thresholds and steps are chosen from the data, and printed (docs/settings.md#auto); every flag counts
# more. --minutes=30 trains about so long. --draws=5 trains five times, with other draws of the labels, in draw_0 and so
# on of MODEL_DIR, and compares them in report.html; predictions are then those of the first.
# Hardware: one GPU, or two CPU cores for few small images: without a GPU the network is that of quickstart.sh.
# Error rate, measured with scikit-learn's digits as PNG files, 20 of them labelled, and that network: 5.4 %, and 21.4 %
# on the labelled images alone (--unsup_ratio=0); one run each.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

model_dir=${MODEL_DIR:-runs/folder}
records=(--task_name=folder --data_dir="${DATA_DIR:-data/folder}" --aug_mode=online --sup_size="${SUP_SIZE:?}")
records+=(--use_equal_split="${EQUAL:-true}" --label_seed="${LABEL_SEED:-0}" --dev_size="${DEV_SIZE:-0}")
sources=(--train_dir="${TRAIN_DIR:?}" --unlabeled_dir="${UNLABELED_DIR:-}" --test_dir="${TEST_DIR:-}")
sources+=(--image_size="${IMAGE_SIZE:-0}" --flip="${FLIP:-false}")
python -m image.preprocess "${records[@]}" "${sources[@]}"
train_draws image.main "$model_dir" --settings=auto "$@"
if [[ -n ${PREDICT_DIR:-} ]]; then
  python -m image.main --do_predict --model_dir="$first_run" --predict_input="$PREDICT_DIR" \
    --predict_output="$model_dir/predictions.csv"
fi
