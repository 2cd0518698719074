"""utils/records.py: what is written can be read, a kill loses one shard at most, and damage is noticed."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from tests.full_disk import full_disk
from utils import files, records, run_dir

SETTINGS = {"split": "train", "seed": 3, "indices": [2, 0, 1]}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def example(features):
    """The same as records.encode_example through the protobuf classes."""
    return tf.train.Example(features=tf.train.Features(feature={key: feature(features[key]) for key in features}))


def assert_parses_back(features):
    encoded = records.encode_example(features)
    assert tf.train.Example.FromString(encoded) == example(features)
    dtypes = {key: tf.string if isinstance(value, bytes) else tf.int64 for key, value in features.items()}
    parsed = tf.io.parse_example([encoded], {key: tf.io.FixedLenFeature([], dtypes[key]) for key in features})
    assert {key: value.numpy()[0] for key, value in parsed.items()} == features


def shard_examples(shard):
    return [f"shard {shard} example {number}".encode() * 50 for number in range(10 + shard)]


def write_set(set_dir, num_shards=3, settings=SETTINGS):
    records.begin_set(str(set_dir), settings)
    for shard in range(num_shards):
        records.write_shard(str(set_dir), shard, num_shards, lambda: shard_examples(shard))
    assert records.finish_set(str(set_dir), num_shards)
    return set_dir


def shard_names(num_shards=3):
    return [f"records-{shard:05d}-of-{num_shards:05d}.tfrecord" for shard in range(num_shards)]


def read_info(set_dir):
    return json.loads((set_dir / "info.json").read_text())


# ---- tf.train.Example -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", [2**7, 2**14, 2**21])
def test_encoded_bytes_parse_back_around_the_borders_of_varints(border):
    # Five nested lengths, each a few bytes above the payload's, cross the border one after the other.
    for length in range(border - 30, border + 3):
        features = {"image": b"\x80" * length}
        assert tf.train.Example.FromString(records.encode_example(features)) == example(features)
    assert_parses_back({"image": os.urandom(border)})


@pytest.mark.parametrize("name_length", [1, 120, 127, 128, 300])
def test_long_feature_names_parse_back(name_length):
    assert_parses_back({"n" * name_length: b"payload", "m" * name_length: 5})


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**31, 2**32, 2**62, 2**63 - 1])
def test_encoded_numbers_parse_back(number):
    assert_parses_back({"label": number})


def test_several_features_parse_back():
    assert_parses_back({"original": bytes(range(256)) * 12, "augmented": b"", "label": 9, "index": 49_999, "größe": 0})
    assert tf.train.Example.FromString(records.encode_example({})) == example({})


def test_numpy_integers_are_taken_like_python_ones():
    assert records.encode_example({"label": np.int64(7)}) == records.encode_example({"label": 7})


@pytest.mark.parametrize("number", [-1, 2**63])
def test_numbers_that_int64_features_cannot_hold_are_refused(number):
    with pytest.raises(ValueError, match=rf"feature 'label'={number}: only integers from 0 to 2\*\*63 - 1 can be"):
        records.encode_example({"label": number})


# ---- a whole set ----------------------------------------------------------------------------------------------------


def test_a_set_reads_back_in_order(tmp_path):
    write_set(tmp_path / "set")
    record_set = records.read_set(str(tmp_path / "set"), {"seed": 3}, "Do it.")
    assert record_set.directory == str(tmp_path / "set")
    assert record_set.paths == [str(tmp_path / "set" / name) for name in shard_names()]
    assert record_set.num_examples == 10 + 11 + 12
    assert record_set.settings == SETTINGS
    content = [record.numpy() for record in tf.data.TFRecordDataset(record_set.paths)]
    assert content == [record for shard in range(3) for record in shard_examples(shard)]


def test_info_holds_counts_sizes_checksums_settings_and_versions(tmp_path):
    set_dir = write_set(tmp_path)
    info = read_info(set_dir)
    assert info["complete"] is True
    assert info["settings"] == SETTINGS
    assert info["num_examples"] == 33
    assert [shard["name"] for shard in info["shards"]] == shard_names()
    assert [shard["num_examples"] for shard in info["shards"]] == [10, 11, 12]
    for shard in info["shards"]:
        content = (set_dir / shard["name"]).read_bytes()
        assert shard["num_bytes"] == len(content)
        assert shard["sha256"] == hashlib.sha256(content).hexdigest()
    assert info["versions"] == run_dir.versions()
    assert info["versions"]["tensorflow"] == tf.__version__


def test_a_finished_set_holds_its_shards_and_info_only(tmp_path):
    write_set(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["info.json", *shard_names()]


def test_a_finished_set_has_nothing_left_to_write(tmp_path):
    assert records.begin_set(str(tmp_path), SETTINGS) is True
    write_set(tmp_path)
    before = read_info(tmp_path)
    assert records.begin_set(str(tmp_path), SETTINGS) is False
    assert records.finish_set(str(tmp_path), 3) is True
    assert read_info(tmp_path) == before


def test_a_set_with_a_missing_shard_is_not_finished(tmp_path):
    records.begin_set(str(tmp_path), SETTINGS)
    for shard in (0, 2):
        records.write_shard(str(tmp_path), shard, 3, lambda: shard_examples(shard))
    assert records.finish_set(str(tmp_path), 3) is False
    assert read_info(tmp_path) == {"complete": False, "settings": SETTINGS}


def test_a_finished_shard_is_not_computed_again(tmp_path):
    records.begin_set(str(tmp_path), SETTINGS)
    records.write_shard(str(tmp_path), 0, 2, lambda: shard_examples(0))

    computed = []
    records.write_shard(str(tmp_path), 0, 2, lambda: computed.append("again") or [])
    assert not computed


def test_workers_in_step_do_not_disturb_each_other(tmp_path):
    def work(set_dir, worker, barrier):
        barrier.wait(timeout=60)
        records.begin_set(str(set_dir), SETTINGS)
        records.write_shard(str(set_dir), worker, 4, lambda: shard_examples(worker))
        barrier.wait(timeout=60)
        records.finish_set(str(set_dir), 4)

    for attempt in range(10):
        set_dir, barrier = tmp_path / str(attempt), threading.Barrier(4)
        with futures.ThreadPoolExecutor(4) as pool:
            results = [pool.submit(work, set_dir, worker, barrier) for worker in range(4)]
            for result in futures.as_completed(results):
                if result.exception():
                    barrier.abort()
                    raise result.exception()
        assert records.read_set(str(set_dir), SETTINGS, "").num_examples == 10 + 11 + 12 + 13
        assert sorted(os.listdir(set_dir)) == ["info.json", *shard_names(4)]


def test_a_worker_that_comes_last_is_not_disturbed_by_one_that_has_finished_the_set(tmp_path):
    """Two processes may do the same work: the first one to finish deletes half-written shards, also the other's."""

    def finish_in_between():
        yield from shard_examples(0)[:5]
        write_set(tmp_path, num_shards=1)
        yield from shard_examples(0)[5:]

    records.begin_set(str(tmp_path), SETTINGS)
    records.write_shard(str(tmp_path), 0, 1, finish_in_between)
    assert records.finish_set(str(tmp_path), 1)
    assert records.read_set(str(tmp_path), SETTINGS, "").num_examples == 10


