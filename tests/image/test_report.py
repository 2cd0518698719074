"""The page of an image run: figures of a real run, and its own images beside their augmentations."""

import base64
import io
import shutil

import numpy as np
import pytest
from PIL import Image

from image import main, report
from tests.image.small_data import TINY_RUN, run_preprocess, write_cifar10
from tests.page_parser import Page
from tests.programs import run_main
from utils import examples, files, records
from utils import report as engine

COPIES = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    arrays = write_cifar10(folder)
    run_preprocess(folder, folder / "records", aug_copy=COPIES)
    return folder / "records", arrays


@pytest.fixture(scope="module")
def model_dir(data, tmp_path_factory):
    """A run by the program, from the first step to the page."""
    folder = tmp_path_factory.mktemp("run") / "UDA"
    settings = TINY_RUN | {"data_dir": data[0], "sup_size": 20, "aug_copy": COPIES, "train_steps": 4, "log_steps": 2}
    settings |= {"save_steps": 4, "eval_steps": 2, "model_dir": folder}
    run_main(main, "--do_train", "--do_eval", *(f"--{name}={value}" for name, value in settings.items()))
    return folder


@pytest.fixture(scope="module")
def run(model_dir):
    return engine.read_run(str(model_dir))


@pytest.fixture(scope="module")
def page(model_dir):
    return Page((model_dir / "report.html").read_text())


def shown_images(page):
    """All images of a page, uint8 [size, size, 3], in their order."""
    encoded = [link.partition("base64,")[2] for link in page.links if link.startswith("data:image/")]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for content in encoded]


@pytest.mark.slow
def test_a_run_ends_with_a_page_of_its_figures(run, page):
    for name in ("accuracy", "top5_accuracy", "error_rate", "sup_size", "step", "examples_per_second", "train_seconds"):
        assert page.values(f"result.{name}") == [run.result[name]], name
    assert len(run.lines) == 2
    for name in run.lines[0]:
        assert page.values(f"metrics.{name}")[-2:] == [line[name] for line in run.lines], name
    assert run.evaluation.correct.mean() == run.result["accuracy"] == pytest.approx(run.lines[-1]["test_accuracy"])
    assert sum(page.values("evaluation.confusion")) == 12
    assert run.start["hardware"] in page.texts["dd"]
    seconds = [2 * 20 / line["examples_per_second"] for line in run.lines]  # 4 labelled, 8 pairs of views
    assert run.result["train_seconds"] == pytest.approx(sum(seconds))


@pytest.mark.slow
def test_the_evaluation_is_in_the_order_of_the_test_images(run, data):
    np.testing.assert_array_equal(run.evaluation.labels, data[1]["test"][1])
    assert len(run.evaluation.original_confidence) == 1000  # batches of 8


@pytest.mark.slow
def test_images_stand_beside_their_augmentations_and_by_their_rows(run, page, data):
    images, rows = shown_images(page), 6 * (1 + COPIES)
    shown = np.reshape(images[:rows], [6, 1 + COPIES, 32, 32, 3])
    for original in shown[:, 0]:
        assert (data[1]["train"][0] == original).all(axis=(1, 2, 3)).sum() == 1
    assert np.mean(shown[:, 1:] == shown[:, :1]) > 0.04  # of other images: 1 in 256
    chosen = examples.surest_mistakes(run.evaluation) + examples.least_sure(run.evaluation)
    np.testing.assert_array_equal(images[rows:], data[1]["test"][0][chosen])
    confidence = run.evaluation.confidence[chosen]
    np.testing.assert_array_equal(np.float32(page.values("evaluation.confidence")), confidence)


@pytest.mark.slow
def test_pages_without_records_say_so(run, model_dir, data, tmp_path):
    moved = shutil.copytree(model_dir, tmp_path / "moved")
    config = (moved / "config.json").read_text().replace(str(data[0]), "/nowhere")
    (moved / "config.json").write_text(config)
    report.write_run_page(str(moved))
    notes = Page((moved / "report.html").read_text()).texts["p"]
    assert sum(note.startswith("Not shown: data_dir=/nowhere holds no records") for note in notes) == 3
    (moved / "config.json").write_text(config.replace('"offline"', '"online"'))
    report.write_run_page(str(moved))
    notes = Page((moved / "report.html").read_text()).texts["p"]
    assert "Not shown: the augmented copies were made while training, and none are on disk." in notes


@pytest.mark.slow
def test_compared_runs_show_the_augmentation_that_is_asked_for(model_dir, data, tmp_path, capsys):
    shutil.copytree(model_dir, tmp_path / "other")
    runs = [f"--run=UDA={model_dir}", f"--run=other={tmp_path / 'other'}"]
    run_main(report, *runs, f"--data_dir={data[0]}", "--aug_ops=randaugment", f"--output={tmp_path / 'report.html'}")
    assert "| other | " in capsys.readouterr().out
    page = Page((tmp_path / "report.html").read_text())
    assert len(shown_images(page)) == 6 * (1 + COPIES)
    assert page.values("comparison.difference") == [0]


def test_pairs_are_images_with_their_own_augmentations_from_every_copy(data):
    set_dirs = [f"{data[0]}/unsup/randaugment/copy-{copy:03d}" for copy in range(COPIES)]
    pairs = report.read_pairs(str(data[0]), set_dirs, 6)
    originals = np.stack([original for original, _ in pairs])
    augmented = np.stack([copies for _, copies in pairs])
    assert augmented.shape == (6, COPIES, 32, 32, 4)
    # Some pixels survive every augmentation unchanged more often in the own image than in another one.
    same = (augmented[..., :3] == originals[:, np.newaxis, ..., :3]).mean()
    other = (augmented[..., :3] == originals[::-1][:, np.newaxis, ..., :3]).mean()
    assert same > 10 * other


def test_rows_that_are_not_there_are_told(data):
    images = report.read_rows(str(data[0]), [3, 0])
    np.testing.assert_array_equal(images[..., :3], data[1]["test"][0][[3, 0]])
    with pytest.raises(ValueError, match="test has 12 examples, none with the number 12"):
        report.read_rows(str(data[0]), [12])


def test_a_page_does_not_check_the_records_again(data, monkeypatch):
    set_dirs = [f"{data[0]}/unsup/randaugment/copy-{copy:03d}" for copy in range(COPIES)]
    for set_dir in (*set_dirs, f"{data[0]}/test"):
        records.read_set(set_dir, {}, "")
    monkeypatch.setattr(files, "checksum", None)
    monkeypatch.setattr(records, "count_records", None)
    assert len(report.read_pairs(str(data[0]), set_dirs, 6)) == 6
    assert len(report.read_rows(str(data[0]), [3, 0])) == 2


def test_large_images_are_made_smaller():
    shown = report.show_image(np.full([224, 224, 4], 255, np.uint8), 'a "b"')
    page = Page(shown)
    assert shown_images(page)[0].shape == (112, 112, 3) and "data:image/jpeg" in page.links[0]
    assert "a &quot;b&quot;" in shown
