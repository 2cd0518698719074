"""back_translate/run.sh and download.sh, run as a user runs them, in a folder whose environment is this Python's."""

import hashlib
import http.server
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from augmentation.back_translation import open_paraphrases, paraphrase_path
from tests.back_translate.small_translation import write_model
from tests.text import small_data
from text import preprocess
from text.config import PreprocessConfig
from text.datasets import lists

ROOT = Path(__file__).parents[2]
# Stands for back_translate.translate where only the course of the stages matters: each sentence gets the seed in front.
TRANSLATE = """
import sys
sys.path.insert(0, {root!r})
from back_translate import stage_files
flags = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
print("asked:", *sys.argv[1:])
if not stage_files.is_finished(flags["output_file"], {{"seed": flags["seed"]}}):
    with stage_files.create(flags["output_file"], {{"seed": flags["seed"]}}) as file:
        for line in stage_files.read_lines(flags["input_file"]):
            file.write(f"{{flags['seed']}}-{{line}}\\n".encode())
"""


@pytest.fixture
def project(tmp_path):
    """A clone without .venv: the setup only puts a `python` into the PATH, in which translating costs nothing."""
    root = tmp_path / "clone"
    (root / "scripts").mkdir(parents=True)
    (root / "bin").mkdir()
    for name in ("back_translate", "utils"):
        (root / name).symlink_to(ROOT / name)
    (root / "scripts/lib_setup.sh").write_text('export PATH="$PWD/bin:$PATH"\n')
    (root / "scripts/lib_download.sh").symlink_to(ROOT / "scripts/lib_download.sh")
    (root / "translate.py").write_text(TRANSLATE.format(root=str(ROOT)))
    use_python(root, f'[[ $2 != back_translate.translate ]] || exec {sys.executable} {root}/translate.py "${{@:3}}"')
    return root


def use_python(root, first):
    (root / "bin/python").write_text(f'#!/usr/bin/env bash\n{first}\nexec {sys.executable} "$@"\n')
    (root / "bin/python").chmod(0o755)


def run(project, *options, folder=None):
    command = ["bash", str(project / "back_translate/run.sh"), *options]
    return subprocess.run(command, cwd=folder or project.parent, capture_output=True, text=True)


def seeds_in(output):
    return [int(seed) for seed in re.findall(r"^asked: .*--seed=(\d+)", output, re.MULTILINE)]


# ---- run.sh ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_workers_and_two_copies_give_what_one_worker_gives(project, tmp_path):
    lines = ["One. Two!", "", "10/10", "Three. Four.", "Five."]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    options = ["--input_file=in.txt", "--copies=2", "--sampling_temp=0.9", "--sentence_splitter=rules"]
    result = run(project, *options, "--output_dir=one")
    assert result.returncode == 0, result.stderr
    seeds = seeds_in(result.stdout)
    assert len(set(seeds)) == len(seeds) == 4  # two directions of two copies
    paths = [paraphrase_path("one", "unsup_in", 0.9, copy) for copy in range(2)]
    # What training reads, and where it looks for it.
    paraphrases = [open_paraphrases(str(tmp_path / path), num_texts=5).read(0, 5) for path in paths]
    assert paraphrases[0][0] == f"{seeds[1]}-{seeds[0]}-One. {seeds[1]}-{seeds[0]}-Two!"
    assert paraphrases[1][4] == f"{seeds[3]}-{seeds[2]}-Five."
    assert paraphrases[0][1] == ""
    assert "  One. Two!\n→ " in result.stdout  # originals beside paraphrases
    assert (tmp_path / "one/unsup_in/sample_0.9/report.html").exists()
    for worker_id in (2, 0, 1):
        result = run(project, *options, "--output_dir=three", "--replicas=3", f"--worker_id={worker_id}")
        assert result.returncode == 0, result.stderr
        assert ("waits for the workers" in result.stdout) == (worker_id != 1)
    for path in paths:
        other = path.replace("one/", "three/")
        assert (tmp_path / other).read_bytes() == (tmp_path / path).read_bytes()


def test_finished_stages_are_kept_and_another_seed_is_not_mixed_in(project, tmp_path):
    (tmp_path / "in.txt").write_text("One. Two.\n")
    options = ["--input_file=in.txt", "--output_dir=out"]
    assert run(project, *options).returncode == 0
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.txt")}
    result = run(project, *options)
    assert result.returncode == 0
    assert result.stdout.count("is already complete") == 2  # split and join; translating is replaced here
    assert {path: path.stat().st_mtime_ns for path in files} == files
    result = run(project, *options, "--seed=1")
    assert result.returncode != 0
    assert "was made with other settings (seed: was '0', now '2000')" in result.stderr


def test_protected_terms_are_given_to_both_directions_and_originals_to_the_second(project, tmp_path):
    (tmp_path / "in.txt").write_text("One.\n")
    (tmp_path / "terms").write_text("Acme\n")
    result = run(project, "--input_file=in.txt", "--output_dir=out", "--protect=terms")
    asked = [line for line in result.stdout.splitlines() if line.startswith("asked:")]
    assert all(f"--protect={tmp_path}/terms" in line for line in asked) and len(asked) == 2
    assert (
        "--original_file= " not in asked[1]
        and "/split/sentences-00000-of-00001.txt" in asked[1].split("original_file=")[1]
    )


