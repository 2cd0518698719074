"""utils/report.py: the page and the tables say what the files of the runs say, and nothing else."""

import json
import re

import numpy as np
import pytest

from tests.page_parser import Page
from tests.programs import run_main
from utils import comparison_page, diagnosis, evaluation, page, report, run_page, statistics

SCRIPT = '<script>alert("x")</script>'
CLASS_NAMES = ["cat & dog", SCRIPT, "bird"]
CONFIG = {
    "task_name": "pets",
    "train_steps": 400,
    "dev_size": 7,
    "unsup_ratio": 2,
    "uda_confidence_thresh": 0.8,
    "tsa": "linear",
}


def create_evaluation(seed, share_right):
    """Predictions on the same 60 test examples, of which about this share is right."""
    rng = np.random.default_rng(seed)
    labels = np.random.default_rng(99).integers(0, 3, 60)
    right = rng.random(60) < share_right
    logits = rng.normal(size=[60, 3]) + 2.0 * np.eye(3)[np.where(right, labels, (labels + 1) % 3)]
    logits *= np.where(right, 2.0, 0.7)[:, np.newaxis]  # mistakes are less sure
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    views = [rng.random(40).astype(np.float32) for _ in range(2)]
    return evaluation.Evaluation(probabilities, labels, np.array(CLASS_NAMES), *views, rng.integers(0, 3, 40))


def write_run(folder, seed=0, share_right=0.8, **changes):
    """A folder with all that a run leaves for its page."""
    folder.mkdir(parents=True)
    kept = create_evaluation(seed, share_right)
    accuracy = float(kept.correct.mean())
    result = {"task_name": "pets", "accuracy": accuracy, "error_rate": 1 - accuracy, "sup_size": 30, "seed": seed}
    result |= {
        "label_seed": seed,
        "step": 300,
        "train_steps": 400,
        "examples_per_second": 123.4,
        "train_seconds": 75.25,
    }
    result["versions"] = {"python": "3.11", "git_commit": SCRIPT}
    (folder / "result.json").write_text(json.dumps(result | changes))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "run.json").write_text(json.dumps({"command": f"python {SCRIPT}", "hardware": "3 cores"}))
    lines = [metrics_at(step, seed) for step in (100, 200, 300, 400)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    evaluation.write(str(folder), kept)
    return str(folder)


def metrics_at(step, seed):
    shares = {"test_accuracy": 0.2, "dev_accuracy": 0.1, "sup_accuracy": 0.15, "unsup_kept_ratio": 0.05}
    shares |= {"sup_kept_ratio": 0.11, "original_confidence": 0.21, "augmented_confidence": 0.12}
    shares |= {"pseudo_label_balance": 0.22, "tsa_threshold": 0.24, "input_wait_ratio": 0.06}
    line = {"step": step, "loss": 400 / step + seed, "sup_loss": 300 / step, "unsup_loss": 0.01 * step}
    line |= {name: share * step / 100 + 0.01 * seed for name, share in shares.items()}
    return line | {"learning_rate": 0.03 / step, "examples_per_second": 100.0 + step}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "UDA")


@pytest.fixture(scope="module")
def run(model_dir):
    return report.read_run(model_dir)


@pytest.fixture(scope="module")
def parsed(run):
    return Page(page.document(*run_page.create(run, [])))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    for seed in range(3):
        write_run(folder / f"seed_{seed}/supervised", seed, 0.6)
        write_run(folder / f"seed_{seed}/UDA", seed, 0.9)
    return folder


# ---- the page of a run ----------------------------------------------------------------------------------------------


def test_every_figure_of_the_result_is_on_the_page_in_full(run, parsed):
    for name in ("accuracy", "error_rate", "sup_size", "step", "train_steps", "examples_per_second", "train_seconds"):
        assert set(parsed.values(f"result.{name}")) == {run.result[name]}, name
    assert parsed.values("config.dev_size") == [7]
    assert parsed.figures["result.train_seconds"][0][1] == "1 min 15 s"


def test_every_value_of_metrics_jsonl_is_on_the_page(run, parsed):
    for name in run.lines[0]:
        values = [line[name] for line in run.lines]
        in_legend = name != "step"
        assert parsed.values(f"metrics.{name}") == values[-1:] * in_legend + values, name


