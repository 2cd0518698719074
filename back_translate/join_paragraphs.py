"""Joins translated sentences to paragraphs: as many lines as the text file had that was split.

python -m back_translate.join_paragraphs --input_file=work/english.txt --split_file=work/sentences.txt \
    --output_file=para_0.txt

With several workers, give the files of all of them, in the order of worker_id, joined by commas. --split_file is what
back_translate.split_paragraphs wrote; the numbers of sentences are beside it.
"""

import itertools

from absl import flags

from back_translate import stage_files
from back_translate.split_paragraphs import read_counts
from utils import cli, files

FLAGS = flags.FLAGS


def join_files(input_files, split_files, output_file):
    """Writes output_file, unless it is there.

    Args:
      input_files: paths of the translated sentences, one for each worker.
      split_files: paths of the sentences that they are translations of.
    """
    if len(input_files) != len(split_files):
        raise ValueError(
            f"expected as many files as split_files, got {len(input_files)} and {len(split_files)}: {input_files}, "
            f"{split_files}."
        )
    check_shards(split_files)
    settings = {
        "stage": "join",
        "input_sha256": [stage_files.sha256_of(path) for path in input_files],
        "counts_sha256": [stage_files.sha256_of(f"{path}.counts.json") for path in split_files],
    }
    if stage_files.is_finished(output_file, settings):
        print(f"{output_file} is already complete.")
        return
    num_lines = 0
    with stage_files.create(output_file, settings) as file:
        for paragraph in itertools.chain.from_iterable(map(read_paragraphs, input_files, split_files)):
            file.write(f"{join(paragraph)}\n".encode())
            num_lines += 1
    print(f"{output_file}: {num_lines:,} lines")


def check_shards(split_files):
    """Raises ValueError unless the files are the shards of all workers, in their order, of one text file."""
    shards = [stage_files.read_settings(path) for path in split_files]
    if any(shard.get("stage") != "split" for shard in shards):
        raise ValueError(f"split_file={split_files}: expected files of python -m back_translate.split_paragraphs.")
    for path, shard in zip(split_files, shards):
        files.check_fields(f"{path}.json", shard, {"worker_id": int, "replicas": int}, advice="split the text again.")
    common = [{name: value for name, value in shard.items() if name != "worker_id"} for shard in shards]
    if any(settings != common[0] for settings in common):
        raise ValueError(f"split_file={split_files} were not made from one file in one way: {common}. Split it again.")
    worker_ids, replicas = [shard["worker_id"] for shard in shards], shards[0]["replicas"]
    if len(worker_ids) != replicas or worker_ids != list(range(replicas)):
        raise ValueError(
            f"split_file={split_files} are of the workers {worker_ids}: expected those of all replicas={replicas}, in "
            "the order of worker_id."
        )


def read_paragraphs(input_file, split_file):
    """Yields the sentences of each paragraph, a list of str."""
    sentences = stage_files.read_lines(input_file)
    for number, count in enumerate(read_counts(split_file), start=1):
        paragraph = list(itertools.islice(sentences, count))
        if len(paragraph) < count:
            raise ValueError(f"{input_file} ends in paragraph {number}: {fitting_number(input_file, split_file)}")
        yield paragraph
    if next(sentences, None) is not None:
        raise ValueError(f"{input_file} goes on after the last paragraph: {fitting_number(input_file, split_file)}")


def fitting_number(input_file, split_file):
    expected, found = sum(read_counts(split_file)), stage_files.count_lines(input_file)
    return (
        f"it has {found} lines, {split_file}.counts.json counts {expected} sentences. It is a translation of another "
        "file, or unfinished: translate again."
    )


def join(sentences):
    return " ".join(filter(None, map(str.strip, sentences)))


def define_flags():
    flags.DEFINE_list("input_file", None, "Translated sentences, one file for each worker.", required=True)
    flags.DEFINE_list("split_file", None, "What they are translations of, one file for each worker.", required=True)
    flags.DEFINE_string("output_file", None, "Where the paragraphs go.", required=True)


def main():
    try:
        join_files(FLAGS.input_file, FLAGS.split_file, FLAGS.output_file)
    except stage_files.BusyError as busy:
        print(busy)  # of two workers that finish together, one joins


if __name__ == "__main__":
    cli.run(main, define_flags)
