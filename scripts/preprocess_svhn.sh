#!/usr/bin/env bash
# Writes the records for run_svhn_gpu.sh: labelled sets of 250 to 4,000 images, the test set, and 100 RandAugment
# copies of the 73,257 training images.
#
#   bash scripts/download_svhn.sh
#   bash scripts/preprocess_svhn.sh [more flags of image.preprocess]
#
# Needs 47 GB of disk. Stopped and started again, it goes on where it was. All cores are used.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

records=(--task_name=svhn --data_dir=data/svhn --aug_copy=100)
for sup_size in 250 500 1000 2000 4000; do
  python -m image.preprocess "${records[@]}" --data_type=sup --sup_size=$sup_size --workers=1 "$@"
done
python -m image.preprocess "${records[@]}" --data_type=unsup "$@"
