"""ImageNet from standard shards and from class folders: the check before training, the batches, a run with top-5."""

import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from image import export, imagenet, imagenet_index, main, train
from image.config import Config
from tests.image.small_data import TINY_RUN
from tests.programs import run_main
from tests.shares import assert_shares_are_the_whole
from utils.distribution import create_strategy

ROOT = Path(__file__).parent.parent.parent
LAYOUTS = ("shards", "folders")
NUM_CLASSES, NUM_TRAIN, NUM_VALIDATION, SIZE = 7, 23, 9, 32
SYNSETS = [f"n{number:08d}" for number in range(NUM_CLASSES)]
CORRUPT, CMYK, PNG = 4, 8, 11  # numbers of training images


# ---- files in the official formats ----------------------------------------------------------------------------------


def draw_image(number):
    """An image of few smooth colours, of another size each."""
    rng = np.random.default_rng(number)
    corners = Image.fromarray(rng.integers(0, 256, (2, 3, 3), np.uint8))
    return corners.resize((34 + number % 11, 45 - number % 7), Image.Resampling.BICUBIC)


def encode(image, file_format="JPEG"):
    content = io.BytesIO()
    image.save(content, file_format, quality=95)
    return content.getvalue()


def encode_training_image(number):
    image = draw_image(number)
    if number == CMYK:
        return encode(image.convert("CMYK"))
    content = encode(image, "PNG" if number == PNG else "JPEG")
    return content[: len(content) // 2] if number == CORRUPT else content


def create_record(encoded=b"", **features):
    """A record as the TPU ResNet scripts write it, with a few of its many features."""
    features = {"image/encoded": encoded, "image/height": 40} | features
    kinds = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value, bytes)
        else tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        for name, value in features.items()
        if value is not None
    }
    return tf.train.Example(features=tf.train.Features(feature=kinds)).SerializeToString()


def labelled_record(encoded, label):
    return create_record(
        encoded, **{"image/class/label": label + 1, "image/class/synset": SYNSETS[label % NUM_CLASSES].encode()}
    )


def write_shards(folder, prefix, records, num_shards):
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(num_shards):
        with tf.io.TFRecordWriter(str(folder / f"{prefix}-{shard:05d}-of-{num_shards:05d}")) as writer:
            for record in records[shard::num_shards]:
                writer.write(record)


def write_files(folder, images):
    for number, (encoded, label) in enumerate(images):
        path = folder / SYNSETS[label] / f"{SYNSETS[label]}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded)


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory):
    """dict from layout to a folder with the same images, and index.json."""
    root = tmp_path_factory.mktemp("imagenet")
    train = [(encode_training_image(number), number % NUM_CLASSES) for number in range(NUM_TRAIN)]
    validation = [(encode(draw_image(100 + number)), number % NUM_CLASSES) for number in range(NUM_VALIDATION)]
    for split, images, num_shards in (("train", train, 5), ("validation", validation, 2)):
        write_shards(root / "shards", split, [labelled_record(*image) for image in images], num_shards)
    write_files(root / "folders" / "train", train)
    write_files(root / "folders" / "val", validation)
    for layout in LAYOUTS:
        imagenet_index.write_index(str(root / layout), num_classes=NUM_CLASSES)
    return {layout: root / layout for layout in LAYOUTS}


def create_config(data_dir, **settings):
    settings = {"aug_ops": "crop_flip", "image_size": SIZE, "shuffle_buffer": 5} | settings
    return Config(task_name="imagenet", data_dir=str(data_dir), aug_mode="online", **TINY_RUN | settings)


def read_batches(config, start_step, num_steps):
    dataset = imagenet.create_train_dataset(config, imagenet.open_data(config), start_step)
    return list(dataset.take(num_steps).as_numpy_iterator())


# ---- the check before training --------------------------------------------------------------------------------------


