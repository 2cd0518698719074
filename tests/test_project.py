"""What holds for the project as a whole: imports go one way, scripts use existing flags and find a Python."""

import ast
import functools
import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from absl import flags

ROOT = Path(__file__).parent.parent
ALLOWED_IMPORTS = {
    "image": {"image", "augmentation", "utils"},
    "text": {"text", "augmentation", "utils"},
    "back_translate": {"back_translate", "utils"},
    "augmentation": {"augmentation"},
    "utils": {"utils"},
}
# The report measures paraphrases with an encoder. No module of text imports back_translate. Files of paraphrases may be
# on any file system.
FURTHER_IMPORTS = {"back_translate/report.py": {"text"}, "augmentation/back_translation.py": {"utils"}}
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", ALLOWED_IMPORTS)
def test_imports_go_one_way(package):
    for path in (ROOT / package).rglob("*.py"):
        ours = set(imported_packages(path)) & set(ALLOWED_IMPORTS)
        assert ours <= ALLOWED_IMPORTS[package] | FURTHER_IMPORTS.get(str(path.relative_to(ROOT)), set()), path


# These handle what is always on this machine: kernel's locks, caches, files that are appended to, the project's own.
LOCAL_MODULES = {"utils/files.py", "utils/locks.py", "utils/records.py", "utils/run_dir.py", "text/encoders.py"}
LOCAL_MODULES |= {"text/onnx_weights.py", "back_translate/stage_files.py"}
LOCAL_MODULES |= {"utils/page.py", "utils/results.py", "utils/reproduce.py"}
LOCAL_ONLY = re.compile(
    r"(?<![\w.])open\(|os\.(replace|rename|makedirs|mkdir|listdir|remove|scandir|walk|stat)\(|\bPath\(|shutil\.|gzip\.open"
    r"|os\.path\.(exists|isfile|isdir|getsize|getmtime|realpath|abspath)\(|np\.(load|memmap)\(|tarfile\.open\((?!fileobj)"
)


def test_users_files_are_opened_on_any_file_system():
    paths = [path for package in ALLOWED_IMPORTS for path in (ROOT / package).rglob("*.py")]
    others = [path for path in paths if str(path.relative_to(ROOT)) not in LOCAL_MODULES]
    found = [(path.name, line) for path in others for line in path.read_text().splitlines() if LOCAL_ONLY.search(line)]
    assert found == [], "use utils/files.py"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_starts_safely(script):
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "\nset -euo pipefail\n" in text
    assert script.name.startswith("lib_") or '\ncd "$(dirname "$0")/.."\n' in text
    subprocess.run(["bash", "-n", script], check=True)


def flags_in_scripts():
    """(script, modules, flag) for each flag in a script that runs `python -m module`, arrays and functions included."""
    for script in SCRIPTS:
        if script.name in ("lib_setup.sh", "test.sh", "contribute.sh"):  # flags of pip, of pytest, of other scripts
            continue
        code = re.sub(r"(^|\s)#.*", "", script.read_text()).replace("\\\n", " ")
        code = re.sub(r"bash \"?(back_translate|scripts)/.*", "", code)  # other scripts have options of their own
        modules = set(re.findall(r"(?:python -m|train_draws|train_once) (\w+\.[\w.]+)", code))
        for flag in sorted(set(re.findall(r"(?<![\w-])--([a-z_]+)", code))):
            if modules:
                yield script.name, modules, flag


@pytest.fixture(scope="module")
def flags_of_module():
    """The names of the flags of each module with a command line, defined once."""

    @functools.cache
    def define(module):
        before = set(flags.FLAGS)
        importlib.import_module(module).define_flags()
        names = set(flags.FLAGS) - before
        for name in names:
            delattr(flags.FLAGS, name)
        return names | {f"no{name}" for name in names}

    return define


def test_every_script_uses_existing_flags(flags_of_module):
    checked = 0
    for script, modules, flag in flags_in_scripts():
        assert any(flag in flags_of_module(module) for module in modules), f"{script}: --{flag} is no flag of {modules}"
        checked += 1
    assert checked > 50


# ---- the environment ------------------------------------------------------------------------------------------------

FAKE_PYTHON = """#!/usr/bin/env bash
case $* in
  *version_info*) echo {version} ;;
  *"import ensurepip, venv") exit {venv_status} ;;
  --version) echo "Python {version}.0" ;;
  "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-m pip install "*) echo "${{@: -1}}" >> pip_calls ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """A machine without any Python in a folder of its own, with the locks of both stacks."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "cat", "cmp", "cp", "env", "mkdir"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    for stack in ("2.15", "2.20"):
        (tmp_path / f"requirements-{stack}.lock").write_text(f"packages of {stack}")
    return tmp_path


