"""Translates a file of sentences, one per line, into another one.

python -m back_translate.translate --input_file=work/sentences.txt --output_file=work/french.txt \
    --model=back_translate/models/en_fr --sampling_temp=0.8 --seed=1

A process that was killed goes on after its last whole block when the same command is given again, and the result is the
same file as if it had never stopped. Lines without letters stay as they are.
"""

import contextlib
import functools
import hashlib
import itertools
import os
import sys
import time

from absl import flags
from tqdm import tqdm

from back_translate import engines, model_files, stage_files
from back_translate.protect import Protection, read_terms
from back_translate.split_paragraphs import has_letters
from utils import cli, files, work
from utils.settings import flag_values

FLAGS = flags.FLAGS


def translate_file(
    input_file, output_file, engine, model, sampling, protect="", original_file="", block_size=2048, ordered_map=None
):
    """Writes output_file, or goes on with it.

    Args:
      engine: a name of engines.ENGINES; model: the folder that it loads.
      sampling: dict with temperature, seed, batch_tokens, top_k and top_p; None for one of the last two, or its
        absence, is what the model recommends.
      protect: terms to keep, as protect.read_terms takes them; "" keeps nothing.
      original_file: sentences that those of input_file are translations of, which one that loses something protected
        falls back to; "": input_file.
      block_size: number of sentences that are translated and saved together.
      ordered_map: of utils.work.start_workers, to translate blocks elsewhere; None: one after the other, here.
    """
    if original_file and not protect:
        raise ValueError(f"original_file={original_file}: expected only together with --protect.")
    terms = read_terms(protect) if protect else None
    model_sha256 = sha256_of_folder(model)
    given = {name: value for name, value in sampling.items() if value is not None}
    sampling = model_files.read_sampling(model) | given
    settings = {
        "stage": "translate",
        "input_sha256": stage_files.sha256_of(input_file),
        "engine": engine,
        "model_sha256": model_sha256,
        **{name: value for name, value in sampling.items() if name != "batch_tokens"},
        "protect_sha256": hashlib.sha256("\n".join(terms).encode()).hexdigest() if protect else "",
        "original_sha256": stage_files.sha256_of(original_file) if original_file else "",
    }
    if stage_files.is_finished(output_file, settings):
        print(f"{output_file} is already complete.")
        return
    num_sentences = stage_files.count_lines(input_file)
    originals = read_originals(original_file, num_sentences)
    blocks = read_blocks(zip(stage_files.read_lines(input_file), originals), block_size)
    how = (engine, model, tuple(sampling.items()), terms and tuple(terms))
    write = append_blocks
    if ordered_map or files.is_remote(output_file):
        write = functools.partial(write_blocks, ordered_map=ordered_map or map)
    try:
        write(output_file, settings, blocks, how, block_size, num_sentences)
    finally:
        load_function.cache_clear()
    print(f"{output_file}: {num_sentences:,} sentences")


def read_blocks(pairs, block_size):
    """Yields lists of sentences and of their originals."""
    while block := list(itertools.islice(pairs, block_size)):
        yield tuple(map(list, zip(*block)))


