#!/usr/bin/env bash
# Fetches film sentences, or four collections of texts, with pip (2 MB): Hutto and Gilbert's, MIT licence.
#
#   bash scripts/download_sentences.sh [film|collections]
#
# Writes data/raw/film (or data/raw/collections): train.csv and test.csv.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh
source scripts/lib_download.sh

task=${1:-film}
archive=data/cache/vaderSentiment-3.3.2.tar.gz
fetch_package vaderSentiment==3.3.2 $archive 5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9
[[ -f data/raw/$task/test.csv ]] || python -m text.quickstart_data --archive=$archive --task="$task"
