"""Writes the records that text.main trains on: labelled subset, test set, augmented copies of all unlabelled texts.

    python -m text.preprocess --task_name=imdb --raw_data_dir=data/raw/imdb --output_dir=data/imdb \
        --vocab_file=data/bert_base/vocab.txt --sup_size=20 --aug_ops=tf_idf-0.7 --workers=8

    python -m text.preprocess --task_name=csv --train_file=train.csv --unlabeled_file=more.csv --output_dir=data/mine \
        --init_checkpoint=data/bert_base --sup_size=100

The records depend on the flags alone, not on the number of workers. A stopped run is taken up by the same command.

    python -m text.preprocess --task_name=imdb --export_texts=texts.txt      # what back_translate/run.sh paraphrases
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import zlib

import numpy as np
from absl import app, flags
from tqdm import tqdm

from augmentation import back_translation, text_ops, word_level
from text import bert_weights, datasets, record_format
from text.datasets import Example, Facts, Source
from text.tokenization import Tokenizer, assemble
from utils import records, work

FLAGS = flags.FLAGS
SHARD_SIZE = 4096
SETS_PER_JOB = 8  # sets that share the tokenisation of their originals, and one process
AUGMENTATION = 1  # begins the seeds of what is drawn
LINE_BREAKS = re.compile(r"[\r\n]+")
SUB_SET = "unsup_in"  # the original release's name of the unlabelled texts in back_translation_dir

# Which texts of a split go into a set: those at `indices`, or all if that is None. The checksum is of their content.
Texts = collections.namedtuple("Texts", "split indices count sha256")
# A set of records to write. `aug_op` is "" for plain records; `paraphrases` are those of bt, else None.
SetPlan = collections.namedtuple("SetPlan", "set_dir texts labelled aug_op random_key paraphrases settings")
# The same shard of several sets of the same texts: the unit of work. What goes into it is read when its turn comes.
Job = collections.namedtuple("Job", "texts shard num_shards plans")


# ---- in-memory data -------------------------------------------------------------------------------------------------


def create_list_source(name, class_names, train, unlabelled=None, test=None):
    """A Source of texts in memory.

    Args:
      train, test: (texts, labels) or (texts, titles, labels), lists; labels are numbers from 0.
      unlabelled: texts, or (texts, titles); None: those of train.
    """
    has_title = len(train) == 3
    if unlabelled is None:
        unlabelled = train[:2] if has_title else train[0]
    splits = {"train": train, "unlabelled": unlabelled if has_title else (unlabelled,)}
    splits |= {"test": test} if test is not None else {}
    examples = {split: _create_examples(split, columns, has_title) for split, columns in splits.items()}
    readers = {split: functools.partial(iter, examples[split]) for split in splits}
    return Source(Facts(name, tuple(class_names), has_title), readers, {})


def _create_examples(split, columns, has_title):
    texts, *others = columns
    titles = others.pop(0) if has_title else itertools.repeat(None)
    labels = others.pop(0) if others else itertools.repeat(-1)
    return [
        Example(f"{split}/{number}", datasets.clean(text), title and datasets.clean(title), int(label))
        for number, (text, title, label) in enumerate(zip(texts, titles, labels))
    ]


# ---- what is to be written ------------------------------------------------------------------------------------------


def read_texts(source, texts):
    """Yields (position, example) of the texts that a set holds."""
    examples = enumerate(source.read(texts.split))
    if texts.indices is None:
        yield from examples
        return
    chosen = iter(texts.indices.tolist())
    wanted = next(chosen, None)
    while wanted is not None:  # ends without reading the rest
        position, example = next(examples)
        if position == wanted:
            yield position, example
            wanted = next(chosen, None)


def find_texts(source, split, indices=None):
    """Counts the texts and computes their checksum, so that records of other texts are noticed."""
    digest, count = hashlib.sha256(), 0
    for _, example in read_texts(source, Texts(split, indices, 0, "")):
        content = f"{example.label} {example.title}\n{example.text}\n"
        digest.update(content.encode("utf-8", "surrogatepass"))
        count += 1
    return Texts(split, indices, count, digest.hexdigest())


def plan_labelled(output_dir, source, draw):
    """The labelled examples and, beyond them, those of the development split.

    Args:
      draw: dict with sup_size, label_seed, dev_size and sup_ids_file.
    """
    chosen, dev = choose_examples(source, **draw)
    parts = {"train": chosen} | ({"dev": dev} if len(dev) else {})
    sup_dir = record_format.sup_dir(output_dir, **draw)
    for part, indices in parts.items():
        texts = find_texts(source, "train", indices)
        # The chosen indices stand in info.json beside the records.
        settings = {name: draw[name] for name in ("sup_size", "label_seed", "dev_size")} | {"indices": indices.tolist()}
        yield SetPlan(os.path.join(sup_dir, part), texts, True, "", (), None, settings)


def choose_examples(source, sup_size, label_seed, dev_size, sup_ids_file):
    """Returns the positions of the labelled examples and of the development split."""
    num_examples = len(source.labels("train"))
    if dev_size and sup_size + dev_size == num_examples:
        # Every label is used: what the development split leaves is trained on, whatever its classes.
        dev = datasets.choose_dev(source, [], dev_size, label_seed)
        return np.setdiff1d(np.arange(num_examples), dev), dev
    ids = datasets.read_ids(sup_ids_file) if sup_ids_file else None
    chosen = datasets.choose_labelled(source, sup_size, label_seed, ids)
    return chosen, datasets.choose_dev(source, chosen, dev_size, label_seed)


def plan_test(output_dir, source):
    if "test" in source.splits:
        yield SetPlan(os.path.join(output_dir, "test"), find_texts(source, "test"), True, "", (), None, {})


def plan_unlabelled(output_dir, source, aug_ops, num_copies, back_translation_dir, seed):
    """Copies of all unlabelled texts, which include those of the labelled examples, as in the original release."""
    names = text_ops.split_ops(aug_ops)
    source.num_examples("unlabelled")  # reports how many texts are left out
    texts = find_texts(source, "unlabelled")
    for aug_op, copy in itertools.product(names, range(num_copies)):
        kind, value = text_ops.parse_op(aug_op)
        settings, paraphrases = {"aug_op": aug_op, "copy": copy, "seed": seed}, None
        if kind == "bt":
            path = back_translation.paraphrase_path(back_translation_dir, SUB_SET, value, copy)
            paraphrases = back_translation.open_paraphrases(path, texts.count * (1 + source.facts.has_title))
            settings["paraphrases_sha256"] = sha256_of_file(path)
        key = (AUGMENTATION, zlib.crc32(aug_op.encode()), seed, copy)
        set_dir = record_format.copy_dir(output_dir, aug_op, copy)
        yield SetPlan(set_dir, texts, False, aug_op, key, paraphrases, settings)


def sha256_of_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def export_texts(source, path):
    """Writes the unlabelled texts, one per line, in the order in which plan_unlabelled expects their paraphrases.

    Where there are titles, each text is followed by its title. Line breaks in a text become spaces.
    """
    num_texts, part = source.num_examples("unlabelled"), f"{path}.part"
    try:
        file = open(part, "w", encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise ValueError(f"export_texts={path} cannot be written ({error}): choose another file.") from error
    with file:
        for example in source.read("unlabelled"):
            for text in (example.text, example.title)[: 1 + source.facts.has_title]:
                file.write(LINE_BREAKS.sub(" ", text) + "\n")
    os.replace(part, path)
    print(f"{num_texts:,} texts of {source.facts.name} are in {path}, {1 + source.facts.has_title} lines each")


# ---- from texts to words to pieces ----------------------------------------------------------------------------------
# Texts are split into words once, and each different word into pieces once; the rest is arithmetic with their numbers.

# The words of some texts: text i has the words word_ids[row_splits[i]:row_splits[i + 1]], which index `words`.
Words = collections.namedtuple("Words", "words word_ids row_splits")


class GrowingNumbers(dict):
    """Numbers words in the order in which they are first looked up."""

    def __missing__(self, word):
        self[word] = number = len(self)
        return number


class RaggedTable:
    """A list of short arrays, one after the other in memory."""

    def __init__(self, values, row_splits):
        self.values, self.row_splits = values, row_splits

    def join(self, rows, groups):
        """Joins the arrays of several rows.

        Args:
          rows: int [total]; groups: int [n + 1], row splits of `rows`.

        Returns:
          the joined values, and their row splits [n + 1].
        """
        starts = self.row_splits[rows]
        indices, splits = concatenate_ranges(starts, self.row_splits[rows + 1] - starts)
        return self.values[indices], splits[groups]


def concatenate_ranges(starts, counts):
    """The numbers starts[i], …, starts[i] + counts[i] - 1 for each i, one after the other, and their row splits."""
    splits = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(splits[-1]) + np.repeat(starts - splits[:-1], counts), splits


def split_texts(tokenizer, texts):
    words_of_texts, numbers = tokenizer.split(texts), GrowingNumbers()
    row_splits = np.cumsum([0, *map(len, words_of_texts)])
    all_words = itertools.chain.from_iterable(words_of_texts)
    word_ids = np.fromiter(map(numbers.__getitem__, all_words), np.int32, row_splits[-1])
    return Words(list(numbers), word_ids, row_splits)


def create_piece_table(tokenizer, words):
    pieces = tokenizer.pieces_of_words(words)
    row_splits = np.cumsum([0, *map(len, pieces)])
    return RaggedTable(np.fromiter(itertools.chain.from_iterable(pieces), np.int32, row_splits[-1]), row_splits)


class Encoder:
    """What a process needs to turn texts into records."""

    def __init__(self, vocab_path, tokenization, has_title, statistics_path=None, num_texts=0):
        self.tokenizer = load_tokenizer(vocab_path, tokenization.lower_case, tokenization.vocab_sha256)
        self.tokenization = tokenization
        self.texts_per_example = 1 + has_title
        if statistics_path:
            self.statistics = word_level.load_statistics(statistics_path, num_texts)
            self.word_numbers = {word: number for number, word in enumerate(self.statistics.words)}
            self.piece_table = create_piece_table(self.tokenizer, self.statistics.words)

    @functools.lru_cache  # with each score goes a table of what its words are drawn by
    def statistics_of(self, score):
        return dataclasses.replace(self.statistics, score=score)

    def encode(self, word_ids, row_splits, piece_table):
        """Turns words into pieces and joins the texts of each example. Returns a list of (ids, num_second)."""
        word_ids, row_splits = self.trim(word_ids, row_splits)
        pieces, row_splits = piece_table.join(word_ids, row_splits)
        texts = [pieces[start:end] for start, end in itertools.pairwise(row_splits.tolist())]
        step, settings = self.texts_per_example, self.tokenization
        seconds = texts[1::2] if step == 2 else itertools.repeat(None)
        return [
            assemble(a, b, settings.max_seq_length, settings.keep_tail, self.tokenizer)
            for a, b in zip(texts[::step], seconds)
        ]

    def trim(self, word_ids, row_splits):
        """Cuts off words that would be cut off in any case, since each has at least one piece."""
        counts = np.minimum(np.diff(row_splits), self.tokenization.max_seq_length)
        starts = row_splits[1:] - counts if self.tokenization.keep_tail else row_splits[:-1]
        indices, row_splits = concatenate_ranges(starts, counts)
        return word_ids[indices], row_splits


# Once in each process: statistics are large, and a tokenizer remembers the words that it has seen.
load_encoder = functools.lru_cache(maxsize=1)(Encoder)


@functools.lru_cache(maxsize=1)
def load_tokenizer(vocab_path, lower_case, vocab_sha256):
    """The checksum is there to tell files apart that were at the same path one after the other."""
    return Tokenizer(vocab_path, lower_case)


class Block:
    """The examples of one shard; everything is computed when first asked for, and then kept for the next set."""

    def __init__(self, encoder, positions, examples, words_path):
        self.encoder, self.words_path = encoder, words_path
        self.borders = positions[0], positions[-1] + 1
        self.labels = [example.label for example in examples]
        self.texts = texts_of(examples, encoder.texts_per_example)

    @functools.cached_property
    def words(self):
        if self.words_path and os.path.exists(self.words_path):
            return load_words(self.words_path, len(self.texts))
        return split_texts(self.encoder.tokenizer, self.texts)

    @functools.cached_property
    def originals(self):
        words, *texts = self.words
        return self.encoder.encode(*texts, create_piece_table(self.encoder.tokenizer, words))

    @functools.cached_property
    def word_ids(self):
        """The words by their numbers in the statistics."""
        numbers = np.fromiter(map(self.encoder.word_numbers.__getitem__, self.words.words), np.int32)
        return numbers[self.words.word_ids]


def texts_of(examples, texts_per_example):
    """The texts of the examples: for those with titles, text and title in turn."""
    if texts_per_example == 1:
        return [example.text for example in examples]
    return [text or "" for example in examples for text in (example.text, example.title)]


def augment(block, plan, rng):
    """Returns the augmented examples, how many words (of bt: texts) were changed, and of how many."""
    kind, value = text_ops.parse_op(plan.aug_op)
    return AUGMENTATIONS[kind](block, value, rng, plan.paraphrases)


def replace_by_tf_idf(block, token_prob, rng, _paraphrases, score="code"):
    # An example is one text here, its title included: the scores compare all of its words.
    rows = block.words.row_splits[:: block.encoder.texts_per_example]
    statistics = block.encoder.statistics_of(score)
    replaced = word_level.replace_by_tf_idf(block.word_ids, rows, statistics, token_prob, rng)
    return encode_replaced(block, replaced)


def replace_uniformly(block, token_prob, rng, _paraphrases):
    vocab_size = len(block.encoder.statistics.words)
    replaced = word_level.replace_uniformly(block.word_ids, block.words.row_splits, vocab_size, token_prob, rng)
    return encode_replaced(block, replaced)


def encode_replaced(block, replaced):
    encoded = block.encoder.encode(replaced, block.words.row_splits, block.encoder.piece_table)
    return encoded, np.count_nonzero(replaced != block.word_ids), len(replaced)


def take_paraphrases(block, _temperature, _rng, paraphrases):
    borders = (block.encoder.texts_per_example * position for position in block.borders)
    chosen = back_translation.choose(block.texts, paraphrases.read(*borders))
    words, *texts = split_texts(block.encoder.tokenizer, chosen.texts)
    encoded = block.encoder.encode(*texts, create_piece_table(block.encoder.tokenizer, words))
    return encoded, chosen.num_accepted, len(block.texts)


AUGMENTATIONS = {
    "tf_idf": replace_by_tf_idf,
    "tf_idf_paper": functools.partial(replace_by_tf_idf, score="paper"),
    "unif": replace_uniformly,
    "bt": take_paraphrases,
}


# ---- statistics of the words ----------------------------------------------------------------------------------------


class StatisticsBuilder(word_level.StatisticsBuilder):
    """Takes texts whose words are numbered already."""

    def add_words(self, words, word_ids, row_splits):
        lengths = np.diff(row_splits)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        counts, firsts = word_level._count_within_rows(word_ids, rows, len(words))
        numbers, counts = self._number(words, len(words))[word_ids[firsts]], counts[firsts]
        term_frequencies = np.rint(counts / lengths[rows[firsts]] * word_level.TF_UNIT).astype(np.int64)
        for sums, values in zip(self._sums, (1, counts, term_frequencies)):
            np.add.at(sums, numbers, values)
        self.num_texts += len(lengths)


def statistics_dir(output_dir, texts):
    return os.path.join(output_dir, "data_stats", f"{texts.split}-{texts.sha256[:16]}")


def words_path(output_dir, texts, shard):
    """Where the words of a shard are kept, so that its copies are made from one splitting of the texts."""
    return os.path.join(statistics_dir(output_dir, texts), f"words-{shard:05d}-of-{num_shards(texts):05d}.npz")


def find_statistics(source, texts, output_dir, encoder_settings, ordered_map):
    """Counts the words of all texts, unless that was done already. Returns the path of the statistics.

    Replicas that find none each make the same ones.
    """
    path = os.path.join(statistics_dir(output_dir, texts), "statistics.npz")
    if os.path.exists(path):
        return path
    records.try_to_write(output_dir, lambda: os.makedirs(os.path.dirname(path), exist_ok=True))
    blocks = ((words_path(output_dir, texts, shard), *zip(*block)) for shard, block in read_blocks(source, texts))
    statistics = word_level.StatisticsBuilder()
    with tqdm(total=texts.count, unit="text", desc="counting words") as progress:
        for counted in ordered_map(functools.partial(count_words, encoder_settings), blocks):
            statistics.merge(counted)
            progress.update(counted.num_texts)
    records.try_to_write(output_dir, lambda: statistics.finish().save(path))
    return path


def count_words(encoder_settings, path_and_examples):
    """Returns the statistics of one block, and keeps its words in a file."""
    path, positions, examples = path_and_examples
    encoder = load_encoder(*encoder_settings)
    words = Block(encoder, positions, examples, path).words
    if not os.path.exists(path):
        records.try_to_write(os.path.dirname(path), lambda: save_words(words, path))
    counted = StatisticsBuilder()
    # As for the replacement by TF-IDF, an example is one text, its title included.
    counted.add_words(words.words, words.word_ids, words.row_splits[:: encoder.texts_per_example])
    return counted


def save_words(words, path):
    temporary = f"{path}.tmp-{os.getpid()}"
    with open(temporary, "wb") as file:
        joined = np.frombuffer("\n".join(words.words).encode(), np.uint8)  # no word has white space in it
        np.savez(file, words=joined, word_ids=words.word_ids, row_splits=words.row_splits)
    os.replace(temporary, path)


def load_words(path, num_texts):
    with np.load(path) as arrays:
        words = Words(arrays["words"].tobytes().decode().split(), arrays["word_ids"], arrays["row_splits"])
    if len(words.row_splits) != num_texts + 1:
        raise ValueError(f"{path} has the words of {len(words.row_splits) - 1} texts, expected {num_texts}: delete it.")
    return words


# ---- writing --------------------------------------------------------------------------------------------------------


def num_shards(texts):
    return -(-texts.count // SHARD_SIZE)


def split_into_jobs(plans):
    """All shards of all sets, those of the same texts together."""
    for _, group in itertools.groupby(plans, lambda plan: id(plan.texts)):
        group = list(group)
        texts = group[0].texts
        for shard in range(num_shards(texts)):
            for start in range(0, len(group), SETS_PER_JOB):
                yield Job(texts, shard, num_shards(texts), group[start : start + SETS_PER_JOB])


def read_blocks(source, texts):
    """Yields (shard, list of (position, example)) for each shard of these texts."""
    stream = read_texts(source, texts)
    for shard in range(num_shards(texts)):
        yield shard, list(itertools.islice(stream, SHARD_SIZE))


def read_examples(source, jobs, output_dir):
    """Yields (job, positions, examples, words_path) for each job; what lies between them is read over."""
    for _, group in itertools.groupby(jobs, lambda job: id(job.texts)):
        group = list(group)
        jobs_of_shard = collections.defaultdict(list)
        for job in group:
            jobs_of_shard[job.shard].append(job)
        for shard, block in read_blocks(source, group[0].texts):
            for job in jobs_of_shard[shard]:
                # Without what only this process needs, which may be long.
                plans = [plan._replace(texts=None, settings=None) for plan in job.plans]
                path = words_path(output_dir, job.texts, shard)
                yield job._replace(texts=None, plans=plans), *zip(*block), path


def write_job(encoder_settings, job_and_examples):
    """Writes a job's shards. Returns a list of (aug_op, number changed, number of all), see augment()."""
    job, positions, examples, path = job_and_examples
    block, changes = Block(load_encoder(*encoder_settings), positions, examples, path), []

    def encode(plan):
        augmented, labels = None, block.labels if plan.labelled else None
        if plan.aug_op:
            rng = np.random.default_rng((*plan.random_key, job.shard))
            augmented, *counts = augment(block, plan, rng)
            changes.append((plan.aug_op, *counts))
        return record_format.encode(block.originals, positions, labels, augmented)

    for plan in job.plans:
        records.write_shard(plan.set_dir, job.shard, job.num_shards, functools.partial(encode, plan))
    return changes


