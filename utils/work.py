"""Work spread over processes: results in order, and only a few jobs read ahead of those that are done.

for result in ordered_map(count_words, blocks_of_a_large_file, workers=8, create_state=load_dictionary):
    ...
"""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
import threading

_state = None  # of this process


def ordered_map(function, jobs, workers, create_state):
    """Yields function(state, job) for each job, in the order of the jobs.

    Args:
      function, create_state: can be pickled; create_state() is called once in each process.
      jobs: an iterable; no more than 2 · workers of its jobs wait in memory at a time.
      workers: number of processes; with one, the work is done in this process.
    """
    if workers <= 1:
        state = create_state()
        for job in jobs:
            yield function(state, job)
        return
    # Spawned, not forked: TensorFlow's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    executor = concurrent.futures.ProcessPoolExecutor(workers, context, _start_process, (create_state,))
    pending = collections.deque()
    try:
        for job in jobs:
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
            pending.append(executor.submit(_call, function, job))
        while pending:
            yield pending.popleft().result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise ValueError(
            f"One of workers={workers} processes was ended from outside, perhaps for lack of memory. Use fewer "
            "--workers; the same command goes on from what is finished."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _start_process(create_state):
    # A killed parent cannot end its processes, which would wait for work forever.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    global _state
    _state = create_state()


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function, job):
    return function(_state, job)
