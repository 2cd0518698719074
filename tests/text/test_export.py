"""text/export.py: the exported model takes raw strings and predicts what the network predicts on their records."""

import collections
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.text import small_data
from tests.text.small_run import MAX_LENGTH, export_random_model, run_preprocess, tiny_config, write_bert
from text import export, record_format
from text.datasets.source import Facts, clean

pytestmark = pytest.mark.slow

HARD_TEXTS = [
    "This film was good.",
    'It was <br /><br />bad,<p>very "bad" &quot;indeed&quot;',
    'See <a href="http://a.b/c?d=e">this\nplace</a> and <A HREF=x>that</A>',
    "<a href= never closed, the film",
    "no link: </a> and <a name=x>",
    r"a\nnew\line \\n \\\ slow\\nfast",
    "<<p>a href=x>the <a href=y<br />z>",
    "&quot;<p>&quot;",
    "\\",
    "\ta  film \r\n of\u2028the \u00a0 place \x1c",
    "Ein café, naïve: ГОРОД 東京 İstanbul straße\u0000\ufffd",
    "warm " * 100 + "cold",
    "red",
    "x" * 150,
    "...!?" * 3,
]


def write_records(folder, has_title, keep_tail, prefix):
    """Records of HARD_TEXTS as a test set; titles are the same texts in another order, one of them empty."""
    bert_dir = write_bert(folder / "bert")
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(HARD_TEXTS)]
    titles = [*HARD_TEXTS[3:], "", *HARD_TEXTS[:2]]
    for row, title in zip(rows, titles):
        row |= {"title": title} if has_title else {}
    columns = {"title_column": "title"} if has_title else {}
    small_data.write_records(folder / "train.jsonl", [row for row in rows if clean(row["text"])])
    small_data.write_records(folder / "test.jsonl", [row for row in rows if clean(row["text"]) or has_title])
    files = {f"{name}_file": folder / f"{name}.jsonl" for name in ("train", "test")}
    run_preprocess(bert_dir, folder / "records", **files, **columns, trunc_keep_right=keep_tail, text_prefix=prefix)
    config = tiny_config(folder / "records", bert_dir, ema_decay=0.9)
    texts, titles = ([row.get(name) for row in rows] for name in ("text", "title"))
    kept = [number for number, text in enumerate(texts) if has_title or clean(text)]
    return config, [texts[row] for row in kept], [titles[row] for row in kept] if has_title else None


Case = collections.namedtuple("Case", "model data texts titles export_dir loaded serve")


CASES = {
    "titled": (True, True, ""),
    "cut at the end": (False, False, ""),
    "titled, with a prefix": (True, True, "very: "),
    "with a prefix, cut at the end": (False, False, "very: "),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    config, texts, titles = write_records(folder, *request.param)
    model, data = export_random_model(config, folder / "export")
    with pytest.MonkeyPatch.context() as monkeypatch:
        load, loads = tf.saved_model.load, []
        monkeypatch.setattr(tf.saved_model, "load", lambda path: loads.append(load(path)) or loads[0])
        loaded = export.load(str(folder / "export"))
    serve = loads[0].signatures["serving_default"]
    return Case(model, data, texts, titles, folder / "export", loaded, serve)


def read_features(record_set):
    serialized = tf.data.TFRecordDataset(record_set.paths).batch(1000).get_single_element()
    return record_format.pad(record_format.parse(serialized, ["original"])["original"], MAX_LENGTH)


# ---- the model ------------------------------------------------------------------------------------------------------


def test_the_exported_model_takes_raw_strings_and_equals_the_evaluation_network_on_their_records(case):
    features = read_features(case.data.test[0])
    assert max(np.count_nonzero(features["ids"], axis=1)) == MAX_LENGTH  # some were cut
    probabilities = case.loaded.predict_proba(case.texts, case.titles)
    assert probabilities.shape == (len(case.texts), 2) and probabilities.dtype == np.float32
    expected = tf.nn.softmax(case.model.evaluation_network(features, training=False))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-6)
    assert np.ptp(probabilities, axis=0).max() > 0.05  # it depends on the texts
    trained = tf.nn.softmax(case.model.network(features, training=False))
    assert np.abs(probabilities - trained).max() > 0.01  # and is the average, not the network that is trained


def test_the_signature_names_inputs_and_outputs(case):
    names = ["texts", "titles"] if case.titles else ["texts"]
    assert case.serve.structured_input_signature[1] == {
        name: tf.TensorSpec([None], tf.string, name=name) for name in names
    }
    outputs = case.serve(**{name: tf.constant(["a film", "", "bad"]) for name in names})
    assert set(outputs) == {"probabilities", "label"}
    np.testing.assert_array_equal(outputs["label"], np.argmax(outputs["probabilities"], axis=-1))


def test_batches_and_their_order_do_not_change_predictions(case):
    whole = case.loaded.predict_proba(case.texts, case.titles)
    small = case.loaded.predict_proba(case.texts, case.titles, batch_size=4)
    np.testing.assert_allclose(small, whole, rtol=1e-4, atol=1e-6)
    assert case.loaded.predict_proba([], case.titles and []).shape == (0, 2)
    as_iterator = case.loaded.predict_proba(iter(case.texts), case.titles and iter(case.titles))
    np.testing.assert_array_equal(as_iterator, whole)


def test_an_empty_text_has_a_prediction(case):
    probabilities = case.loaded.predict_proba(["", " \n"], case.titles and ["", "<br />"])
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(probabilities[0], probabilities[1], rtol=1e-5)


def test_the_facts_go_with_the_model(case):
    assert case.loaded.facts == Facts("csv", ("0", "1"), has_title=bool(case.titles))