def settings_of(plan):
    """All that determines the content of a set beside the tokenisation."""
    texts = plan.texts
    return {"split": texts.split, "num_planned": texts.count, "texts_sha256": texts.sha256, **plan.settings}


def keep_unfinished(jobs, set_dirs):
    jobs = [job._replace(plans=[plan for plan in job.plans if plan.set_dir in set_dirs]) for job in jobs]
    return [job for job in jobs if job.plans]


def write_sets(source, plans, output_dir, replicas=1, worker_id=0, workers=1):
    """Writes all planned sets, or this replica's share of their shards.

    Args:
      output_dir: where record_format.write_dataset has written how texts are tokenised.
    """
    facts, tokenization = record_format.read_dataset(output_dir)
    common = {"task_name": facts.name, **dataclasses.asdict(tokenization)}
    plans = list(plans)
    # Every replica counts all shards, whatever is written already: so their shares fit together whenever they start.
    jobs = list(split_into_jobs(plans))[worker_id::replicas]
    plans = [plan for plan in plans if records.begin_set(plan.set_dir, common | settings_of(plan))]
    jobs = keep_unfinished(jobs, {plan.set_dir for plan in plans})
    left = collections.Counter(plan.set_dir for job in jobs for plan in job.plans)
    changes = collections.defaultdict(lambda: np.zeros(2, np.int64))
    with work.start_processes(min(workers, len(jobs))) as ordered_map:
        write = functools.partial(write_job, prepare_encoder(source, jobs, output_dir, ordered_map))
        results = zip(jobs, ordered_map(write, read_examples(source, jobs, output_dir)))
        for job, changes_of_job in tqdm(results, "writing", len(jobs), unit="shard", disable=not jobs):
            for aug_op, *counts in changes_of_job:
                changes[aug_op] += counts
            for plan in job.plans:
                left[plan.set_dir] -= 1
                if not left[plan.set_dir]:  # each copy can be used as soon as it is whole
                    records.finish_set(plan.set_dir, job.num_shards)
    unfinished = [plan for plan in plans if not records.finish_set(plan.set_dir, num_shards(plan.texts))]
    if unfinished:
        print(f"{len(unfinished)} sets wait for shards of other workers (replicas={replicas}).")
    return changes


