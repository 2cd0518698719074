"""The engine of preprocessing: plans of sets of records, jobs of one shard each, and the processes that write them.

    plans = [SetPlan("data/test", examples, num_examples=len(examples), settings={...}, content=...), ...]
    with work.start_processes(workers=8) as ordered_map:
        write_sets(plans, common_settings, encode_shard, read_inputs, ordered_map)

Records depend on the plans alone, not on who writes them: processes of one machine, workers of a Beam cluster, or
several machines (replicas) with a common folder. What is finished is kept, and a stopped run is taken up by the same
call.
"""

import collections
import functools
import itertools
from typing import Any, NamedTuple

from tqdm import tqdm

from utils import records

SHARD_SIZE = 4096
SETS_PER_JOB = 8  # sets of the same examples that share what one process reads and computes


class SetPlan(NamedTuple):
    """A set of records to write."""

    set_dir: str
    examples: Any  # which examples it is made of; plans that follow each other with the same object share their jobs
    num_examples: int
    settings: dict  # all that determines the content, beside the settings common to all sets
    content: Any  # what is made of the examples; is sent to the processes, so it is small
    shard_size: int = 0  # examples in a shard; 0: SHARD_SIZE

    @property
    def num_shards(self):
        return -(-self.num_examples // (self.shard_size or SHARD_SIZE))


class Job(NamedTuple):
    """The same shard of some sets of the same examples: the unit of work, and of what a kill can lose."""

    shard: int
    plans: list


def write_sets(plans, common_settings, encode_shard, read_inputs, ordered_map=map, replicas=1, worker_id=0, **advice):
    """Writes all planned sets, or this replica's share of their shards.

    Args:
      encode_shard: a function (shard, inputs, counts), which can be pickled, that returns a function from a plan's
        content to the serialised examples of that shard. To `counts`, a Counter, both may add what is returned in sum.
      read_inputs: a function (examples, shards) → an iterator of inputs for these shards, which ascend; it is used in
        this process. Inputs can be pickled.
      ordered_map: of work.start_workers.
      advice: see records.begin_set.

    Returns:
      The sum of all counts.
    """
    plans = list(plans)
    # Every replica counts all shards, whatever is written already: so their shares fit together whenever they start.
    jobs = list(split_into_jobs(plans))[worker_id::replicas]
    plans = [plan for plan in plans if records.begin_set(plan.set_dir, common_settings | plan.settings, **advice)]
    jobs = _keep_unfinished(jobs, {plan.set_dir for plan in plans})
    left, counts = collections.Counter(plan.set_dir for job in jobs for plan in job.plans), collections.Counter()
    results = ordered_map(functools.partial(_write_job, encode_shard), _with_inputs(jobs, read_inputs))
    for job, counts_of_job in tqdm(zip(jobs, results), "writing", len(jobs), unit="shard", disable=not jobs):
        counts += counts_of_job
        for plan in job.plans:
            left[plan.set_dir] -= 1
            if not left[plan.set_dir]:  # each set can be used as soon as it is whole
                records.finish_set(plan.set_dir, plan.num_shards)
    unfinished = [plan for plan in plans if not records.finish_set(plan.set_dir, plan.num_shards)]
    if unfinished:
        print(f"{len(unfinished)} sets wait for shards of other workers (replicas={replicas}).")
    return counts


def split_into_jobs(plans):
    """All shards of all sets, those of the same examples together."""
    for _, group in itertools.groupby(plans, lambda plan: id(plan.examples)):
        group = list(group)
        for shard in range(group[0].num_shards):
            for start in range(0, len(group), SETS_PER_JOB):
                yield Job(shard, group[start : start + SETS_PER_JOB])


def _keep_unfinished(jobs, set_dirs):
    jobs = [Job(job.shard, [plan for plan in job.plans if plan.set_dir in set_dirs]) for job in jobs]
    return [job for job in jobs if job.plans]


def _with_inputs(jobs, read_inputs):
    """Yields what a process needs of each job: shard, number of shards, [(set_dir, content)], inputs."""
    for _, group in itertools.groupby(jobs, lambda job: id(job.plans[0].examples)):
        group = list(group)
        shards = list(dict.fromkeys(job.shard for job in group))
        inputs = zip(shards, read_inputs(group[0].plans[0].examples, shards))
        for (_, inputs_of_shard), (_, jobs_of_shard) in zip(inputs, itertools.groupby(group, lambda job: job.shard)):
            for job in jobs_of_shard:
                sets = [(plan.set_dir, plan.content) for plan in job.plans]
                yield job.shard, job.plans[0].num_shards, sets, inputs_of_shard


def _write_job(encode_shard, job):
    shard, num_shards, sets, inputs = job
    counts = collections.Counter()
    encode = encode_shard(shard, inputs, counts)
    for set_dir, content in sets:
        records.write_shard(set_dir, shard, num_shards, functools.partial(encode, content))
    return counts
