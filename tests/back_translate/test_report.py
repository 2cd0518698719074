"""The page that shows paraphrases beside their originals."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from back_translate import report
from back_translate.report import measure, write_report
from tests.programs import run_main
from tests.text.small_run import write_bert
from text import features

ROOT = Path(__file__).parents[2]

ORIGINALS = ["The cat sat on the mat today.", "", "He said <b>no</b> & left | quickly.", "It was a very good film."]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_unchanged_texts_have_a_self_bleu_of_100_and_others_less():
    same = measure("same", ORIGINALS, ORIGINALS)
    assert (same.changed, same.length_ratio, same.kept) == (0, 1, 1)
    assert same.self_bleu == pytest.approx(100)
    changed = [*ORIGINALS[:3], "It was quite a good film."]
    assert measure("one", ORIGINALS, changed).changed == pytest.approx(1 / 3)
    assert 50 < measure("one", ORIGINALS, changed).self_bleu < 100
    half = measure("half", ["0123456789"] * 4, ["01234", "0123", "012345678901234", "0123456789012345"])
    assert half.kept == 0.5
    assert half.length_ratio == pytest.approx((0.5 + 0.4 + 1.5 + 1.6) / 4)
    assert measure("empty", ORIGINALS, [""] * 4).self_bleu == 0


@pytest.mark.parametrize("ending", ["html", "md"])
def test_the_page_has_a_line_for_each_temperature_and_the_texts_side_by_side_escaped(tmp_path, ending):
    original = write(tmp_path / "in.txt", ORIGINALS)
    paths = [
        write(tmp_path / f"unsup_in/sample_{temp}/para/para_0.txt", [f"{line} <i>{temp}|" for line in ORIGINALS])
        for temp in ("0.7", "0.9")
    ]
    output = tmp_path / f"page.{ending}"
    rows, examples = write_report(original, paths, str(output), num_examples=10)
    page = output.read_text(encoding="utf-8")
    assert [row.name for row in rows] == ["sample_0.7, para_0", "sample_0.9, para_0"]
    assert len(examples) == 3  # without the empty line
    assert "<i>" not in page and "<b>" not in page and "&lt;b&gt;no&lt;/b&gt; &amp; left" in page
    for row in rows:
        assert f"{row.self_bleu:.1f}" in page
    columns = {"html": r"<td>", "md": r"(?<!\\)\| "}[ending]
    assert all(len(re.findall(columns, line)) == 3 for line in page.splitlines() if "good film" in line)


# ---- cosines --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), max_position_embeddings=128)


TEXTS = ["the film was very good", "a small red book", "", "the place is old and cold", "they said it was poor"]
OTHERS = ["the book was very good", "a big red book", "", "the place is new and cold", "they said it was poor"]


def test_cosines_are_1_for_unchanged_texts_near_0_for_exchanged_ones_and_between_for_paraphrases(encoder):
    exchanged = [*TEXTS[3:], "", *TEXTS[:2]]
    same, changed, random = report.measure_cosines(TEXTS, [TEXTS, OTHERS, exchanged], encoder)
    assert same == pytest.approx(1, abs=1e-5)
    assert random < 0.2
    assert random < changed < same


def test_cosines_are_those_of_features_less_the_mean_of_the_originals(encoder):
    old, new = (features.embed([text for text in texts if text], encoder) for texts in (TEXTS, OTHERS))
    expected = [
        np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(old - old.mean(0), new - old.mean(0))
    ]
    assert report.measure_cosines(TEXTS, [OTHERS], encoder) == pytest.approx([np.mean(expected)], abs=1e-5)


def test_a_single_original_has_nothing_to_be_compared_with(encoder):
    assert report.measure_cosines(["the film"], [["the film"]], encoder) == [0]


@pytest.mark.parametrize("ending", ["html", "md"])
def test_with_an_encoder_page_and_console_have_cosines_beside_self_bleu(tmp_path, capsys, encoder, ending):
    original, paraphrases = write(tmp_path / "in.txt", TEXTS), write(tmp_path / "p.txt", OTHERS)
    output, page = tmp_path / f"page.{ending}", {}
    arguments = [f"--original={original}", f"--paraphrases={original}", f"--paraphrases={paraphrases}"]
    for options in ((), (f"--encoder={encoder}",)):
        run_main(report, *arguments, f"--output={output}", *options)
        page[options] = (output.read_text(), capsys.readouterr().out)
        assert all(("cosine" in text) == bool(options) for text in page[options])
    shown = re.findall(r"self-BLEU 100.0, cosine (.*)|self-BLEU [^1].*, cosine (.*)", page[options][1])
    assert shown[0][0] == "1.000" and 0 < float(shown[1][1]) < 1
    assert shown[1][1] in page[options][0]


def test_a_report_without_cosines_does_not_load_tensorflow():
    code = "import sys; from back_translate import report; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_an_encoder_that_is_not_there_is_named(tmp_path):
    original = write(tmp_path / "in.txt", TEXTS)
    with pytest.raises(ValueError, match=f"encoder={tmp_path}/none: expected the name of an encoder, such as e5-small"):
        write_report(original, [original], str(tmp_path / "r.md"), 5, encoder=str(tmp_path / "none"))
    assert not (tmp_path / "r.md").exists()


# ---- lines ----------------------------------------------------------------------------------------------------------


def test_some_of_a_long_file_are_compared_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_COMPARED", 10)
    original = write(tmp_path / "in.txt", [f"text number {number}" for number in range(95)])
    rows, examples = write_report(original, [original], str(tmp_path / "p.md"), num_examples=4)
    assert [texts[0] for texts in examples] == [f"text number {number}" for number in (0, 30, 60, 90)]


def test_files_that_do_not_fit_are_named(tmp_path):
    original, other = write(tmp_path / "in.txt", ORIGINALS), write(tmp_path / "p.txt", ORIGINALS[:3])
    with pytest.raises(ValueError, match="p.txt has 3 lines, .*in.txt has 4: expected paraphrases line by line"):
        write_report(original, [other], str(tmp_path / "r.md"), 5)
    with pytest.raises(ValueError, match="output=r.pdf: expected a name that ends in .html or .md"):
        write_report(original, [original], "r.pdf", 5)
    empty = write(tmp_path / "empty.txt", [])
    with pytest.raises(ValueError, match="empty.txt is empty"):
        write_report(empty, [empty], str(tmp_path / "r.md"), 5)
