"""Work on Apache Beam: what utils/work.py does with the processes of a machine, on any of Beam's runners.

with start("--runner=DaskRunner --dask_client_address=tcp://host:8786", "gs://bucket/data") as ordered_map:
    for result in ordered_map(count_words, blocks_of_a_large_file):
        ...

Jobs may be large, and what a runner takes along with a pipeline has to be small (Dataflow: some megabytes). So each job
is a file in a folder that all machines reach, the elements of the pipeline are their numbers, and results are files.
These files are pickles, as what Beam itself sends: docs/security.md.
"""

import contextlib
import functools
import importlib
import logging
import operator
import os
import pickle
import shlex
import sys
import types
import uuid

from utils import files

INSTALL = "pip install --no-deps -r requirements-beam.txt"
DASK_PARTS = ("--dask_npartitions", "--dask_partition_size")
FULL_NAMES = {"DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner"}  # Beam knows no short name of it
# What a runner imports only when it runs.
NEEDED = {"DaskRunner": "dask.distributed", "DataflowRunner": "apache_beam.runners.dataflow.internal.apiclient"}


def create_options(beam_args):
    """Beam's options, and the runner that they name, which has to be there.

    Args:
      beam_args: arguments as on a command line.
    """
    beam = import_beam()
    try:
        arguments = shlex.split(beam_args)
        if "dask" in beam_args.lower() and not any(argument.startswith(DASK_PARTS) for argument in arguments):
            arguments.append("--dask_partition_size=1")  # Beam would give 128 jobs to one worker
        options = beam.options.pipeline_options.PipelineOptions(arguments)
        options.get_all_options()  # reads them all, which Beam would do later
        name = options.view_as(beam.options.pipeline_options.StandardOptions).runner
        runner = beam.runners.runner.create_runner(FULL_NAMES.get(name, name or "DirectRunner"))
        importlib.import_module(NEEDED.get(type(runner).__name__, "apache_beam"))
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"beam_args={beam_args!r}: the runner is unknown or not installed, or a flag cannot be read ({reason}). "
            "Expected --runner=DirectRunner, DaskRunner, FlinkRunner, DataflowRunner or another, and what it needs; "
            "see docs/beam.md."
        ) from error
    except SystemExit as error:  # of the parser of arguments, which has printed why
        raise ValueError(f"beam_args={beam_args!r} cannot be read: expected flags of Beam's runners.") from error
    return options, runner


def import_beam():
    logging.disable(logging.WARNING)  # on parts of Beam that are not installed, and not needed
    try:
        import apache_beam
        import apache_beam.options.pipeline_options
        import apache_beam.runners.runner
    except ImportError as error:
        raise ValueError(f"runner=beam: Apache Beam is not installed ({error}). Run: {INSTALL}") from error
    finally:
        logging.disable(logging.NOTSET)
    return apache_beam


@contextlib.contextmanager
def start(beam_args, folder):
    """Gives a BeamMap.

    Args:
      folder: where jobs and results are kept as long as it lasts; workers on other machines have to reach it, too.
    """
    options, runner = create_options(beam_args)
    folder = os.path.join(files.absolute(folder), f"beam.tmp-{uuid.uuid4().hex}")
    try:
        yield BeamMap(options, runner, folder)
    finally:
        if files.is_folder(folder):
            files.remove_folder(folder)


class BeamMap:
    """A function like `map`: each call is a pipeline whose elements are the jobs. Results come when all are done."""

    def __init__(self, options, runner, folder):
        self.options, self.runner, self.folder, self.num_calls = options, runner, folder, 0

    def __call__(self, function, jobs):
        """Yields function(job) for each job, in their order."""
        call_dir, count = self._stage(function, jobs)
        self._run(count, lambda numbers, beam: numbers | "Work" >> beam.Map(write_result, call_dir))
        for number in range(count):
            yield _value_of(_read(call_dir, "result", number))

    def combine(self, function, jobs, merge):
        """Returns what `merge`, a function of a list of results in any order, makes of all function(job)."""
        call_dir, count = self._stage(function, jobs)

        def build(numbers, beam):
            results = numbers | "Work" >> beam.Map(compute, call_dir)
            merge_all = beam.CombineGlobally(functools.partial(merge_results, merge)).without_defaults()
            return results | "Combine" >> merge_all | "Write" >> beam.Map(write_combined, call_dir)

        self._run(count, build)
        return _value_of(_read(call_dir, "combined", 0)) if count else merge([])

    def _stage(self, function, jobs):
        """Writes the files of all jobs. Returns their folder and their number."""
        self.num_calls += 1
        call_dir, count = os.path.join(self.folder, str(self.num_calls)), 0
        files.make_folder(call_dir)
        _write(call_dir, "function", 0, function)
        for job in jobs:
            _write(call_dir, "job", count, job)
            count += 1
        return call_dir, count

    def _run(self, count, build):
        """Runs the pipeline that `build` makes of the numbers of the jobs, and waits for its end."""
        if not count:
            return
        beam = import_beam()
        pipeline = beam.Pipeline(runner=self.runner, options=self.options)
        build(pipeline | beam.Create(list(range(count))) | beam.Reshuffle(), beam)
        result = pipeline.run()
        try:
            result.wait_until_finish()
        finally:
            if hasattr(result, "client"):  # of Dask, which nobody else closes
                result.client.close()


# ---- on the workers -------------------------------------------------------------------------------------------------


def write_result(number, call_dir):
    """Does a job and writes its result; a job that is done again, since its worker was lost, has the same one."""
    _write(call_dir, "result", number, compute(number, call_dir))
    return number


def compute(number, call_dir):
    """Returns (result, "") or, for errors that tell a user what to do, (None, the message)."""
    try:
        return load_function(call_dir)(_read(call_dir, "job", number)), ""
    except (ValueError, *files.file_errors()) as error:
        return None, str(error) or type(error).__name__


@functools.lru_cache(maxsize=1)  # once in each process
def load_function(call_dir):
    return _read(call_dir, "function", 0)


def merge_results(merge, results):
    """Merges what `compute` returned, of which some may be errors; Beam calls it again with what came of it."""
    results = list(results)
    failed = [result for result in results if result[1]]
    return failed[0] if failed else (merge([value for value, _ in results]), "")


def write_combined(result, call_dir):
    _write(call_dir, "combined", 0, result)


def _value_of(result):
    value, message = result
    if message:
        raise ValueError(message)
    return value


def _write(folder, kind, number, value):
    with files.replacing(os.path.join(folder, f"{kind}-{number:08d}"), "wb") as file:
        _Pickler(file).dump(value)


class _Pickler(pickle.Pickler):
    """Names what is defined in the program itself, which is __main__ here alone, by its module."""

    def reducer_override(self, value):
        program = getattr(sys.modules["__main__"], "__spec__", None)
        if program and isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            return _import, (program.name, value.__qualname__)
        return NotImplemented


def _import(module, name):
    return operator.attrgetter(name)(importlib.import_module(module))


def _read(folder, kind, number):
    return pickle.loads(files.read_bytes(os.path.join(folder, f"{kind}-{number:08d}")))
