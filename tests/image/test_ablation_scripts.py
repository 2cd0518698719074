"""An ablation script from raw files to its table, at a tiny scale."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.image.small_data import TINY_RUN, write_cifar10
from tests.programs import write_stub_environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def root(tmp_path):
    """A copy of the project whose .venv is the Python of these tests."""
    for name in ("image", "augmentation", "utils"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    environment = write_stub_environment(tmp_path, python=f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    return SimpleNamespace(path=tmp_path, environment=environment)


def test_an_ablation_trains_what_is_missing_and_writes_its_table(root):
    write_cifar10(root.path / "data/raw/cifar10")
    runs = root.path / "runs/ablation_unlabeled_size"
    flags = TINY_RUN | {"train_steps": 2, "eval_steps": 1, "aug": "crop_flip", "strategy": "one_device"}
    command = [
        "bash",
        "scripts/run_ablation_unlabeled_size.sh",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    settings = {"SIZES": "10", "SUP_SIZE": "20", "PREPROCESS_FLAGS": "--allow_partial --workers=1"}
    finished = runs / "10_unlabelled_0/result.json"
    for seeds in ("0", "0 1"):
        environment = root.environment | settings | {"SEEDS": seeds}
        process = subprocess.run(command, cwd=root.path, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        finished.write_text(json.dumps(json.loads(finished.read_text()) | {"error_rate": 0.5}))
    assert "runs/ablation_unlabeled_size/10_unlabelled_0 is finished" in process.stdout
    assert process.stdout.count("cifar10: accuracy") == 1  # that of the other one
    config = json.loads((runs / "10_unlabelled_1/config.json").read_text())
    assert (config["unsup_size"], config["seed"], config["sup_size"], config["aug_mode"]) == (10, 1, 20, "online")
    error_rate = json.loads((runs / "10_unlabelled_1/result.json").read_text())["error_rate"]
    with open(runs / "report.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["runs"]) == ("10 unlabelled", "2")
    assert float(row["error_rate"]) == pytest.approx((0.5 + error_rate) / 2)
    assert float(row["deviation"]) == pytest.approx(abs(error_rate - 0.5) / 2**0.5)
    table = (runs / "report.md").read_text()
    assert table in process.stdout and table.splitlines()[2].startswith("| 10 unlabelled | ") and " ± " in table
    assert (runs / "report.html").exists()