def test_both_layouts_have_the_same_classes_and_counts(data_dirs):
    indices = [imagenet_index.read_index(str(data_dirs[layout])) for layout in LAYOUTS]
    assert [index["layout"] for index in indices] == list(LAYOUTS)
    for index in indices:
        assert index["class_names"] == SYNSETS
        assert imagenet_index.count_classes(index, "train").tolist() == [4, 4, 3, 3, 2, 3, 3]  # of 23, one is corrupt
        assert imagenet_index.count_classes(index, "validation").tolist() == [2, 2, 1, 1, 1, 1, 1]


def test_an_image_that_cannot_be_decoded_is_left_out_and_named(data_dirs, tmp_path, capfd):
    reason = "jpeg::Uncompress failed. Invalid JPEG data or crop window."
    skipped = {layout: imagenet_index.read_index(str(data_dirs[layout]))["skipped"] for layout in LAYOUTS}
    assert skipped["shards"] == [{"file": "train-00004-of-00005", "record": 0, "reason": reason}]
    assert skipped["folders"] == [{"file": "train/n00000004/n00000004_4.JPEG", "record": 0, "reason": reason}]

    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/empty.jpg").touch()
    (tmp_path / "good.png").write_bytes(encode(draw_image(0), "PNG"))
    run_main(imagenet_index, f"--data_dir={tmp_path}", "--unlabeled", "--workers=1")
    printed = capfd.readouterr()
    assert "skipped deep/er/empty.jpg, record 0: Input is empty." in printed.err
    assert printed.out == f"unlabeled: 1 images\nskipped: 1 images. The index is {tmp_path}/index.json\n"


def test_cmyk_and_a_png_that_is_called_jpeg_are_decoded_to_the_right_colours():
    for number in (CMYK, PNG):
        decoded = imagenet_index.decode(encode_training_image(number)).numpy()
        np.testing.assert_allclose(decoded, np.asarray(draw_image(number)), atol=0 if number == PNG else 12)


def test_files_beside_the_class_folders_are_not_looked_at(data_dirs, tmp_path):
    folder = shutil.copytree(data_dirs["folders"], tmp_path / "folders")
    for name in ("train/n00000099.tar", "train/README", "val/n00000000.tar", "train/n00000000/notes.txt"):
        (folder / name).write_bytes(b"left over")
    index = imagenet_index.write_index(str(folder))
    assert index == imagenet_index.read_index(str(data_dirs["folders"]))


GOOD = encode(draw_image(0))
BAD_RECORDS = {
    r"record 1: image/class/label=0, expected 1 to 7": labelled_record(GOOD, -1),
    r"record 1: image/class/label=8, expected 1 to 7.*give --num_classes": labelled_record(GOOD, 7),
    r"record 1, has no image/class/label: it has image/encoded, image/height": create_record(GOOD),
    r"record 1, has no image/encoded: it has image/class/label": create_record(None, **{"image/class/label": 1}),
    r"record 1, is no tf.train.Example": b"\xff\xff\xff",
}


@pytest.mark.parametrize("message", BAD_RECORDS)
def test_records_that_are_not_imagenets_are_refused(message, tmp_path):
    write_shards(tmp_path, "train", [labelled_record(GOOD, 0), BAD_RECORDS[message]], 1)
    write_shards(tmp_path, "validation", [labelled_record(GOOD, 0)], 1)
    with pytest.raises(ValueError, match="train-00000-of-00001, " + message):
        imagenet_index.write_index(str(tmp_path), num_classes=NUM_CLASSES)


def cut_off(root):
    path = root / "shards/train-00001-of-00005"
    path.write_bytes(path.read_bytes()[:-9])


def empty_class(root):
    (root / "folders/train/n00000099").mkdir()


def flat_validation(root):
    """As the official archive of the validation images is."""
    for path in list((root / "folders/val").rglob("*.JPEG")):
        path.rename(root / "folders/val" / path.name)


def only_one_class(root):
    for synset in SYNSETS[1:]:
        shutil.rmtree(root / "folders/train" / synset)