def test_every_curve_of_the_table_is_drawn_where_its_values_are(run, parsed):
    for each in run_page.CURVES:
        names = [name for name in each.metrics if name in run.lines[0]]
        titles = iter(parsed.drawing(each.caption)["titles"])
        for number, name in enumerate(names):
            points = [(line["step"], line[name]) for line in run.lines]
            size = max(abs(value) for _, value in points)
            np.testing.assert_allclose(parsed.curve(each.caption, number), points, rtol=0.01, atol=0.01 * size)
            for step, value in points:
                shown = next(titles).split(": ")[-1].replace("−", "-").replace(",", "")
                assert float(shown) == pytest.approx(value, rel=1e-3), (name, step)


def test_the_evaluation_is_told_as_it_is(run, parsed):
    kept, size = run.evaluation, len(run.evaluation.labels)
    assert parsed.values("evaluation.size") == [size]
    counts = np.array([[np.sum((kept.labels == i) & (kept.predictions == j)) for j in range(3)] for i in range(3)])
    assert parsed.values("evaluation.confusion") == counts.flatten().tolist()
    assert parsed.values("evaluation.class_size") == counts.sum(axis=1).tolist()
    np.testing.assert_allclose(parsed.values("evaluation.class_accuracy"), np.diag(counts) / counts.sum(axis=1))
    np.testing.assert_allclose(parsed.values("evaluation.class_precision"), np.diag(counts) / counts.sum(axis=0))
    assert parsed.values("evaluation.original_confidence") == [kept.original_confidence.mean()]
    assert parsed.values("evaluation.unlabeled_kept") == [np.mean(kept.original_confidence > 0.8)]
    shares = [np.mean(kept.pseudo_labels == each) for each in range(3)]
    np.testing.assert_allclose(parsed.values("evaluation.predicted_share"), shares)


def test_the_suggested_threshold_holds_what_the_page_says_of_it(run, parsed):
    (threshold,), confidence = parsed.values("evaluation.threshold"), run.evaluation.confidence
    kept = confidence >= threshold
    assert parsed.values("evaluation.coverage") == [kept.mean()]
    assert parsed.values("evaluation.accuracy_above") == [run.evaluation.correct[kept].mean()]
    assert run.evaluation.correct[kept].mean() >= 0.95 > run.evaluation.correct[confidence >= threshold - 0.01].mean()
    assert f"--unsure_below={threshold:g}" in parsed.texts["code"]


def test_the_diagnosis_is_on_the_page(run):
    def texts_of(lines):
        return Page(page.document(*run_page.create(run._replace(lines=lines), []))).texts["p"]

    sick = [line | {"unsup_kept_ratio": 0.0, "original_confidence": 0.4} for line in run.lines]
    findings = diagnosis.diagnose(sick, run.config)
    assert any(finding.name == "nothing passes the confidence threshold" for finding in findings)
    for finding in findings:
        assert f"{finding.saw} {finding.why}" in texts_of(sick) and finding.advice in texts_of(sick)
    assert "Nothing conspicuous in the metrics." in texts_of(run.lines[:1])


def test_shown_figures_are_the_full_ones_rounded(parsed):
    """The unit of most is per cent; a text such as 1,024 or 0.03 is the value itself."""
    for name, figures in parsed.figures.items():
        for value, shown in figures:
            match = re.fullmatch(r"(−?[\d.,]+(?:e−?\d+)?)(\xa0| )?(%?)", shown)
            if match and "seconds" not in name:
                number = float(match[1].replace(",", "").replace("−", "-")) / (100 if match[3] else 1)
                assert number == pytest.approx(float(value), rel=1e-3, abs=0.0005 if match[3] else 0.5), (name, shown)


def test_what_users_wrote_is_text_and_never_markup(run, parsed):
    assert "<script" not in parsed.content
    assert any(SCRIPT in text for text in parsed.texts["code"])  # the command
    assert SCRIPT in parsed.texts["td"] and SCRIPT in parsed.texts["th"]  # a class
    title, parts = run_page.create(run._replace(model_dir=SCRIPT, result=run.result | {"task_name": SCRIPT}), [])
    other = Page(page.document(title, parts))
    assert other.texts["h1"] == [SCRIPT]


def test_the_page_needs_nothing_else(parsed):
    assert set(parsed.links) == {"data:,"}
    assert not re.search(r"https?:|@import|url\(", parsed.content)
    assert "prefers-color-scheme: dark" in parsed.content
    assert len(parsed.content) < 300_000


