#!/usr/bin/env bash
# Sourced by the download scripts. `download URL FILE [MD5]` fetches one file with curl or wget and resumes what an
# earlier run left in FILE.part; FILE appears only when the checksum fits. A FILE that fits is not fetched again.
# Without MD5, any checksum fits.
set -euo pipefail

md5_of() {
  if command -v md5sum > /dev/null; then
    md5sum < "$1" | cut -d ' ' -f 1
  else
    python3 -c 'import hashlib, sys
md5 = hashlib.md5()
for block in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
    md5.update(block)
print(md5.hexdigest())' < "$1"
  fi
}

fetch() {
  local url=$1 part=$2 status=0
  if command -v curl > /dev/null; then
    curl --fail --location --continue-at - --output "$part" "$url" || status=$?
    # 33 and 36: the server cannot resume here, so the next attempt has to start over.
    if [[ $status == 33 || $status == 36 ]]; then rm -f "$part"; fi
    return "$status"
  elif command -v wget > /dev/null; then
    wget --continue --tries=1 --output-document="$part" "$url"
  else
    echo "Neither curl nor wget is installed: install one of them, or put the file of $url in place yourself." >&2
    exit 1
  fi
}

download() {
  local url=$1 file=$2 md5=${3:-} part=$2.part found attempt
  if [[ -f $file ]]; then
    found=$(md5_of "$file")
    if [[ $found == "${md5:-$found}" ]]; then echo "$file is already complete."; return; fi
    echo "$file is damaged (expected md5=$md5, found md5=$found): fetching it again." >&2
    rm "$file"
  fi
  mkdir -p "$(dirname "$file")"
  for attempt in 1 2 3; do
    if fetch "$url" "$part"; then break; fi
    if [[ $attempt == 3 ]]; then
      echo "Could not fetch $url. Run this script again to go on from what is in $part." >&2
      return 1
    fi
    sleep 1
  done
  found=$(md5_of "$part")
  if [[ $found != "${md5:-$found}" ]]; then
    rm "$part"
    echo "$url has the wrong checksum: expected md5=$md5, found md5=$found. Nothing was kept; try again later." >&2
    return 1
  fi
  mv "$part" "$file"
  echo "$file is complete."
}

# fetch_package PACKAGE==VERSION FILE SHA256: FILE, a wheel or a source archive, of a package from the index that pip
# uses, unless it is there already.
fetch_package() {
  local kind=--only-binary
  [[ $2 != *.tar.gz ]] || kind=--no-binary
  if [[ ! -f $2 ]]; then
    pip download --quiet --disable-pip-version-check --no-deps "$kind=:all:" --dest "$(dirname "$2")" "$1"
  fi
  if ! echo "$3  $2" | sha256sum --check --status; then
    echo "error: $2 is not the expected file. Delete it and run this again." >&2
    return 1
  fi
}

# unpack_wheel FILE FOLDER: unpacks a wheel, unless FOLDER is there already.
unpack_wheel() {
  [[ -d $2 ]] || { pip install --quiet --disable-pip-version-check --no-deps --target "$2.tmp" "$1" && mv "$2.tmp" "$2"; }
}