DAMAGES = {
    "train-00001-of-00005 is damaged after 4 records": cut_off,
    "expected 5 shards train-.-of-00005, but train-00002-of-00005 and 0 more are missing": lambda root: (
        root / "shards/train-00002-of-00005"
    ).unlink(),
    "holds no ImageNet: expected shards .* or class folders": lambda root: shutil.rmtree(root / "folders/val"),
    "9 images, such as val/n00000000_0.JPEG, lie in no folder of a class": flat_validation,
    "'n00000099' has none": empty_class,
    "there is 'n00000000' alone": only_one_class,
    "1 classes of the validation images, such as 'n00000003', have no folder in train": lambda root: shutil.rmtree(
        root / "folders/train/n00000003"
    ),
    "1 of 7 classes have no training image that can be decoded .n00000002.": lambda root: [
        path.write_bytes(b"no image") for path in (root / "folders/train/n00000002").iterdir()
    ],
    "none of the validation images can be decoded": lambda root: [
        path.write_bytes(b"") for path in (root / "folders/val").rglob("*.JPEG")
    ],
}


@pytest.mark.parametrize("message", DAMAGES)
def test_incomplete_data_are_refused(message, data_dirs, tmp_path):
    layout = "shards" if "shards train" in message or "damaged" in message else "folders"
    shutil.copytree(data_dirs[layout], tmp_path / layout)
    DAMAGES[message](tmp_path)
    with pytest.raises(ValueError, match=message.replace("train-.-of", r"train-\*-of")):
        imagenet_index.write_index(str(tmp_path / layout), num_classes=NUM_CLASSES)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda index: [], r"index\.json holds \[\]: expected an object with layout"),
        (lambda index: {}, r"index\.json: layout is missing"),
        (lambda index: index | {"layout": "files"}, "layout='files'"),
        (lambda index: index | {"splits": {}}, r"splits=\[\]"),
        (lambda index: index | {"class_names": [1]}, r"class_names=\[1\]: expected a list, each a text"),
        (lambda index: index | {"class_names": ["a", "b"]}, "train: files and labels do not fit"),
        (lambda index: index | {"splits": index["splits"] | {"train": []}}, r"train holds \[\]"),
        (lambda index: index | {"splits": index["splits"] | {"train": {"files": ["a"]}}}, "num_bytes is missing"),
        (
            lambda index: index | {"splits": index["splits"] | {"train": {"files": [], "num_bytes": [], "labels": []}}},
            "there is no image that can be used",
        ),
    ],
)
def test_an_index_of_another_shape_is_described(data_dirs, tmp_path, change, message):
    index = json.loads((data_dirs["shards"] / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(change(index)))
    with pytest.raises(ValueError, match=rf"{message}.*write it again, with `python -m image") as raised:
        imagenet_index.read_index(str(tmp_path))
    assert "\n" not in str(raised.value)


def test_an_image_of_too_many_pixels_is_skipped_without_decoding_it(monkeypatch):
    content = io.BytesIO()
    Image.new("1", (300, 200)).save(content, "PNG")
    assert imagenet_index.why_undecodable(content.getvalue()) == ""
    monkeypatch.setattr(imagenet_index.image_files, "MAX_PIXELS", 59_999)
    assert imagenet_index.why_undecodable(content.getvalue()) == "300×200 pixels, expected at most 59,999"


def test_training_wants_an_index_that_fits_the_files(data_dirs, tmp_path):
    with pytest.raises(
        ValueError, match=r"does not exist. Check the images once, with `python -m image.imagenet_index"
    ):
        imagenet.open_data(create_config(tmp_path))
    with pytest.raises(ValueError, match="describes a labelled set, expected an unlabelled one.*--unlabeled`"):
        imagenet.open_data(create_config(data_dirs["shards"], unlabeled_dir=str(data_dirs["folders"])))
    shutil.copytree(data_dirs["shards"], tmp_path / "shards")
    cut_off(tmp_path)
    with pytest.raises(ValueError, match=r"train-00001-of-00005 has \d+ bytes, but \d+ when it was checked"):
        imagenet.open_data(create_config(tmp_path / "shards"))


# ---- which images are labelled --------------------------------------------------------------------------------------


def test_hidden_folders_and_files_are_no_classes(data_dirs, tmp_path):
    shutil.copytree(data_dirs["folders"], tmp_path, dirs_exist_ok=True)
    image = next((tmp_path / "train" / SYNSETS[0]).iterdir())
    for place in (".ipynb_checkpoints", f"{SYNSETS[1]}/.thumbnails", SYNSETS[2]):
        (tmp_path / "train" / place).mkdir(exist_ok=True)
        shutil.copy(image, tmp_path / "train" / place / f"{'._' * (place == SYNSETS[2])}copy.JPEG")
    (tmp_path / "train/.empty").mkdir()
    assert imagenet_index.write_index(str(tmp_path)) == imagenet_index.read_index(str(data_dirs["folders"]))


def examples_of(num_shards, shard_size, num_classes=3, in_shards=True):
    num_images = num_shards * shard_size
    return imagenet.Examples(
        paths=np.array([f"train-{shard}" for shard in range(num_shards)]),
        file_sizes=np.full(num_shards, shard_size),
        labels=np.arange(num_images) % num_classes,
        kept_mask=np.arange(num_images) != 2,  # one cannot be decoded
        in_shards=in_shards,
        files_sha256="",
    )


def test_a_tenth_of_1024_shards_are_the_first_102():
    labelled = imagenet.choose_labelled(examples_of(1024, 5), 0.1)
    np.testing.assert_array_equal(np.flatnonzero(labelled.kept_mask), np.delete(np.arange(102 * 5), 2))


def test_a_label_seed_draws_other_whole_shards():
    kept = [imagenet.choose_labelled(examples_of(100, 5), 0.29, label_seed=seed).kept_mask for seed in (0, 1, 1)]
    np.testing.assert_array_equal(kept[1], kept[2])
    assert (kept[0] != kept[1]).any()
    assert len(imagenet._shards_with_examples(imagenet.choose_labelled(examples_of(100, 5), 0.29, label_seed=1))) == 29


@pytest.mark.parametrize("in_shards", [True, False])
def test_the_equal_split_takes_the_same_part_of_each_class(in_shards):
    examples = examples_of(30, 10, in_shards=in_shards)
    labelled = imagenet.choose_labelled(examples, 0.2, use_equal_split=True, label_seed=3)
    assert np.bincount(labelled.labels[labelled.kept_mask]).tolist() == [20, 20, 19]  # of 100, 100, 99
    assert not labelled.kept_mask[2]
    other = imagenet.choose_labelled(examples, 0.2, use_equal_split=True, label_seed=4)
    assert (labelled.kept_mask != other.kept_mask).any()


def test_without_shards_a_part_of_all_images_is_drawn():
    labelled = imagenet.choose_labelled(examples_of(301, 1, in_shards=False), 0.1)
    assert labelled.num_examples == 30
    assert np.bincount(labelled.labels[labelled.kept_mask], minlength=3).max() > 10  # not balanced, not the first


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labelled_batches_hold_labelled_images_and_unlabelled_ones_hold_all(layout, data_dirs):
    config = create_config(data_dirs[layout], label_fraction=0.4, use_equal_split=True)
    data = imagenet.open_data(config)
    assert (data.sup[0].num_examples, data.unsup[0].num_examples) == (7, 22)
    for examples in (*data.sup, *data.unsup):
        stream = imagenet.encoded_stream(examples, 2, 0, 0, 5).take(examples.num_examples)
        labels = sorted(int(label) for _, label in stream)
        assert labels == sorted(examples.labels[examples.kept_mask].tolist())


# ---- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_pass_has_every_image_once_in_another_order(layout, data_dirs):
    (examples,) = imagenet.open_data(create_config(data_dirs[layout])).unsup
    stream = imagenet.encoded_stream(examples, 4, 0, 0, shuffle_buffer=5).take(2 * 22).as_numpy_iterator()
    encoded = [content for content, _ in stream]
    assert sorted(encoded[:22]) == sorted(encoded[22:]) and len(set(encoded)) == 22
    assert encoded[:22] != encoded[22:]
    assert encode_training_image(CORRUPT) not in encoded


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stream_that_starts_later_gives_the_same_batches(layout, data_dirs):
    config = create_config(data_dirs[layout], train_batch_size=2, sup_aug_ops="cutout", aug_ops="cutout")
    whole, later = read_batches(config, 0, 9), read_batches(config, 7, 2)  # the labelled pass has 11 steps, the other 5
    for batch, same in zip(whole[7:], later):
        assert batch.keys() == same.keys() == {"sup", "label", "original", "augmented"}
        for name in batch:
            np.testing.assert_array_equal(batch[name], same[name])
    assert (whole[0]["original"] != whole[1]["original"]).any()
    other = read_batches(create_config(data_dirs[layout], train_batch_size=2, seed=1), 0, 1)[0]
    assert (whole[0]["sup"] != other["sup"]).any()


def test_batches_are_augmented_in_chunks_without_a_repeated_draw(data_dirs, monkeypatch):
    monkeypatch.setattr(imagenet, "CHUNK", 3)
    config = create_config(data_dirs["folders"], train_batch_size=4, unsup_ratio=3, aug_ops="cutout", image_size=64)
    (batch,) = read_batches(config, 0, 1)
    assert batch["sup"].shape == (4, 64, 64, 4) and batch["augmented"].shape == (12, 64, 64, 4)
    assert (batch["sup"][..., 3] == 255).all() and (batch["original"][..., 3] == 255).all()
    holes = batch["augmented"][..., 3] == 0
    assert len(np.unique(holes, axis=0)) == 12
    areas = holes.sum(axis=(1, 2))
    assert areas.min() >= 16 * 16 and 16 * 16 < areas.max() <= 32 * 32  # of 32 × 32 pixels: 8 × 8 to 16 × 16


def test_the_two_views_are_different_crops_of_one_image_of_the_unlabelled_folder(data_dirs, tmp_path):
    """Red is the image's number; green tells which columns a crop has."""
    for number in range(1, 9):
        image = np.zeros([60, 60, 3], np.uint8)
        image[..., 0], image[..., 1] = 30 * number, 4 * np.arange(60)
        (tmp_path / f"{number}.png").write_bytes(encode(Image.fromarray(image), "PNG"))
    imagenet_index.write_index(str(tmp_path), unlabeled=True)
    (batch,) = read_batches(create_config(data_dirs["folders"], unlabeled_dir=str(tmp_path), train_batch_size=4), 0, 1)
    red, green = ([batch[name][..., channel] for name in ("original", "augmented")] for channel in (0, 1))
    np.testing.assert_array_equal(red[0], red[1])
    assert np.unique(red[0][:, 0, 0]).tolist() == list(range(30, 241, 30))  # each of the 8 images once
    assert all((original != augmented).any() for original, augmented in zip(*green))
    assert len(np.unique(batch["sup"][..., 2])) > 1  # labelled ones, which have blue, come from the training images


def test_unlabelled_images_may_lie_in_shards_without_labels(data_dirs, tmp_path):
    white = encode(Image.new("RGB", (40, 40), "white"))
    write_shards(tmp_path, "more", [create_record(white)] * 3, 2)
    imagenet_index.write_index(str(tmp_path), unlabeled=True)
    config = create_config(data_dirs["folders"], unlabeled_dir=str(tmp_path))
    (batch,) = read_batches(config, 0, 1)
    assert batch["original"].min() == 255 and batch["sup"].min() < 255


def test_random_crops_cover_the_promised_parts_of_an_image():
    """On an image whose colours are the coordinates, a crop tells where it was."""
    rows, columns = np.mgrid[:200, :250]
    image = np.stack([rows, columns, 0 * rows], axis=-1).astype(np.uint8)
    crop = tf.function(lambda seed: imagenet.random_crop_flip(image, 32, seed))
    areas, ratios, flips = [], [], []
    for number in range(60):
        red, green, _ = np.moveaxis(crop(tf.constant([0, number], tf.int64)).numpy().astype(int), -1, 0)
        height, width = np.ptp(red) + 1, np.ptp(green) + 1
        areas.append(height * width / (200 * 250))
        ratios.append(width / height)
        flips.append(green[0, 0] > green[0, -1])
    assert 0.06 < min(areas) < 0.25 and 0.75 < max(areas) <= 1
    assert 0.65 < min(ratios) < 0.9 and 1.1 < max(ratios) < 1.5
    assert 15 < sum(flips) < 45


def test_a_very_long_image_is_cropped_at_its_centre_instead_of_squeezed():
    image = np.zeros([10, 400, 3], np.uint8)
    image[:, 190:210] = 255
    crops = [imagenet.random_crop_flip(image, 32, tf.constant([0, n], tf.int64)).numpy() for n in range(3)]
    assert all(crop.min() == 255 for crop in crops)  # 5 of the 10 rows, and as many columns


def test_evaluation_sees_the_central_7_8_of_the_shorter_side_at_224_pixels():
    image = np.random.default_rng(0).integers(0, 256, (256, 301, 3), np.uint8)
    np.testing.assert_array_equal(imagenet.center_crop(image, 224), image[16:240, 39:263])


def test_images_have_224_pixels_unless_another_size_is_given(data_dirs):
    config = create_config(data_dirs["folders"], image_size=0, train_batch_size=1)
    assert imagenet.open_data(config).facts.image_size == 224
    (batch,) = read_batches(config, 0, 1)
    assert batch["sup"].shape == (1, 224, 224, 4) and batch["augmented"].shape == (2, 224, 224, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_evaluation_has_every_image_once_and_padding_of_weight_0(layout, data_dirs):
    data = imagenet.open_data(create_config(data_dirs[layout]))
    batches = list(imagenet.create_eval_dataset(data.test, SIZE, 4).as_numpy_iterator())
    weights, labels = (np.concatenate([batch[name] for batch in batches]) for name in ("weight", "label"))
    assert all(batch["sup"].shape == (4, SIZE, SIZE, 4) for batch in batches)
    assert weights.tolist() == [1] * 9 + [0] * 3
    assert sorted(labels[:9]) == sorted(number % NUM_CLASSES for number in range(NUM_VALIDATION))


# Of 12 images, in a chunk, each of 4 hosts has 3; with chunks of 4 some are in two chunks.
@pytest.mark.parametrize("layout, chunk", [("shards", 64), ("folders", 4)])
def test_hosts_together_make_the_batches_of_one(layout, chunk, data_dirs, monkeypatch):
    monkeypatch.setattr(imagenet, "CHUNK", chunk)
    config = create_config(data_dirs[layout], train_batch_size=12, unsup_ratio=1, aug_ops="randaugment")
    data = imagenet.open_data(config)
    assert_shares_are_the_whole(lambda share: imagenet.create_train_dataset(config, data, 3, share), 2)
    assert_shares_are_the_whole(lambda share: imagenet.create_eval_dataset(data.test, SIZE, 8, share), 2)


# ---- a run ----------------------------------------------------------------------------------------------------------


def run_training(config, model_dir, **options):
    return train.train_and_evaluate(config, str(model_dir), create_strategy("one_device"), **options)


SHORT = {"train_steps": 2, "save_steps": 1, "log_steps": 1, "eval_steps": 2}


@pytest.mark.slow
def test_a_run_on_shards_that_is_taken_up_again_equals_the_uninterrupted_one(data_dirs, tmp_path, monkeypatch):
    config = create_config(
        data_dirs["shards"],
        **{"aug_ops": "randaugment", "label_fraction": 0.4, "lr_schedule": "steps", "ema_decay": 0.0},
        **SHORT,
    )
    result = run_training(config, tmp_path / "whole")
    assert result["sup_size"] == 10  # two shards of five
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert lines[1]["test_top5_accuracy"] == pytest.approx(result["top5_accuracy"])
    check_accuracies(config, tmp_path / "whole", result)

    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for path in (tmp_path / "again/checkpoints").glob("ckpt-2.*"):
        path.unlink()
    monkeypatch.setattr(train, "export", lambda *_: None)  # takes longer than the steps
    run_training(config, tmp_path / "again", do_eval=False)
    first, second = (
        tf.train.load_checkpoint(str(tmp_path / name / "checkpoints/ckpt-2")) for name in ("whole", "again")
    )
    names = [name for name in first.get_variable_to_shape_map() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    for name in names:
        np.testing.assert_array_equal(first.get_tensor(name), second.get_tensor(name), err_msg=name)


@pytest.mark.slow
def test_a_run_is_not_continued_on_other_images(data_dirs, tmp_path):
    shutil.copytree(data_dirs["folders"], tmp_path / "data")
    run_training(create_config(tmp_path / "data", **SHORT), tmp_path / "run", do_eval=False)
    (tmp_path / "data" / "train" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG").write_bytes(encode(draw_image(99)))
    imagenet_index.write_index(str(tmp_path / "data"))
    with pytest.raises(ValueError, match="a run of the same configuration on other labelled and unlabelled examples"):
        run_training(create_config(tmp_path / "data", **SHORT), tmp_path / "run")


@pytest.mark.slow
def test_a_file_that_is_gone_is_named(data_dirs, tmp_path):
    shutil.copytree(data_dirs["folders"], tmp_path / "data")
    path = tmp_path / "data" / "val" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG"
    path.unlink()
    with pytest.raises(ValueError, match=f"{path} was there when the data were prepared: prepare them again"):
        run_training(create_config(tmp_path / "data", **SHORT), tmp_path / "run")


def check_accuracies(config, model_dir, result):
    """Compares them with those of the exported model's predictions."""
    (batch,) = imagenet.create_eval_dataset(imagenet.open_data(config).test, SIZE, 9).as_numpy_iterator()
    probabilities = export.load(str(model_dir / "export")).predict_proba(batch["sup"][..., :3])
    order = np.argsort(-probabilities, axis=1)
    for name, number in (("accuracy", 1), ("top5_accuracy", 5)):
        hits = (order[:, :number] == batch["label"][:, np.newaxis]).any(axis=1)
        assert result[name] == pytest.approx(hits.mean())
    assert 0 < result["top5_accuracy"] < 1


@pytest.mark.slow
def test_class_folders_are_trained_on_from_the_command_line(data_dirs, tmp_path, capfd, caplog):
    settings = TINY_RUN | {"train_steps": 2, "image_size": SIZE, "ema_decay": 0.0}
    run_main(
        main,
        *["--do_train", "--do_eval", "--task_name=imagenet", "--aug_mode=online", "--aug=cutout"],
        *[f"--data_dir={data_dirs['folders']}", f"--model_dir={tmp_path}/run"],
        *[f"--{name}={value}" for name, value in settings.items()],
    )
    printed, result = capfd.readouterr(), json.loads((tmp_path / "run/result.json").read_text())
    expected = f"imagenet: accuracy {result['accuracy']:.4f} (top-5 {result['top5_accuracy']:.4f}), error rate"
    assert printed.out.startswith(expected)
    assert result["sup_size"] == 22
    assert re.search("1 images in .*folders cannot be decoded and are left out; .*index.json lists them", caplog.text)
    dataset = json.loads((tmp_path / "run/export/dataset.json").read_text())
    assert dataset["class_names"] == SYNSETS and dataset["image_size"] == SIZE