def test_a_run_from_before_has_a_page_of_what_it_left(tmp_path):
    (tmp_path / "result.json").write_text('{"error_rate": 0.25, "examples_per_second": null}')
    content = Page(page.document(*run_page.create(report.read_run(str(tmp_path)), [])))
    assert content.values("result.error_rate") == [0.25] and content.values("result.accuracy") == [0.75]
    assert run_page.NO_EVALUATION in content.texts["p"] and "This run has no metrics.jsonl." in content.texts["p"]


def test_values_that_are_not_finite_leave_a_gap(run):
    lines = [line | {"loss": float("nan") if line["step"] == 300 else line["loss"]} for line in run.lines]
    drawing = Page(page.document(*run_page.create(run._replace(lines=lines), []))).drawing("Loss")
    assert "nan" not in str(drawing["shapes"])
    assert [title for title in drawing["titles"] if title.startswith("total")] == [
        "total, step 100: 4", "total, step 200: 2", "total, step 400: 1"
    ]  # fmt: skip


@pytest.mark.parametrize("value", [0.0, 1e-13, 5e-324, 1e99, 1e308, -1e308, float("inf")])
def test_any_values_can_be_drawn(run, value):
    lines = [line | {"loss": value, "learning_rate": value} for line in run.lines]
    lines[0]["loss"] = -value
    for drawing in Page(page.document(*run_page.create(run._replace(lines=lines), []))).drawings:
        assert "nan" not in str(drawing["shapes"]) and "inf" not in str(drawing["shapes"])


