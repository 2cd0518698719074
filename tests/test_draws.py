"""--draws of the scripts that train, with a Python that only writes down its arguments and leaves a result."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.programs import write_stub_environment

ROOT = Path(__file__).parent.parent
RECORD_CALL = """#!/usr/bin/env bash
echo "$*" >> calls
for argument in "$@"; do
  case $argument in --model_dir=*) mkdir -p "${argument#*=}" && touch "${argument#*=}/result.json" ;; esac
done
"""


@pytest.fixture
def project(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return SimpleNamespace(path=tmp_path, environment=write_stub_environment(tmp_path, python=RECORD_CALL))


def run(project, script, *arguments, **variables):
    """Runs a script. Returns the process and the calls of Python, each as (module, dict of its flags)."""
    command = ["bash", f"scripts/{script}", *arguments]
    environment = project.environment | variables
    process = subprocess.run(command, cwd=project.path, env=environment, capture_output=True, text=True)
    calls = (project.path / "calls").read_text().splitlines() if (project.path / "calls").exists() else []
    words = [call.split(" --") for call in calls]
    return process, [(call[0].removeprefix("-m "), [f"--{flag}" for flag in call[1:]]) for call in words]


def test_several_draws_are_trained_compared_and_skipped_when_they_are_finished(project):
    run(project, "run_svhn_gpu.sh", "--draws=1", "--train_steps=7")
    (project.path / "calls").unlink()
    process, calls = run(project, "run_svhn_gpu.sh", "--draws=2", "--train_steps=7")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("runs/svhn_gpu_1000/draw_0 is finished") == 1
    assert [module for module, _ in calls] == ["image.preprocess", "image.main", "image.report"]
    (_, preprocess), (_, main), (_, report) = calls
    assert {"--data_type=sup", "--label_seed=1", "--sup_size=1000"} <= set(preprocess)
    assert {"--model_dir=runs/svhn_gpu_1000/draw_1", "--label_seed=1", "--seed=1", "--sup_size=1000"} <= set(main)
    assert main.index("--train_steps=7") > main.index("--train_steps=500000")  # the user's counts
    runs = [f"--run=svhn_gpu_1000=runs/svhn_gpu_1000/draw_{draw}" for draw in (0, 1)]
    assert report == [*runs, "--output=runs/svhn_gpu_1000/report.html"]


def test_a_finished_run_of_other_flags_is_left_to_the_program_which_refuses_it(project):
    run(project, "run_svhn_gpu.sh", "--draws=1")
    (project.path / "calls").unlink()
    process, calls = run(project, "run_svhn_gpu.sh", "--draws=1", "--unsup_ratio=0")
    assert "is finished" not in process.stdout
    assert [module for module, _ in calls] == ["image.preprocess", "image.main", "image.report"]


def test_draws_go_to_the_folder_that_is_given(project):
    process, calls = run(project, "run_svhn_gpu.sh", "--draws=2", "--model_dir=runs/mine")
    assert process.returncode == 0, process.stderr
    given = [flag for _, flags in calls for flag in flags if flag.startswith("--model_dir=")]
    assert given == ["--model_dir=runs/mine/draw_0", "--model_dir=runs/mine/draw_1"]
    assert calls[-1][1][-1] == "--output=runs/mine/report.html"


def test_own_images_are_predicted_by_the_model_of_the_folder_that_is_given(project):
    variables = {"SUP_SIZE": "10", "TRAIN_DIR": "photos", "PREDICT_DIR": "new"}
    process, calls = run(project, "run_folder.sh", "--model_dir=runs/mine", **variables)
    assert process.returncode == 0, process.stderr
    assert {"--model_dir=runs/mine", "--predict_output=runs/mine/predictions.csv"} <= set(calls[-1][1])


def test_contributed_draws_are_all_added(project):
    raw = project.path / "data/raw/svhn"
    raw.mkdir(parents=True)
    (raw / "test_32x32.mat").touch()
    process, calls = run(project, "contribute.sh", "svhn", "--draws=2")
    assert process.returncode == 0, process.stderr
    added = [module for module, _ in calls if module.startswith("utils.results")]
    assert added == [f"utils.results add runs/contributed/svhn_0/draw_{draw}" for draw in (0, 1)]


def test_without_draws_there_is_one_run_in_the_folder_of_before(project):
    process, ((module, flags),) = run(project, "run_imdb_gpu.sh", "--seed=3")
    assert process.returncode == 0 and module == "text.main"
    assert {"--model_dir=runs/imdb_gpu", "--sup_size=20", "--init_checkpoint=bert-base"} <= set(flags)
    assert flags[-1] == "--seed=3" and not any(flag.startswith("--label_seed") for flag in flags)


@pytest.mark.parametrize("arguments, seeds", [(["--draws=2"], [0, 1]), (["4", "7"], [4, 7]), ([], [0])])
def test_the_quickstart_takes_a_number_of_draws_or_their_seeds(arguments, seeds, project):
    process, calls = run(project, "quickstart.sh", *arguments)
    assert process.returncode == 0, process.stderr
    trained = [flags for module, flags in calls if module == "image.main"]
    expected = [seed for seed in seeds for _ in range(3)]
    assert [int(flags[flags.index("--seed=" + str(seed))][7:]) for flags, seed in zip(trained, expected)] == expected
    assert calls[-1][0] == "image.report"
    again, more = run(project, "quickstart.sh", *arguments)
    assert again.stdout.count(" is finished") == 3 * len(seeds)
    assert [module for module, _ in more[len(calls) :]] == ["image.preprocess"] * len(seeds) + ["image.report"]


def test_an_ablation_takes_draws_for_seeds(project):
    process, calls = run(project, "run_ablation_num_ops.sh", "--draws=2", NUM_OPS="1")
    assert process.returncode == 0, process.stderr
    names = [flag for _, flags in calls for flag in flags if flag.startswith("--model_dir=")]
    assert names == [f"--model_dir=runs/ablation_num_ops/1_operations_{seed}" for seed in (0, 1)]


@pytest.mark.parametrize("draws", ["0", "two", ""])
def test_draws_that_are_no_number_are_refused_before_anything_is_trained(draws, project):
    process, calls = run(project, "run_svhn_gpu.sh", f"--draws={draws}")
    assert process.returncode != 0 and calls == []
    assert process.stderr == f"error: draws={draws}: expected a whole number, at least 1.\n"
