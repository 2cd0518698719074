#!/usr/bin/env bash
# Fetches and unpacks Google's uncased BERT: vocab.txt, bert_config.json, bert_model.ckpt (base 0.4 GB, large 1.2 GB).
#
#   bash scripts/download_bert.sh [--large] [--md5=CHECKSUM] [FOLDER]
#
# FOLDER is where the model's folder goes, relative to the root of this repository (default: data/bert); that is
# uncased_L-12_H-768_A-12 or, with --large, uncased_L-24_H-1024_A-16.
# Google publishes no checksum. --md5 checks the archive against one of yours; the archive's own are checked anyway.
# UDA_MIRROR=<base URL> fetches from there instead of from the official site. An interrupted download resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_download.sh

model=uncased_L-12_H-768_A-12
md5=
folder=data/bert
for argument in "$@"; do
  case $argument in
    --large) model=uncased_L-24_H-1024_A-16 ;;
    --md5=*) md5=${argument#--md5=} ;;
    -*) echo "Unknown option $argument: use [--large] [--md5=CHECKSUM] [FOLDER]" >&2; exit 2 ;;
    *) folder=$argument ;;
  esac
done

if [[ -d $folder/$model ]]; then echo "$folder/$model is already there."; exit; fi
archive=$folder/$model.zip
download "${UDA_MIRROR:-https://storage.googleapis.com/bert_models/2018_10_18}/$model.zip" "$archive" "$md5"
# Unpacked beside its place, so that a folder with the model's name is always whole.
rm -rf "$folder/unpacking"
if ! python3 -m zipfile -e "$archive" "$folder/unpacking"; then
  rm -rf "$folder/unpacking" "$archive"
  echo "$archive is damaged and was removed. Run this script again." >&2
  exit 1
fi
# The archive holds either the model's folder or, in some releases, its files alone.
if [[ -d $folder/unpacking/$model ]]; then
  mv "$folder/unpacking/$model" "$folder/$model"
  rm -rf "$folder/unpacking"
else
  mv "$folder/unpacking" "$folder/$model"
fi
rm "$archive"
echo "$folder/$model is complete."
