#!/usr/bin/env bash
# Records of IMDb for run_imdb_gpu.sh: 20 labels, one augmented copy of the unlabelled reviews, 128 word pieces.
#
#   bash scripts/download_imdb.sh
#   bash scripts/download_bert.sh
#   bash scripts/preprocess_imdb.sh [more flags of text.preprocess]
#
# The paper's augmentation is back-translation; with paraphrases at hand, laid out as
# <dir>/unsup_in/sample_0.9/para/para_0.txt, add: --aug_ops=bt-0.9 --back_translation_dir=<dir>
# For run_imdb_tpu.sh add: --max_seq_length=512 --output_dir=data/imdb_512
# Several machines: add --replicas=8 --worker_id=0 (to 7) on each.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

python -m text.preprocess --task_name=imdb --raw_data_dir=data/raw/imdb --output_dir=data/imdb \
  --init_checkpoint=data/bert/uncased_L-12_H-768_A-12 --max_seq_length=128 \
  --sup_size=20 --aug_ops=tf_idf-0.7 --aug_copy=1 "$@"
