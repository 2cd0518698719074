"""Everything on ram://, a file system that only TensorFlow knows: what works there works on gs:// and others."""

import csv
import io

import numpy as np
import pytest
from PIL import Image

import image.main
import image.preprocess
import text.main
import text.preprocess
from back_translate import join_paragraphs, split_paragraphs, translate
from image import filter_domain
from image.classifier import ImageClassifier
from tests.back_translate import small_translation
from tests.image import small_data as small_images
from tests.programs import run_main
from tests.text import small_data as small_texts
from tests.text import small_run
from utils import files
from utils.feature_classifier import FeatureClassifier

pytestmark = pytest.mark.slow
SHORT = {"train_steps": 2, "save_steps": 2, "log_steps": 1, "iterations": 1}


def flags_of(settings):
    return [f"--{name}={value}" for name, value in settings.items()]


def upload(folder, target):
    """Copies a folder of this machine."""
    files.copy_folder(str(folder), target)
    return target


def read_predictions(path):
    with files.open_file(path) as file:
        return list(csv.DictReader(file))


def local_copy(folder, tmp_path):
    """{relative path: content} of a folder of ram://."""
    files.copy_folder(folder, str(tmp_path / "copy"))
    return small_images.files_below(tmp_path / "copy", ".tfrecord")


# ---- images ---------------------------------------------------------------------------------------------------------


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def write_folder(folder, count):
    """Images of two classes, and a file that is none."""
    for label, color in (("dark", 40), ("light", 200)):
        files.make_folder(f"{folder}/{label}")
        for number in range(count):
            pixels = np.random.default_rng(number).integers(color - 30, color + 30, (12, 10, 3), np.uint8)
            with files.open_file(f"{folder}/{label}/{number}.png", "wb") as file:
                file.write(png(pixels))
    with files.open_file(f"{folder}/light/broken.png", "wb") as file:
        file.write(b"no image")


def test_digits_from_preprocessing_to_prediction(tmp_path):
    data, run = "ram://digits/records", "ram://digits/run"
    settings = {"task_name": "digits", "sup_size": 20, "aug_copy": 1, "unsup_size": 40}
    run_main(image.preprocess, *flags_of(settings), f"--data_dir={data}", "--workers=1")
    run_main(image.preprocess, *flags_of(settings), f"--data_dir={tmp_path / 'records'}", "--workers=1")
    assert local_copy(data, tmp_path) == small_images.files_below(tmp_path / "records", ".tfrecord")
    write_folder("ram://digits/photos", 1)
    files.remove("ram://digits/photos/light/broken.png")
    arguments = [f"--model_dir={run}", "--predict_input=ram://digits/photos", "--do_predict"]
    tiny = settings | {"data_dir": data} | small_images.TINY_RUN | SHORT | {"eval_batch_size": 500}
    run_main(image.main, "--do_train", "--do_eval", *flags_of(tiny), *arguments)
    assert files.read_json(f"{run}/result.json")["step"] == 2
    predictions = read_predictions(f"{run}/predictions.csv")
    assert [row["input"] for row in predictions] == [f"ram://digits/photos/{name}/0.png" for name in ("dark", "light")]


def test_official_files_and_folders_of_images_are_read_from_anywhere(tmp_path, capsys):
    small_images.write_cifar10(tmp_path / "raw")
    upload(tmp_path / "raw", "ram://cifar10/raw")
    for raw, data in ((tmp_path / "raw", tmp_path / "here"), ("ram://cifar10/raw", tmp_path / "there")):
        small_images.run_preprocess(raw, data)
    assert small_images.files_below(tmp_path / "here") == small_images.files_below(tmp_path / "there")

    write_folder("ram://photos/train", 3)
    write_folder("ram://photos/pool", 4)
    common = ["--task_name=folder", "--train_dir=ram://photos/train", "--data_dir=ram://photos/records"]
    run_main(image.preprocess, *common, "--sup_size=2", "--use_equal_split", "--aug_copy=1", "--workers=1")
    assert "1 images cannot be read" in capsys.readouterr().out
    run = ["--task_name=folder", "--data_dir=ram://photos/records", "--sup_size=2", "--use_equal_split", "--aug_copy=1"]
    tiny = flags_of(small_images.TINY_RUN | SHORT)
    run_main(image.main, "--do_train", *run, *tiny, "--model_dir=ram://photos/run")
    places = ["--model_dir=ram://photos/run", "--data_dir=ram://photos/records", "--output_dir=ram://photos/filtered"]
    run_main(filter_domain, *places, "--pool=ram://photos/pool", "--num_per_class=2", "--aug_copy=1", "--workers=1")
    assert files.read_json("ram://photos/filtered/domain_filter.json")["num_skipped"] == 1
    assert files.exists("ram://photos/filtered/sup-size_2-equal/train/info.json")


