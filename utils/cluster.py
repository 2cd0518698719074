"""Several workers, one training: who takes part, who writes, and what all of them have to agree on.

    strategy = create_strategy()      # from TF_CONFIG, or from Slurm within a step of srun
    gather(strategy, [7])             # [[7], [7]]: what each worker gives

Every worker makes the same calls in the same order; docs/scaling.md tells how they are started, and how they end.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import signal
import socket
import tempfile
import threading
import time

import tensorflow as tf

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
TIMEOUT = "UDA_CLUSTER_TIMEOUT"  # an environment variable: for how many seconds a worker waits for the others
MAX_SETTINGS = 256
PER_MACHINE = ("data_dir", "verify_records")  # settings that may differ from worker to worker

# How TensorFlow tells that another worker is gone.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError)
LOST += (tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.UnknownError)


@dataclasses.dataclass(frozen=True)
class Task:
    """The part of this process in a cluster; the first address is that of the chief."""

    index: int = 0
    addresses: tuple = ("",)

    @property
    def is_chief(self):
        return self.index == 0

    def __str__(self):
        return f"worker {self.index} of {len(self.addresses)}"


_task = Task()


def current_task():
    """TensorFlow lets a process be part of one cluster, once."""
    return _task


# ---- who takes part -------------------------------------------------------------------------------------------------


def is_named():
    """Whether TF_CONFIG names a cluster of several workers."""
    task = read_tf_config()
    return task is not None and len(task.addresses) > 1


def read_tf_config():
    """The Task that TF_CONFIG describes, or None if it names no cluster."""
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"TF_CONFIG is not valid JSON ({error}): expected such as {EXAMPLE}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("cluster", {}), dict):
        raise ValueError(f"TF_CONFIG={text[:200]}: expected such as {EXAMPLE}.")
    if not values.get("cluster"):
        return None
    return _check_task(values["cluster"], values.get("task"))


def _check_task(cluster, task):
    unknown = sorted(cluster.keys() - {"chief", "worker"})
    addresses = [address for job in ("chief", "worker") for address in cluster.get(job, [])]
    if unknown or not all(isinstance(address, str) and re.search(r".:\d+$", address) for address in addresses):
        raise ValueError(f"TF_CONFIG, cluster={cluster}: expected workers, and a chief at most, such as {EXAMPLE}.")
    if not isinstance(task, dict) or task.get("type") not in cluster:
        raise ValueError(f"TF_CONFIG, task={task}: expected which of the cluster this is, such as {EXAMPLE}.")
    count, index = len(cluster[task["type"]]), task.get("index")
    if type(index) is not int or not 0 <= index < count:
        raise ValueError(f"TF_CONFIG, task index={index!r}: expected a whole number below {count}, another for each.")
    return Task(index + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0), tuple(addresses))


def create_strategy():
    """Waits for all workers, and connects them."""
    global _task
    task, resolver = read_tf_config(), tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task is None:
        task, resolver = _ask_slurm()
    wait_for_workers(task, float(os.environ.get(TIMEOUT, 300)))
    _task = task
    tf.get_logger().setLevel("ERROR")  # its warnings on the order of reductions are not for users
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except RuntimeError as error:  # it had been used before
        raise ValueError(f"strategy=multi_worker has to be the first that is asked of TensorFlow ({error}).") from error
    if threading.current_thread() is threading.main_thread():  # TensorFlow takes this signal for itself
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
    return strategy


def _ask_slurm():
    if "SLURM_STEP_NUM_TASKS" not in os.environ or "SLURM_PROCID" not in os.environ:
        raise ValueError(
            "strategy=multi_worker: no cluster is named. Set TF_CONFIG on every worker, as scripts/launch_workers.sh "
            "does, or start them with Slurm's srun."
        )
    num_tasks, options = int(os.environ["SLURM_STEP_NUM_TASKS"]), {}
    if not tf.config.list_physical_devices("GPU"):  # without GPUs the resolver would divide by their number
        options = {"gpus_per_node": num_tasks, "gpus_per_task": 1, "auto_set_gpu": False}
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=_slurm_port(), **options)
    addresses = tuple(resolver.cluster_spec().as_dict()["worker"])
    return Task(int(os.environ["SLURM_PROCID"]), addresses), resolver


def _slurm_port():
    """Jobs that share a node must not share ports."""
    return 20_000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 400 * 32


def wait_for_workers(task, seconds):
    """Returns when all workers have been there. TensorFlow itself would wait for an hour, deaf to Ctrl-C."""
    silent, deadline = set(task.addresses) - {task.addresses[task.index]}, time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        if silent:
            stack.enter_context(_listen(task))
        while silent:
            silent = {address for address in silent if not _answers(address)}
            if silent and time.monotonic() > deadline:
                raise ValueError(
                    f"{task}: no answer from {', '.join(sorted(silent))} within {seconds:g} seconds. Start all workers "
                    f"that TF_CONFIG names; {TIMEOUT} is for how many seconds each waits for the others."
                )
            time.sleep(0.1 * bool(silent))


def _listen(task):
    """A socket at the port of this worker, which answers the others until TensorFlow does."""
    port = int(task.addresses[task.index].rpartition(":")[2])
    try:
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise ValueError(f"{task}: port {port} of this machine cannot be used ({error}): choose another.") from error


def _answers(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


# ---- what all agree on ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _create_gather(strategy):
    @tf.function(reduce_retracing=True, autograph=False)
    def gather_tensor(numbers):
        replica = tf.distribute.get_replica_context
        return strategy.run(lambda: replica().all_gather(numbers[tf.newaxis], axis=0))

    return gather_tensor


def gather(strategy, numbers):
    """What each worker gives, as a list of lists of whole numbers; all of them have to call it, and wait for it."""
    num_workers = len(_task.addresses)
    if num_workers == 1:
        return [list(numbers)]
    of_replicas = _create_gather(strategy)(tf.constant(numbers, tf.int64))
    rows = strategy.experimental_local_results(of_replicas)[0].numpy().tolist()
    return rows[:: len(rows) // num_workers]


def wait_for_all(strategy):
    gather(strategy, [0])


def check_settings(strategy, config):
    """Refuses workers with other settings, before they could wait for each other without end."""
    fields = [field.name for field in dataclasses.fields(config) if field.name not in PER_MACHINE]
    checksums = [_checksum(f"{name}={getattr(config, name)!r}") for name in fields]
    rows = gather(strategy, checksums + [0] * (MAX_SETTINGS - len(checksums)))
    different = [name for name, values in zip(fields, zip(*rows)) if len(set(values)) > 1]
    if different or len({tuple(row) for row in rows}) > 1:
        values = ", ".join(f"{name}={getattr(config, name)!r}" for name in different)
        raise ValueError(
            f"{_task}: the workers have different settings (here {values}): give the same command to all of them."
        )


def _checksum(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def check_step(strategy, step, model_dir):
    """Refuses workers that see other checkpoints."""
    steps = [row[0] for row in gather(strategy, [step])]
    if len(set(steps)) > 1:
        raise ValueError(
            f"{_task}: the workers see other checkpoints in model_dir={model_dir}, of steps {steps}: choose a folder "
            "of a file system that all machines share."
        )


@contextlib.contextmanager
def chief_first(strategy):
    """The chief passes through the block alone, then the others do, and find its work done."""
    if not _task.is_chief:
        wait_for_all(strategy)
    yield
    if _task.is_chief:
        wait_for_all(strategy)


# ---- who writes, and how it ends ------------------------------------------------------------------------------------


@contextlib.contextmanager
def folder_to_write(model_dir):
    """The chief writes to model_dir; others to a folder that is removed, since saving takes all of them."""
    if _task.is_chief:
        yield model_dir
        return
    with tempfile.TemporaryDirectory(prefix=f"worker-{_task.index}-") as folder:
        _written[folder] = model_dir
        try:
            yield folder
        finally:
            del _written[folder]


_written = {}  # a folder of a worker: the model_dir for which it stands


def folder_to_read(folder):
    """Where the chief's files are, of which `folder` may be a worker's own counterpart."""
    for own_dir, model_dir in _written.items():
        if folder == own_dir or folder.startswith(own_dir + os.sep):
            return model_dir + folder[len(own_dir) :]
    return folder


@contextlib.contextmanager
def explain_loss():
    """Makes one message of the errors that come when another worker has ended."""
    try:
        yield
    except LOST as error:
        if len(_task.addresses) == 1:
            raise
        others = [address for index, address in enumerate(_task.addresses) if index != _task.index]
        silent = [address for address in others if not _answers(address)]
        reason = " ".join(str(error).split())[-200:]
        raise ValueError(
            f"{_task}: another worker has ended ({', '.join(silent) or 'none is silent'}; {reason}). Its own output "
            "says why. Start all of them again: the same command goes on from the last checkpoint."
        ) from error