def test_of_two_workers_with_other_settings_one_is_refused(tmp_path):
    barrier = threading.Barrier(2)

    def begin(set_dir, seed):
        barrier.wait(timeout=60)
        try:
            return records.begin_set(str(set_dir), SETTINGS | {"seed": seed})
        except ValueError as error:
            return str(error)

    for attempt in range(20):
        with futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda seed: begin(tmp_path / str(attempt), seed), (1, 2)))
        assert results.count(True) == 1, results
        assert "holds records of other settings" in (results[0] if results[1] is True else results[1])


# ---- kills ----------------------------------------------------------------------------------------------------------

KILLED_WRITER = """
import os, signal, sys
from tests.utils.test_records import SETTINGS, shard_examples
from utils import records

def examples_until_killed():
    yield from shard_examples(1)[:5]
    os.kill(os.getpid(), signal.SIGKILL)

records.begin_set(sys.argv[1], SETTINGS)
records.write_shard(sys.argv[1], 0, 3, lambda: shard_examples(0))
records.write_shard(sys.argv[1], 1, 3, examples_until_killed)
"""


@pytest.fixture(scope="module")
def killed_dir(tmp_path_factory):
    """A set whose writer was killed by SIGKILL in the middle of the second of three shards."""
    set_dir = tmp_path_factory.mktemp("killed")
    process = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(set_dir)], cwd=ROOT, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    return set_dir