PROGRAM = """
import json, sys
import tensorflow as tf
import tensorflow_text
inputs = json.load(sys.stdin)
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = serve(**{name: tf.constant(texts) for name, texts in inputs.items()})
ours = sorted({"text", "utils", "augmentation"} & set(sys.modules))
print(json.dumps([ours, outputs["probabilities"].numpy().tolist()]))
"""


def test_a_new_process_needs_tensorflow_and_tensorflow_text_only(case, tmp_path):
    if not case.titles:
        pytest.skip("once is enough")
    inputs = {"texts": case.texts, "titles": case.titles}
    command = [sys.executable, "-c", PROGRAM, str(case.export_dir)]
    process = subprocess.run(command, cwd=tmp_path, input=json.dumps(inputs), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    ours, probabilities = json.loads(process.stdout)
    assert ours == []
    np.testing.assert_allclose(probabilities, case.loaded.predict_proba(case.texts, case.titles), rtol=1e-4, atol=1e-6)


def test_half_of_a_character_is_left_out_as_in_training(case):
    titles = ["red"] * 2 if case.titles else None
    whole, half = case.loaded.predict_proba(["good film", "good \ud800film"], titles)
    np.testing.assert_allclose(half, whole, rtol=1e-5)


def test_a_model_of_features_is_told_from_one_of_texts(tmp_path):
    for name in ("saved_model.pb", "features.json"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"{tmp_path} takes features, not texts: use FeatureClassifier.load"):
        export.load(str(tmp_path))


def test_a_folder_without_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=rf"{tmp_path} holds no exported model: train first, with --do_train\."):
        export.load(str(tmp_path))


def test_texts_that_do_not_fit_are_described(case):
    titles = case.titles and ["a"]
    for texts, message in (
        ("one text", "texts is one string: expected a list of them"),
        ([None], r"texts\[0\]=None: expected a string"),
        ([b"bytes"], r"texts\[0\]=b'bytes': expected a string"),
    ):
        with pytest.raises(ValueError, match=message):
            case.loaded.predict_proba(texts, titles)
    if case.titles:
        with pytest.raises(ValueError, match="the model was trained with titles: expected one for each text"):
            case.loaded.predict_proba(["a"])
        with pytest.raises(ValueError, match="2 titles for 1 texts: expected one for each"):
            case.loaded.predict_proba(["a"], ["b", "c"])
    else:
        with pytest.raises(ValueError, match="the model was trained without titles: leave them out"):
            case.loaded.predict_proba(["a"], ["b"])


# ---- cleaning -------------------------------------------------------------------------------------------------------


def test_cleaning_in_the_graph_equals_cleaning_before():
    texts = [*HARD_TEXTS, "", "<a href=a><a href=<b>>c</a></a>", "</a><a href=", "\\\\n\\\\\\n", "&amp;quot;", "<br/>"]
    cleaned = [text.decode().strip() for text in export.clean_in_graph(tf.constant(texts)).numpy()]
    assert cleaned == [clean(text) for text in texts]


# ---- texts from files -----------------------------------------------------------------------------------------------


def test_a_text_file_has_one_text_a_line(tmp_path):
    (tmp_path / "texts.txt").write_bytes("\ufeffOne, two.\r\n\nÜber <br />\nlast".encode())
    assert export.read_texts(str(tmp_path / "texts.txt"), "text", "") == (
        ["One, two.", "", "Über <br />", "last"],
        None,
    )


def test_a_table_has_columns_for_texts_and_titles(tmp_path):
    rows = [{"title": "a", "body": 'x, "y"\nz'}, {"title": "", "body": "w"}]
    for name in ("texts.csv", "texts.tsv.gz", "texts.jsonl"):
        small_data.write_records(tmp_path / name, rows)
        assert export.read_texts(str(tmp_path / name), "body", "title") == (['x, "y"\nz', "w"], ["a", ""])
        assert export.read_texts(str(tmp_path / name), "body", "") == (['x, "y"\nz', "w"], None)


@pytest.mark.parametrize(
    "name, message",
    [
        ("", "--do_predict needs --predict_input: a .txt, .csv, .tsv or .jsonl file"),
        ("missing.txt", "missing.txt' does not exist: expected a .txt, .csv, .tsv or .jsonl file"),
        ("texts.pdf", "texts.pdf: unknown kind of file: expected the ending csv, tsv, jsonl"),
        ("texts.csv", "texts.csv has no text_column='text': its columns are 'review'"),
        ("latin.txt", "latin.txt, line 2: not UTF-8 text"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, message):
    (tmp_path / "texts.pdf").write_bytes(b"a")
    (tmp_path / "texts.csv").write_bytes(b"review\na\n")
    (tmp_path / "latin.txt").write_bytes("a\nÜber\n".encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        export.read_texts(str(tmp_path / name) if name else "", "text", "")


@pytest.mark.parametrize("changes", [{"class_names": ["a", "b", "c"]}, {"has_title": "flipped"}])
def test_facts_that_do_not_fit_the_model_are_refused(case, tmp_path, changes):
    folder = shutil.copytree(case.export_dir, tmp_path / "export")
    values = json.loads((folder / "dataset.json").read_text())
    values["facts"] |= changes if "class_names" in changes else {"has_title": not values["facts"]["has_title"]}
    (folder / "dataset.json").write_text(json.dumps(values))
    with pytest.raises(
        ValueError, match="its model takes {'texts'.*}.* but the .json file beside it tells of .*: export it again"
    ):
        export.load(str(folder))


def test_a_damaged_model_is_named(case, tmp_path):
    folder = shutil.copytree(case.export_dir, tmp_path / "export")
    (folder / "saved_model.pb").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"export/saved_model.pb cannot be read \(.*\): export it again"):
        export.load(str(folder))
