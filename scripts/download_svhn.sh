#!/usr/bin/env bash
# Fetches SVHN, cropped digits of 32x32 pixels: train (73,257 images, 182 MB) and test (26,032 images, 64 MB).
#
#   bash scripts/download_svhn.sh [--extra] [FOLDER]
#
# FOLDER is where the files go, relative to the root of this repository (default: data/raw/svhn).
# --extra fetches the extra split as well (531,131 images, 1.3 GB), which no published result here uses.
# UDA_MIRROR=<base URL> fetches from there instead of from the official site. An interrupted download resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_download.sh

extra=no
folder=data/raw/svhn
for argument in "$@"; do
  case $argument in
    --extra) extra=yes ;;
    -*) echo "Unknown option $argument: use [--extra] [FOLDER]" >&2; exit 2 ;;
    *) folder=$argument ;;
  esac
done

base=${UDA_MIRROR:-http://ufldl.stanford.edu/housenumbers}
download "$base/train_32x32.mat" "$folder/train_32x32.mat" e26dedcc434d2e4c54c9b2d4a06d8373
download "$base/test_32x32.mat" "$folder/test_32x32.mat" eb5a983be6a315427106f1b164d9cef3
if [[ $extra == yes ]]; then
  download "$base/extra_32x32.mat" "$folder/extra_32x32.mat" a93ce644f1a588dc4d68dda5feec44a7
fi
