#!/usr/bin/env bash
# Paraphrases a text file, one paragraph per line: English → French → English, sampled at a temperature (paper, section
# 2.3). Any machine; the example file takes 15 s of processor time.
#
#   bash back_translate/run.sh                       # the example file with the embedded models; nothing is downloaded
#   bash back_translate/run.sh --input_file=texts.txt --output_dir=data/bt --sampling_temp=0.9 --copies=2
#
# --input_file=FILE       one paragraph per line, UTF-8; `python -m text.preprocess --export_texts=FILE` writes one
# --output_dir=DIR        paraphrases are in DIR/unsup_in/sample_<temp>/para/para_<copy>.txt, where
#                         `python -m text.preprocess --aug_ops=bt-<temp> --back_translation_dir=DIR` reads them
# --sampling_temp=0.8     0.7 to 0.9 is usual; 0 is the most probable translation, 1 barely readable. One decimal.
# --copies=1              number of paraphrases of each paragraph
# --seed=0                the same seed gives the same paraphrases
# --model=FORWARD,BACKWARD    folders of the two models; another pivot language is a matter of the models
# --engine=tensorflow     or ctranslate2 (needs requirements-translation.txt)
# --replicas=1 --worker_id=0  several workers or machines with a common folder share the work; the last one to finish joins
# --protect=LIST          terms to keep, with all numbers and URLs: a file or a list joined by commas
# --sentence_splitter=auto    nltk, rules, or nltk where it is installed. Give it if workers differ in what is installed.
# --top_k=0 --top_p=1     draw from all subwords, as the paper does. Without them each model's config.json decides: the
#                         embedded models have top_k 10, others draw from all subwords.
# --runner=local          or beam, with --beam_args="…": translate the blocks on Apache Beam, see docs/beam.md
# --batch_tokens=8192 --block_size=2048       as in `python -m back_translate.translate --help`
#
# Each stage keeps what it has finished: after a stop, give the same command again. File names are relative to the folder
# in which the command is given, or gs://… and the like.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

declare -A option=(
  [input_file]=$PWD/back_translate/example.txt [output_dir]=$PWD/runs/back_translation [sampling_temp]=0.8 [copies]=1
  [seed]=0 [model]=$PWD/back_translate/models/en_fr,$PWD/back_translate/models/fr_en [engine]=tensorflow [replicas]=1
  [worker_id]=0 [protect]="" [sentence_splitter]=auto [top_k]="" [top_p]="" [batch_tokens]=8192 [block_size]=2048
  [runner]=local [beam_args]=""
)
for argument in "$@"; do
  name=${argument#--}
  name=${name%%=*}
  if [[ $argument != --*=* || -z ${option[$name]+known} ]]; then
    echo "error: unknown option $argument: expected --name=value, with one of: ${!option[*]}" >&2
    exit 2
  fi
  option[$name]=${argument#*=}
done

fail() { echo "error: $1" >&2; exit 2; }
is_number() { [[ $1 =~ ^(0|[1-9][0-9]*)$ ]]; }
absolute() { if [[ $1 == /* || $1 == *://* ]]; then echo "$1"; else echo "$caller/$1"; fi; }

[[ ${option[output_dir]} != *,* ]] || fail "output_dir=${option[output_dir]}: expected no comma, which stands between names of files."
# The folder has one decimal, in our reader and in the original release's.
[[ ${option[sampling_temp]} =~ ^[0-9]+(\.[0-9])?0*$ ]] || fail "sampling_temp=${option[sampling_temp]}: expected at most one decimal, such as 0.8."
for name in copies seed replicas worker_id; do
  is_number "${option[$name]}" || fail "$name=${option[$name]}: expected a whole number."
done
((option[copies] >= 1 && option[copies] <= 1000)) || fail "copies=${option[copies]}: expected 1 to 1000."
[[ ${option[model]} == *,* ]] || fail "model=${option[model]}: expected two folders joined by a comma, there and back."
temp=$(LC_ALL=C printf %.1f "${option[sampling_temp]}")
forward_model=$(absolute "${option[model]%%,*}")
backward_model=$(absolute "${option[model]#*,}")
input_file=$(absolute "${option[input_file]}")
folder=$(absolute "${option[output_dir]}")/unsup_in
protect=${option[protect]}
[[ -z $protect || ! -f $caller/$protect ]] || protect=$caller/$protect
source scripts/lib_setup.sh

is_there() {
  if [[ $1 == *://* ]]; then
    python -c "import sys; from utils import files; sys.exit(not files.is_file(sys.argv[1]))" "$1"
  else
    [[ -f $1 ]]
  fi
}
shard_name() { printf "%05d-of-%05d.txt" "$1" "${option[replicas]}"; }
translate() {
  python -m back_translate.translate --engine="${option[engine]}" --sampling_temp="$temp" \
    ${option[top_k]:+--top_k="${option[top_k]}"} ${option[top_p]:+--top_p="${option[top_p]}"} \
    --batch_tokens="${option[batch_tokens]}" --block_size="${option[block_size]}" --protect="$protect" \
    --runner="${option[runner]}" --beam_args="${option[beam_args]}" "$@"
}

shard=$(shard_name "${option[worker_id]}")
sentences=$folder/split/sentences-$shard
python -m back_translate.split_paragraphs --input_file="$input_file" --output_file="$sentences" \
  --replicas="${option[replicas]}" --worker_id="${option[worker_id]}" --sentence_splitter="${option[sentence_splitter]}"

for ((copy = 0; copy < option[copies]; copy++)); do
  # No two copies, directions or small seeds share the random numbers of a sentence.
  seed=$((2 * (1000 * option[seed] + copy)))
  work=$folder/sample_$temp
  translate --input_file="$sentences" --output_file="$work/forward/copy_$copy-$shard" --model="$forward_model" --seed=$seed
  translate --input_file="$work/forward/copy_$copy-$shard" --output_file="$work/backward/copy_$copy-$shard" \
    --model="$backward_model" --seed=$((seed + 1)) --original_file="${protect:+$sentences}"

  translated="" split="" waiting=""
  for ((worker = 0; worker < option[replicas]; worker++)); do
    file=$work/backward/copy_$copy-$(shard_name "$worker")
    is_there "$file" || waiting+=" $worker"
    translated+=${translated:+,}$file
    split+=${split:+,}$folder/split/sentences-$(shard_name "$worker")
  done
  if [[ -n $waiting ]]; then
    echo "copy $copy waits for the workers$waiting; the last one to finish joins the paragraphs."
    continue
  fi
  python -m back_translate.join_paragraphs --input_file="$translated" --split_file="$split" \
    --output_file="$work/para/para_$copy.txt"
done

paraphrases=()
for ((copy = 0; copy < option[copies]; copy++)); do
  ! is_there "$folder/sample_$temp/para/para_$copy.txt" || paraphrases+=(--paraphrases="$folder/sample_$temp/para/para_$copy.txt")
done
if [[ ${#paraphrases[@]} -gt 0 ]]; then
  python -m back_translate.report --original="$input_file" "${paraphrases[@]}" --output="$folder/sample_$temp/report.html"
fi
