"""image/preprocess.py from raw files to records: the flags alone determine them, whatever the workers and kills."""

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from augmentation.randaugment import choose_ops, randaugment
from image import preprocess, record_format
from image.config import DataConfig
from image.datasets import Source, cifar10
from tests.image.small_data import (
    files_below,
    preprocess_arguments,
    read_records,
    run_preprocess,
    write_cifar10,
)
from tests.programs import run_main
from utils import labelled_subsets, preprocessing, records, work

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Folder of raw files with 40 training and 12 test images, and what is in them."""
    folder = tmp_path_factory.mktemp("raw")
    return folder, write_cifar10(folder)


@pytest.fixture
def small_shards(monkeypatch):
    """Shards of 16 records, so that 40 images need three of them."""
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)


def read_info(set_dir):
    return json.loads((set_dir / "info.json").read_text())


def finished_sets(data_dir):
    return [path.parent for path in data_dir.rglob("info.json") if json.loads(path.read_text())["complete"]]


# ---- what the records hold ------------------------------------------------------------------------------------------


def test_the_folders_of_a_run(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, sup_size=20, aug_copy=2, dev_size=5)
    sets = sorted(str(path.relative_to(tmp_path)) for path in finished_sets(tmp_path))
    assert sets == [
        "sup-size_20-dev_5/dev",
        "sup-size_20-dev_5/train",
        "test",
        "unsup/randaugment/copy-000",
        "unsup/randaugment/copy-001",
    ]
    shard = "records-00000-of-00001.tfrecord"
    assert set(files_below(tmp_path)) == {"dataset.json"} | {
        f"{name}/{end}" for name in sets for end in (shard, "info.json")
    }


def test_labelled_and_test_records_hold_the_raw_images_and_labels(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="sup", sup_size=20)
    for set_dir, (images, labels) in (
        ("sup-size_20/train", [part[:20] for part in raw[1]["train"]]),
        ("test", raw[1]["test"]),
    ):
        parsed = read_records(tmp_path / set_dir, ["original", "label", "index"])
        np.testing.assert_array_equal(parsed["original"][..., :3], images)
        np.testing.assert_array_equal(parsed["label"], labels)
        np.testing.assert_array_equal(parsed["index"], range(len(images)))
    assert not (tmp_path / "unsup").exists()


def test_every_copy_holds_every_training_image_once_in_its_own_order(raw, tmp_path, small_shards):
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=3)
    images, orders = raw[1]["train"][0], []
    for copy in range(3):
        parsed = read_records(tmp_path / f"unsup/randaugment/copy-{copy:03d}")
        assert sorted(parsed["index"]) == list(range(40))
        np.testing.assert_array_equal(parsed["original"][..., :3], images[parsed["index"]])
        orders.append(tuple(parsed["index"]))
    assert len(set(orders)) == 3
    assert not (tmp_path / "test").exists()


def test_both_views_of_a_record_belong_together(raw, tmp_path, small_shards):
    """Each shard is the augmentation of its originals, with a generator of its own."""
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=2, seed=7)
    parsed = read_records(tmp_path / "unsup/randaugment/copy-001", ["original", "augmented"])
    for shard in range(3):
        rows = slice(16 * shard, 16 * (shard + 1))
        rng = np.random.default_rng((preprocess.AUGMENTATION, False, 7, 1, shard))
        expected = randaugment(parsed["original"][rows, ..., :3], rng)
        np.testing.assert_array_equal(parsed["augmented"][rows], expected)


def test_no_two_copies_are_augmented_alike(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=2)
    copies = [read_records(tmp_path / f"unsup/randaugment/copy-{copy:03d}", ["augmented", "index"]) for copy in (0, 1)]
    first, second = (copy["augmented"][np.argsort(copy["index"])] for copy in copies)
    assert np.mean(np.any(first != second, axis=(1, 2, 3))) > 0.9


def test_a_pair_takes_at_most_6500_bytes_on_disk(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=1)
    info = read_info(tmp_path / "unsup/randaugment/copy-000")
    assert info["num_examples"] == 40
    assert sum(shard["num_bytes"] for shard in info["shards"]) <= 40 * 6500


def test_cutout_copies_differ_from_the_original_in_the_cut_only(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_ops="cutout", aug_copy=1)
    parsed = read_records(tmp_path / "unsup/cutout/copy-000", ["original", "augmented"])
    uncut = parsed["augmented"][..., 3] > 0
    np.testing.assert_array_equal(parsed["original"][uncut], parsed["augmented"][uncut])
    assert np.all((1 - uncut).sum(axis=(1, 2)) >= 8 * 8)


def test_labelled_copies_keep_their_labels(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="sup", sup_size=20, dev_size=5, sup_aug_ops="randaugment", aug_copy=2)
    images, labels = raw[1]["train"]
    for copy in range(2):
        set_dir = tmp_path / f"sup-size_20-dev_5/randaugment/copy-{copy:03d}"
        parsed = read_records(set_dir, ["original", "augmented", "label", "index"])
        assert sorted(parsed["index"]) == list(range(20))
        np.testing.assert_array_equal(parsed["label"], labels[parsed["index"]])
        np.testing.assert_array_equal(parsed["original"][..., :3], images[parsed["index"]])
        assert np.any(parsed["original"] != parsed["augmented"])


def test_a_set_of_operations_has_its_own_folder_and_its_own_pictures(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=1)
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=1, ops="Invert,Solarize")
    run_preprocess(raw[0], tmp_path, data_type="unsup", aug_copy=1, num_ops=2, ops_seed=1)
    names = {path.name for path in (tmp_path / "unsup").iterdir()}
    assert len(names) == 3 and all(re.fullmatch("randaugment(-2_ops-[0-9a-f]{8})?", name) for name in names)
    by_ops = {tuple(info["settings"].get("ops", ())): info for info in map(read_info, finished_sets(tmp_path))}
    assert set(by_ops) == {(), ("Invert", "Solarize"), choose_ops(num_ops=2, ops_seed=1)}
    set_dir = record_format.copy_dir(f"{tmp_path}/unsup", "randaugment", 0, ("Invert", "Solarize"))
    parsed = read_records(Path(set_dir), ["original", "augmented"])
    visible = parsed["augmented"][..., 3:] > 0
    original, augmented = parsed["original"][..., :3], parsed["augmented"][..., :3]
    # Both leave a colour or turn it round.
    assert np.all(~visible | (augmented == original) | (augmented == 255 - original))
    assert np.any(visible & (augmented != original))


def test_a_part_of_the_unlabelled_images_has_its_own_folder(raw, tmp_path):
    indices = {}
    for unsup_size in (0, 10, 25):
        for aug_mode, folder in (("online", "originals"), ("offline", "randaugment/copy-000")):
            settings = {"data_type": "unsup", "aug_copy": 1, "aug_mode": aug_mode}
            run_preprocess(raw[0], tmp_path, unsup_size=unsup_size, **settings)
            parent = f"unsup-size_{unsup_size}" if unsup_size else "unsup"
            parsed = read_records(tmp_path / parent / folder)
            np.testing.assert_array_equal(parsed["original"][..., :3], raw[1]["train"][0][parsed["index"]])
            indices[unsup_size, aug_mode] = set(parsed["index"])
            assert len(parsed["index"]) == len(indices[unsup_size, aug_mode]) == (unsup_size or 40)
    for unsup_size in (10, 25):
        assert indices[unsup_size, "online"] == indices[unsup_size, "offline"] != set(range(unsup_size))
    assert indices[10, "online"] < indices[25, "online"]


# ---- which examples are labelled ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder, draw",
    [
        ("sup-size_20", {}),
        ("sup-size_20-equal", {"use_equal_split": True}),
        ("sup-size_20-seed_3", {"label_seed": 3}),
        ("sup-size_20-dev_5", {"dev_size": 5}),
        ("sup-size_20-equal-seed_3-dev_10", {"use_equal_split": True, "label_seed": 3, "dev_size": 10}),
    ],
)
def test_the_draw_is_as_asked_and_its_indices_are_in_info(raw, tmp_path, folder, draw):
    run_preprocess(raw[0], tmp_path, data_type="sup", sup_size=20, **draw)
    labels = raw[1]["train"][1]
    equal, seed, dev_size = draw.get("use_equal_split", False), draw.get("label_seed", -1), draw.get("dev_size", 0)
    order = np.arange(40) if seed < 0 else np.random.default_rng(seed).permutation(40)
    train, dev = labelled_subsets.draw(
        labels, order, cifar10.FACTS.class_names, 20, dev_size, [preprocess.DEV, seed + 1], equal
    )
    parts = {"train": train} | ({"dev": dev} if len(dev) else {})
    assert {path.name for path in (tmp_path / folder).iterdir()} == set(parts)
    for part, indices in parts.items():
        assert read_info(tmp_path / folder / part)["settings"]["indices"] == indices.tolist()
        parsed = read_records(tmp_path / folder / part, ["label", "index"])
        np.testing.assert_array_equal(parsed["index"], indices)
        np.testing.assert_array_equal(parsed["label"], labels[indices])
        if equal:
            assert np.ptp(np.bincount(parsed["label"], minlength=10)) == 0


def test_the_settings_in_info(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, sup_size=20, dev_size=5, aug_copy=1, seed=4)
    common = {"task_name": "cifar10", "image_size": 32, "num_classes": 10}
    draw = {"sup_size": 20, "use_equal_split": False, "label_seed": -1, "dev_size": 5}
    train, dev = (read_info(tmp_path / f"sup-size_20-dev_5/{part}")["settings"] for part in ("train", "dev"))
    assert train == common | draw | {"indices": list(range(20))}
    indices = dev.pop("indices")
    assert dev == common | draw and len(indices) == 5 and min(indices) >= 20  # further ones
    assert read_info(tmp_path / "test")["settings"] == common | {"num_planned": 12}
    copy = {"augmentation": "randaugment", "copy": 0, "seed": 4, "num_planned": 40}
    assert read_info(tmp_path / "unsup/randaugment/copy-000")["settings"] == common | copy


# ---- determinism ----------------------------------------------------------------------------------------------------

SETTINGS = {"aug_copy": 3, "dev_size": 5, "sup_aug_ops": "cutout", "seed": 1}


@pytest.fixture(scope="module")
def undisturbed(raw, tmp_path_factory):
    """Files of a run by one worker with shards of 16 records."""
    data_dir = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)
        run_preprocess(raw[0], data_dir, **SETTINGS)
    files = files_below(data_dir)
    assert sum(name.endswith("-of-00003.tfrecord") for name in files) == 9
    return files


def test_the_same_flags_write_the_same_files(raw, tmp_path, small_shards, undisturbed):
    run_preprocess(raw[0], tmp_path, **SETTINGS)
    assert files_below(tmp_path) == undisturbed


@pytest.mark.slow
def test_two_processes_write_the_same_files(raw, tmp_path, small_shards, undisturbed):
    run_preprocess(raw[0], tmp_path, **SETTINGS, workers=2)
    assert files_below(tmp_path) == undisturbed


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_three_replicas_write_the_same_files(raw, tmp_path, small_shards, undisturbed, order, capsys):
    for worker_id in order:
        assert files_below(tmp_path) != undisturbed
        run_preprocess(raw[0], tmp_path, **SETTINGS, replicas=3, worker_id=worker_id)
        waiting = "sets wait for shards of other workers (replicas=3)" in capsys.readouterr().out
        assert waiting == (worker_id != order[-1])
    assert files_below(tmp_path) == undisturbed


def test_each_replica_writes_about_its_share(raw, tmp_path, small_shards, undisturbed):
    num_shards = sum(name.endswith(".tfrecord") for name in undisturbed)
    for worker_id in range(3):
        data_dir = tmp_path / str(worker_id)
        run_preprocess(raw[0], data_dir, **SETTINGS, replicas=3, worker_id=worker_id)
        assert len(files_below(data_dir, ".tfrecord")) in (num_shards // 3, num_shards // 3 + 1)


def test_another_seed_gives_other_augmentations_of_the_same_images(raw, tmp_path):
    augmented = []
    for seed in (0, 1):
        run_preprocess(raw[0], tmp_path / str(seed), aug_copy=1, seed=seed)
        set_dir = tmp_path / str(seed) / "unsup/randaugment/copy-000"
        parsed = read_records(set_dir, ["augmented", "index"])
        augmented.append(parsed["augmented"][np.argsort(parsed["index"])])
    assert np.mean(np.any(augmented[0] != augmented[1], axis=(1, 2, 3))) > 0.9
    plain = [files_below(tmp_path / str(seed) / "sup-size_20") for seed in (0, 1)]
    assert plain[0] == plain[1]


def test_copies_added_later_leave_the_old_ones_alone(raw, tmp_path, small_shards, undisturbed):
    run_preprocess(raw[0], tmp_path, **SETTINGS | {"aug_copy": 1})
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    run_preprocess(raw[0], tmp_path, **SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert files_below(tmp_path) == undisturbed


def test_a_second_draw_adds_to_the_same_folder(raw, tmp_path):
    run_preprocess(raw[0], tmp_path, sup_size=20, aug_copy=1)
    run_preprocess(raw[0], tmp_path, sup_size=30, aug_copy=1)
    assert {path.name for path in tmp_path.iterdir()} == {"dataset.json", "sup-size_20", "sup-size_30", "test", "unsup"}


def test_a_finished_run_is_not_read_or_written_again(raw, tmp_path, monkeypatch):
    run_preprocess(raw[0], tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(work.concurrent.futures.ProcessPoolExecutor, "submit", None)  # no process is started
    run_preprocess(raw[0], tmp_path, workers=2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# ---- kills ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_run_is_completed_to_the_same_files(tmp_path):
    """A real process, killed by SIGKILL when a random number of its copies is written; then the same command again."""
    num_copies, raw_data_dir = 50, tmp_path / "raw"
    write_cifar10(raw_data_dir, num_train=200)
    run_preprocess(raw_data_dir, tmp_path / "undisturbed", aug_copy=num_copies)
    kill_after = random.Random(0).randint(1, num_copies // 2)
    killed_dir = tmp_path / "killed"
    arguments = preprocess_arguments(raw_data_dir, killed_dir, aug_copy=num_copies)
    command = [sys.executable, "-m", "image.preprocess", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    shard = killed_dir / f"unsup/randaugment/copy-{kill_after - 1:03d}/records-00000-of-00001.tfrecord"
    while not shard.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    assert kill_after <= len(list(killed_dir.rglob("copy-*/*.tfrecord"))) < num_copies, f"killed after {kill_after}"
    run_main(preprocess, *arguments)
    files = {name: content for name, content in files_below(killed_dir).items() if ".tmp-" not in name}
    assert files == files_below(tmp_path / "undisturbed"), f"killed after {kill_after}"


def children_of(process):
    """Ids of the processes that a process has started, but the one that only hands out semaphores."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    children = path.read_text().split() if path.exists() else []
    is_worker = {child: b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [int(child) for child in children if is_worker[child]]


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_with_a_line_of_error(tmp_path):
    arguments = ["--task_name=digits", "--sup_size=20", "--aug_copy=2000", "--workers=2", f"--data_dir={tmp_path}"]
    command = [sys.executable, "-m", "image.preprocess", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("*.tfrecord")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(children_of(process)[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, errors
    expected = (
        "error: One of workers=2 processes was ended from outside, perhaps for lack of memory. Use fewer --workers;"
    )
    assert errors.splitlines()[-1].startswith(expected)
    assert "Traceback" not in errors


# ---- errors ---------------------------------------------------------------------------------------------------------


def assert_ends_with_error(message, *arguments):
    """The command ends by SystemExit with one line, which Python prints to stderr before it exits with 1."""
    with pytest.raises(SystemExit, match=message) as raised:
        run_main(preprocess, *arguments)
    assert raised.value.code.startswith("error: ") and "\n" not in raised.value.code


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"sup_size": 41}, "error: sup_size=41 is out of range: there are 40 examples to choose from"),
        (
            {"sup_size": 25, "use_equal_split": True},
            "sup_size=25 is not divisible by num_classes=10: use 20 or 30, ",
        ),
        (
            {"dev_size": 5, "use_equal_split": True},
            "dev_size=5 is not divisible by num_classes=10: use 10, ",
        ),
        ({"dev_size": 21}, "dev_size=21 is out of range: there are 20 examples to choose from"),
        ({"unsup_size": 41}, "unsup_size=41 is out of range: use 1 to 40, or 0 for all images"),
        ({"ops": "Blur"}, r"ops must be different names among Invert, .*unknown=\['Blur'\]"),
        ({"num_ops": 3, "aug_ops": "cutout"}, "but aug_ops=cutout: only randaugment has any"),
        ({"use_extra": True}, "use_extra=True is for task_name=svhn only. Leave it away: task_name=cifar10 reads"),
        ({"image_size": 64}, "image_size=64: the images of task_name=cifar10 have 32 pixels.* Leave the flag away"),
    ],
)
def test_a_draw_that_cannot_be_made_is_refused_before_anything_is_written(raw, tmp_path, settings, message):
    assert_ends_with_error(message, *preprocess_arguments(raw[0], tmp_path / "new", **settings))
    assert not (tmp_path / "new").exists()


