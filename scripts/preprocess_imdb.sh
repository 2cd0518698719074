#!/usr/bin/env bash
# Records of IMDb for run_imdb_gpu.sh: 20 labels, one augmented copy of the unlabelled reviews, 128 word pieces.
#
#   bash scripts/download_imdb.sh
#   AUG_OPS=bt-0.9 bash scripts/preprocess_imdb.sh [more flags of text.preprocess]
#   AUG_OPS=bt-0.9 bash scripts/run_imdb_gpu.sh
#
# AUG_OPS is the augmentation. bt-0.9, the default, is the paper's: the reviews are first paraphrased by
# back-translation, which goes on where it was when it is stopped and started again, and is skipped once the paraphrases
# are there. MODEL=FORWARD,BACKWARD are its models; the embedded ones are a demonstration, see docs/back_translation.md.
# How long it takes on all reviews was not measured. AUG_OPS=tf_idf-0.7 goes without translation, in this script and in
# run_imdb_gpu.sh.
# BACK_TRANSLATION_DIR (data/imdb_bt) holds the paraphrases, as <dir>/unsup_in/sample_0.9/para/para_0.txt.
# Several machines: add --replicas=8 --worker_id=0 (to 7) on each, when the paraphrases are there.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

aug_ops=${AUG_OPS:-bt-0.9} paraphrases=${BACK_TRANSLATION_DIR:-data/imdb_bt}
records=(--task_name=imdb --raw_data_dir=data/raw/imdb --data_dir=data/imdb --sup_size=20 --max_seq_length=128)
records+=(--aug_ops="$aug_ops" --aug_copy=1 --back_translation_dir="$paraphrases")
records+=(--init_checkpoint=bert-base)
if [[ $aug_ops =~ bt-([0-9.]+) ]]; then
  temperature=$(LC_ALL=C printf %.1f "${BASH_REMATCH[1]}")
  if [[ ! -f $paraphrases/unsup_in/sample_$temperature/para/para_0.txt ]]; then
    mkdir -p "$paraphrases"
    python -m text.preprocess "${records[@]}" "$@" --export_texts="$paraphrases/texts.txt"
    bash back_translate/run.sh --input_file="$paraphrases/texts.txt" --output_dir="$paraphrases" \
      --sampling_temp="$temperature" ${MODEL:+--model="$MODEL"}
  fi
fi
python -m text.preprocess "${records[@]}" "$@"
