"""results/*.csv, the tables and plots made from them, and the runs of results/experiments.json."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.programs import run_main
from utils import locks, plots, reproduce, results

ROOT = Path(__file__).parent.parent.parent
HEADING = ",".join(results.Run._fields)
# A command that leaves what a training leaves; draw 1 is that of --seed=1.
TRAIN = """mkdir -p {run_dir} && echo started >> {run_dir}/starts && echo '{{"error_rate": 0.{draw}5, "step": 10, \
"sup_size": {labels}, "seed": {draw}, "label_seed": {draw}, "train_seconds": 1.26, "versions": {{"git_commit": \
"0123456789abcdef", "tensorflow": "2.15.1"}}}}' > {run_dir}/result.json # {flags}"""
TINY = {
    "title": "tiny `runs`",
    "measure": "error rate",
    "summary": {"supervised": ["supervised"], "UDA": "UDA"},
    "labels": [20],
    "draws": 2,
    "minutes": 0.1,
    "tolerance": 0.01,
    "prepare": ["echo {draw} >> prepared"],
    "train": TRAIN,
    "methods": {"supervised": "--unsup_ratio=0", "UDA": ""},
}


@pytest.fixture(autouse=True)
def fresh_experiments():
    results.read_experiments.cache_clear()
    yield
    results.read_experiments.cache_clear()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one tiny experiment, another that is like it, and no runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    experiments = {
        "tiny": TINY,
        "other": {
            "like": "tiny",
            "title": "some of IMDb",
            "summary": None,
            "methods": {"none": "", "log": "--tsa=log"},
        },
    }
    (tmp_path / "results/experiments.json").write_text(json.dumps(experiments))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/run_svhn_gpu.sh").touch()
    for name in ("README.md", "docs/results.md", "docs/experiments.md"):
        (tmp_path / name).write_text("")
    return tmp_path


def write_runs(project, *lines, name="tiny"):
    (project / f"results/{name}.csv").write_text("\n".join([HEADING, *lines]) + "\n")


def write_block(project, kind):
    (project / "docs/results.md").write_text(f"before\n<!-- results: {kind} -->\nold\n<!-- end of results -->\nafter\n")
    results.write()
    return (project / "docs/results.md").read_text().split("-->\n")[1].split("<!--")[0]


# ---- the documents of this project ----------------------------------------------------------------------------------


