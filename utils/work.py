"""Work spread over processes, or a cluster: results in order.

with start_processes(workers=8) as ordered_map:     # only a few jobs are read ahead of those that are done
    for result in ordered_map(count_words, blocks_of_a_large_file):
        ...
"""

import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import threading

from utils import beam


def start_workers(folder, workers=1, runner="local", beam_args=""):
    """What WorkConfig asks for: start_processes or, with runner="beam", utils.beam.start."""
    return beam.start(beam_args, folder) if runner == "beam" else start_processes(workers)


def check_runner(runner, beam_args):
    """Raises ValueError before any work is done, if what should do it is not installed."""
    if runner == "beam":
        beam.create_options(beam_args)
    elif beam_args:
        raise ValueError(f"beam_args={beam_args!r}: expected only together with --runner=beam.")


@contextlib.contextmanager
def start_processes(workers):
    """Gives a function like `map` that calls a function, which can be pickled, for each job in one of the processes.

    Args:
      workers: number of processes; with one, the work is done in this process. They start with their first jobs,
        and where a call has one job only, it is done in this process, too.
    """
    if workers <= 1:
        yield map
        return
    # Spawned, not forked: TensorFlow's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    executor = concurrent.futures.ProcessPoolExecutor(workers, context, _end_with_parent)
    others = set(multiprocessing.active_children())
    try:
        yield functools.partial(_ordered_map, executor, workers)
    except concurrent.futures.process.BrokenProcessPool as error:
        raise ValueError(
            f"One of workers={workers} processes was ended from outside, perhaps for lack of memory. Use fewer "
            "--workers; the same command goes on from what is finished."
        ) from error
    except KeyboardInterrupt:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # what they are at is not waited for
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _ordered_map(executor, workers, function, jobs):
    jobs, pending = iter(jobs), collections.deque()
    first_jobs = list(itertools.islice(jobs, 2))
    if len(first_jobs) < 2:  # one alone is done before a process would have started
        yield from map(function, first_jobs)
        return
    for job in itertools.chain(first_jobs, jobs):
        if len(pending) >= 2 * workers:
            yield pending.popleft().result()
        with _ignoring_ctrl_c():
            pending.append(executor.submit(function, job))
    while pending:
        yield pending.popleft().result()


@contextlib.contextmanager
def _ignoring_ctrl_c():
    """Processes that start in the block never see Ctrl-C: this one does, and they end with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent():
    """A killed parent cannot end its processes, which would wait for work forever: they watch it."""

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