def add_python(machine, program, version, has_venv=True):
    (machine / "bin" / program).write_text(FAKE_PYTHON.format(version=version, venv_status=0 if has_venv else 1))
    (machine / "bin" / program).chmod(0o755)


def set_up(machine, **variables):
    command = ["bash", "-c", f"source {shlex.quote(str(ROOT / 'scripts/lib_setup.sh'))}"]
    variables |= {"PATH": str(machine / "bin")}
    return subprocess.run(command, cwd=machine, env=variables, capture_output=True, text=True)


def assert_installed(machine, folder, stack):
    lock = f"requirements-{stack}.lock"
    assert (machine / folder / "stack").read_text() == f"{stack}\n"
    assert (machine / folder / "installed.lock").read_text() == (machine / lock).read_text()
    assert (machine / "pip_calls").read_text().splitlines()[-1] == lock


@pytest.mark.parametrize("version, stack", [("3.10", "2.15"), ("3.11", "2.15"), ("3.12", "2.20"), ("3.13", "2.20")])
def test_every_version_of_python_gets_its_stack(machine, version, stack):
    add_python(machine, "python3", version)
    result = set_up(machine)
    assert result.returncode == 0, result.stderr
    assert f"Installing TensorFlow {stack} into .venv " in result.stdout
    assert f"with Python {version}.0" in result.stdout
    assert_installed(machine, ".venv", stack)


def test_the_newest_python_that_fits_is_taken(machine):
    for version in ("3.9", "3.10", "3.12", "3.14"):
        add_python(machine, f"python{version}", version)
    add_python(machine, "python3", "3.14")
    assert "with Python 3.12.0" in set_up(machine).stdout


def test_a_chosen_python_goes_before_newer_ones(machine):
    for version in ("3.10", "3.13"):
        add_python(machine, f"python{version}", version)
    assert "with Python 3.10.0" in set_up(machine, UDA_PYTHON="python3.10").stdout
    assert_installed(machine, ".venv", "2.15")


@pytest.mark.parametrize("stack", ["2.15", "2.20"])
def test_a_chosen_stack_has_an_environment_of_its_own(machine, stack):
    add_python(machine, "python3.11", "3.11")
    result = set_up(machine, UDA_STACK=stack)
    assert result.returncode == 0, result.stderr
    assert_installed(machine, f".venv-{stack}", stack)
    assert not (machine / ".venv").exists()


def test_a_chosen_stack_passes_over_pythons_that_it_does_not_have(machine):
    for version in ("3.11", "3.13"):
        add_python(machine, f"python{version}", version)
    assert "with Python 3.11.0" in set_up(machine, UDA_STACK="2.15").stdout


def test_an_environment_is_made_once_and_again_when_its_lock_changes(machine):
    add_python(machine, "python3.13", "3.13")
    set_up(machine)
    assert set_up(machine).stdout == ""
    (machine / "requirements-2.15.lock").write_text("that of the other stack")
    assert set_up(machine).stdout == ""
    (machine / "requirements-2.20.lock").write_text("newer packages of 2.20")
    assert "Installing TensorFlow 2.20" in set_up(machine).stdout
    assert_installed(machine, ".venv", "2.20")


def assert_refused(result, *parts):
    assert result.returncode != 0 and result.stdout == ""
    for part in parts:
        assert part in result.stderr


def test_without_a_fitting_python_the_message_tells_what_was_found_and_how_to_get_one(machine):
    add_python(machine, "python3", "3.9")
    add_python(machine, "python", "2.7")
    found = "error: Python 3.10 to 3.13 is needed, found: python3 is 3.9, python is 2.7\n"
    assert_refused(set_up(machine), found, "apt-get install python3 python3-venv", "uv python install", "UDA_PYTHON")
    assert not (machine / ".venv").exists()


def test_without_any_python_the_message_says_so(machine):
    assert_refused(set_up(machine), "Python 3.10 to 3.13 is needed, found: none\n", "apt-get install python3")
    assert_refused(set_up(machine, UDA_PYTHON="no-such-python"), "is needed, found: none\n", "UDA_PYTHON")


@pytest.mark.parametrize("stack, version", [("2.15", "3.13"), ("2.20", "3.10"), ("2.17", "3.11")])
def test_a_chosen_stack_without_its_python_names_the_pythons_of_each_stack(machine, stack, version):
    add_python(machine, "python3", version)
    versions = f"(UDA_STACK={stack}: 2.15 has 3.10 and 3.11, 2.20 has 3.11 to 3.13)"
    assert_refused(set_up(machine, UDA_STACK=stack), versions, f"found: python3 is {version}\n", "uv python install")


def test_a_python_without_venv_gets_a_message_of_its_own(machine):
    add_python(machine, "python3.13", "3.13", has_venv=False)
    assert_refused(set_up(machine), "python3.13 has no venv module", "apt-get install python3.13-venv")
    assert not (machine / ".venv").exists()
