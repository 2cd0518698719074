"""One reading of the unlabelled texts: their number, checksum and words are kept, and all copies are made from them.

data_dir/data_stats/<name>/        the name tells these texts from others
  words-00000.npz, …               the words of the texts of each shard
  statistics.npz                   how often each word occurs, for the augmentations that replace words
  survey.json                      count, sha256, left_out; written last: if it is there, no text is read again
"""

import functools
import hashlib
import itertools
import json
import os
from typing import NamedTuple

import tensorflow as tf
from tqdm import tqdm

from augmentation import word_level
from text import encoding
from text.datasets.source import Tally, Texts
from utils import beam, files, preprocessing, records


class Survey(NamedTuple):
    folder: str
    texts: Texts

    @property
    def statistics_path(self):
        return os.path.join(self.folder, "statistics.npz")

    def read_inputs(self, shards):
        """Yields the inputs of each shard for text.encoding.Block; the texts themselves are not read."""
        for shard in shards:
            start = shard * preprocessing.SHARD_SIZE
            positions = range(start, min(start + preprocessing.SHARD_SIZE, self.texts.count))
            yield positions, (), words_path(self.folder, shard)

    def lacks(self, shards):
        """Whether files for these shards were deleted."""
        paths = [self.statistics_path, *(words_path(self.folder, shard) for shard in shards)]
        return not all(map(tf.io.gfile.exists, paths))


def words_path(folder, shard):
    return os.path.join(folder, f"words-{shard:05d}.npz")


def find_survey(source, data_dir, tokenization, ordered_map):
    """Reads the unlabelled texts unless that was done before, by this machine or another.

    Args:
      data_dir: where record_format.write_dataset has written the vocabulary.
      ordered_map: of utils.work.start_workers.
    """
    # Tells these words from others, and is known without reading the texts.
    identity = [source.identify(), source.sizes.get("unlabeled"), source.facts.has_title]
    identity += [tokenization.lower_case, preprocessing.SHARD_SIZE]
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    folder = os.path.join(data_dir, "data_stats", name)
    path = os.path.join(folder, "survey.json")
    if not tf.io.gfile.exists(path):
        write_survey(source, folder, data_dir, tokenization, ordered_map)
    fields = {"count": int, "sha256": str, "left_out": int}
    found = files.check_fields(path, files.read_json(path), fields, advice="delete it, so that it is made again.")
    report_left_out(source, found["left_out"], found["count"])
    return Survey(folder, Texts("unlabeled", None, found["count"], found["sha256"]))


def report_left_out(source, left_out, count):
    if left_out:
        total = left_out + count
        print(f"{source.facts.name}: left out {left_out} of {total} unlabelled texts, empty or too short")


# ---- reading --------------------------------------------------------------------------------------------------------


class UnlabeledReader:
    """Reads the unlabelled examples once, and tells afterwards how many they were."""

    def __init__(self, source):
        self.tally, self.left_out, self._examples = Tally(), 0, source.read_all("unlabeled")

    def __iter__(self):
        for example in self._examples:
            if example is None:
                self.left_out += 1
            else:
                self.tally.add(example)
                yield example


def write_survey(source, folder, data_dir, tokenization, ordered_map):
    """Reads all texts and writes what is missing in the folder, so that a stopped survey is taken up."""
    with records.explain_refusal(folder):
        tf.io.gfile.makedirs(folder)
    reader = UnlabeledReader(source)
    texts_per_example = 1 + source.facts.has_title
    blocks = _read_blocks(iter(reader), folder, texts_per_example)
    count = functools.partial(count_words, data_dir, tokenization, texts_per_example)
    if isinstance(ordered_map, beam.BeamMap):
        statistics = ordered_map.combine(count, blocks, merge_statistics)
    else:
        statistics = merge_statistics(_show_progress(ordered_map(count, blocks)))
    found = Survey(folder, reader.tally.finish("unlabeled"))
    with records.explain_refusal(folder):
        files.write_arrays(found.statistics_path, **statistics.finish().to_arrays())
        values = {"count": found.texts.count, "sha256": found.texts.sha256, "left_out": reader.left_out}
        files.write_json(os.path.join(folder, "survey.json"), values)


def _read_blocks(examples, folder, texts_per_example):
    """Yields (path for the words, number of texts, texts or None if the words are there) of each shard."""
    for shard in itertools.count():
        texts = encoding.texts_of(list(itertools.islice(examples, preprocessing.SHARD_SIZE)), texts_per_example)
        if not texts:
            return
        path = words_path(folder, shard)
        yield path, len(texts), None if tf.io.gfile.exists(path) else texts


def merge_statistics(parts):
    """The sum of some word_level.StatisticsBuilders, in whatever order they come."""
    statistics = word_level.StatisticsBuilder()
    for part in parts:
        statistics.merge(part)
    return statistics


def _show_progress(parts):
    with tqdm(unit="text", desc="counting words") as progress:
        for part in parts:
            yield part
            progress.update(part.num_texts)


def count_words(data_dir, tokenization, texts_per_example, block):
    """Returns the statistics of one block, and keeps its words in a file."""
    path, num_texts, texts = block
    if texts is None:
        words = encoding.load_words(path, num_texts)
    else:
        words = encoding.split_texts(encoding.load_tokenizer(data_dir, tokenization), texts)
        with records.explain_refusal(os.path.dirname(path)):
            encoding.save_words(path, words)
    counted = word_level.StatisticsBuilder()
    # As for the replacement by TF-IDF, an example is one text, its title included.
    counted.add_numbered(words.words, words.word_ids, words.row_splits[::texts_per_example])
    return counted