def test_classifiers_are_saved_and_loaded_anywhere():
    images, labels = small_images.colored_images(12, 8), ["a", "b"] * 6
    tiny = small_images.TINY_RUN | SHORT | {"train_batch_size": 2}
    classifier = ImageClassifier("ram://classifier/run", **tiny).fit(images, labels)
    classifier.export("ram://classifier/exported")
    loaded = ImageClassifier.load("ram://classifier/exported")
    assert np.array_equal(loaded.predict_proba(images), classifier.predict_proba(images))
    with pytest.raises(FileExistsError, match="ram://classifier/exported"):
        classifier.export("ram://classifier/exported")

    features = np.random.default_rng(0).normal(size=[12, 3])
    linear = FeatureClassifier("ram://classifier/linear", **SHORT).fit(features, labels)
    assert linear.predict(features).shape == (12,)


# ---- texts ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A BERT, and tables in several formats, on ram://; returns the local folder of the same files."""
    folder = tmp_path_factory.mktemp("texts")
    small_run.write_bert(folder / "bert")
    small_texts.write_user_file(folder / "train.csv", 24)
    small_texts.write_user_file(folder / "more.jsonl.gz", 30, seed=1)
    small_texts.write_user_file(folder / "test.tsv", 8, seed=2)
    (folder / "predict.txt").write_text("Bad film.\nGood book.\n")
    upload(folder, "ram://texts")
    return folder


def text_flags(folder, data_dir):
    data = {name: small_run.TINY_RUN[name] for name in ("task_name", "sup_size", "aug_ops", "max_seq_length")}
    data |= {"data_dir": data_dir, "init_checkpoint": f"{folder}/bert", "aug_ops": "tf_idf-0.3"}
    raw = {"train_file": "train.csv", "unlabeled_file": "more.jsonl.gz", "test_file": "test.tsv"}
    return data, {name: f"{folder}/{value}" for name, value in raw.items()}


def test_texts_from_preprocessing_to_prediction(texts, tmp_path):
    for folder, data_dir in (("ram://texts", "ram://texts/records"), (texts, tmp_path / "records")):
        data, raw = text_flags(folder, data_dir)
        run_main(text.preprocess, *flags_of(data | raw), "--workers=1")
    assert local_copy("ram://texts/records", tmp_path) == small_images.files_below(tmp_path / "records", ".tfrecord")
    data, _ = text_flags("ram://texts", "ram://texts/records")
    arguments = ["--model_dir=ram://texts/run", "--predict_input=ram://texts/predict.txt", "--do_predict"]
    run_main(text.main, "--do_train", "--do_eval", *flags_of(small_run.TINY_RUN | data | SHORT), *arguments)
    assert files.read_json("ram://texts/run/result.json")["step"] == 2
    assert [row["input"] for row in read_predictions("ram://texts/run/predictions.csv")] == ["Bad film.", "Good book."]


def test_features_of_texts_are_kept_anywhere(texts):
    data, raw = text_flags("ram://texts", "ram://texts/features")
    run_main(text.preprocess, *flags_of(data | raw), "--workers=1")
    frozen = {"trainable_layers": 0, "ema_decay": 0.0}
    run_main(
        text.main,
        "--do_train",
        "--do_eval",
        *flags_of(small_run.TINY_RUN | data | SHORT | frozen),
        "--model_dir=ram://f",
    )
    assert files.read_json("ram://f/result.json")["step"] == 2


def test_reviews_are_read_from_anywhere(tmp_path, texts):
    small_texts.write_imdb(tmp_path / "raw")
    upload(tmp_path / "raw", "ram://imdb/raw")
    data, _ = text_flags("ram://texts", "")
    settings = data | {"task_name": "imdb", "sup_size": 4, "workers": 1, "allow_partial": True}
    for raw, data_dir in ((tmp_path / "raw", tmp_path / "here"), ("ram://imdb/raw", tmp_path / "there")):
        run_main(text.preprocess, *flags_of(settings | {"raw_data_dir": raw, "data_dir": data_dir}))
    here, there = (small_images.files_below(tmp_path / name, ".tfrecord") for name in ("here", "there"))
    assert here == there and here


