#!/usr/bin/env bash
# Writes the records for all CIFAR-10 scripts: labelled sets of 250 to 4,000 images, the test set, and 100 RandAugment
# copies of the 50,000 training images.
#
#   bash scripts/download_cifar10.sh
#   bash scripts/preprocess_cifar10.sh [more flags of image.preprocess]
#
# Needs 32 GB of disk. Stopped and started again, it goes on where it was. All cores are used.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

records=(--task_name=cifar10 --data_dir=data/cifar10 --aug_copy=100)
for sup_size in 250 500 1000 2000 4000; do
  python -m image.preprocess "${records[@]}" --data_type=sup --sup_size=$sup_size --workers=1 "$@"
done
python -m image.preprocess "${records[@]}" --data_type=unsup "$@"