def append_blocks(output_file, settings, blocks, how, block_size, num_sentences):
    """Translates here, and appends each block to the file."""
    translate = load_function(*how)
    with stage_files.create(output_file, settings, resume=True) as file:
        num_done = keep_whole_blocks(file, block_size)
        blocks = itertools.islice(blocks, num_done // block_size, None)
        for block in show_progress(blocks, len_of_block, num_done, num_sentences):
            file.writelines(f"{line}\n".encode() for line in translate(*block))
            stage_files.sync(file)


def write_blocks(output_file, settings, blocks, how, _block_size, num_sentences, ordered_map):
    """Translates anywhere, each block to a file of its own, and joins them: nothing can be appended there."""
    with stage_files.create_from_blocks(output_file, settings) as next_block:
        jobs = ((next_block(len_of_block(block)), block) for block in blocks)
        for _ in show_progress(ordered_map(functools.partial(translate_block, how), jobs), int, 0, num_sentences):
            pass


def translate_block(how, job):
    """Writes the file of a block, unless it is there. Returns the number of its sentences."""
    path, (sentences, originals) = job
    if not files.is_file(path):
        translations = load_function(*how)(sentences, originals)
        with files.replacing(path, "wb") as file:
            file.writelines(f"{line}\n".encode() for line in translations)
    return len(sentences)


@functools.lru_cache(maxsize=1)  # once in each process
def load_function(engine, model, sampling, terms):
    return create_function(engines.create_engine(engine, model, **dict(sampling)), terms)


def read_originals(original_file, num_sentences):
    """The lines of the file; without one, nothing for each sentence."""
    if not original_file:
        return itertools.repeat(None)
    found = stage_files.count_lines(original_file)
    if found != num_sentences:
        raise ValueError(
            f"original_file={original_file} has {found} lines, expected {num_sentences}: the sentences of which those "
            "of input_file are translations."
        )
    return stage_files.read_lines(original_file)


def sha256_of_folder(folder):
    """Of the names and contents of the files of a model."""
    if not files.is_folder(folder):
        raise ValueError(f"model={folder} is not a folder: expected one of back_translate.train or of CTranslate2.")
    digest = hashlib.sha256()
    for name in files.list_folder(folder):
        path = os.path.join(folder, name)
        if not files.is_folder(path):
            digest.update(f"{name}\n".encode() + bytes.fromhex(files.checksum(path)))
    return digest.hexdigest()


def keep_whole_blocks(file, block_size):
    """Cuts off what was written after the last whole block, and goes to the end. Returns the number of lines kept."""
    num_lines, whole_bytes, num_bytes = 0, 0, 0
    for line in file:
        num_bytes += len(line)
        if line.endswith(b"\n"):
            num_lines += 1
            if num_lines % block_size == 0:
                whole_bytes = num_bytes
    file.truncate(whole_bytes)
    file.seek(whole_bytes)
    return num_lines // block_size * block_size


# ---- sentences ------------------------------------------------------------------------------------------------------


def create_function(engine, terms):
    """A function of a list of sentences and a list of their originals that returns their translations."""

    translate = functools.partial(translate_letters, engine)
    if terms is None:
        return lambda sentences, originals: translate(sentences)
    protection = Protection(terms)
    return lambda sentences, originals: protection.translate(
        translate, sentences, originals if originals[0] is not None else None
    )


def translate_letters(engine, sentences):
    """Translates the sentences that have letters, and leaves the others as they are."""
    numbers = [number for number, sentence in enumerate(sentences) if has_letters(sentence)]
    translated = engine.translate([" ".join(sentences[number].split()) for number in numbers])
    results = list(sentences)
    for number, translation in zip(numbers, translated, strict=True):
        results[number] = as_line(translation)
    return results


def as_line(text):
    """A model may draw any character: here a line stays one line, and can be written as UTF-8."""
    return " ".join(text.split()).encode("utf-8", "replace").decode()


def len_of_block(block):
    return len(block[0])


def show_progress(blocks, count, start, num_sentences):
    """Yields the blocks; a bar on a terminal, else a line after each, tells sentences per second and the time left.

    Args:
      count: function from a block to the number of its sentences.
    """
    num_done, started = start, time.time()
    with tqdm(total=num_sentences, initial=start, unit="sentence", disable=None) as bar:
        for block in blocks:
            yield block
            num_done += count(block)
            bar.update(count(block))
            if bar.disable:
                speed = (num_done - start) / max(time.time() - started, 1e-9)
                left = tqdm.format_interval((num_sentences - num_done) / speed)
                done = f"{num_done:,}/{num_sentences:,} sentences"
                print(f"{done}  {speed:.1f} sentences/s  {left} left", file=sys.stderr, flush=True)


def define_flags():
    flags.DEFINE_string("input_file", None, "Sentences, one per line.", required=True)
    flags.DEFINE_string("output_file", None, "Where their translations go.", required=True)
    flags.DEFINE_enum("engine", "tensorflow", list(engines.ENGINES), "What translates.")
    flags.DEFINE_string("model", "back_translate/models/en_fr", "Folder of the translation model.")
    flags.DEFINE_float("sampling_temp", 0.8, "0: the most probable translation; 1: as diverse as the model is.")
    flags.DEFINE_integer("seed", 0, "Seed of the sampling.", lower_bound=0)
    flags.DEFINE_integer(
        "top_k",
        None,
        "Draw from so many most probable subwords; 0: from all. Default: as the model's config.json says, else 0.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "top_p",
        None,
        "Draw from the fewest subwords that together are at least so probable; 1: from all. Default: as the model's "
        "config.json says, else 1.",
    )
    flags.DEFINE_integer("batch_tokens", 8192, "About how many subwords are translated together.", lower_bound=1)
    flags.DEFINE_integer("block_size", 2048, "Sentences that are translated and saved together.", lower_bound=1)
    flags.DEFINE_string(
        "protect",
        "",
        "Terms to keep, with all numbers and URLs: a file, one per line, or a list joined by commas. The word numbers "
        "alone keeps numbers and URLs only.",
    )
    flags.DEFINE_string(
        "original_file",
        "",
        "With protect: the sentences that those of input_file are translations of, to fall back to.",
    )

    flags.DEFINE_enum("runner", "local", ["local", "beam"], "beam: translate the blocks on Apache Beam.")
    flags.DEFINE_string("beam_args", "", "beam: its own flags, such as --runner=DaskRunner, in quotes.")


def main():
    work.check_runner(FLAGS.runner, FLAGS.beam_args)
    sampling = {"temperature": FLAGS.sampling_temp, **flag_values("seed", "top_k", "top_p", "batch_tokens")}
    names = "input_file", "output_file", "engine", "model", "protect", "original_file", "block_size"
    with contextlib.ExitStack() as stack:
        ordered_map = None
        if FLAGS.runner == "beam":
            folder = os.path.dirname(FLAGS.output_file)
            ordered_map = stack.enter_context(work.start_workers(folder, **flag_values("runner", "beam_args")))
        translate_file(sampling=sampling, ordered_map=ordered_map, **flag_values(*names))


if __name__ == "__main__":
    cli.run(main, define_flags)