@pytest.mark.slow
def test_a_kill_leaves_whole_shards_and_a_temporary_file(killed_dir):
    found = sorted(os.listdir(killed_dir))
    temporary = [name for name in found if name.startswith("records-00001")]
    assert len(temporary) == 1 and re.fullmatch(r"records-00001-of-00003\.tfrecord\.tmp-\w+", temporary[0])
    first = "records-00000-of-00003"
    assert found == sorted(["info.json", f"{first}.json", f"{first}.tfrecord", *temporary])
    assert not read_info(killed_dir)["complete"]


def test_what_a_kill_left_beside_a_complete_set_is_removed_when_it_is_taken_up_again(tmp_path):
    set_dir, settings = str(tmp_path / "set"), {"seed": 0}
    records.begin_set(set_dir, settings)
    records.write_shard(set_dir, 0, 1, lambda: [b"one"])
    receipt = (tmp_path / "set" / "records-00000-of-00001.json").read_bytes()
    assert records.finish_set(set_dir, 1)
    whole = sorted(os.listdir(set_dir))
    (tmp_path / "set" / "records-00000-of-00001.json").write_bytes(receipt)  # killed before it was deleted
    (tmp_path / "set" / "records-00000-of-00001.tfrecord.tmp-7").write_bytes(b"half")
    (tmp_path / "set" / "info.json.tmp-7").write_bytes(b"{")
    assert not records.begin_set(set_dir, settings)
    assert sorted(os.listdir(set_dir)) == whole


def test_the_trainer_refuses_a_killed_set(killed_dir):
    message = f"{killed_dir} is unfinished: its preprocessing was stopped. Run it again."
    with pytest.raises(ValueError, match=re.escape(message)):
        records.read_set(str(killed_dir), {}, "Run it again.")


def test_a_killed_set_is_completed_and_its_finished_shards_are_kept(killed_dir, tmp_path):
    first = killed_dir / shard_names()[0]
    before = first.stat().st_mtime_ns, first.stat().st_ino
    write_set(killed_dir)
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == before
    write_set(tmp_path)
    for name in ("info.json", *shard_names()):
        assert (killed_dir / name).read_bytes() == (tmp_path / name).read_bytes()
    assert records.read_set(str(killed_dir), SETTINGS, "").num_examples == 33
    assert sorted(os.listdir(killed_dir)) == ["info.json", *shard_names()]


def test_a_shard_without_receipt_is_written_again(tmp_path):
    """A kill may fall between the renaming of a shard and the note of its checksum."""
    records.begin_set(str(tmp_path), SETTINGS)
    (tmp_path / shard_names()[1]).write_bytes(b"not known to be whole")
    write_set(tmp_path)
    assert records.read_set(str(tmp_path), SETTINGS, "").num_examples == 33


# ---- damage ---------------------------------------------------------------------------------------------------------


