"""Work spread over processes: results in order, and only a few jobs read ahead of those that are done.

with start_processes(workers=8) as ordered_map:
    for result in ordered_map(count_words, blocks_of_a_large_file):
        ...
"""

import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import functools
import multiprocessing
import os
import threading


@contextlib.contextmanager
def start_processes(workers):
    """Gives a function like `map` that calls a function, which can be pickled, for each job in one of the processes.

    Args:
      workers: number of processes; with one, the work is done in this process. They start with their first job.
    """
    if workers <= 1:
        yield map
        return
    # Spawned, not forked: TensorFlow's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    executor = concurrent.futures.ProcessPoolExecutor(workers, context, _end_with_parent)
    try:
        yield functools.partial(_ordered_map, executor, workers)
    except concurrent.futures.process.BrokenProcessPool as error:
        raise ValueError(
            f"One of workers={workers} processes was ended from outside, perhaps for lack of memory. Use fewer "
            "--workers; the same command goes on from what is finished."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _ordered_map(executor, workers, function, jobs):
    pending = collections.deque()
    for job in jobs:
        if len(pending) >= 2 * workers:
            yield pending.popleft().result()
        pending.append(executor.submit(function, job))
    while pending:
        yield pending.popleft().result()


def _end_with_parent():
    """A killed parent cannot end its processes, which would wait for work forever: they watch it."""

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