@pytest.mark.parametrize("document", results.DOCUMENTS)
def test_every_table_is_what_the_files_give(document, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert results.render(document) == (ROOT / document).read_text(), "run `python -m utils.results write`"


def test_every_plot_is_what_the_files_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    there = {f"{results.PLOTS}/{path.name}": path.read_text() for path in (ROOT / results.PLOTS).iterdir()}
    assert results.render_plots() == there, "run `python -m utils.results write`"


@pytest.mark.parametrize("document", ["README.md", "docs/results.md"])
def test_there_is_no_figure_that_is_not_from_the_files(document):
    text = results.BLOCK.sub("", (ROOT / document).read_text())
    result = re.compile(r"^\|.*\d\.\d|\d (%|±|points)|\d\.\d+ (of|times) (its|the) ")
    assert not [line for line in text.splitlines() if result.search(line)]


def test_the_head_of_the_quickstart_tells_what_the_files_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    told = re.findall(r"(\d+\.\d) ± (\d+\.\d) %", (ROOT / "scripts/quickstart_text.sh").read_text())
    table = results.table("film")
    assert told and all(f"{mean} % ± {deviation}" in table for mean, deviation in told), table


def test_every_run_is_of_a_method_of_its_experiment(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path in {*(ROOT / "results").glob("*.csv")} - {ROOT / results.TRIALS}:
        for run in results.read_runs(path):
            assert results.path_of(run.experiment) == f"results/{path.name}"
            results.check_run(run)


def test_every_trial_is_shown(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/results.md").read_text()
    trials = results.read_trials()
    assert trials and all(f"| {trial.setting} | {trial.data} |" in page for trial in trials)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_empty(project):
    write_runs(project, "tiny,UDA,20,0,0,0.25,,,,,")
    (run,) = results.read_runs("results/tiny.csv")
    assert run == results.Run("tiny", "UDA", 20, 0, 0, 0.25)
    results.write_lines("results/tiny.csv", [run])
    assert (project / "results/tiny.csv").read_text() == f"{HEADING}\ntiny,UDA,20,0,0,0.25,,,,,\n"


@pytest.mark.parametrize(
    "line, message",
    [
        ("tiny,UDA,twenty,0,0,0.25,,,,,", "results/tiny.csv, line 2: labels=twenty: expected a int"),
        ("tiny,UDA,20,0,0,,,,,,", "line 2: error is missing"),
        ("tiny,UDA,20,0,0,25.0,,,,,", "line 2: error=25.0: expected a share, from 0 to 1"),
        ("tiny,UDA,20,0,0,nan,,,,,", "line 2: error=nan: expected a share"),
        ("tiny,UDA,20,0,0,0.25", "line 2: expected 11 columns, found 6"),
        (
            "tiny,UDA,20,0,0,0.1,,,,,\ntiny,UDA,20,0,0,0.2,,,,,",
            "2 lines of experiment=tiny, method=UDA, labels=20, draw=0",
        ),
    ],
)
def test_a_damaged_line_is_named(project, line, message):
    write_runs(project, line)
    with pytest.raises(ValueError, match=re.escape(message)):
        results.read_runs("results/tiny.csv")


# ---- adding ---------------------------------------------------------------------------------------------------------


def write_run(folder, **values):
    folder.mkdir()
    result = {"error_rate": 0.1234, "step": 800, "sup_size": 20, "seed": 3, "label_seed": 3, "train_seconds": 61.24}
    result |= {"versions": {"tensorflow": "2.15.1", "python": "3.11.2", "git_commit": "8344c52fe0123456"}}
    (folder / "result.json").write_text(json.dumps(result | values))
    (folder / "run.json").write_text(
        json.dumps({"command": "python -m image.main --seed=3", "hardware": "2 CPU cores"})
    )
    return folder


def test_a_finished_run_is_added_behind_the_others(project, capsys):
    write_runs(project, "tiny,UDA,20,0,0,0.25,,,,,")
    run_main(results, "--experiment=tiny", words=["add", str(write_run(project / "run"))])
    lines = (project / "results/tiny.csv").read_text().splitlines()
    versions = "8344c52fe012,tensorflow=2.15.1 python=3.11.2"
    assert lines[1:] == [
        "tiny,UDA,20,0,0,0.25,,,,,",
        f"tiny,UDA,20,3,3,0.1234,800,61.2,{versions},python -m image.main --seed=3",
    ]
    assert "results/tiny.csv: experiment=tiny" in capsys.readouterr().out


def test_a_run_of_changed_files_is_told_by_its_commit(project):
    versions = {"git_commit": "8344c52fe0123456-dirty"}
    run_main(results, "--experiment=tiny", words=["add", str(write_run(project / "run", versions=versions))])
    assert "8344c52fe012-dirty" in (project / "results/tiny.csv").read_text()


def test_a_run_of_a_script_is_a_contribution_and_its_line_can_be_sent(project, capsys):
    run_main(results, "--experiment=run_svhn_gpu", words=["add", str(write_run(project / "run", sup_size=1000))])
    line = (project / "results/contributed.csv").read_text().splitlines()[1]
    assert line.startswith("run_svhn_gpu,UDA,1000,3,3,0.1234,800,") and line in capsys.readouterr().out


def test_a_line_to_send_is_one_of_the_file_whatever_is_in_it(project, capsys):
    folder = write_run(project / "run", train_seconds=None, versions={})
    run_main(results, "--experiment=run_svhn_gpu", "--method=UDA, 100 copies", words=["add", str(folder)])
    line = (project / "results/contributed.csv").read_text().splitlines()[1]
    assert line.startswith('run_svhn_gpu,"UDA, 100 copies",20,3,3,0.1234,800,,,,python')
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_two_people_may_send_the_same_draw_each_once(project, capsys):
    for name, seconds in (("one", 10), ("another", 20)):
        folder = write_run(project / name, train_seconds=seconds)
        run_main(results, "--experiment=run_svhn_gpu", words=["add", str(folder)])
    assert [run.seconds for run in results.read_runs("results/contributed.csv")] == [10, 20]
    run_main(results, "--experiment=run_svhn_gpu", words=["add", str(folder)])
    assert f"results/contributed.csv has the line of {folder} already" in capsys.readouterr().out
    assert len(results.read_runs("results/contributed.csv")) == 2


def test_a_contribution_without_a_row_is_named(project):
    run_main(results, "--experiment=run_svhn_gpu", words=["add", str(write_run(project / "run"))])
    table = "| script | contributed |\n|---|---|\n| `run_other.sh` |  |\n"
    document = f"<!-- results: contributed -->\n{table}<!-- end of results -->\n"
    (project / "docs/experiments.md").write_text(document)
    with pytest.raises(ValueError, match="a run of run_svhn_gpu, which has no row in docs/experiments.md"):
        results.write()


def test_the_column_of_contributions_is_filled(project):
    run_main(results, "--experiment=run_svhn_gpu", words=["add", str(write_run(project / "run", sup_size=1000))])
    table = "| script | contributed | hardware |\n|---|---|---|\n"
    rows = ["| `run_svhn_gpu.sh` | {} | 1 GPU |\n", "| `run_other.sh` |  | 1 GPU |\n"]
    document = f"<!-- results: contributed -->\n{table}{rows[0].format('')}{rows[1]}<!-- end of results -->\n"
    (project / "docs/experiments.md").write_text(document)
    results.write()
    filled = (project / "docs/experiments.md").read_text()
    assert rows[0].format("UDA, 1,000 labels: 12.3 % (1)") in filled and rows[1] in filled
    results.write()
    assert (project / "docs/experiments.md").read_text() == filled


def write_curve(folder, *errors):
    lines = [{"step": 5, "loss": 1.5}]
    lines += [{"step": 10 * number, "test_accuracy": 1 - error} for number, error in enumerate(errors, start=1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# ---- trials ---------------------------------------------------------------------------------------------------------


def write_trials(project, *lines):
    lines = [",".join(results.Trial._fields), *lines]
    (project / "results/trials.csv").write_text("\n".join(lines) + "\n")


def test_what_was_tried_is_a_table_of_each_measure(project):
    kept = 'tiny,"UDA, exp",training,5,images kept,0.0142,'
    write_trials(project, "tiny,rate 0.1,dev,3,error rate,0.256,0.012", kept, "other,rate 0.1,dev,1,error rate,1,")
    error_rates = "|  | measured on | error rate | draws |\n|---|---|---|---|\n| rate 0.1 | dev | 25.6 % ± 1.2 | 3 |\n"
    images_kept = "|  | measured on | images kept | draws |\n|---|---|---|---|\n| UDA, exp | training | 1.4 % | 5 |\n"
    assert write_block(project, "trials tiny") == f"{error_rates}\n{images_kept}"
    assert write_block(project, 'trials tiny "images kept"') == images_kept


def test_what_was_tried_beside_a_comparison_stands_below_it(project):
    write_runs(project, "other,none,20,0,0,0.25,,,,,", name="other")
    write_trials(project, "other,rate 0.1,dev,1,error rate,0.3,")
    _, below = write_block(project, "others").split("plots/other.svg)\n")
    assert below == "\n" + results.trials("other")


@pytest.mark.parametrize(
    "line, message",
    [
        ("tiny,rate 0.1,dev,1,error rate,30,", "line 2: value=30.0: expected a share, from 0 to 1"),
        ("tiny,rate 0.1,dev,1,error rate,,", "line 2: value is missing"),
        ("tiny,rate 0.1,dev,all,error rate,0.3,", "line 2: draws=all: expected a int"),
    ],
)
def test_a_damaged_line_of_a_trial_is_named(project, line, message):
    write_trials(project, line)
    with pytest.raises(ValueError, match=message):
        results.trials("tiny")


@pytest.fixture
def project_with_curves(project):
    (project / "results/experiments.json").write_text(json.dumps({"tiny": TINY | {"learning_curves": True}}))
    return project


def test_a_run_is_added_with_its_learning_curve(project_with_curves):
    for draw, errors in enumerate([(0.5, 0.2), (0.25, 0.3)]):
        folder = write_run(project_with_curves / f"run_{draw}", label_seed=draw, seed=draw)
        write_curve(folder, *errors)
        run_main(results, "--experiment=tiny", words=["add", str(folder)])
    lines = (project_with_curves / "results/curves/tiny.csv").read_text().splitlines()
    assert lines == [
        "experiment,method,labels,draw,seed,step,error",
        "tiny,UDA,20,0,0,10,0.5",
        "tiny,UDA,20,0,0,20,0.2",
        "tiny,UDA,20,1,1,10,0.25",
        "tiny,UDA,20,1,1,20,0.3",
    ]
    written = write_block(project_with_curves, "steps tiny 10 20").splitlines()
    assert written[0] == "|  | 10 steps | 20 steps | at its best | draws |"
    assert written[2] == "| UDA | 37.5 % ± 17.7 | 25.0 % ± 7.1 | 25.0 % ± 7.1 (step 20) | 2 |"
    assert "while training](plots/tiny_steps.svg)" in written[4]
    assert (project_with_curves / "docs/plots/tiny_steps.svg").exists()


def test_a_run_that_is_added_anew_has_its_new_curve_only(project_with_curves):
    folder = write_run(project_with_curves / "run")
    for errors in ((0.5, 0.4, 0.3), (0.2,)):
        write_curve(folder, *errors)
        (project_with_curves / "results/tiny.csv").unlink(missing_ok=True)
        run_main(results, "--experiment=tiny", words=["add", str(folder)])
    lines = (project_with_curves / "results/curves/tiny.csv").read_text().splitlines()[1:]
    assert lines == ["tiny,UDA,20,3,3,10,0.2"]


def test_only_experiments_with_learning_curves_keep_them(project):
    folder = write_run(project / "run")
    write_curve(folder, 0.5)
    run_main(results, "--experiment=tiny", words=["add", str(folder)])
    assert not (project / "results/curves").exists()


def test_a_damaged_line_of_a_curve_is_named(project_with_curves):
    (project_with_curves / "results/curves").mkdir()
    content = "experiment,method,labels,draw,seed,step,error\ntiny,UDA,20,0,0,10,{}\n"
    for error, message in (("", "error is missing"), ("2", "error=2.0: expected a share"), ("x", "error=x: expected")):
        (project_with_curves / "results/curves/tiny.csv").write_text(content.format(error))
        with pytest.raises(ValueError, match=f"results/curves/tiny.csv, line 2: {message}"):
            results.read_points("tiny")


@pytest.mark.parametrize(
    "experiment, message",
    [("tyni", "experiment=tyni: expected one of tiny, other, or a script"), ("run_mine", "experiment=run_mine")],
)
def test_a_run_of_an_unknown_experiment_is_refused(project, experiment, message):
    with pytest.raises(SystemExit, match=message):
        run_main(results, f"--experiment={experiment}", words=["add", str(write_run(project / "run"))])


def test_a_run_is_not_added_twice(project):
    folder = write_run(project / "run")
    run = results.read_run(folder, "tiny", "UDA")
    results.add(run, folder)
    with pytest.raises(ValueError, match="has a line of experiment=tiny, .*, draw=3, seed=3 already"):
        results.add(run, folder)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"method": "best"}, "method=best: expected supervised or UDA, as tiny has"),
        ({"labels": 50}, "labels=50: expected 20, as tiny has"),
        ({"seed": 9}, "seed=9, label_seed=3: expected the same, as tiny has"),
    ],
)
def test_a_run_without_a_place_in_the_tables_is_refused(project, values, message):
    folder = write_run(project / "run")
    with pytest.raises(ValueError, match=message):
        results.add(results.read_run(folder, "tiny", "UDA")._replace(**values), folder)
    assert not (project / "results/tiny.csv").exists()


def test_two_additions_at_once_lose_nothing(project):
    folder = write_run(project / "run")
    run = results.read_run(folder, "tiny", "UDA")
    with locks.hold("results", "another addition", ""):
        thread = threading.Thread(target=results.add, args=[run, folder])
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        write_runs(project, "tiny,UDA,20,0,0,0.25,,,,,")
    thread.join()
    assert [found.draw for found in results.read_runs("results/tiny.csv")] == [0, 3]


def test_an_unfinished_run_is_refused(project):
    with pytest.raises(SystemExit, match="nothing/result.json does not exist: finish that run"):
        run_main(results, "--experiment=tiny", words=["add", "nothing"])


@pytest.mark.parametrize("words", [[], ["add"], ["remove", "run"], ["write", "run"]])
def test_other_words_are_refused(project, words):
    with pytest.raises(SystemExit, match="expected `add RUN_DIR` or `write`"):
        run_main(results, words=words)


# ---- tables ---------------------------------------------------------------------------------------------------------

LINES = ("tiny,supervised,20,0,0,0.30,,,,,", "tiny,supervised,20,1,1,0.20,,,,,", "tiny,UDA,20,0,0,0.10,,,,,")


def test_draws_stand_beside_their_mean_and_sample_deviation(project):
    write_runs(project, *LINES)
    table = "|  | 0 | 1 | mean ± deviation |\n|---|---|---|---|\n"
    table += "| supervised | 30.0 | 20.0 | 25.0 % ± 7.1 |\n| UDA | 10.0 |  | 10.0 % |\n"
    assert write_block(project, "draws tiny") == table
    assert (project / "docs/results.md").read_text().startswith("before\n")
    assert (project / "docs/results.md").read_text().endswith("<!-- end of results -->\nafter\n")


def test_numbers_of_labels_have_columns(project):
    write_runs(project, *LINES, "tiny,UDA,50,0,0,0.05,,,,,")
    table = write_block(project, "table tiny").splitlines()
    assert table[0] == "|  | 20 labels | 50 labels | draws |"
    assert table[2:] == ["| supervised | 25.0 % ± 7.1 |  | 2 |", "| UDA | 10.0 % | 5.0 % | 1 |"]


def test_margins_are_of_the_draws_that_both_have(project):
    write_runs(project, *LINES)
    compared = write_block(project, "margins tiny UDA supervised supervised UDA").splitlines()
    assert compared[0] == "- UDA against supervised: 20.0 points ahead, one draw."
    assert compared[1] == "- supervised against UDA: 20.0 points behind, one draw."
    # Student's t of two degrees of freedom, 4.303, times the deviation 3 over the root of 3.
    told = "ahead in 1 of 3 draws, by −1.0 on average (95 % interval −8.5 to 6.5)"
    assert results.describe_gains([2.0, -1.0, -4.0]) == told
    assert results.describe_gains([-0.01, -0.01]).startswith("ahead in 0 of 2 draws, by 0.0 on average")


def test_ratios_are_of_the_errors_in_the_draws_that_both_have(project):
    lines = (*LINES, "tiny,UDA,50,0,0,0.05,,,,,", "tiny,supervised,50,0,0,0.04,,,,,")
    write_runs(project, *lines)
    ratios = write_block(project, "ratios tiny UDA supervised").splitlines()
    assert ratios[0] == "- UDA against supervised, 20 labels: 0.33 of its errors, one draw."
    assert ratios[1] == "- UDA against supervised, 50 labels: 1.25 of its errors, one draw."
    write_runs(project, *LINES, "tiny,UDA,20,1,1,0.08,,,,,")
    ratios = write_block(project, "ratios tiny UDA supervised").splitlines()
    assert ratios == ["- UDA against supervised: 0.36 of its errors (draw by draw 0.33, 0.40)."]


def test_the_summary_has_experiments_with_runs(project):
    write_runs(project, *LINES)
    assert write_block(project, "summary").splitlines()[2:] == [
        "| tiny `runs` | 20 | error rate | 25.0 % ± 7.1 | 10.0 % | 1 |"
    ]


def test_other_experiments_have_sections_once_they_are_run(project):
    assert "Not run yet: `other`." in write_block(project, "others")
    write_runs(project, "other,none,20,0,0,0.3,,,,,", "other,log,20,0,0,0.2,,,,,", name="other")
    section = write_block(project, "others")
    assert section.startswith("### Some of IMDb\n\n|  | error rate | draws |\n") and "Not run yet" not in section
    assert "- log against none: 10.0 points ahead, one draw." in section and "(plots/other.svg)" in section


def test_an_experiment_without_runs_names_its_command(project):
    assert "bash scripts/reproduce_small.sh --only=tiny --add" in write_block(project, "draws tiny")
    assert not list((project / "docs").rglob("*.svg"))


@pytest.mark.parametrize(
    "kind, message",
    [
        ("trials tiny", "results/trials.csv has nothing of tiny"),
        ("trials other accuracy", "results/trials.csv has nothing of other accuracy"),
        ("table tiny -->\n<!-- results: plot tiny", "results: table tiny: expected <!-- end of results --> before"),
    ],
)
def test_no_block_swallows_what_it_cannot_make(project, kind, message):
    write_trials(project, "other,rate 0.1,dev,1,error rate,0.3,")
    with pytest.raises(ValueError, match=message):
        write_block(project, kind)
    assert "\nold\n" in (project / "docs/results.md").read_text()


def test_equal_errors_and_none_at_all(project):
    write_runs(project, "tiny,supervised,20,0,0,0.25,,,,,", "tiny,UDA,20,0,0,0.25,,,,,")
    assert write_block(project, "margins tiny UDA supervised") == "- UDA against supervised: equal, one draw.\n"
    write_runs(project, "tiny,supervised,20,0,0,0,,,,,", "tiny,UDA,20,0,0,0.25,,,,,")
    assert (
        write_block(project, "ratios tiny UDA supervised") == "- UDA against supervised: – of its errors, one draw.\n"
    )


def test_an_unknown_block_is_named(project):
    with pytest.raises(ValueError, match="results: chart tiny: expected one of table, draws"):
        write_block(project, "chart tiny")


# ---- plots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[20], [20, 50, 4000]])
def test_a_plot_has_a_dot_for_each_draw_within_its_frame(sizes):
    methods = {"a < b": dict.fromkeys(sizes, [1.0, 2.5]), "UDA": dict.fromkeys(sizes, [0.5])}
    picture = (plots.strips if len(sizes) == 1 else plots.curves)("title & more", "error rate, %", methods)
    root = xml.etree.ElementTree.fromstring(picture)
    width, height = map(float, root.get("viewBox").split()[2:])
    dots = root.findall("{*}circle")
    assert len(dots) == 3 * len(sizes)
    assert all(0 < float(dot.get("cx")) < width and 0 < float(dot.get("cy")) < height for dot in dots)
    assert "prefers-color-scheme: dark" in picture
    assert "a < b" in [text.text for text in root.findall("{*}text")]


def test_a_learning_curve_has_a_line_and_a_band_for_each_method():
    methods = {"supervised": {1000: [40.0, 42.0], 2000: [30.0, 33.0]}, "UDA": {1000: [50.0], 2000: [20.0]}}
    root = xml.etree.ElementTree.fromstring(plots.learning_curves("title & more", "error rate, %", methods))
    width, height = map(float, root.get("viewBox").split()[2:])
    shapes = {kind: [each.get("points") for each in root.findall(f"{{*}}{kind}")] for kind in ("polyline", "polygon")}
    assert [len(points.split()) for points in shapes["polyline"]] == [2, 2]
    assert [len(points.split()) for points in shapes["polygon"]] == [4, 4]
    places = [tuple(map(float, pair.split(","))) for points in sum(shapes.values(), []) for pair in points.split()]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    labels = [text.text for text in root.findall("{*}text")]
    assert "UDA" in labels and "2,000" in labels and "steps" in labels


# ---- running again --------------------------------------------------------------------------------------------------


def starts(project):
    return {path.parent.name: path.read_text().count("started") for path in project.rglob("starts")}


def test_everything_is_run_once_and_compared(project, capsys):
    write_runs(project, "tiny,UDA,20,0,0,0.05,,,,,", "tiny,UDA,20,1,1,0.16,,,,,")
    run_main(reproduce, "--only=tiny")
    assert (project / "prepared").read_text().split() == ["0", "1"]
    names = [f"{method}_20_{draw}" for method in ("default", "unsup_ratio=0") for draw in (0, 1)]
    assert starts(project) == dict.fromkeys(names, 1)
    printed = capsys.readouterr().out
    assert "4 of 4 runs in" in printed and "about 0 left" in printed
    assert re.search(r"tiny +UDA +20 +2 +10.50% +10.00%  1 of 2\n", printed)
    run_main(reproduce, "--only=tiny")
    assert starts(project) == dict.fromkeys(names, 1)


def test_experiments_that_are_alike_share_equal_runs(project):
    run_main(reproduce, "--only=tiny,other", "--draws=1")
    assert starts(project) == {"default_20_1": 1, "unsup_ratio=0_20_1": 1, "tsa=log_20_1": 1}


def test_experiments_share_runs_with_what_they_are_like_at_one_remove(project):
    third = {"like": "other", "methods": {"none": ""}}
    experiments = json.loads((project / "results/experiments.json").read_text()) | {"third": third}
    (project / "results/experiments.json").write_text(json.dumps(experiments))
    results.read_experiments.cache_clear()
    run_main(reproduce, "--only=other,third", "--draws=1")
    assert starts(project) == {"default_20_1": 1, "tsa=log_20_1": 1}


def test_a_run_on_data_that_were_prepared_otherwise_is_not_taken_for_this_one(project):
    run_main(reproduce, "--only=tiny", "--draws=1")
    changed = {"tiny": TINY | {"prepare": ["echo other {draw} >> prepared"]}}
    (project / "results/experiments.json").write_text(json.dumps(changed))
    results.read_experiments.cache_clear()
    run_main(reproduce, "--draws=1")
    assert len(list(project.rglob("starts"))) == 4


def test_a_run_of_another_command_is_not_taken_for_this_one(project):
    run_main(reproduce, "--only=tiny", "--draws=1")
    like = {"like": "tiny", "train": TRAIN + " --task_name=other"}
    changed = {"tiny": TINY | {"train": TRAIN + " --train_steps=7"}, "other": like}
    (project / "results/experiments.json").write_text(json.dumps(changed))
    results.read_experiments.cache_clear()
    run_main(reproduce, "--draws=1")
    assert len(list(project.rglob("starts"))) == 6


def test_another_mean_is_told_and_ends_in_an_error(project, capsys):
    write_runs(project, "tiny,UDA,20,0,0,0.09,,,,,")
    with pytest.raises(SystemExit, match="differ by more than the tolerance"):
        run_main(reproduce, "--only=tiny", "--draws=0")
    assert "0 of 1  more than 1 points apart" in capsys.readouterr().out


def test_new_runs_are_not_compared_with_themselves(project, capsys):
    write_runs(project, "tiny,UDA,20,0,0,0.03,,,,,")
    with pytest.raises(SystemExit, match="differ by more than the tolerance"):
        run_main(reproduce, "--only=tiny", "--add")
    assert re.search(r"tiny +UDA +20 +1 +3.00% +5.00%  0 of 1", capsys.readouterr().out)
    assert len((project / "results/tiny.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("draws", ["x", "0-4", "-1"])
def test_draws_that_are_no_numbers_are_refused(project, draws):
    with pytest.raises(SystemExit, match=f"draws={draws}: expected numbers from 0, such as --draws=0,1,2"):
        run_main(reproduce, f"--draws={draws}")


def test_new_runs_are_added_and_old_lines_stay(project):
    write_runs(project, "tiny,UDA,20,0,0,0.05,,,,,")
    run_main(reproduce, "--only=tiny", "--draws=0", "--add")
    lines = (project / "results/tiny.csv").read_text().splitlines()[1:]
    assert lines[0] == "tiny,UDA,20,0,0,0.05,,,,," and len(lines) == 2
    assert lines[1].startswith("tiny,supervised,20,0,0,0.05,10,1.3,0123456789ab,tensorflow=2.15.1,")


def test_what_results_have_can_be_left_out(project, capsys):
    write_runs(project, "tiny,UDA,20,0,0,0.05,,,,,", "tiny,supervised,20,1,1,0.05,,,,,")
    run_main(reproduce, "--only=tiny", "--new", "--add")
    assert starts(project) == {"default_20_1": 1, "unsup_ratio=0_20_0": 1}
    assert len((project / "results/tiny.csv").read_text().splitlines()) == 5
    run_main(reproduce, "--only=tiny", "--new", "--list")
    assert "in all 0 minutes" in capsys.readouterr().out


def test_sizes_may_have_their_own_numbers_of_draws_and_methods_their_own_minutes(project, capsys):
    entry = TINY | {"labels": [40, 20], "draws": [2, 1], "minutes": {"supervised": 1, "UDA": 10}}
    (project / "results/experiments.json").write_text(json.dumps({"tiny": entry}))
    run_main(reproduce, "--list")
    assert re.search(r"tiny +0 of 6 +33\n", capsys.readouterr().out)
    run_main(reproduce)
    names = [f"{method}_{size}" for method in ("default", "unsup_ratio=0") for size in ("20_0", "40_0", "40_1")]
    assert starts(project) == dict.fromkeys(names, 1)
    run_main(reproduce, "--draws=1", "--list")
    assert "2 of 4" in capsys.readouterr().out.splitlines()[-2]


def test_a_list_runs_nothing(project, capsys):
    run_main(reproduce, "--list")
    assert not starts(project)
    assert re.search(r"tiny +0 of 4 ", capsys.readouterr().out)


def test_an_experiment_without_its_data_is_left_out_and_cannot_be_asked_for(project, capsys):
    experiments = {"tiny": TINY, "far": TINY | {"needs": ["data/raw/far"]}}
    (project / "results/experiments.json").write_text(json.dumps(experiments))
    run_main(reproduce, "--list")
    assert "left out: far, which needs data/raw/far" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="only=far: data/raw/far does not exist"):
        run_main(reproduce, "--only=far")


def test_a_command_that_fails_is_named_with_what_it_said(project, capsys):
    experiments = {"tiny": TINY | {"train": "echo no room; exit 3 # {run_dir}"}}
    (project / "results/experiments.json").write_text(json.dumps(experiments))
    with pytest.raises(SystemExit, match="ended with 3; the same command goes on"):
        run_main(reproduce)
    assert "no room" in capsys.readouterr().err


def test_a_command_that_was_killed_is_a_failure_and_no_wish_to_stop(project, capsys):
    write_experiment(project, "echo no memory; kill -KILL $$ # {run_dir}")
    with pytest.raises(SystemExit, match="ended with -9; the same command goes on"):
        run_main(reproduce)
    assert "no memory" in capsys.readouterr().err


def write_experiment(project, train):
    (project / "results/experiments.json").write_text(json.dumps({"tiny": TINY | {"train": train}}))


def test_two_jobs_run_at_once_on_half_of_the_cores_each(project):
    meet = """mkdir -p {run_dir} && echo $TF_NUM_INTRAOP_THREADS > {run_dir}/threads && touch met_{draw}_$$ && \
for try in $(seq 300); do [ $(ls met_{draw}_* | wc -l) = 2 ] && break; sleep 0.1; done && [ $try != 300 ] && """
    write_experiment(project, meet + TRAIN)
    run_main(reproduce, "--jobs=2")
    assert len(starts(project)) == 4
    threads = {path.read_text().strip() for path in project.rglob("threads")}
    assert threads == {str(max(1, os.cpu_count() // 2))}


def test_a_run_that_fails_stops_the_others(project, capsys):
    fail = "[ '{flags}' = --unsup_ratio=0 ] && until [ -e going ]; do sleep 0.1; done && exit 3; "
    wait = "mkdir -p {run_dir}; trap 'touch stopped; exit 143' TERM; touch going; while :; do sleep 0.1; done"
    write_experiment(project, fail + wait)
    with pytest.raises(SystemExit, match="ended with 3; the same command goes on"):
        run_main(reproduce, "--jobs=2")
    assert (project / "stopped").exists()


def test_all_are_asked_to_end_before_one_is_waited_for(project):
    """Each waits for the other to be asked; who waits in vain says so."""
    ask = "touch {run_dir}.asked; for try in $(seq 100); do "
    ask += "[ $(ls */*/*/*.asked | wc -l) = 2 ] && exit 143; sleep 0.1; done"
    wait = "touch {run_dir}.going; while :; do sleep 0.1; done"
    write_experiment(project, f"trap '{ask}; touch in_vain; exit 143' TERM; {wait}")
    commands = [reproduce.Command(plan.train, f"{plan.run_dir}.log") for plan in reproduce.plan_runs("tiny", [0])]
    while len(list(project.rglob("*.going"))) < 2:
        time.sleep(0.1)
    reproduce.end_all(commands)
    assert len(list(project.rglob("*.asked"))) == 2 and not (project / "in_vain").exists()


def test_a_signal_to_terminate_reaches_all_that_a_run_has_started(project):
    write_experiment(project, "bash -c 'trap \"touch stopped\" TERM; touch {run_dir}.going; sleep 60 & wait' && true")
    command = [sys.executable, "-m", "utils.reproduce", "--jobs=2"]
    settings = {"cwd": project, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **settings) as process:
        for _ in range(600):
            if len(list(project.rglob("*.going"))) == 2:
                break
            time.sleep(0.1)
        process.terminate()
        assert "stopped: what is finished is kept" in process.stderr.read()
        assert process.wait() == 128 + signal.SIGTERM
    assert (project / "stopped").exists()


def test_the_program_starts_without_tensorflow(project):
    shutil.copytree(ROOT / "utils", project / "utils")
    code = "import sys; from utils import reproduce; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=project, env=os.environ, check=True)
