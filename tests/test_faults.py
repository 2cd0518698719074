"""Every program that works for long: signals and full disks end it in one line, and the same command goes on.

The programs run in this process, one after the other, on inputs as small as can be. Worker processes that get a signal
are in tests/utils/test_cli.py, two processes at once in tests/utils/test_locks.py and the tests of preprocessing, kills
in the tests of each program.
"""

import concurrent.futures
import functools
import os
import re
import shutil
import signal
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import back_translate.train
import image.config
import image.datasets
import image.filter_domain
import image.main
import image.preprocess
import text.features
import text.filter_domain
import text.main
import text.preprocess
import text.pretrain
from back_translate import engines, join_paragraphs, split_paragraphs, stage_files, translate
from image import imagenet_index
from image.datasets import digits
from tests.full_disk import full_disk
from tests.image import small_data as small_images
from tests.programs import run_main
from tests.text import small_run
from text.datasets.source import Facts
from utils import domain_filter, records, run_dir

STOPPED = "stopped: what is finished is kept, and the same command goes on from it."
NUM_SENTENCES = 30


class Program(NamedTuple):
    module: object
    flags: Callable  # (inputs, output), folders → dict
    moment: tuple  # (where, name) of a function in whose second call, or first if there is one only, a signal comes
    again: bool = True  # whether it is run to its end afterwards: what trains networks takes long
    same: bool = True  # whether the same inputs give the same files, so that they can be compared
    limits: tuple = (10, 1000)  # bytes of a file on a full disk


