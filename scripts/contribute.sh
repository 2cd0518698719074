#!/usr/bin/env bash
# One of the paper's experiments from the download to a line that can be sent in, unattended: for those who have the
# hardware. A step that is finished is not made again, and one that was stopped goes on: give the same command again.
#
#   SUP_SIZE=1000 SEED=0 bash scripts/contribute.sh svhn [more flags of the training]
#   bash scripts/contribute.sh cifar10
#   TPU=local bash scripts/contribute.sh shake_shake
#   TPU=local bash scripts/contribute.sh pyramidnet
#   TPU=local DATA=data/imagenet bash scripts/contribute.sh imagenet_10pct
#   TPU=local DATA=data/imagenet UNLABELED=data/more_images bash scripts/contribute.sh imagenet_full
#   TPU=local MODEL=FORWARD,BACKWARD bash scripts/contribute.sh imdb
#   TPU=local MODEL=FORWARD,BACKWARD bash scripts/contribute.sh yelp2
#
# And yelp5, amazon2, amazon5, dbpedia, like yelp2: BERT-large. Their files, and those of ImageNet, are to be there before
# (docs/texts.md, docs/images.md). MODEL are folders of translation models (docs/back_translation.md).
# The training is that of scripts/run_*.sh, whose heads tell the hardware; on GPUs add --strategy=auto --tpu= to those
# of TPUs.
# Its run is in runs/contributed, its line, with error rate, command, seed, versions and commit, at the end of
# results/contributed.csv, from which docs/experiments.md has its column.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

name=${1:?one of svhn, cifar10, shake_shake, pyramidnet, imagenet_10pct, imagenet_full, imdb, yelp2, yelp5, amazon2, amazon5, dbpedia}
shift
seed=${SEED:-0}
flags=()
if [[ -n ${SUP_SIZE:-} && $name != svhn && $name != cifar10 ]]; then
  echo "error: SUP_SIZE=$SUP_SIZE is for svhn and cifar10; $name has the paper's number of labels." >&2
  exit 2
fi

prepare_cifar10() {
  [[ -f data/raw/cifar10/cifar-10-python.tar.gz ]] || bash scripts/download_cifar10.sh
  bash scripts/preprocess_cifar10.sh
}

is_there() { python -c 'import sys; from utils import files; sys.exit(not files.exists(sys.argv[1]))' "$1"; }

index_images() { # FOLDER FLAGS...: checks every image, which takes hours, once
  is_there "$1/index.json" || python -m image.imagenet_index --data_dir="$1" "${@:2}"
}

prepare_texts() { # TASK SUP_SIZE
  local task=$1
  [[ -f data/$task.txt ]] || python -m text.preprocess --task_name="$task" --export_texts="data/$task.txt"
  bash back_translate/run.sh --input_file="data/$task.txt" --output_dir="data/${task}_bt" --sampling_temp=0.9 \
    ${MODEL:+--model="$MODEL"}
  python -m text.preprocess --task_name="$task" --data_dir="data/$task" --sup_size="$2" --max_seq_length=512 \
    --aug_ops=bt-0.9 --aug_copy=1 --back_translation_dir="data/${task}_bt" --init_checkpoint=bert-large
}

case $name in
  svhn)
    run=run_svhn_gpu
    [[ -f data/raw/svhn/test_32x32.mat ]] || bash scripts/download_svhn.sh
    bash scripts/preprocess_svhn.sh
    ;;
  cifar10) run=run_cifar10_gpu && prepare_cifar10 ;;
  shake_shake) run=run_cifar10_shake_shake_tpu && prepare_cifar10 ;;
  pyramidnet) run=run_cifar10_pyramidnet_tpu && prepare_cifar10 ;;
  imagenet_10pct | imagenet_full)
    run=run_${name}_tpu
    index_images "${DATA:-data/imagenet}"
    [[ $name != imagenet_full ]] || index_images "${UNLABELED:-data/more_images}" --unlabeled
    ;;
  imdb)
    run=run_imdb_tpu
    flags=(${TPU:+--tpu="$TPU"})
    [[ -f data/raw/imdb/aclImdb_v1.tar.gz ]] || bash scripts/download_imdb.sh
    bash scripts/pretrain_imdb_tpu.sh "${flags[@]}"
    bash scripts/preprocess_imdb.sh --data_dir=data/imdb_512 --max_seq_length=512 \
      --init_checkpoint=runs/imdb_pretrained/bert
    ;;
  yelp2 | yelp5 | amazon2 | amazon5 | dbpedia)
    run=run_${name}_tpu
    flags=(${TPU:+--tpu="$TPU"})
    declare -A sup_size=([yelp2]=20 [yelp5]=2500 [amazon2]=20 [amazon5]=2500 [dbpedia]=140)
    prepare_texts "${name/%[25]/-${name: -1}}" "${sup_size[$name]}"
    ;;
  *)
    echo "error: $name is no experiment: expected svhn, cifar10, shake_shake, pyramidnet, imagenet_10pct, imagenet_full," \
      "imdb, yelp2, yelp5, amazon2, amazon5 or dbpedia." >&2
    exit 2
    ;;
esac
run_dir=runs/contributed/${name}${SUP_SIZE:+_$SUP_SIZE}_$seed
bash "scripts/$run.sh" "${flags[@]}" --model_dir="$run_dir" --seed="$seed" "$@"
for finished in "$run_dir" "$run_dir"/draw_*; do # the latter with --draws=N
  [[ ! -f $finished/result.json ]] || python -m utils.results add "$finished" --experiment="$run" --method=UDA
done
