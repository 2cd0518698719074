"""The download scripts, run against a server on this machine."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from image.datasets import cifar10
from tests import file_server
from tests.file_server import environment
from text.datasets.imdb import ARCHIVE as IMDB_ARCHIVE
from text.datasets.imdb import ARCHIVE_MD5 as IMDB_ARCHIVE_MD5

SCRIPTS = Path(__file__).parents[1] / "scripts"
CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()
SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}
CIFAR10_MD5 = {form.archive: form.md5 for form in cifar10.FORMS}


@pytest.fixture
def server():
    with file_server.serve() as server:
        server.files = {"/file": CONTENT}
        yield server


def create_path(folder, *tools):
    """A PATH with what the scripts need on every machine, and these tools."""
    folder.mkdir()
    for name in ["bash", "cut", "dirname", "md5sum", "mkdir", "mv", "rm", "sleep", *tools]:
        program = sys.executable if name == "python3" else shutil.which(name)
        if not program:
            pytest.skip(f"{name} is not installed")
        (folder / name).symlink_to(program)
    return str(folder)


@pytest.fixture(params=["curl", "wget", "python3"])
def tool_path(request, tmp_path):
    """A PATH with only one of the three tools."""
    return create_path(tmp_path / "bin", request.param)


def download(url, file, md5=MD5, path=None):
    command = 'set -euo pipefail; source "$0"; download "$@"'
    arguments = ["bash", "-c", command, str(SCRIPTS / "lib_download.sh"), url, str(file), md5]
    return subprocess.run(arguments, env=environment(PATH=path or os.environ["PATH"]), capture_output=True, text=True)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_into_a_new_folder(server, tmp_path, tool_path):
    result = download(f"{server.url}/file", tmp_path / "new" / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert names_in(tmp_path / "new") == ["file"]


def test_a_complete_file_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    result = download(f"{server.url}/file", tmp_path / "file")
    assert result.returncode == 0, result.stderr
    assert "already complete" in result.stdout
    assert server.requests == []


def test_half_a_file_is_resumed(server, tmp_path, tool_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:4000])
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("/file", "bytes=4000-")]


def test_a_server_that_cannot_resume_sends_the_whole_file(server, tmp_path, tool_path):
    server.can_resume = False
    (tmp_path / "file.part").write_bytes(CONTENT[:4000])
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_connection_that_breaks_off_is_resumed(server, tmp_path, tool_path):
    server.cuts = [4000]
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests[1:]] == ["bytes=4000-"]


def test_connections_that_always_break_off_leave_a_part_for_the_next_run(server, tmp_path, tool_path):
    server.cuts = [1000] * 3
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode != 0
    assert f"Run this script again to go on from what is in {tmp_path}/file.part" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:3000]


def test_a_server_that_does_not_answer_is_named_without_a_traceback(server, tmp_path, tool_path):
    closed = server.url.rpartition(":")[0] + ":9"
    result = download(f"{closed}/file", tmp_path / "file", path=tool_path)
    assert result.returncode != 0
    assert f"Could not fetch {closed}/file" in result.stderr and "Traceback" not in result.stderr


def test_without_any_tool_the_message_names_them(server, tmp_path):
    result = download(f"{server.url}/file", tmp_path / "file", path=create_path(tmp_path / "bin"))
    assert result.returncode != 0
    assert "curl, wget or python3 is needed" in result.stderr and "found none of them. Install one" in result.stderr


def test_a_whole_part_only_needs_its_name(server, tmp_path, tool_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert not (tmp_path / "file.part").exists()


def test_a_file_without_a_known_checksum_is_fetched_once(server, tmp_path, tool_path):
    for message in ("is complete", "is already complete"):
        result = download(f"{server.url}/file", tmp_path / "file", md5="", path=tool_path)
        assert result.returncode == 0 and message in result.stdout, result.stderr
        assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_a_wrong_checksum_keeps_nothing_and_fails(server, tmp_path, tool_path):
    expected = "0" * 32
    result = download(f"{server.url}/file", tmp_path / "target" / "file", expected, path=tool_path)
    assert result.returncode != 0
    assert f"expected md5={expected}, found md5={MD5}" in result.stderr
    assert names_in(tmp_path / "target") == []


def test_a_damaged_file_is_replaced(server, tmp_path, tool_path):
    (tmp_path / "file").write_bytes(CONTENT[:-1])
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode == 0, result.stderr
    assert "is damaged" in result.stderr
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_failed_download_keeps_the_part_for_the_next_run(server, tmp_path, tool_path):
    server.files = {}
    (tmp_path / "file.part").write_bytes(CONTENT[:4000])
    result = download(f"{server.url}/file", tmp_path / "file", path=tool_path)
    assert result.returncode != 0
    assert f"Could not fetch {server.url}/file. Run this script again" in result.stderr
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:4000]
    assert not (tmp_path / "file").exists()


def test_the_checksum_does_not_need_md5sum(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "bash").symlink_to(shutil.which("bash"))
    (tools / "python3").symlink_to(sys.executable)
    (tmp_path / "file").write_bytes(CONTENT)
    command = ["bash", "-c", 'source "$0"; md5_of "$1"', str(SCRIPTS / "lib_download.sh"), str(tmp_path / "file")]
    result = subprocess.run(command, env=environment(PATH=str(tools)), capture_output=True, text=True)
    assert result.stdout == f"{MD5}\n", result.stderr


def run_script(name, tmp_path, server, *arguments, true_md5s=()):
    """Runs a copy of a script, so that default folders lie in tmp_path, with the true_md5s replaced by MD5."""
    copies = tmp_path / "scripts"
    copies.mkdir(exist_ok=True)
    text = (SCRIPTS / name).read_text()
    for md5 in true_md5s:
        assert text.count(md5) == 1
        text = text.replace(md5, MD5)
    (copies / name).write_text(text)
    shutil.copy(SCRIPTS / "lib_download.sh", copies)
    command = ["bash", str(copies / name), *arguments]
    return subprocess.run(command, env=environment(UDA_MIRROR=server.url), capture_output=True, text=True)


@pytest.mark.parametrize("options, archive", [([], "cifar-10-python.tar.gz"), (["--binary"], "cifar-10-binary.tar.gz")])
def test_cifar10_arrives_in_its_default_folder(server, tmp_path, options, archive):
    server.files = {f"/{archive}": CONTENT}
    result = run_script("download_cifar10.sh", tmp_path, server, *options, true_md5s=CIFAR10_MD5.values())
    assert result.returncode == 0, result.stderr
    assert names_in(tmp_path / "data/raw/cifar10") == [archive]


@pytest.mark.parametrize("options, splits", [([], ["test", "train"]), (["--extra"], ["extra", "test", "train"])])
def test_svhn_arrives_in_the_named_folder(server, tmp_path, options, splits):
    server.files = {f"/{name}": CONTENT for name in SVHN_MD5}
    folder = tmp_path / "my svhn"
    result = run_script("download_svhn.sh", tmp_path, server, *options, str(folder), true_md5s=SVHN_MD5.values())
    assert result.returncode == 0, result.stderr
    assert names_in(folder) == [f"{split}_32x32.mat" for split in splits]


def test_imdb_arrives_in_its_default_folder(server, tmp_path):
    server.files = {f"/{IMDB_ARCHIVE}": CONTENT}
    result = run_script("download_imdb.sh", tmp_path, server, true_md5s=[IMDB_ARCHIVE_MD5])
    assert result.returncode == 0, result.stderr
    assert names_in(tmp_path / "data/raw/imdb") == [IMDB_ARCHIVE]


@pytest.mark.parametrize(
    "script, name, md5",
    [
        ("download_cifar10.sh", "cifar-10-python.tar.gz", CIFAR10_MD5["cifar-10-python.tar.gz"]),
        ("download_svhn.sh", "train_32x32.mat", SVHN_MD5["train_32x32.mat"]),
        ("download_imdb.sh", IMDB_ARCHIVE, IMDB_ARCHIVE_MD5),
    ],
)
def test_a_script_refuses_a_file_that_is_not_the_official_one(server, tmp_path, script, name, md5):
    server.files = {f"/{name}": CONTENT}
    result = run_script(script, tmp_path, server, "target")
    assert result.returncode != 0
    assert f"expected md5={md5}, found md5={MD5}" in result.stderr
    assert names_in(tmp_path / "target") == []


@pytest.mark.parametrize("script", ["download_cifar10.sh", "download_svhn.sh", "download_imdb.sh"])
def test_an_unknown_option_is_refused_before_any_download(server, tmp_path, script):
    result = run_script(script, tmp_path, server, "--everything")
    assert result.returncode == 2
    assert "Unknown option --everything" in result.stderr
    assert server.requests == []
