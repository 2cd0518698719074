"""A trained network as a SavedModel that takes raw strings, and its use on texts from files.

    exported = load("runs/imdb/export")
    probabilities = exported.predict_proba(["A film to remember."])

Programs that load the SavedModel without this package have to `import tensorflow_text` first.
"""

import collections
import os

import numpy as np
import tensorflow as tf

from text import record_format
from text.datasets import tables
from text.datasets.source import LINK
from text.tokenization import assemble_in_graph
from utils import files, saved_models

Exported = collections.namedtuple("Exported", "facts predict_proba")
ENCODING = "utf-8", "surrogatepass"  # the graph drops what is no character, as training does


def export(networks, data, tokenizer, export_dir):
    """Writes a SavedModel from raw texts to probabilities, with cleaning and tokenisation, and dataset.json beside it.

    Args:
      networks: Keras models, the first from {"ids", "type_ids"}, each further one from what the one before it gives,
        the last to logits.
      data: text.input_pipeline.Data, of which the facts and the tokenization are used.
    """
    tokenization = data.tokenization
    columns = ("texts", "titles") if data.facts.has_title else ("texts",)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in columns], autograph=False)
    def serve(*columns):
        pieces = [tokenizer.tokenize(clean_in_graph(column)) for column in columns]
        pieces += [None] * (2 - len(pieces))
        ids, type_ids = assemble_in_graph(
            *pieces, tokenization.max_seq_length, tokenization.keep_tail, tokenizer=tokenizer
        )
        longest = tf.reduce_max(tf.reduce_sum(tf.cast(ids != 0, tf.int32), axis=1))
        outputs = {"ids": ids[:, :longest], "type_ids": type_ids[:, :longest]}
        for network in networks:
            outputs = network(outputs, training=False)
        probabilities = tf.nn.softmax(outputs)
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=-1)}

    module = tf.Module()
    # Without the layers, which take long to write.
    module.weights, module.serve = [weight for network in networks for weight in network.weights], serve
    saved_models.save(export_dir, module, serve)
    with saved_models.explain_refusal(export_dir):
        record_format.write_description(export_dir, data.facts, tokenization)


def clean_in_graph(texts):
    """What text.datasets.source.clean does to each text, but for white space at its ends, of which no token comes."""
    texts = tf.strings.regex_replace(texts, "<br />", " ")
    texts = tf.strings.regex_replace(texts, "&quot;", '"')
    texts = tf.strings.regex_replace(texts, "<p>", " ")
    has_link = tf.strings.regex_full_match(texts, "(?s).*<a href=.*")
    texts = tf.where(has_link, tf.strings.regex_replace(texts, LINK.pattern, ""), texts)
    return tf.strings.regex_replace(texts, r"\\n|\\", " ")


def load(export_dir):
    """Loads what `export` wrote.

    Returns:
      Exported: facts, and predict_proba from a list of texts, and one of titles if there were any in training, to a
      float32 array of class probabilities.
    """
    saved_models.check_exists(export_dir)
    if files.exists(os.path.join(export_dir, "features.json")):
        raise ValueError(f"{export_dir} takes features, not texts: use FeatureClassifier.load (docs/features.md).")
    facts, _ = record_format.read_dataset(export_dir)
    columns = ("texts", "titles") if facts.has_title else ("texts",)
    serve = saved_models.load(export_dir, {name: [] for name in columns}, facts.num_classes)

    def predict_proba(texts, titles=None, batch_size=32):
        texts = check_texts("texts", texts)
        inputs = {"texts": texts}
        if facts.has_title and titles is None:
            raise ValueError("titles=None, but the model was trained with titles: expected one for each text.")
        if titles is not None and not facts.has_title:
            raise ValueError("titles are given, but the model was trained without titles: leave them out.")
        if titles is not None:
            inputs["titles"] = check_texts("titles", titles, len(texts))
        probabilities = np.zeros([len(texts), facts.num_classes], np.float32)
        # Texts of similar length together, so that little of a batch is padding.
        order = np.argsort([len(text) for text in texts], kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            encoded = {name: [column[row].encode(*ENCODING) for row in rows] for name, column in inputs.items()}
            batch = {name: tf.constant(column) for name, column in encoded.items()}
            probabilities[rows] = serve(**batch)["probabilities"].numpy()
        return probabilities

    return Exported(facts, predict_proba)


def check_texts(name, texts, expected_number=None):
    """Returns `texts` as a list; raises ValueError unless it is one of strings."""
    if isinstance(texts, (str, bytes)):
        raise ValueError(f"{name} is one string: expected a list of them.")
    texts = list(texts)
    wrong = next((position for position, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"{name}[{wrong}]={texts[wrong]!r}: expected a string.")
    if expected_number not in (None, len(texts)):
        raise ValueError(f"{len(texts)} {name} for {expected_number} texts: expected one for each.")
    return texts


def read_texts(path, text_column, title_column):
    """Reads the texts to classify: a .txt file with one a line, or a .csv, .tsv or .jsonl file with columns.

    Returns:
      (texts, titles): lists; titles is None without a title_column.
    """
    if not path:
        raise ValueError("--do_predict needs --predict_input: a .txt, .csv, .tsv or .jsonl file.")
    if not files.is_file(path):
        raise ValueError(f"predict_input={str(path)!r} does not exist: expected a .txt, .csv, .tsv or .jsonl file.")
    pairs = list(tables.read_texts(path, text_column, title_column))
    has_titles = title_column and not tables.is_plain(path)
    return [text for text, _ in pairs], [title for _, title in pairs] if has_titles else None
