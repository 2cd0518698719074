#!/usr/bin/env bash
# Proves that both stacks read what the other one wrote: the same records byte for byte, restored checkpoints with the
# same evaluation, exported models with the same predictions (to 1e-5).
#
#   bash scripts/check_stacks.sh
#
# Needs a Python 3.11, or both an older and a newer one (see scripts/lib_setup.sh).
# Hardware: two CPU cores. Time, measured here: five minutes beside other jobs, two of them processor time.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
on_stack() { # STACK FLAGS...
  (
    export UDA_STACK=$1
    source scripts/lib_setup.sh
    python -m tests.stack_exchange "${@:2}"
  )
}
on_stack 2.15 --write="$work/2.15"
on_stack 2.20 --write="$work/2.20"
on_stack 2.20 --read="$work/2.15"
on_stack 2.15 --read="$work/2.20"
echo "both stacks read what the other one wrote"
