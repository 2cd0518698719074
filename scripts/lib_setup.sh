#!/usr/bin/env bash
# Sourced by the other scripts, from the root of the repository: makes .venv once, and uses it afterwards. A change of
# requirements.lock installs again. UDA_PYTHON=<program> chooses the Python.
set -euo pipefail

find_python() {
  local candidate found=""
  for candidate in ${UDA_PYTHON:-python3.11 python3.10 python3 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 10), (3, 11)])' 2> /dev/null; then
      echo "$candidate"
      return
    fi
    found+=" $candidate: $("$candidate" --version 2>&1 | head -n 1 || true);"
  done
  echo "error: Python 3.10 or 3.11 is needed, but found only:${found} Install one, or set UDA_PYTHON to it." >&2
  return 1
}

if ! cmp -s requirements.lock .venv/installed.lock; then
  python=$(find_python)
  echo "Installing into .venv (once; a few minutes, 2.7 GB) with $("$python" --version) ..."
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
  cp requirements.lock .venv/installed.lock
fi
export PATH="$PWD/.venv/bin:$PATH"
