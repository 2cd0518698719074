#!/usr/bin/env bash
# Checks the style and runs all tests in two processes, 22 minutes of processor time, without a network after the install.
#
#   bash scripts/test.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib_setup.sh

ruff check .
ruff format --check .
# In the order of the folders: by the number of tests, the slowest files would come last, and one process would idle.
python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder "$@"
