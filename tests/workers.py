"""What each of several workers does in tests/test_workers.py: small trainings, one after the other.

bash scripts/launch_workers.sh 2 python -m tests.workers jobs.json
"""

import dataclasses
import json
import os
import sys

import image.config
import image.train
import text.config
import text.pretrain
import text.train
from utils import cluster, distribution, training
from utils.settings import RunConfig

KINDS = {
    "image": (image.config.Config, image.train.train_and_evaluate),
    "text": (text.config.Config, text.train.train_and_evaluate),
    "pretrain": (text.pretrain.PretrainConfig, text.pretrain.pretrain),
}


def write_jobs(path, jobs):
    """Args: jobs: list of (kind, config, model_dir)."""
    path.write_text(
        json.dumps([(kind, dataclasses.asdict(config), str(model_dir)) for kind, config, model_dir in jobs])
    )


def run_job(kind, settings, model_dir, strategy):
    config_class, train = KINDS[kind]
    return train(config_class(**settings), model_dir, strategy)


def refused(check, *arguments):
    """The message of a check."""
    try:
        check(*arguments)
    except ValueError as error:
        return str(error)


def main(path):
    strategy, folder = distribution.create_strategy("auto"), os.path.dirname(path)
    index = cluster.current_task().index
    with open(path, encoding="utf-8") as file:
        for job in json.load(file):
            run_job(*job, strategy)
    different = RunConfig(train_batch_size=8, learning_rate=0.1 + index)
    report = {
        "settings": refused(cluster.check_settings, strategy, different),
        "step": refused(cluster.check_step, strategy, index, "runs/mine"),
        "batch": refused(training.check_batch_sizes, RunConfig(train_batch_size=7), strategy),
    }
    with open(os.path.join(folder, f"report-{index}.json"), "w", encoding="utf-8") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main(sys.argv[1])
