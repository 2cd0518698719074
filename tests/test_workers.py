"""Several workers over loopback, in real processes: they train what one process trains, and end together."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import text.main
from tests import workers
from tests.image import small_data as small_images
from tests.programs import run_main
from tests.text import small_run
from text.pretrain import PretrainConfig
from utils import cluster, distribution, run_dir

ROOT = Path(__file__).parent.parent
LAUNCHER = ["bash", str(ROOT / "scripts/launch_workers.sh")]
# Some minutes of two cores, in which a busy machine may miss TensorFlow's heartbeats: by hand, on a quiet one.
several_minutes = pytest.mark.skipif("UDA_TEST_WORKERS" not in os.environ, reason="UDA_TEST_WORKERS is not set")
RUN = {"train_steps": 4, "log_steps": 2, "save_steps": 2, "eval_batch_size": 8, "iterations": 2}


# ---- the same update ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """{kind: (config, records)}: networks without what differs from replica to replica."""
    folder = tmp_path_factory.mktemp("inputs")
    small_images.write_cifar10(folder)
    small_images.run_preprocess(folder, folder / "images", dev_size=4)
    settings = RUN | {"train_batch_size": 8, "dev_size": 4, "tsa": "linear", "sync_batch_norm": True}
    settings |= {"learning_rate": 0.003, "uda_confidence_thresh": 0.1}
    bert = small_run.write_bert(folder / "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    words = {"train_steps": 4, "model_name": "bag_of_words", "init_checkpoint": "", "model_dropout": 0.0}
    texts = small_run.write_user_records(folder, bert, dev_sizes=[4])
    source = {"task_name": "csv", "train_file": str(folder / "train.csv"), "init_checkpoint": bert, "dev_size": 8}
    source |= {"max_seq_length": small_run.MAX_LENGTH, "train_batch_size": 8, "learning_rate": 1e-4, "warmup_steps": 0}
    return {
        "image": small_images.tiny_config(folder / "images", **settings),
        "text": small_run.tiny_config(texts, bert, **RUN | words | {"dev_size": 4, "tsa": "linear", "ema_decay": 0.9}),
        "pretrain": PretrainConfig(**source | RUN),
    }


@pytest.fixture(scope="module")
def two_workers(jobs, tmp_path_factory):
    """A function from a kind of job to the folder in which two workers have run it."""

    @functools.cache
    def run_two_workers(kind):
        folder = tmp_path_factory.mktemp("two_workers")
        workers.write_jobs(folder / "jobs.json", [(kind, jobs[kind], folder / kind)])
        command = [*LAUNCHER, "2", sys.executable, "-m", "tests.workers", str(folder / "jobs.json")]
        process = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        assert process.returncode == 0, process.stderr[-3000:]
        return folder

    return run_two_workers


def read_checkpoint(model_dir):
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(model_dir / "checkpoints")))
    names = [name for name in reader.get_variable_to_shape_map() if ".ATTRIBUTES/VARIABLE_VALUE" in name]
    return {name: reader.get_tensor(name) for name in names if "counter" not in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["text", pytest.param("image", marks=several_minutes), pytest.param("pretrain", marks=several_minutes)]
)
def test_two_workers_train_and_write_what_one_process_does(kind, jobs, two_workers, tmp_path):
    folder = two_workers(kind) / kind
    result = workers.run_job(kind, vars(jobs[kind]), str(tmp_path), distribution.create_strategy("one_device"))
    one, two = read_checkpoint(tmp_path), read_checkpoint(folder)
    assert one.keys() == two.keys() and len(one) > 5
    for name in one:
        # Batch-norm statistics over several replicas are sums of squares less the square of a sum.
        tolerance = {"atol": 1e-5, "rtol": 1e-3} if "moving_" in name else {"atol": 1e-6, "rtol": 1e-5}
        np.testing.assert_allclose(two[name], one[name], **tolerance, err_msg=name)
    found = json.loads((folder / "result.json").read_text())
    assert found["step"] == result["step"] and found.get("accuracy") == result.get("accuracy")
    names = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {path.name for path in folder.iterdir()}  # and no lock
    lines = [{**line} for line in run_dir.read_metrics(str(folder))]
    for line, expected in zip(lines, run_dir.read_metrics(str(tmp_path)), strict=True):
        assert line.keys() - {"examples_per_second_per_worker"} == expected.keys()
        for name in {"loss", "dev_accuracy", "dev_loss"} & expected.keys():
            assert line[name] == pytest.approx(expected[name], rel=1e-4)
        if "examples_per_second" in line:
            assert line["examples_per_second_per_worker"] == line["examples_per_second"] / 2
            assert 0 <= line["input_wait_ratio"] <= 1


@pytest.mark.slow
def test_workers_that_disagree_are_refused_each_with_the_same_message(two_workers):
    for index in range(2):
        report = json.loads((two_workers("text") / f"report-{index}.json").read_text())
        assert report["settings"] == (
            f"worker {index} of 2: the workers have different settings (here learning_rate={0.1 + index}): give the "
            "same command to all of them."
        )
        assert "see other checkpoints in model_dir=runs/mine, of steps [0, 1]: choose a folder of a" in report["step"]
        assert report["batch"] == "train_batch_size=7 cannot be divided among 2 replicas: use a multiple of 2."


# ---- faults ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Flags of a run of many tiny steps."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("features") / "features.npz"
    arrays = {"features": rng.normal(size=[16, 3]), "labels": np.arange(16) % 2, "unlabeled": rng.normal(size=[40, 3])}
    arrays |= {"test_features": arrays["features"], "test_labels": arrays["labels"]}
    np.savez(path, **arrays, augmented=arrays["unlabeled"] + 0.1)
    flags = {"recipe": "frozen", "task_name": "features", "features_file": path, "sup_size": 8, "do_train": True}
    flags |= {"train_batch_size": 4, "eval_batch_size": 8, "train_steps": 400, "save_steps": 20}
    return flags | {"log_steps": 20, "iterations": 2, "ema_decay": 0.9}


def arguments_of(flags, model_dir):
    return [f"--{name}={value}" for name, value in (flags | {"model_dir": model_dir}).items()]


def start_workers(flags, model_dir):
    command = [*LAUNCHER, "2", sys.executable, "-m", "text.main", *arguments_of(flags, model_dir)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for(path, process, seconds=400):
    deadline = time.monotonic() + seconds
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.exists(), process.stderr.read()


def processes_below(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"text.main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def undisturbed(features, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("undisturbed")
    run_main(text.main, *arguments_of(features, model_dir))
    return model_dir


def assert_continued_like(model_dir, features, undisturbed):
    run_main(text.main, *arguments_of(features, model_dir))
    one, other = read_checkpoint(model_dir), read_checkpoint(undisturbed)
    for name in other:
        np.testing.assert_allclose(one[name], other[name], atol=1e-5, rtol=1e-4, err_msg=name)
    steps = [[line["step"] for line in run_dir.read_metrics(str(folder))] for folder in (model_dir, undisturbed)]
    assert steps[0] == steps[1]


@several_minutes
@pytest.mark.slow
def test_sigterm_saves_the_same_step_on_all_workers_and_the_run_goes_on(features, undisturbed, tmp_path):
    process = start_workers(features, tmp_path)
    wait_for(tmp_path / "checkpoints/checkpoint", process)
    os.kill(processes_below(process)[1], signal.SIGTERM)  # one that is not the chief
    errors = process.communicate(timeout=600)[1]
    assert process.returncode == 143, errors
    assert errors.count("stopped: what is finished is kept, and the same command goes on from it.") == 2, errors
    assert_continued_like(tmp_path, features, undisturbed)


@several_minutes
@pytest.mark.slow
def test_a_killed_worker_ends_the_others_with_one_message_and_the_run_goes_on(features, undisturbed, tmp_path):
    process = start_workers(features, tmp_path)
    wait_for(tmp_path / "checkpoints/checkpoint", process)
    os.kill(processes_below(process)[1], signal.SIGKILL)
    errors = process.communicate(timeout=600)[1]
    assert process.returncode == 128 + signal.SIGKILL
    messages = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(messages) == 1 and "worker 0 of 2: another worker has ended (127.0.0.1:" in messages[0], errors
    assert messages[0].endswith("the same command goes on from the last checkpoint.")
    assert_continued_like(tmp_path, features, undisturbed)


# ---- clusters that cannot be ----------------------------------------------------------------------------------------

WORKERS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}


@pytest.mark.parametrize(
    "value, message",
    [
        ("{", r"TF_CONFIG is not valid JSON \(.*\): expected such as \{\"cluster\""),
        ("[]", r"TF_CONFIG=\[\]: expected such as"),
        ({"cluster": WORKERS}, "TF_CONFIG, task=None: expected which of the cluster this is"),
        ({"cluster": WORKERS, "task": {"type": "ps", "index": 0}}, "TF_CONFIG, task=.*: expected which of the cluster"),
        (
            {"cluster": WORKERS, "task": {"type": "worker"}},
            "TF_CONFIG, task index=None: expected a whole number below 2",
        ),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "task index=2: expected a whole number below 2"),
        ({"cluster": {"worker": ["host"]}, "task": {}}, "TF_CONFIG, cluster=.*: expected workers, and a chief at most"),
        ({"cluster": WORKERS | {"ps": ["host:1"]}, "task": {}}, "TF_CONFIG, cluster=.*: expected workers, and a chief"),
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "multi_worker"])
def test_a_wrong_tf_config_is_refused(value, message, strategy, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ValueError, match=message):
        distribution.create_strategy(strategy)


def test_a_strategy_of_several_workers_needs_a_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="strategy=multi_worker: no cluster is named. Set TF_CONFIG on every worker"):
        distribution.create_strategy("multi_worker")


@pytest.mark.parametrize(
    "value",
    ["", "{}", '{"cluster": {}}', '{"cluster": {"worker": ["host:1"]}, "task": {"type": "worker", "index": 0}}'],
)
def test_a_tf_config_of_one_process_changes_nothing(value, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", value)
    assert isinstance(distribution.create_strategy("auto"), tf.distribute.OneDeviceStrategy)


def test_a_worker_that_does_not_answer_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
    config = {"cluster": {"chief": addresses[:1], "worker": addresses[1:]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setenv(cluster.TIMEOUT, "0.3")
    message = f"worker 1 of 2: no answer from {addresses[0]} within 0.3 seconds. Start all workers"
    with pytest.raises(ValueError, match=message):
        distribution.create_strategy("auto")


def test_a_port_that_is_in_use_is_named(monkeypatch):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        task = cluster.Task(0, (f"localhost:{port}", "localhost:1"))
        with pytest.raises(ValueError, match=f"worker 0 of 2: port {port} of this machine cannot be used"):
            cluster.wait_for_workers(task, 0.3)


def test_the_launcher_wants_a_number_and_a_command():
    for arguments in ([], ["2"], ["two", "true"]):
        process = subprocess.run([*LAUNCHER, *arguments], capture_output=True, text=True)
        assert (process.returncode, process.stdout) == (1, "")
        assert process.stderr.startswith("error: expected the number of workers and a command")


def test_the_launcher_numbers_the_workers_and_gives_back_what_failed():
    command = 'echo $TF_CONFIG; [[ $TF_CONFIG != *"index\\": 1"* ]] || exit 7; sleep 1'
    # Within less than the minute for which the launcher would wait for the others: nothing of it is left behind.
    process = subprocess.run([*LAUNCHER, "2", "bash", "-c", command], capture_output=True, text=True, timeout=40)
    first, second = json.loads(process.stdout), json.loads(process.stderr.removeprefix("[worker 1] "))
    assert process.returncode == 7 and first["cluster"] == second["cluster"]
    assert len(set(first["cluster"]["worker"])) == 2 and (first["task"]["index"], second["task"]["index"]) == (0, 1)
