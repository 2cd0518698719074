"""What holds for the project as a whole: imports go one way, scripts use existing flags."""

import ast
import functools
import importlib
import re
import shlex
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
        assert ours <= ALLOWED_IMPORTS[package], path


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
        if script.name in ("lib_setup.sh", "test.sh"):  # pip's and pytest's flags
            continue
        code = re.sub(r"(^|\s)#.*", "", script.read_text()).replace("\\\n", " ")
        code = re.sub(r"bash back_translate/run\.sh.*", "", code)  # which has options of its own
        modules = set(re.findall(r"python -m ([\w.]+)", code))
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


def test_setup_names_what_it_found_when_there_is_no_fitting_python(tmp_path):
    (tmp_path / "requirements.lock").touch()
    command = f"cd {shlex.quote(str(tmp_path))} && UDA_PYTHON=true-is-no-python source {ROOT}/scripts/lib_setup.sh"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.returncode != 0
    assert "Python 3.10 or 3.11 is needed, but found only: true-is-no-python" in result.stderr