def test_an_output_dir_of_another_data_set_is_refused(raw, tmp_path):
    digits = ["--task_name=digits", "--data_type=sup", "--sup_size=100", "--workers=1"]
    run_main(preprocess, *digits, f"--output_dir={tmp_path}")
    assert_ends_with_error("holds records of another data set", *preprocess_arguments(raw[0], tmp_path))


def test_an_output_dir_of_another_seed_or_other_data_is_refused(raw, tmp_path):
    run_preprocess(raw[0], tmp_path / "data")
    other_seed = preprocess_arguments(raw[0], tmp_path / "data", seed=1)
    message = r"copy-000 holds records of other settings \(seed: found 0, expected 1\)\. Delete that folder, or choose"
    assert_ends_with_error(message, *other_seed)
    write_cifar10(tmp_path / "raw", num_train=50)
    other_data = preprocess_arguments(tmp_path / "raw", tmp_path / "data")
    assert_ends_with_error(r"other settings \(num_planned: found 40, expected 50\)", *other_data)


def test_an_output_dir_that_is_a_file_is_refused(raw, tmp_path):
    (tmp_path / "file").write_text("")
    message = r"file cannot be written \(.*\): make room there or choose another --data_dir"
    assert_ends_with_error(message, *preprocess_arguments(raw[0], tmp_path / "file"))