def rewrite(path, examples):
    """Another content, whose own checksums are right."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in examples:
            writer.write(content)


def set_modified(path, seconds=10):
    """As if the file had been written later."""
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + seconds))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("verify", [True, False])
def test_a_shard_of_other_content_is_refused_and_named(tmp_path, cache, verify):
    set_dir = write_set(tmp_path / "set")
    path = set_dir / shard_names()[1]
    rewrite(path, [content.swapcase() for content in shard_examples(1)])
    message = rf"{path} is damaged or was changed: sha256=\w+, expected \w+: delete {set_dir}\. Do it again\.$"
    with pytest.raises(ValueError, match=message):
        records.read_set(str(set_dir), {}, "Do it again.", verify)


def test_a_set_is_checked_once_on_each_machine_unless_it_is_asked_for(tmp_path, cache, monkeypatch):
    set_dir, checked = write_set(tmp_path / "set"), []
    checksum = files.checksum
    monkeypatch.setattr(files, "checksum", lambda path: checked.append(path) or checksum(path))
    for verify, expected in ((False, 3), (False, 0), (True, 3), (False, 0)):
        checked.clear()
        records.read_set(str(set_dir), {}, "", verify)
        assert len(checked) == expected
    set_modified(set_dir / shard_names()[2])
    records.read_set(str(set_dir), {}, "", verify=False)
    assert len(checked) == 3
    monkeypatch.setenv("UDA_CACHE", str(tmp_path / "other"))
    records.read_set(str(set_dir), {}, "", verify=False)
    assert len(checked) == 6


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UDA_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert records.read_set(str(write_set(tmp_path / "set")), {}, "", verify=False).num_examples == 33


def change_info(set_dir, change):
    info = read_info(set_dir)
    change(info)
    (set_dir / "info.json").write_text(json.dumps(info))


def replace_count(shard, count):
    def change(info):
        info["num_examples"] += count - info["shards"][shard]["num_examples"]
        info["shards"][shard]["num_examples"] = count

    return change


@pytest.mark.parametrize("count", [5, 500])
def test_another_number_of_records_than_info_tells_is_refused(tmp_path, cache, count):
    set_dir = write_set(tmp_path / "set")
    change_info(set_dir, replace_count(1, count))
    with pytest.raises(ValueError, match=rf"00001-of-00003.tfrecord .*: num_examples=11, expected {count}: delete"):
        records.read_set(str(set_dir), {}, "", verify=False)


WRONG_INFO = {
    "[]": "info.json holds []: expected an object with complete, settings",
    "{}": "info.json: complete is missing: expected true or false; delete it or restore it",
    '{"complete": 1, "settings": {}}': "info.json: complete=1: expected true or false",
    '{"complete": false, "settings": []}': "info.json: settings=[]: expected an object",
    '{"complete": true, "settings": {}}': "info.json: num_examples is missing",
    '{"complete": true, "settings": {}, "num_examples": "7", "shards": []}': "num_examples='7': expected a whole",
    '{"complete": true, "settings": {}, "num_examples": 7, "shards": {}}': "shards={}: expected a list",
    '{"complete": true, "settings": {}, "num_examples": 7, "shards": [3]}': "shards=[3]: expected a list, each an",
    '{"complete": true, "settings": {}, "num_examples": 0, "shards": []}': "has no examples",
}


@pytest.mark.parametrize("content", WRONG_INFO)
def test_info_of_another_shape_is_described(tmp_path, content):
    write_set(tmp_path)
    (tmp_path / "info.json").write_text(content)
    with pytest.raises(ValueError, match=re.escape(WRONG_INFO[content])):
        records.read_set(str(tmp_path), {}, "")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda info: info.update(num_examples=100), "num_examples=100, but the shards have 33"),
        (lambda info: info["shards"][1].pop("sha256"), r"shards\[1\]: sha256 is missing"),
        (lambda info: info["shards"][1].update(num_bytes=-1), r"shards\[1\]: num_bytes=-1: expected"),
        (lambda info: info["shards"][1].update(name="../x.tfrecord"), r"name='../x.tfrecord' is no name of a shard"),
        (lambda info: info["shards"].pop(), "num_examples=33, but the shards have 21"),
    ],
)
def test_info_that_does_not_fit_its_shards_is_described(tmp_path, change, message):
    change_info(write_set(tmp_path), change)
    with pytest.raises(ValueError, match=rf"info\.json: .*{message}"):
        records.read_set(str(tmp_path), {}, "")
    with pytest.raises(ValueError, match=rf"info\.json: .*{message}"):
        records.begin_set(str(tmp_path), SETTINGS)


@pytest.mark.parametrize("content", ["[]", "{}", '{"name": "x", "num_examples": "1", "num_bytes": 2, "sha256": ""}'])
def test_a_receipt_of_another_shape_is_described(tmp_path, content):
    records.begin_set(str(tmp_path), SETTINGS)
    records.write_shard(str(tmp_path), 0, 1, lambda: shard_examples(0))
    (tmp_path / "records-00000-of-00001.json").write_text(content)
    with pytest.raises(ValueError, match=r"records-00000-of-00001\.json.*: expected .*; delete it or restore it\."):
        records.finish_set(str(tmp_path), 1)


def test_a_shard_that_is_damaged_while_it_is_used_is_named(tmp_path):
    record_sets = [records.read_set(str(write_set(tmp_path / name)), {}, "") for name in ("first", "second")]
    path = tmp_path / "second" / shard_names()[2]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    message = rf"{path} is damaged \(corrupted record at \d+.*\): delete {path.parent} and write it again"
    with pytest.raises(ValueError, match=message), records.explain_damage(record_sets):
        list(tf.data.TFRecordDataset([path for record_set in record_sets for path in record_set.paths]))


def test_other_errors_are_not_taken_for_damage(tmp_path):
    with pytest.raises(tf.errors.InvalidArgumentError), records.explain_damage([]):
        raise tf.errors.InvalidArgumentError(None, None, "other")


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_another_setting_is_refused_and_named(tmp_path):
    write_set(tmp_path)
    expected = r"other settings \(seed: found 3, expected 4\)\. Delete that folder, or choose another --data_dir\."
    with pytest.raises(ValueError, match=expected):
        records.begin_set(str(tmp_path), SETTINGS | {"seed": 4})
    with pytest.raises(ValueError, match=r"other settings \(size: found None, expected 5\)\. Ask for another\."):
        records.read_set(str(tmp_path), {"size": 5}, "Ask for another.")


def test_an_unfinished_set_of_other_settings_is_refused(tmp_path):
    records.begin_set(str(tmp_path), SETTINGS)
    with pytest.raises(ValueError, match="split: found 'train', expected 'test'"):
        records.begin_set(str(tmp_path), SETTINGS | {"split": "test"})


def test_a_missing_set_is_named_with_advice(tmp_path):
    with pytest.raises(ValueError, match=r"nothing holds no records\. Write them\."):
        records.read_set(str(tmp_path / "nothing"), {}, "Write them.")


def test_a_truncated_or_missing_shard_is_named(tmp_path):
    write_set(tmp_path)
    path = tmp_path / shard_names()[1]
    size = path.stat().st_size
    os.truncate(path, size - 1)
    message = rf"{path.name} has {size - 1} bytes, expected {size}: delete {tmp_path}\. Do it again\."
    with pytest.raises(ValueError, match=message):
        records.read_set(str(tmp_path), {}, "Do it again.")
    path.unlink()
    with pytest.raises(ValueError, match=rf"{path.name} has 0 bytes, expected {size}: delete"):
        records.read_set(str(tmp_path), {}, "Do it again.")


def test_info_that_is_not_json_is_named(tmp_path):
    write_set(tmp_path)
    (tmp_path / "info.json").write_text('{"complete": tr')
    with pytest.raises(ValueError, match=r"info\.json is not valid JSON .*: delete it or restore it\."):
        records.read_set(str(tmp_path), {}, "")


def test_a_folder_that_cannot_be_made_is_named_with_advice(tmp_path):
    (tmp_path / "file").write_text("a file where the folder should be")
    with pytest.raises(ValueError, match=r"file/set cannot be written \(.*\): make room there or choose another"):
        records.begin_set(str(tmp_path / "file" / "set"), SETTINGS)


@pytest.fixture
def no_room():
    with full_disk(20_000):
        yield


def test_a_full_disk_keeps_the_finished_shards(tmp_path, no_room):
    records.begin_set(str(tmp_path), SETTINGS)
    records.write_shard(str(tmp_path), 0, 3, lambda: shard_examples(0))
    with pytest.raises(ValueError, match=r"cannot be written .*File too large.* finished shards are kept, and the sa"):
        records.write_shard(str(tmp_path), 1, 3, lambda: shard_examples(1) * 10)
    first = shard_names()[0]
    assert sorted(os.listdir(tmp_path)) == sorted(["info.json", first, first.replace("tfrecord", "json")])


def test_after_room_was_made_the_set_is_completed(tmp_path):
    records.begin_set(str(tmp_path), SETTINGS)
    records.write_shard(str(tmp_path), 0, 3, lambda: shard_examples(0))
    before = (tmp_path / shard_names()[0]).stat().st_mtime_ns
    write_set(tmp_path)
    assert (tmp_path / shard_names()[0]).stat().st_mtime_ns == before


def test_a_full_disk_at_the_start_or_at_the_end_is_told_too(tmp_path, no_room):
    with pytest.raises(ValueError, match=r"large cannot be written .*File too large.* make room there or choose"):
        records.begin_set(str(tmp_path / "large"), SETTINGS | {"indices": list(range(5000))})
    settings = SETTINGS | {"indices": list(range(1500))}
    assert records.begin_set(str(tmp_path / "many"), settings)
    with pytest.raises(ValueError, match=r"many cannot be written .*File too large.* make room there or choose"):
        write_set(tmp_path / "many", num_shards=15, settings=settings)
    assert read_info(tmp_path / "many") == {"complete": False, "settings": settings}
