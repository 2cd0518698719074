#!/usr/bin/env bash
# Fetches a translation model, such as a tensor2tensor checkpoint or a CTranslate2 model, and unpacks it.
#
#   bash back_translate/download.sh URL SHA256 DIR
#
# URL is of an archive (.tar, .tar.gz, .tgz, .tar.bz2, .tar.xz, .zip), SHA256 its checksum as its publisher gives it, DIR a new
# folder for what is in it. An interrupted download resumes; nothing is unpacked unless the checksum fits. The original
# release's bucket of checkpoints is no longer online, so there is no default.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
source scripts/lib_download.sh

if [[ $# != 3 || ! $2 =~ ^[0-9a-fA-F]{64}$ ]]; then
  echo "error: expected URL SHA256 DIR, the checksum as 64 hexadecimal digits, found: $*" >&2
  exit 2
fi
url=$1 sha256=${2,,} folder=$3
[[ $folder == /* ]] || folder=$caller/$folder
folder=${folder%/}
name=${url%%[?#]*}
name=${name##*/}
case $name in
  *.tar | *.tar.gz | *.tgz | *.tar.bz2 | *.tar.xz) unpack=(tar --no-same-owner -x -f) to=-C ;;
  *.zip) unpack=(unzip -q) to=-d ;;
  *) echo "error: $name: expected an archive that ends in .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz or .zip." >&2; exit 2 ;;
esac
if [[ -d $folder ]]; then
  echo "$folder is there already: delete it to fetch the model anew."
  exit
fi

archive=$folder.$name
download "$url" "$archive"
found=$(sha256sum < "$archive" | cut -d ' ' -f 1)
if [[ $found != "$sha256" ]]; then
  rm "$archive"
  echo "error: $url has the wrong checksum: expected sha256=$sha256, found sha256=$found. Nothing was kept." >&2
  exit 1
fi
rm -rf "$folder.tmp"
mkdir -p "$folder.tmp"
"${unpack[@]}" "$archive" "$to" "$folder.tmp"
mv "$folder.tmp" "$folder"
rm "$archive"
echo "$folder is complete."
