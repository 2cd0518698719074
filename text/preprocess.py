"""Writes the records that text.main trains on: labelled subset, test set, augmented copies of all unlabelled texts.

    python -m text.preprocess --task_name=imdb --raw_data_dir=data/raw/imdb --data_dir=data/imdb \
        --init_checkpoint=bert-base --sup_size=20 --aug_ops=tf_idf-0.7 --workers=8

    python -m text.preprocess --task_name=csv --train_file=train.csv --unlabeled_file=more.csv --data_dir=data/mine \
        --init_checkpoint=path/of/a/bert --sup_size=100

The records depend on the flags alone, not on the number of workers. A stopped run is taken up by the same command.

    python -m text.preprocess --task_name=imdb --export_texts=texts.txt      # what back_translate/run.sh paraphrases
"""

import collections
import functools
import itertools
import os
import re
import zlib

from absl import flags

from augmentation import back_translation, text_ops
from text import bert_weights, datasets, encoders, encoding, record_format
from text.config import PreprocessConfig
from text.datasets import labelled
from text.datasets.source import find_texts, read_inputs
from text.survey import UnlabeledReader, find_survey, report_left_out, write_survey
from text.tokenization import Tokenizer
from utils import cli, files, settings, work
from utils.preprocessing import SetPlan, write_sets

FLAGS = flags.FLAGS
AUGMENTATION = 1  # begins the seeds of what is drawn
LINE_BREAKS = re.compile(r"[\r\n]+")
SUB_SET = "unsup_in"  # the original release's name of the unlabelled texts in back_translation_dir


# ---- what is to be written ------------------------------------------------------------------------------------------


def create_plan(set_dir, texts, content, **settings):
    settings = {"num_planned": texts.count, "texts_sha256": texts.sha256, **settings}
    return SetPlan(set_dir, texts, texts.count, settings, content)


def plan_labelled(config, source):
    """The labelled examples and, beyond them, those of the development split."""
    draw = {name: getattr(config, name) for name in ("sup_size", "label_seed", "dev_size")}
    ids = labelled.read_ids(config.sup_ids_file) if config.sup_ids_file else None
    parts = zip(("train", "dev"), labelled.draw_labelled(source, **draw, ids=ids))
    for part, indices in parts:
        if len(indices):
            set_dir, texts = os.path.join(record_format.sup_dir(config), part), find_texts(source, "train", indices)
            # The chosen indices stand in info.json beside the records.
            yield create_plan(set_dir, texts, encoding.Content(labelled=True), **draw, indices=indices.tolist())


def plan_test(config, source):
    if "test" in source.splits:
        set_dir, texts = os.path.join(config.data_dir, "test"), find_texts(source, "test")
        yield create_plan(set_dir, texts, encoding.Content(labelled=True))


def plan_unlabeled(config, texts, has_title):
    """Copies of all unlabelled texts, which include those of the labelled examples, as in the original release."""
    for aug_op, copy, path in list_copies(config):
        settings, paraphrases = {"aug_op": aug_op, "copy": copy, "seed": config.seed}, None
        if path:
            paraphrases = back_translation.open_paraphrases(path, texts.count * (1 + has_title))
            settings["paraphrases_sha256"] = files.checksum(path)
        random_key = (AUGMENTATION, zlib.crc32(aug_op.encode()), config.seed, copy)
        content = encoding.Content(False, aug_op, random_key, paraphrases)
        yield create_plan(record_format.copy_dir(config.data_dir, aug_op, copy), texts, content, **settings)


def list_copies(config):
    """Yields (aug_op, number of the copy, the file that a copy of bt is made from; "" for other augmentations)."""
    for aug_op, copy in itertools.product(text_ops.split_ops(config.aug_ops), range(config.aug_copy)):
        (kind, temperature), path = text_ops.parse_op(aug_op), ""
        if kind == "bt":
            path = back_translation.paraphrase_path(config.back_translation_dir, SUB_SET, temperature, copy)
        yield aug_op, copy, path


# ---- writing --------------------------------------------------------------------------------------------------------


