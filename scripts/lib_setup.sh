#!/usr/bin/env bash
# Sourced by the other scripts, from the root of the repository: makes .venv once, and uses it afterwards. A change of
# its lock installs again. The newest Python that is found decides on the stack:
#
#   Python 3.10, 3.11   TensorFlow 2.15   requirements-2.15.lock
#   Python 3.12, 3.13   TensorFlow 2.20   requirements-2.20.lock
#
# UDA_PYTHON=<program> chooses the Python. UDA_STACK=2.15 or 2.20 chooses the stack; 3.11 has both. A stack chosen by
# hand has an environment of its own, .venv-<stack>.
set -euo pipefail

stack_of() { # VERSION: the stack of this version of Python, or nothing if there is none
  case ${UDA_STACK:-any}:$1 in
    any:3.10 | any:3.11 | 2.15:3.10 | 2.15:3.11) echo 2.15 ;;
    any:3.12 | any:3.13 | 2.20:3.11 | 2.20:3.12 | 2.20:3.13) echo 2.20 ;;
  esac
}

find_python() { # prints the stack and the program
  local candidate version stack found="" candidates=(python3.13 python3.12 python3.11 python3.10 python3 python)
  [[ -z ${UDA_PYTHON:-} ]] || candidates=("$UDA_PYTHON")
  for candidate in "${candidates[@]}"; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
    stack=$(stack_of "$version")
    if [[ -n $stack ]]; then
      if ! "$candidate" -c 'import ensurepip, venv' 2> /dev/null; then
        echo "error: $candidate has no venv module. Install it (Debian, Ubuntu: apt-get install python$version-venv)." >&2
        return 1
      fi
      echo "$stack $candidate"
      return
    fi
    found+="${found:+,} $candidate is $version"
  done
  {
    echo "error: Python 3.10 to 3.13 is needed${UDA_STACK:+ (UDA_STACK=$UDA_STACK: 2.15 has 3.10 and 3.11, 2.20 has 3.11 to 3.13)}, found:${found:- none}"
    echo "Install one with the system's packages (such as apt-get install python3 python3-venv, or brew install"
    echo "python@3.13) or with uv (uv python install 3.13), or set UDA_PYTHON to its program."
  } >&2
  return 1
}

venv=.venv${UDA_STACK:+-$UDA_STACK}
if ! cmp -s "requirements-$(cat "$venv/stack" 2> /dev/null).lock" "$venv/installed.lock"; then
  stack_and_python=$(find_python)
  read -r stack python <<< "$stack_and_python"
  echo "Installing TensorFlow $stack into $venv (once; a few minutes, 3 GB) with $("$python" --version) ..."
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    -r "requirements-$stack.lock"
  cp "requirements-$stack.lock" "$venv/installed.lock"
  echo "$stack" > "$venv/stack"
fi
export PATH="$PWD/$venv/bin:$PATH"