# ---- inputs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    small_images.write_cifar10(folder / "cifar10", 20)
    small_images.run_preprocess(folder / "cifar10", folder / "images", aug_copy=1, sup_size=10)
    small_images.run_preprocess("", folder / "digits", data_type="sup", task_name="digits", sup_size=20)
    np.save(folder / "pool.npy", small_images.colored_images(40))
    bert = small_run.write_bert(folder / "bert")
    (folder / "texts").mkdir()
    small_run.write_user_records(folder / "texts", bert)
    for number in range(4):
        path = folder / ("train", "val")[number % 2] / "ab"[number // 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small_images.colored_images(1, 8)[0]).save(path)
    rng = np.random.default_rng(0)
    arrays = {"features": rng.normal(size=[8, 3]), "labels": np.arange(8) % 2, "unlabeled": rng.normal(size=[20, 3])}
    arrays |= {"test_features": arrays["features"], "test_labels": arrays["labels"]}
    np.savez(folder / "features.npz", **arrays, augmented=arrays["unlabeled"] + 0.1)
    (folder / "model").mkdir()
    (folder / "sentences.txt").write_text("".join(f"The cat has {n} dogs. Tom!\n" for n in range(NUM_SENTENCES)))
    split_paragraphs.split_file(str(folder / "sentences.txt"), str(folder / "split.txt"), 1, 0, "rules")
    (folder / "pairs.txt").write_text("".join(f"the cat {n}\tle chat {n}\n" for n in range(40)))
    return folder


class UpperCase:
    """Translates by capitals."""

    def translate(self, sentences):
        return [sentence.upper() for sentence in sentences]


def stand_in(monkeypatch, name):
    """Puts something small in the place of what takes long and is not tried here: networks that score or translate."""
    monkeypatch.setattr(engines, "create_engine", lambda *_, **__: UpperCase())
    facts = digits.FACTS if name == "image.filter_domain" else Facts("csv", ("bad", "good"))

    def predict_proba(examples, *_, **__):
        return np.random.default_rng(0).dirichlet(np.ones(facts.num_classes), len(examples)).astype(np.float32)

    monkeypatch.setattr(domain_filter, "load_model", lambda *_: (facts, predict_proba, "1"))


# ---- the table ------------------------------------------------------------------------------------------------------


def image_preprocess(inputs, output):
    paths = {"raw_data_dir": inputs / "cifar10", "output_dir": output, "allow_partial": True}
    return paths | {"sup_size": 10, "aug_copy": 2, "workers": 1}


def image_main(inputs, output):
    run = {"sup_size": 10, "unsup_ratio": 0, "train_steps": 4, "save_steps": 2, "log_steps": 1, "iterations": 1}
    return small_images.TINY_RUN | run | {"data_dir": inputs / "images", "model_dir": output, "do_train": True}


def image_filter(inputs, output):
    paths = {"pool": inputs / "pool.npy", "data_dir": inputs / "digits", "output_dir": output, "model_dir": "model"}
    return paths | {"num_per_class": 2, "batch_size": 8, "aug_copy": 1, "workers": 1}


def indexing(inputs, output):
    """The index goes to the images."""
    for split in ("train", "val"):
        shutil.copytree(inputs / split, output / split, dirs_exist_ok=True)
    return {"data_dir": output, "workers": 1}


def text_source(inputs):
    paths = {"train_file": inputs / "texts/train.csv", "init_checkpoint": inputs / "bert"}
    return paths | {"task_name": "csv", "max_seq_length": small_run.MAX_LENGTH}


def text_preprocess(inputs, output):
    return text_source(inputs) | {"output_dir": output, "sup_size": 4, "aug_ops": "unif-0.3", "workers": 1}


def text_features(inputs, output):
    """The features go to the records."""
    shutil.copytree(inputs / "texts/records", output, dirs_exist_ok=True)
    names = ("task_name", "sup_size", "aug_ops", "max_seq_length")
    flags = {name: small_run.TINY_RUN[name] for name in names}
    return flags | {"data_dir": output, "init_checkpoint": inputs / "bert", "workers": 1}


def text_main(inputs, output):
    run = {"train_steps": 4, "save_steps": 2, "log_steps": 1, "iterations": 1, "sup_size": 4, "do_train": True}
    run |= {"train_batch_size": 2, "do_eval": True, "model_dir": output}
    return run | {"recipe": "frozen", "task_name": "features", "features_file": inputs / "features.npz"}


def text_pretrain(inputs, output):
    return text_source(inputs) | {"model_dir": output, "dev_size": 4, "workers": 1}


def text_filter(inputs, output):
    paths = {"pool": inputs / "texts/train.csv", "output": output / "kept.jsonl", "model_dir": "model"}
    return paths | {"num_per_class": 2, "batch_size": 1}


def translation(inputs, output):
    paths = {"input_file": inputs / "sentences.txt", "output_file": output / "out.txt", "model": inputs / "model"}
    return paths | {"block_size": 3}


def splitting(inputs, output):
    return {"input_file": inputs / "sentences.txt", "output_file": output / "split.txt", "sentence_splitter": "rules"}


def joining(inputs, output):
    paths = {"split_file": inputs / "split.txt", "input_file": inputs / "split.txt"}
    return paths | {"output_file": output / "joined.txt"}


def translation_training(inputs, output):
    return {"corpus": inputs / "pairs.txt", "model_dir": output, "held_out": 4, "vocab_size": 60}


SHARD = records, "_write_examples"
PROGRAMS = {
    "image.preprocess": Program(image.preprocess, image_preprocess, SHARD, limits=(10, 1000, 40_000)),
    "image.main": Program(image.main, image_main, (run_dir.MetricsWriter, "write"), again=False, limits=(10, 2000)),
    "image.filter_domain": Program(image.filter_domain, image_filter, (domain_filter.Selection, "add")),
    "imagenet_index": Program(imagenet_index, indexing, (imagenet_index, "why_undecodable"), limits=(10,)),
    "text.preprocess": Program(text.preprocess, text_preprocess, SHARD),
    "text.features": Program(text.features, text_features, SHARD, limits=(10, 500)),
    "text.main": Program(text.main, text_main, (run_dir.MetricsWriter, "write"), same=False, limits=(10, 3000)),
    "text.pretrain": Program(text.pretrain, text_pretrain, SHARD, again=False),
    "text.filter_domain": Program(text.filter_domain, text_filter, (domain_filter.Selection, "add"), limits=(10, 400)),
    "translate": Program(translate, translation, (stage_files, "sync"), limits=(10, 500)),
    "split_paragraphs": Program(split_paragraphs, splitting, (split_paragraphs, "split_paragraph"), limits=(10, 300)),
    "join_paragraphs": Program(join_paragraphs, joining, (stage_files, "sync"), limits=(10, 300)),
    "back_translate.train": Program(
        back_translate.train, translation_training, (run_dir, "prepare"), again=False, limits=(10,)
    ),
}


def finished(output):
    """What a program has left, but for what is different each time."""
    found = small_images.files_below(output)
    return {name: content for name, content in found.items() if not name.endswith(".png")}


def run(name, flags, monkeypatch):
    with monkeypatch.context() as patch:
        stand_in(patch, name)
        run_main(PROGRAMS[name].module, *(f"--{flag}={value}" for flag, value in flags.items()))


@pytest.fixture(scope="module")
def undisturbed(inputs, tmp_path_factory):
    """A function that returns what a program leaves if nothing happens to it."""

    @functools.cache
    def find(name):
        output = tmp_path_factory.mktemp("undisturbed") / "output"
        with pytest.MonkeyPatch.context() as patch:
            run(name, PROGRAMS[name].flags(inputs, output), patch)
        return finished(output)

    return find


def assert_goes_on(name, flags, output, monkeypatch, undisturbed):
    """Nothing half done is left, and the same command completes the work."""
    left = [path for path in output.rglob("*") if path.name.endswith(".lock") or ".tmp-" in path.name]
    assert not left
    if PROGRAMS[name].again:
        run(name, flags, monkeypatch)
        if PROGRAMS[name].same:
            assert finished(output) == undisturbed(name)


# ---- signals --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def signals_count():
    """Also where a shell has switched Ctrl-C off."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_signal_ends_in_one_line_and_the_same_command_goes_on(
    name, number, inputs, tmp_path, monkeypatch, capsys, undisturbed
):
    flags, (where, function), calls = PROGRAMS[name].flags(inputs, tmp_path / "output"), PROGRAMS[name].moment, []
    original = getattr(where, function)

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 1 + (name not in ONE_CALL):
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(where, function, interrupted)
        with pytest.raises(SystemExit) as raised:
            run(name, flags, monkeypatch)
    assert raised.value.code == 128 + number
    assert capsys.readouterr().err.splitlines()[-1] == STOPPED
    assert_goes_on(name, flags, tmp_path / "output", monkeypatch, undisturbed)


ONE_CALL = ("back_translate.train", "join_paragraphs")


# ---- full disks -----------------------------------------------------------------------------------------------------

DISKS = [(name, limit) for name, program in PROGRAMS.items() for limit in program.limits]


@pytest.mark.parametrize("name, num_bytes", DISKS)
def test_a_full_disk_ends_in_one_line_and_with_room_the_same_command_goes_on(
    name, num_bytes, inputs, tmp_path, monkeypatch, undisturbed
):
    flags = PROGRAMS[name].flags(inputs, tmp_path / "output")
    with full_disk(num_bytes), pytest.raises(SystemExit, match="error: .*(make room|choose another)") as raised:
        run(name, flags, monkeypatch)
    assert str(tmp_path) in raised.value.code and "\n" not in raised.value.code
    assert_goes_on(name, flags, tmp_path / "output", monkeypatch, undisturbed)


# ---- two at once ----------------------------------------------------------------------------------------------------


def test_two_preprocessings_at_once_write_what_one_writes(inputs, tmp_path, undisturbed):
    flags = image_preprocess(inputs, tmp_path)
    flags |= {"raw_data_dir": str(flags["raw_data_dir"]), "data_dir": str(flags.pop("output_dir"))}
    config = image.config.PreprocessConfig(**flags)
    source = image.datasets.open_source(config)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        for result in [executor.submit(image.preprocess.write_records, config, source, 0) for _ in range(2)]:
            result.result()
    # What is left of one that was at a shard when the other had written all of them goes at the next start.
    found = {name: content for name, content in finished(tmp_path).items() if not re.search(r"records-.*json", name)}
    assert found == undisturbed("image.preprocess")


def test_two_translations_of_one_file_do_not_mix(inputs, tmp_path, monkeypatch):
    flags = translation(inputs, tmp_path)
    with stage_files.create(str(tmp_path / "out.txt"), {}):
        with pytest.raises(SystemExit, match="out.txt.part is being written by another process: wait for it"):
            run("translate", flags, monkeypatch)
