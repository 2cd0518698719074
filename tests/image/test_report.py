"""The comparison of runs: table and picture from real records and metrics."""

import json

import numpy as np
import pytest
from PIL import Image

from image import report
from tests.image.small_data import run_preprocess, write_cifar10
from tests.programs import run_main


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    arrays = write_cifar10(folder)
    run_preprocess(folder, folder / "records", aug_copy=report.GRID_COPIES)
    return str(folder / "records"), arrays["train"][0]


def test_pairs_are_the_first_images_with_their_own_augmentations(data_dir):
    originals, augmented = report.read_pairs(data_dir[0], "randaugment", 6, 3)
    np.testing.assert_array_equal(originals[..., :3], data_dir[1][:6])
    assert augmented.shape == (6, 3, 32, 32, 4)
    # Some pixels survive every augmentation unchanged more often in the own image than in another one.
    same = (augmented[..., :3] == originals[:, np.newaxis, ..., :3]).mean()
    other = (augmented[..., :3] == originals[::-1][:, np.newaxis, ..., :3]).mean()
    assert same > 10 * other


def test_picture_is_written(data_dir, tmp_path):
    lines = [{"step": step, "loss": 1 / step, "test_accuracy": step / 4} for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "result.json").write_text(json.dumps({"error_rate": 0.25}))
    run_main(report, f"--run=UDA={tmp_path}", f"--data_dir={data_dir[0]}", f"--output={tmp_path / 'report.png'}")
    run_main(report, f"--run=UDA={tmp_path}", f"--output={tmp_path / 'curves.png'}")
    assert "| UDA | 25.0%      | 1    |" in (tmp_path / "report.md").read_text()
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (1000, 450)
    with Image.open(tmp_path / "report.png") as picture:
        assert picture.size == (1500, 450)
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 1000