def write_records(config, source):
    """Writes the records of a data set, or goes on with them.

    Args:
      config: text.config.PreprocessConfig, without regard to its fields of where the texts come from.
      source: text.datasets.source.Source.
    """
    encoders.check_case(config.init_checkpoint, config.do_lower_case)
    vocab_path = find_vocab(config)
    tokenizer = Tokenizer(vocab_path, config.do_lower_case, find_prefix(config))
    tokenization = record_format.tokenization_of(config, tokenizer)
    plans = []
    if config.data_type != "unsup":
        plans += [*plan_labelled(config, source), *plan_test(config, source)]
    if config.data_type != "sup":  # long before the paraphrases are read
        for _, _, path in list_copies(config):
            if path:
                back_translation.refuse_missing(path)
    record_format.write_dataset(config.data_dir, source.facts, tokenization, vocab_path)
    with work.start_workers(config.data_dir, config.workers, config.runner, config.beam_args) as ordered_map:
        survey = None
        if config.data_type != "sup":
            survey = find_survey(source, config.data_dir, tokenization, ordered_map)
            plans += plan_unlabeled(config, survey.texts, source.facts.has_title)
        changes = write_plans(config, source, tokenization, survey, plans, ordered_map)
    report(config, source, plans, changes)


def write_plans(config, source, tokenization, survey, plans, ordered_map):
    """Writes the planned sets, the unlabelled ones from the words that the survey kept."""

    def read(texts, shards):
        if texts.split != "unlabeled":
            return read_inputs(source, texts, shards)
        if survey.lacks(shards):
            write_survey(source, survey.folder, config.data_dir, tokenization, ordered_map)
        return survey.read_inputs(shards)

    common_settings = {"task_name": source.facts.name, **tokenization.as_dict()}
    encoder_settings = (config.data_dir, tokenization, source.facts.has_title)
    encoder_settings += (survey.statistics_path, survey.texts.count) if survey else ()
    encode = functools.partial(encoding.encode_shard, encoder_settings)
    return write_sets(plans, common_settings, encode, read, ordered_map, config.replicas, config.worker_id)


def find_vocab(config):
    if not (config.vocab_file or config.init_checkpoint):
        raise ValueError("vocab_file='': give --vocab_file, or --init_checkpoint with a vocab.txt beside it.")
    return config.vocab_file or bert_weights.find_vocab(config.init_checkpoint)


def find_prefix(config):
    return encoders.describe(config.init_checkpoint).prefix if config.text_prefix == "auto" else config.text_prefix


def report(config, source, plans, changes):
    """Tells how many texts the sets hold, and how much of them was changed."""
    counts = collections.Counter()
    for plan in plans:
        counts[plan.examples.split] += plan.num_examples
    numbers = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    print(f"records of {source.facts.name} are in {config.data_dir}: {numbers}")
    for aug_op in config.aug_ops.split("+"):
        if changes[aug_op, "all"]:
            what = "of the texts got a paraphrase" if aug_op.startswith("bt") else "of the words were changed"
            print(f"{aug_op}: {changes[aug_op, 'changed'] / changes[aug_op, 'all']:.1%} {what}")


def export_texts(source, path):
    """Writes the unlabelled texts, one per line, in the order in which plan_unlabeled expects their paraphrases.

    Where there are titles, each text is followed by its title. Line breaks in a text become spaces.
    """
    examples, texts_per_example = UnlabeledReader(source), 1 + source.facts.has_title
    with files.explain_refusal(f"export_texts={path}", "choose another file."), files.replacing(path, "wb") as file:
        for example in examples:
            for text in encoding.texts_of([example], texts_per_example):
                file.write((LINE_BREAKS.sub(" ", text) + "\n").encode("utf-8", "replace"))
    count = examples.tally.count
    report_left_out(source, examples.left_out, count)
    print(f"{count:,} texts of {source.facts.name} are in {path}, {texts_per_example} lines each")


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    settings.define_flags(PreprocessConfig)
    flags.DEFINE_string("export_texts", "", "Only write the unlabelled texts to this file, for back_translate/run.sh.")


def main():
    config = settings.from_flags(PreprocessConfig)
    work.check_runner(config.runner, config.beam_args)
    source = datasets.open_source(config)
    if FLAGS.export_texts:
        export_texts(source, FLAGS.export_texts)
    else:
        write_records(config, source)


if __name__ == "__main__":
    cli.run(main, define_flags)
