#!/usr/bin/env bash
# ImageNet with all labels and unlabelled images from elsewhere, ResNet-50, 331 pixels, on TPUs (paper, section 4.4 and
# appendix E).
#
#   python -m image.imagenet_index --data_dir=gs://bucket/imagenet     # once: checks the images
#   python -m image.imagenet_index --data_dir=gs://bucket/more_images --unlabeled
#   TPU=my-tpu DATA=gs://bucket/imagenet UNLABELED=gs://bucket/more_images RUNS=gs://bucket/runs \
#     bash scripts/run_imagenet_full_tpu.sh [--draws=N] [more flags]
#
# DATA holds the standard shards (train-00000-of-01024, validation-00000-of-00128) or class folders (train/, val/).
# UNLABELED holds shards or image files without labels. The paper's are 1.3 million images of JFT, which is not public,
# chosen by domain relevance; any large collection serves.
# Entropy minimisation takes the place of the temperature. The paper does not give its weight, nor the number of steps,
# nor a confidence threshold for this setting: here 0.1, which the authors named for CIFAR-10; 14,000, about 90 passes
# over the labelled images as in the TPU ResNet recipe; and the 0.5 of section 2.4. The rate of 1.6 is the peak.
# Hardware: the paper's was 128 TPU v3 cores, on which a step has 320 images per core, both views counted. Computed here
# in bfloat16, as the TPU ResNet recipe does; whether that fits into a core's memory was not tried, and neither its speed
# nor its accuracy was measured here. --mixed_precision= computes in 32 bits.
# Accuracy, top-1 / top-5, the paper's: 79.05 / 94.49 %; labelled images only, with RandAugment: 78.43 / 94.37 %.
# Accuracy and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

train_draws image.main "${RUNS:-runs}/imagenet_full_tpu" --strategy=tpu --tpu="${TPU:-local}" --task_name=imagenet \
  --data_dir="${DATA:-data/imagenet}" --unlabeled_dir="${UNLABELED:-data/more_images}" --image_size=331 \
  --label_fraction=1 --aug_mode=online --shuffle_buffer=16384 --model_name=resnet50 --mixed_precision=bfloat16 \
  --train_batch_size=8192 --unsup_ratio=2 --unsup_coeff=1 --ent_min_coeff=0.1 --uda_softmax_temp=-1 \
  --uda_confidence_thresh=0.5 --learning_rate=1.6 --lr_schedule=steps --warmup_steps=778 --train_steps=14000 \
  --weight_decay_rate=1e-4 --ema_decay=0 --eval_batch_size=1024 --save_steps=1000 --log_steps=100 --iterations=100 \
  "$@"