def test_sampling_is_left_to_the_models_unless_it_is_given(project, tmp_path):
    (tmp_path / "in.txt").write_text("One.\n")
    result = run(project, "--input_file=in.txt", "--output_dir=open")
    assert result.stdout.count("asked:") == 2 and "--top" not in result.stdout
    result = run(project, "--input_file=in.txt", "--output_dir=pure", "--top_k=0", "--top_p=1")
    assert result.stdout.count("--top_k=0 --top_p=1 ") == 2


BAD_OPTIONS = {
    "unknown option --sampling_temperature=0.8": ["--sampling_temperature=0.8"],
    "unknown option in.txt: expected --name=value": ["in.txt"],
    "sampling_temp=0.85: expected at most one decimal": ["--sampling_temp=0.85"],
    "copies=0: expected 1 to 1000": ["--copies=0"],
    "seed=x: expected a whole number": ["--seed=x"],
    "model=one: expected two folders joined by a comma": ["--model=one"],
    "is not a file: expected a text file": ["--input_file=none.txt"],
    "replicas=3: the file has only 2 lines": ["--input_file=two.txt", "--replicas=3"],
    "worker_id=2: expected 0 to 1": ["--input_file=two.txt", "--replicas=2", "--worker_id=2"],
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_bad_options_end_the_run_with_a_message(project, tmp_path, message):
    (tmp_path / "two.txt").write_text("One.\nTwo.\n")
    result = run(project, "--output_dir=out", *BAD_OPTIONS[message])
    assert result.returncode != 0
    assert message in result.stderr
    assert "asked:" not in result.stdout


@pytest.mark.slow
def test_texts_are_exported_paraphrased_and_read_by_the_preprocessing(project, tmp_path):
    """From a user's texts to records; the first translation is made by a real model."""
    translate_back = f'{sys.executable} {project}/translate.py "${{@:3}}"'
    use_python(
        project, f'[[ $2 != back_translate.translate || "$*" != *--model={tmp_path}/back* ]] || exec {translate_back}'
    )
    small_data.write_vocab(tmp_path / "vocab.txt")
    texts = ["The cat sat on the mat.\nIt was the best film of all.", "10/10!", "Tom has 25 dogs, and I have none."]
    source = lists.create_source("csv", ["no", "yes"], (texts, [0, 1, 0]))
    preprocess.export_texts(source, str(tmp_path / "texts.txt"))
    models = f"--model={write_model(tmp_path / 'there')},{tmp_path}/back"
    result = run(project, "--input_file=texts.txt", "--output_dir=bt", models, "--sampling_temp=0.8")
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "bt/unsup_in/sample_0.8/para/para_0.txt").read_text(encoding="utf-8").split("\n")
    assert len(lines) == 4 and lines[1] == "1-10/10!" and lines[0].startswith("1-") and "cat sat" not in lines[0]
    paths = {"data_dir": str(tmp_path / "out"), "vocab_file": str(tmp_path / "vocab.txt")}
    paths["back_translation_dir"] = str(tmp_path / "bt")
    config = PreprocessConfig(task_name="csv", data_type="unsup", aug_ops="bt-0.8", workers=1, **paths)
    preprocess.write_records(config, source)
    assert (tmp_path / "out/unsup/bt-0.8/copy-000/info.json").exists()


def test_the_example_file_is_of_short_english_paragraphs():
    lines = (ROOT / "back_translate/example.txt").read_text().splitlines()
    assert 20 <= len(lines) <= 30 and len(set(lines)) == len(lines)
    assert all(line.isascii() and 20 < len(line) < 120 for line in lines)


@pytest.mark.parametrize("name", ["run.sh", "download.sh"])
def test_scripts_start_safely(name):
    text = (ROOT / "back_translate" / name).read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ") and "\nset -euo pipefail\n" in text
    assert '\ncd "$(dirname "$0")/.."\n' in text


# ---- download.sh ----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """Serves the files of tmp_path/www."""
    (tmp_path / "www").mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "www"))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def download(project, *arguments):
    command = ["bash", str(project / "back_translate/download.sh"), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(command, cwd=project.parent, capture_output=True, text=True, env=environment)


def write_archive(path):
    (path.parent / "config.json").write_text("{}")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            file.write(path.parent / "config.json", "config.json")
    else:
        with tarfile.open(path, "w:gz") as file:
            file.add(path.parent / "config.json", "config.json")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_checkpoint_is_fetched_checked_and_unpacked(project, tmp_path, server):
    sha256 = write_archive(tmp_path / "www/model.tar.gz")
    result = download(project, f"{server}/model.tar.gz", sha256.upper(), "models/enfr")
    assert result.returncode == 0, result.stderr
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["enfr"]
    assert (tmp_path / "models/enfr/config.json").read_text() == "{}"
    result = download(project, f"{server}/model.tar.gz", sha256, "models/enfr")
    assert result.returncode == 0 and "is there already" in result.stdout


def test_a_wrong_checksum_leaves_nothing(project, tmp_path, server):
    write_archive(tmp_path / "www/model.tar.gz")
    result = download(project, f"{server}/model.tar.gz", "0" * 64, "models/enfr")
    assert result.returncode != 0
    assert f"wrong checksum: expected sha256={'0' * 64}, found sha256=" in result.stderr
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["http://x/a.tar.gz", "dir"], "expected URL SHA256 DIR"),
        (["http://x/a.tar.gz", "123", "dir"], "64 hexadecimal digits"),
        (["http://x/a.rar", "0" * 64, "dir"], "a.rar: expected an archive"),
    ],
)
def test_bad_arguments_of_the_download_are_named(project, arguments, message):
    result = download(project, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
