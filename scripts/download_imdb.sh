#!/usr/bin/env bash
# Fetches IMDb (50,000 film reviews with labels, 50,000 without), one archive of 84 MB that is read without unpacking.
#
#   bash scripts/download_imdb.sh [FOLDER]
#
# FOLDER is where the archive goes, relative to the root of this repository (default: data/raw/imdb).
# UDA_MIRROR=<base URL> fetches from there instead of from the official site. An interrupted download resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_download.sh

folder=data/raw/imdb
for argument in "$@"; do
  case $argument in
    -*) echo "Unknown option $argument: use [FOLDER]" >&2; exit 2 ;;
    *) folder=$argument ;;
  esac
done

base=${UDA_MIRROR:-https://ai.stanford.edu/~amaas/data/sentiment}
download "$base/aclImdb_v1.tar.gz" "$folder/aclImdb_v1.tar.gz" 7c2ac02c03563afcf9b574c7e56c153a