def test_missing_raw_files_are_named(raw, tmp_path):
    message = r"No CIFAR-10 in raw_data_dir=.*Download it: bash scripts/download_cifar10\.sh"
    assert_ends_with_error(message, *preprocess_arguments(tmp_path / "empty", tmp_path / "data"))
    whole = [f"--raw_data_dir={raw[0]}", f"--output_dir={tmp_path / 'data'}"]
    assert_ends_with_error(r"data_batch_1\.bin is not a whole cifar10 file: expected 30730000 bytes", *whole)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_the_command_line_ends_with_one_line_of_error_and_no_traceback(tmp_path):
    command = [sys.executable, "-m", "image.preprocess", *preprocess_arguments(tmp_path / "empty", tmp_path / "data")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stdout == ""
    assert process.stderr.startswith("error: No CIFAR-10 in raw_data_dir=") and process.stderr.count("\n") == 1


def test_a_worker_id_beyond_the_replicas_is_refused(raw, tmp_path):
    arguments = preprocess_arguments(raw[0], tmp_path / "data", replicas=2, worker_id=2)
    assert_ends_with_error(r"error: worker_id=2: expected less than replicas=2\.", *arguments)
    assert not (tmp_path / "data").exists()


def source_of(images, labels=None):
    """A Source in memory of so many images."""
    arrays = {"unlabeled": (images, None)} | ({} if labels is None else {"train": (images, labels)})
    return Source(cifar10.FACTS, lambda: arrays, {})


def test_every_draw_has_its_own_stream_of_random_numbers():
    config = DataConfig(data_dir="out", sup_size=20, aug_copy=2, sup_aug_ops="randaugment")
    source = source_of(np.zeros([20, 32, 32, 3], np.uint8), np.arange(20) % 10)
    plans = preprocess.plan_sets(config, source, seed=0)
    copies = [plan for plan in plans if plan.content.augmentation]
    orders = [tuple(plan.examples) for plan in copies]
    first_numbers = {np.random.default_rng((*plan.content.random_key, 0)).integers(2**60) for plan in copies}
    assert len(set(orders)) == len(first_numbers) == 4
    assert not first_numbers & {np.random.default_rng([0, copy]).integers(2**60) for copy in range(2)}


def test_a_copy_is_complete_before_the_next_one_is(tmp_path, monkeypatch):
    config = DataConfig(data_dir=str(tmp_path), aug_ops="cutout", aug_copy=2)
    first, second = (record_format.copy_dir(record_format.unsup_dir(config), "cutout", copy) for copy in (0, 1))
    write_shard = records.write_shard

    def fail_at_the_second(set_dir, *arguments):
        if set_dir == second:
            raise KeyboardInterrupt
        write_shard(set_dir, *arguments)

    monkeypatch.setattr(records, "write_shard", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        preprocess.write_records(config, source_of(np.zeros([8, 32, 32, 3], np.uint8)), seed=0)
    assert records.read_set(first, {}, "").num_examples == 8


def test_arrays_are_not_held_when_their_records_are_written(tmp_path):
    images = np.zeros([8, 32, 32, 3], np.uint8)
    reference = weakref.ref(images)
    preprocess.write_records(DataConfig(data_dir=str(tmp_path), aug_copy=1), source_of(images), seed=0)
    del images
    gc.collect()
    assert reference() is None
