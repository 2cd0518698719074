#!/usr/bin/env bash
# Fetches CIFAR-10 (60,000 images of 32x32 pixels in 10 classes), one archive of 170 MB that is read without unpacking.
#
#   bash scripts/download_cifar10.sh [--binary] [FOLDER]
#
# FOLDER is where the archive goes, relative to the root of this repository (default: data/raw/cifar10).
# --binary fetches the binary instead of the Python version; both hold the same images and both can be read.
# UDA_MIRROR=<base URL> fetches from there instead of from the official site. An interrupted download resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_download.sh

archive=cifar-10-python.tar.gz
md5=c58f30108f718f92721af3b95e74349a
folder=data/raw/cifar10
for argument in "$@"; do
  case $argument in
    --binary) archive=cifar-10-binary.tar.gz md5=c32a1d4ab5d03f1284b67883e8d87530 ;;
    -*) echo "Unknown option $argument: use [--binary] [FOLDER]" >&2; exit 2 ;;
    *) folder=$argument ;;
  esac
done

download "${UDA_MIRROR:-https://www.cs.toronto.edu/~kriz}/$archive" "$folder/$archive" "$md5"
