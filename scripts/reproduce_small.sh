#!/usr/bin/env bash
# Runs again what results/ has, as far as the data are at hand, and compares the error rates with those that are there.
#
#   bash scripts/reproduce_small.sh --list                 what there is, what is finished, how long the rest takes
#   bash scripts/reproduce_small.sh [--only=NAME,NAME] [--draws=0,1] [--jobs=2] [--new] [--add]
#
# The experiments, with their commands and minutes, are in results/experiments.json. Finished runs are kept in runs/small
# and skipped; one that was stopped goes on. --jobs=2 makes two runs at once, each on half of the cores: networks as small
# as these are done sooner so. oneDNN's kernels are used on every processor (docs/performance.md). With the version of
# TensorFlow, the processor and the number of cores of the runs in results/, digits are expected to agree to the digit;
# else means may differ by the tolerance of the experiment. --new leaves out the runs that results/ has already, and --add
# adds what is new to it; `python -m utils.results write` makes the tables and plots of the documents from there.
# Hardware: two CPU cores; CIFAR-10, which needs scripts/download_cifar10.sh, takes nine hours of a core that computes in
# bfloat16 and fourteen or more of others, everything else about as long.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

export TF_ENABLE_ONEDNN_OPTS=${TF_ENABLE_ONEDNN_OPTS:-1}
python -m utils.reproduce "$@"