def prepare_encoder(source, jobs, output_dir, ordered_map):
    """Returns the arguments of the Encoder for these jobs."""
    facts, tokenization = record_format.read_dataset(output_dir)
    settings = record_format.vocab_path(output_dir), tokenization, facts.has_title
    replaced = [plan.texts for job in jobs for plan in job.plans if plan.aug_op and plan.paraphrases is None]
    if not replaced:
        return settings
    return *settings, find_statistics(source, replaced[0], output_dir, settings, ordered_map), replaced[0].count


# ---- all of it ------------------------------------------------------------------------------------------------------


def write_records(
    source,
    output_dir,
    vocab_path,
    *,
    draw=None,
    aug_ops="",
    aug_copy=1,
    back_translation_dir="",
    lower_case=True,
    max_seq_length=128,
    keep_tail=True,
    seed=0,
    replicas=1,
    worker_id=0,
    workers=1,
):
    """Writes the records of a data set, or goes on with them.

    Args:
      source: text.datasets.Source, or one made by create_list_source.
      draw: dict with sup_size, label_seed, dev_size and sup_ids_file; None writes no labelled sets.
      aug_ops: such as "tf_idf-0.7+unif-0.1"; "" writes no unlabelled sets.
      keep_tail: of a text that is too long the end is kept, not the beginning.
    """
    if not 4 <= max_seq_length <= 512:
        raise ValueError(
            f"max_seq_length={max_seq_length}: expected 4 to 512, the lengths that BERT has positions for."
        )
    if worker_id >= replicas:
        raise ValueError(f"worker_id={worker_id}: expected less than replicas={replicas}.")
    tokenizer = Tokenizer(vocab_path, lower_case)
    tokenization = record_format.Tokenization(
        tokenizer.sha256, tokenizer.vocab_size, lower_case, max_seq_length, keep_tail
    )
    plans = []
    if draw:
        plans += plan_labelled(output_dir, source, draw)
        plans += plan_test(output_dir, source)
    if aug_ops:
        plans += plan_unlabelled(output_dir, source, aug_ops, aug_copy, back_translation_dir, seed)
    record_format.write_dataset(output_dir, source.facts, tokenization, vocab_path)
    changes = write_sets(source, plans, output_dir, replicas, worker_id, workers)
    counts = collections.Counter()
    for plan in plans:
        counts[plan.texts.split] += plan.texts.count
    print(f"records of {source.facts.name} are in {output_dir}: " + ", ".join(f"{counts[s]:,} {s}" for s in counts))
    for aug_op, (num_changed, num_all) in changes.items():
        what = "of the texts got a paraphrase" if aug_op.startswith("bt") else "of the words were changed"
        print(f"{aug_op}: {num_changed / max(num_all, 1):.1%} {what}")


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_enum("task_name", "imdb", datasets.TASK_NAMES, "Data set; csv: your own files.")
    flags.DEFINE_string("raw_data_dir", "", "Folder with the official files; default data/raw/<task_name>.")
    flags.DEFINE_string("output_dir", "", "Where the records go; default data/<task_name>.")
    flags.DEFINE_enum(
        "data_type", "all", ["all", "sup", "unsup"], "sup: labelled and test sets; unsup: copies; or both."
    )
    flags.DEFINE_integer("sup_size", 20, "Number of labelled examples.", lower_bound=1)
    flags.DEFINE_integer("label_seed", -1, "Seed of the draw; -1 is the original release's.", lower_bound=-1)
    flags.DEFINE_string("sup_ids_file", "", "File with the ids of the labelled examples, one a line.")
    flags.DEFINE_integer("dev_size", 0, "Further labelled examples to choose the best checkpoint by.", lower_bound=0)
    flags.DEFINE_string("vocab_file", "", "Vocabulary of the word pieces; default the vocab.txt of init_checkpoint.")
    flags.DEFINE_string("init_checkpoint", "", "Folder of the pre-trained model, or its checkpoint.")
    flags.DEFINE_bool("do_lower_case", True, "Lower-case all texts: True for an uncased vocabulary.")
    flags.DEFINE_integer("max_seq_length", 128, "Most word pieces of an example.", lower_bound=4, upper_bound=512)
    flags.DEFINE_bool("trunc_keep_right", True, "Keep the end of a text that is too long, not its beginning.")
    flags.DEFINE_string(
        "aug_ops",
        "tf_idf-0.7",
        "Augmentations of the unlabelled texts: tf_idf-P, tf_idf_paper-P, unif-P, bt-T; join with +.",
    )
    flags.DEFINE_integer("aug_copy", 1, "Number of copies of each; more can be added later.", lower_bound=1)
    flags.DEFINE_string("back_translation_dir", "", "For bt-T: folder with the paraphrases.")
    flags.DEFINE_string("export_texts", "", "Only write the unlabelled texts to this file, for back_translate/run.sh.")
    flags.DEFINE_string("train_file", "", "csv: labelled texts, .csv, .tsv or .jsonl, also with .gz.")
    flags.DEFINE_string("test_file", "", "csv: texts to test on.")
    flags.DEFINE_string("unlabeled_file", "", "Unlabelled texts; default the texts of the training set.")
    flags.DEFINE_string("text_column", "text", "csv: column of the text; a number in files without a header.")
    flags.DEFINE_string("title_column", "", "csv: column of a title, where there is one.")
    flags.DEFINE_string("label_column", "label", "csv: column of the class.")
    flags.DEFINE_bool("allow_partial", False, "Take what there is when the official files hold fewer examples.")
    flags.DEFINE_integer("seed", 0, "Seed of the augmentation.", lower_bound=0)
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes on this machine.", lower_bound=1)
    flags.DEFINE_integer("replicas", 1, "Number of machines that share the work.", lower_bound=1)
    flags.DEFINE_integer("worker_id", 0, "Which of the replicas this is, from 0.", lower_bound=0)


