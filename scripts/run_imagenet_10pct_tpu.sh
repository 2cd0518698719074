#!/usr/bin/env bash
# ImageNet with 10 % of the labels, ResNet-50, 224 pixels, on TPUs (paper, section 4.4 and appendix E).
#
#   python -m image.imagenet_index --data_dir=gs://bucket/imagenet     # once: checks the images
#   TPU=my-tpu DATA=gs://bucket/imagenet RUNS=gs://bucket/runs \
#     bash scripts/run_imagenet_10pct_tpu.sh [--draws=N] [more flags]
#
# DATA holds the standard shards (train-00000-of-01024, validation-00000-of-00128) or class folders (train/, val/).
# Labelled are the first 102 of 1024 shards, as the authors chose; --use_equal_split takes 10 % of each class instead.
# Unlabelled are all training images. The rate of 0.3 is the peak; it falls to a tenth after 1/3, 2/3 and 8/9 of the
# steps (the paper says four times; the recipe it follows has these three). The paper is silent on weight decay and
# moving averages: they are the TPU ResNet recipe's, 1e-4 and none; here the decay covers batch norm as well.
# Hardware: the paper's was 64 TPU v3 cores, on which a step has 488 images per core, both views counted. Computed here
# in bfloat16, as the TPU ResNet recipe does; whether that fits into a core's memory was not tried, and neither its speed
# nor its accuracy was measured here. --mixed_precision= computes in 32 bits.
# Accuracy, top-1 / top-5, the paper's: 68.78 / 88.80 %; labelled images only, with RandAugment: 58.84 / 80.56 %.
# Accuracy and time, measured here:
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_draws.sh

train_draws image.main "${RUNS:-runs}/imagenet_10pct_tpu" --strategy=tpu --tpu="${TPU:-local}" --task_name=imagenet \
  --data_dir="${DATA:-data/imagenet}" --image_size=224 --label_fraction=0.1 --aug_mode=online --shuffle_buffer=16384 \
  --model_name=resnet50 --mixed_precision=bfloat16 --train_batch_size=512 --unsup_ratio=30 --unsup_coeff=20 \
  --uda_confidence_thresh=0.5 --uda_softmax_temp=0.4 --learning_rate=0.3 --lr_schedule=steps --warmup_steps=2222 \
  --train_steps=40000 --weight_decay_rate=1e-4 --ema_decay=0 --eval_batch_size=1024 --save_steps=2000 \
  --log_steps=200 --iterations=200 "$@"