@pytest.mark.parametrize("num_classes", [30, 45])
def test_many_classes_are_told_by_the_worst_of_those_that_have_examples(run, num_classes):
    labels = np.arange(60) % 30
    probabilities = np.eye(num_classes, dtype=np.float32)[np.where(np.arange(60) < 3, 29, labels)]
    class_names = np.array([f"class {number}" for number in range(num_classes)])
    kept = run.evaluation._replace(labels=labels, probabilities=probabilities, class_names=class_names)
    content = Page(page.document(*run_page.create(run._replace(evaluation=kept), [])))
    assert content.values("evaluation.class_accuracy") == [0.5] * 3 + [1] * 17
    assert content.values("evaluation.confusion") == [1, 1, 1]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("result.json", '{"accuracy": 1}', "result.json: error_rate is missing"),
        ("result.json", '{"error_rate": 0.5, "step": "x"}', "result.json: step='x': expected a whole number"),
        ("run.json", "{}", "run.json: command is missing"),
        ("config.json", "[]", r"config.json holds \[\]: expected an object"),
        ("evaluation.npz", "x", r"evaluation.npz cannot be read \(.*\): evaluate that run again, with --do_eval"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message, capsys):
    folder = write_run(tmp_path / "run")
    (tmp_path / "run" / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        report.read_run(folder)
    report.write_run_page(folder)  # does not end the program
    assert re.search(f"report.html was not written: .*{message}", capsys.readouterr().err)


# ---- several runs ---------------------------------------------------------------------------------------------------


def read_runs(folder):
    return {name: list(map(report.read_run, found)) for name, found in report.find_runs(str(folder)).items()}


def test_runs_are_found_by_the_names_of_their_folders(runs):
    found = report.find_runs(str(runs))
    assert {name: len(model_dirs) for name, model_dirs in found.items()} == {"UDA": 3, "supervised": 3}
    with pytest.raises(ValueError, match="there is no finished run below it"):
        report.find_runs(str(runs / "missing"))


def test_the_table_has_mean_and_sample_deviation(runs):
    rates = [run.result["error_rate"] for run in read_runs(runs)["UDA"]]
    rows = report.collect(read_runs(runs))
    assert rows[0] == ("UDA", pytest.approx(np.mean(rates)), pytest.approx(np.std(rates, ddof=1)), 3)
    table = report.format_table([report.Row("a", 0.25, 0.0707, 2), report.Row("b", 0.1, None, 1)]).split("\n")
    assert [cell.strip() for cell in table[2].split("|")[1:-1]] == ["a", "25.0% ± 7.1", "2"]
    assert [cell.strip() for cell in table[3].split("|")[1:-1]] == ["b", "10.0%", "1"]


def test_the_program_writes_the_page_and_the_tables(runs, tmp_path, capsys):
    output = tmp_path / "report.html"
    run_main(report, f"--runs={runs}", "--baseline=supervised", f"--output={output}")
    assert capsys.readouterr().out.endswith(f"report: {output}\n")
    content, of_names = Page(output.read_text()), read_runs(runs)
    rates = {name: np.array([run.result["error_rate"] for run in found]) for name, found in of_names.items()}
    np.testing.assert_allclose(content.values("comparison.error_rate"), [rates[name].mean() for name in of_names])
    deviations = [rates[name].std(ddof=1) for name in of_names]
    np.testing.assert_allclose(content.values("comparison.error_rate_deviation"), deviations)
    differences = rates["UDA"] - rates["supervised"]
    assert content.values("comparison.difference") == [pytest.approx(differences.mean())]
    half = 4.302653 * differences.std(ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    assert content.values("comparison.low") == [pytest.approx(differences.mean() - half)]
    assert content.values("comparison.high") == [pytest.approx(differences.mean() + half)]
    lines = (tmp_path / "report.csv").read_text().splitlines()
    assert lines[0] == "name,error_rate,deviation,runs" and len(lines) == 3
    assert (tmp_path / "report.md").read_text().count("\n") == 4


def test_one_run_gets_a_page_of_its_own(runs, tmp_path):
    run_main(report, f"--run=mine={runs}/seed_0/UDA", f"--output={tmp_path / 'one.html'}")
    assert "comparison.error_rate" not in Page((tmp_path / "one.html").read_text()).figures


def test_curves_are_means_with_bands_of_one_deviation(runs):
    of_name = read_runs(runs)["UDA"]
    points, band = comparison_page.mean_curve(of_name, "loss")
    assert points == [(step, pytest.approx(400 / step + 1)) for step in (100, 200, 300, 400)]
    assert band[0] == (100, pytest.approx(4), pytest.approx(6))
    content = Page(page.document(*comparison_page.create(read_runs(runs), "", "", [])))
    expected = [(step, 0.2 * step / 100 + 0.01) for step in (100, 200, 300, 400)]
    np.testing.assert_allclose(content.curve("Accuracy: test"), expected, atol=0.01)
    assert sum(tag == "polygon" for tag, _ in content.drawing("Accuracy: test")["shapes"]) == 2


def test_steps_that_not_all_runs_have_are_left_out(run):
    shorter = run._replace(lines=run.lines[:2])
    assert [step for step, _ in comparison_page.mean_curve([run, shorter], "loss")[0]] == [100, 200]


def test_single_runs_are_compared_on_the_same_test_examples(runs):
    of_names = {name: found[:1] for name, found in read_runs(runs).items()}
    found = comparison_page.compare(of_names["UDA"], of_names["supervised"])
    errors, other = (~of_names[name][0].evaluation.correct for name in ("UDA", "supervised"))
    assert found.mean == errors.mean() - other.mean() and found.how == "bootstrap, 60 test examples"
    assert found.interval == statistics.paired_interval(errors, other)


def test_runs_of_other_draws_are_not_paired(runs):
    uda, supervised = (read_runs(runs)[name] for name in ("UDA", "supervised"))
    assert comparison_page.compare(uda[:1], supervised[1:]) == "no draws in common, by seed and label_seed"
    assert comparison_page.compare([uda[0], uda[0]], supervised) == "no draws in common, by seed and label_seed"
    other_test = supervised[0]._replace(evaluation=None)
    assert "no evaluation.npz of the same test examples" in comparison_page.compare(uda[:1], [other_test])


def test_the_page_of_each_run_is_linked(runs, tmp_path):
    write_run(tmp_path / "a b", seed=0)
    write_run(tmp_path / "c", seed=0)
    report.write_run_page(str(tmp_path / "a b"))
    run_main(report, f"--run=x={tmp_path}/a b", f"--run=<b>={tmp_path}/c", f"--output={tmp_path}/report.html")
    content = Page((tmp_path / "report.html").read_text())
    assert content.links == ["data:,", "a%20b/report.html"]
    assert "<b>" in content.texts["td"]


def test_wrong_flags_are_told(runs, tmp_path):
    with pytest.raises(SystemExit, match="error: run=: expected --run=NAME=MODEL_DIR, or --runs=FOLDER."):
        run_main(report)
    with pytest.raises(SystemExit, match="error: run=x: expected NAME=MODEL_DIR."):
        run_main(report, "--run=x")
    with pytest.raises(SystemExit, match="error: baseline=x: expected one of UDA, supervised."):
        run_main(report, f"--runs={runs}", "--baseline=x", f"--output={tmp_path}/report.html")
    with pytest.raises(SystemExit, match="result.json does not exist: finish that run"):
        run_main(report, f"--run=UDA={tmp_path}")