def main(_):
    try:
        preprocess()
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error


def preprocess():
    if not (FLAGS.vocab_file or FLAGS.init_checkpoint or FLAGS.export_texts):
        raise ValueError("vocab_file='': give --vocab_file, or --init_checkpoint with a vocab.txt beside it.")
    file_flags = ("train_file", "test_file", "unlabeled_file", "text_column", "title_column", "label_column")
    source = datasets.open_source(
        FLAGS.task_name,
        FLAGS.raw_data_dir or os.path.join("data", "raw", FLAGS.task_name),
        allow_partial=FLAGS.allow_partial,
        **flag_values(file_flags),
    )
    if FLAGS.export_texts:
        export_texts(source, FLAGS.export_texts)
        return
    draw = flag_values(("sup_size", "label_seed", "dev_size", "sup_ids_file"))
    write_records(
        source,
        FLAGS.output_dir or os.path.join("data", FLAGS.task_name),
        FLAGS.vocab_file or bert_weights.find_vocab(FLAGS.init_checkpoint),
        draw=draw if FLAGS.data_type != "unsup" else None,
        aug_ops=FLAGS.aug_ops if FLAGS.data_type != "sup" else "",
        lower_case=FLAGS.do_lower_case,
        keep_tail=FLAGS.trunc_keep_right,
        **flag_values(("aug_copy", "back_translation_dir", "max_seq_length", "seed")),
        **flag_values(("replicas", "worker_id", "workers")),
    )


def flag_values(names):
    return {name: FLAGS[name].value for name in names}


if __name__ == "__main__":
    define_flags()
    app.run(main)