# ---- back-translation -----------------------------------------------------------------------------------------------


def paraphrase(folder, model):
    run_main(split_paragraphs, f"--input_file={folder}/texts.txt", f"--output_file={folder}/work/sentences.txt")
    files_of_work = [f"--input_file={folder}/work/sentences.txt", f"--output_file={folder}/work/translated.txt"]
    run_main(translate, *files_of_work, f"--model={model}", "--seed=1", "--block_size=2")
    joined = f"{folder}/bt/unsup_in/sample_0.9/para/para_0.txt"
    inputs = [f"--input_file={folder}/work/translated.txt", f"--split_file={folder}/work/sentences.txt"]
    run_main(join_paragraphs, *inputs, f"--output_file={joined}")
    return files.read_bytes(joined)


def test_paraphrases_are_made_and_used_anywhere(texts, tmp_path):
    model = small_translation.write_model(tmp_path / "model")
    upload(tmp_path / "model", "ram://translation/model")
    lines = [f"Tom has {number} dogs. It was good! the best film.\n" for number in range(30)]
    (tmp_path / "texts.txt").write_text("".join(lines))
    files.copy(str(tmp_path / "texts.txt"), "ram://translation/texts.txt")
    expected = paraphrase(str(tmp_path), model)
    assert paraphrase("ram://translation", "ram://translation/model") == expected
    assert paraphrase("ram://translation", "ram://translation/model") == expected  # and finds it complete
    names = files.list_folder("ram://translation/work")
    assert not [name for name in names if "lock" in name or "tmp" in name], names

    data, raw = text_flags("ram://texts", "ram://translation/records")
    settings = data | raw | {"aug_ops": "bt-0.9", "back_translation_dir": "ram://translation/bt", "workers": 1}
    run_main(text.preprocess, *flags_of(settings))
    assert files.exists("ram://translation/records/unsup/bt-0.9/copy-000/info.json")


def test_a_stopped_translation_keeps_its_blocks(tmp_path, monkeypatch):
    model = small_translation.write_model("ram://stopped/model")
    with files.open_file("ram://stopped/in.txt", "w") as file:
        file.writelines(f"the cat has {number} dogs!\n" for number in range(6))
    arguments = ["--input_file=ram://stopped/in.txt", f"--model={model}", "--block_size=2"]
    load, made = translate.load_function, []

    def load_function(*how):
        def translate_two(*block):
            if len(made) == 2:
                raise ValueError("stopped")
            made.append(block)
            return load(*how)(*block)

        return translate_two

    load_function.cache_clear = load.cache_clear
    monkeypatch.setattr(translate, "load_function", load_function)
    with pytest.raises(SystemExit, match="stopped"):
        run_main(translate, *arguments, "--output_file=ram://stopped/out.txt")
    kept = files.list_folder("ram://stopped/out.txt.blocks")
    with pytest.raises(SystemExit, match="made with other settings .*seed: was 0, now 1"):
        run_main(translate, *arguments, "--output_file=ram://stopped/out.txt", "--seed=1")
    monkeypatch.setattr(translate, "load_function", load)
    run_main(translate, *arguments, "--output_file=ram://stopped/out.txt")
    run_main(translate, *arguments, f"--output_file={tmp_path / 'out.txt'}")
    assert kept == ["000000000000-2.txt", "000000000002-2.txt"]
    assert files.read_bytes("ram://stopped/out.txt") == (tmp_path / "out.txt").read_bytes()
    assert "out.txt.blocks" not in files.list_folder("ram://stopped")


def test_what_only_this_machine_can_read_is_refused_elsewhere():
    with files.open_file("ram://ct2/in.txt", "w") as file:
        file.write("a cat\n")
    files.make_folder("ram://ct2/model")
    arguments = ["--input_file=ram://ct2/in.txt", "--output_file=ram://ct2/out.txt", "--model=ram://ct2/model"]
    with pytest.raises(SystemExit, match="model=ram://ct2/model: expected a path of this machine, since CTranslate2"):
        run_main(translate, *arguments, "--engine=ctranslate2")
