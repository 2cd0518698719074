"""Every reader of files: how to make a valid small input in a folder, how to read it, and what its result must be.

A reader passes if it refuses an input by an error that utils/cli.py makes one line of, or if its result passes `check`.
"""

import dataclasses
import gzip
import io
import itertools
import pickle
import types

import numpy as np
import scipy.io
import tensorflow as tf
from PIL import Image

import image.classifier
import image.config
import image.datasets
import image.export
import image.input_pipeline
import text.classifier
import text.export
import text.features
import text.input_pipeline
from augmentation import back_translation, word_level
from back_translate import engines, join_paragraphs, model_files, split_paragraphs, t2t_checkpoint
from back_translate.train import TrainConfig, read_pairs
from image import imagenet, imagenet_index
from image.datasets import cifar10, svhn
from tests.back_translate import small_translation, transformer_numpy
from tests.fuzz.cases import Loader
from tests.image import small_data as small_images
from tests.text import small_bert, small_data, small_onnx, small_run
from text import (
    bert_weights,
    datasets,
    encoders,
    encoding,
    filter_domain,
    onnx_weights,
    pretrain,
    pretrain_data,
    record_format,
)
from text.config import SourceConfig
from text.datasets import tables
from text.models.bert import BertConfig
from text.tokenization import Tokenizer
from utils import domain_filter, evaluation, feature_classifier, features, records, report, run_dir, run_page, settings

# ---- images ---------------------------------------------------------------------------------------------------------


def check_image_splits(splits):
    for images, labels in splits:
        assert images.dtype == np.uint8 and images.ndim == 4
        if labels is not None:
            assert labels.dtype == np.int64 and labels.shape == images.shape[:1] and labels.min(initial=0) >= 0


def check_source(source):
    check_image_splits(source.read().values())
    assert source.facts.num_classes > 1 and np.isfinite([*source.facts.mean, *source.facts.std]).all()


def read_official(module):
    return lambda folder: [module.read_split(folder, split, allow_partial=True) for split in ("train", "test")]


def make_cifar10_pickles(folder):
    rng = np.random.default_rng(0)
    (folder / "cifar-10-batches-py").mkdir()
    for name in small_images.BATCHES:
        batch = {b"data": rng.integers(0, 256, (3, 3072), np.uint8), b"labels": rng.integers(0, 10, 3).tolist()}
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))


def make_svhn(folder, compressed):
    rng = np.random.default_rng(0)
    for split, number in (("train", 5), ("test", 3)):
        arrays = {"X": rng.integers(0, 256, (32, 32, 3, number), np.uint8)}
        arrays["y"] = rng.integers(1, 11, (number, 1), np.uint8)
        scipy.io.savemat(folder / f"{split}_32x32.mat", arrays, do_compression=compressed)


def make_image_folder(folder):
    images = small_images.colored_images(8, 12)
    for number, ending in enumerate(("png", "jpg", "gif", "bmp", "png", "jpg", "webp", "tiff")):
        (folder / "train" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number]).save(folder / "train" / "ab"[number % 2] / f"{number}.{ending}")


def make_image_arrays(folder):
    images = small_images.colored_images(6, 12)
    np.savez(folder / "train.npz", images=images[:4], labels=np.array(["a", "b", "a", "b"]))
    np.savez_compressed(folder / "test.npz", images=images[4:], labels=np.array(["a", "b"]))
    np.save(folder / "more.npy", images)


def read_own_images(folder, **files):
    paths = {setting: str(folder / name) for setting, name in files.items()}
    task_name = "npz" if "train_file" in files else "folder"
    return image.datasets.open_source(
        image.config.PreprocessConfig(task_name=task_name, data_dir=str(folder / "out"), image_size=12, **paths)
    )


def make_image_records(folder):
    small_images.write_cifar10(folder / "raw", num_train=20, num_test=4)
    small_images.run_preprocess(folder / "raw", folder / "records", sup_size=10, aug_copy=1, dev_size=10)


def read_image_records(folder):
    config = small_images.tiny_config(folder / "records", sup_size=10, aug_copy=1, dev_size=10, verify_records=True)
    data = image.input_pipeline.open_data(config)
    return data, image.input_pipeline.create_eval_dataset(data.test, data.facts.image_size, 4)


def check_records(result):
    data, dataset = result
    labels = np.concatenate([batch["label"] for batch in dataset])
    assert len(labels) >= data.test[0].num_examples
    assert 0 <= labels.min() <= labels.max() < data.facts.num_classes
    record_sets = *data.sup, *data.unsup, *data.dev, *data.test
    paths = [path for record_set in record_sets for path in record_set.paths]
    assert sum(1 for _ in tf.data.TFRecordDataset(paths)) == sum(part.num_examples for part in record_sets)


def make_imagenet(folder):
    for name in ("train/a/1.png", "train/a/2.jpeg", "train/b/3.png", "val/a/4.png", "val/b/5.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small_images.colored_images(1, 16)[0]).save(folder / name)
    imagenet_index.write_index(str(folder))


def read_imagenet(folder):
    config = image.config.Config(task_name="imagenet", data_dir=str(folder), image_size=16, aug_mode="online")
    return imagenet.open_data(config)


def make_imagenet_shards(folder):
    images = [io.BytesIO() for _ in range(4)]
    for image_file, ending in zip(images, ("png", "jpeg", "png", "jpeg")):
        Image.fromarray(small_images.colored_images(1, 16)[0]).save(image_file, ending)
    shards = {"train-00000-of-00002": (0, 1), "train-00001-of-00002": (1, 2), "validation-00000-of-00001": (2, 3)}
    for name, numbers in shards.items():
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for number in numbers:
                label = {"image/class/label": 1 + number % 2, "image/class/synset": b"n0%d" % (number % 2)}
                writer.write(records.encode_example({"image/encoded": images[number].getvalue()} | label))


def read_imagenet_shards(folder):
    imagenet_index.write_index(str(folder), num_classes=2)
    return read_imagenet(folder)


def check_imagenet(data):
    assert data.facts.num_classes > 1 and data.sup[0].num_examples > 0 and data.test[0].num_examples > 0


def check_predictions(classifier, examples):
    probabilities = classifier.predict_proba(examples)
    assert probabilities.shape == (len(examples), len(classifier.classes)) and np.isfinite(probabilities).all()


# ---- tables and texts -----------------------------------------------------------------------------------------------


def make_table(name):
    def make(folder):
        small_data.write_user_file(folder / name, 8, title=True)
        small_data.write_records(
            folder / f"more_{name}", [{"text": "one", "title": "a"}, {"text": "two", "title": "b"}]
        )

    return make


def read_source(folder, **options):
    config = SourceConfig(raw_data_dir=str(folder), allow_partial=True, **options)
    source = datasets.open_source(config)
    return {split: list(source.read(split)) for split in source.splits}, source.facts


def read_table(name):
    def read(folder):
        files = {"train_file": str(folder / name), "unlabeled_file": str(folder / f"more_{name}")}
        return read_source(folder, task_name="csv", title_column="title", **files)

    return read


def check_texts(result):
    splits, facts = result
    assert facts.num_classes > 1
    for split, examples in splits.items():
        assert examples and all(isinstance(example.text, str) for example in examples)
        assert all(-1 <= example.label < facts.num_classes for example in examples)


def make_vocab(folder):
    small_data.write_vocab(folder / "vocab.txt")


def read_vocab(folder):
    tokenizer = Tokenizer(str(folder / "vocab.txt"))
    return tokenizer, tokenizer.piece_ids(tokenizer.split(["The good film, café 7!", "x y"]))


def check_pieces(result):
    tokenizer, pieces = result
    assert all(0 <= ids.min() <= ids.max() < tokenizer.vocab_size for ids in pieces)


def make_text_records(folder):
    bert = small_run.write_bert(folder / "bert")
    small_run.write_user_records(folder, bert, dev_sizes=(4,))


def read_text_records(folder):
    config = small_run.tiny_config(folder / "records", folder / "bert", dev_size=4, verify_records=True)
    data = text.input_pipeline.open_data(config)
    return data, text.input_pipeline.create_eval_dataset(data.test, config.max_seq_length, 4)


def pretrain_config(folder):
    return pretrain.PretrainConfig(
        task_name="csv",
        train_file=str(folder / "train.csv"),
        vocab_file=str(folder / "vocab.txt"),
        bert_config_file="unused",
        dev_size=2,
        max_seq_length=16,
        train_batch_size=2,
        eval_batch_size=2,
    )


def make_pretraining(folder):
    small_data.write_user_file(folder / "train.csv", 8)
    make_vocab(folder)
    write_pretraining(folder)


def write_pretraining(folder):
    config = pretrain_config(folder)
    source = datasets.open_source(config)
    return pretrain_data.write_records(config, source, config.vocab_file, str(folder / "records"))


def read_pretraining(folder):
    return write_pretraining(folder)


def check_pretraining(record_sets):
    for record_set in record_sets:
        serialized = [*tf.data.TFRecordDataset(record_set.paths)]
        assert len(serialized) == record_set.num_examples
        lengths = record_format.num_pieces(record_format.parse(tf.stack(serialized), ["original"])["original"])
        assert 2 <= lengths.numpy().min() <= lengths.numpy().max() <= 13


def make_survey(folder):
    words = encoding.Words(["one", "two"], np.array([0, 1, 1], np.int32), np.array([0, 1, 3]), np.array([3, 7]))
    encoding.save_words(str(folder / "words.npz"), words)
    builder = word_level.StatisticsBuilder()
    builder.add([["one"], ["two", "two"]])
    np.savez(folder / "statistics.npz", **builder.finish().to_arrays())


def read_survey(folder):
    words = encoding.load_words(str(folder / "words.npz"), 2)
    return words, encoding.load_statistics(str(folder / "statistics.npz"), 2)


def check_survey(result):
    words, statistics = result
    assert words.word_ids.max() < len(words.words) and np.isfinite(statistics.scores).all()


def make_pool(folder):
    records = [{"text": f"text {number}", "title": "a"} for number in range(6)]
    small_data.write_records(folder / "pool.jsonl.gz", records)
    (folder / "pool.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n", mtime=0))
    selection = domain_filter.Selection(2, 2)
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    selection.add(domain_filter.Block(np.arange(3), [0] * 3, np.zeros(0, np.int64), 3), probabilities)
    selection.save(str(folder / "state.npz"), {"pool": "x"})


def read_pool(folder):
    pools = [filter_domain.survey(tables.read_texts(folder / name, *columns)) for name, columns in POOLS.items()]
    selection = domain_filter.Selection(2, 2)
    selection.restore(str(folder / "state.npz"), {"pool": "x"})
    return pools, selection


POOLS = {"pool.jsonl.gz": ("text", "title"), "pool.txt.gz": ("text", "")}


def check_pool(result):
    pools, selection = result
    kept = selection.kept()
    assert all(count > 0 for count, _ in pools)
    assert len(kept.positions) == len(kept.labels) and np.isin(kept.labels, [0, 1]).all()
    assert domain_filter.summarize(selection, ("a", "b"))["num_examples"] > 0


# ---- weights --------------------------------------------------------------------------------------------------------


def make_hugging_face(folder):
    small_bert.write_hugging_face(folder, small_bert.create_weights())
    (folder / "uda_encoder.json").write_text('{"name": "minilm"}')


def make_tensorflow1(folder):
    """As TensorFlow 1 stores variables, by their names; the configuration and the vocabulary lie beside them."""
    make_hugging_face(folder)
    (folder / "model.safetensors").unlink()
    save_variables(folder / "bert_model.ckpt", small_bert.create_weights())


def save_variables(prefix, variables):
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=list(variables.values()),
    )


def make_tensorflow2(folder):
    """The same as a graph of objects, with some of the names of tf-models-official."""
    make_hugging_face(folder)
    (folder / "model.safetensors").unlink()
    shapes = {
        "word_embeddings/embeddings": [30, 12],
        "transformer/layer_0/self_attention/query/kernel": [12, 3, 4],
        "transformer/layer_0/self_attention/query/bias": [3, 4],
        "transformer/layer_0/self_attention/attention_output/kernel": [3, 4, 12],
    }
    variables = [tf.Variable(tf.ones(shape), name=name) for name, shape in shapes.items()]
    tf.train.Checkpoint(**{f"part_{number}": variable for number, variable in enumerate(variables)}).write(
        str(folder / "bert_model.ckpt")
    )


def read_bert(folder):
    candidates = [str(path).removesuffix(".index") for path in folder.glob("*.index")]
    checkpoint = candidates[0] if candidates else str(folder)
    weights, _ = bert_weights.read_weights(checkpoint), encoders.describe(checkpoint)
    config = BertConfig.read(bert_weights.find_config(checkpoint))
    return weights, config, Tokenizer(bert_weights.find_vocab(checkpoint)).vocab_size


def check_bert(result):
    weights, config, vocab_size = result
    assert vocab_size > 0 and dataclasses.asdict(config)
    names = [name for name in weights if name.startswith("bert/")]
    assert all(np.isfinite(weights[name]).all() for name in names)


def make_tensor2tensor(folder):
    save_variables(folder / "model.ckpt-5", transformer_numpy.random_variables(np.random.default_rng(0)))


def read_tensor2tensor(folder):
    return t2t_checkpoint.read_checkpoint(str(folder / "model.ckpt-5"), num_heads=4)


def check_transformer(result):
    config, *_, weights = result
    assert weights["embedding"].shape == (config.vocab_size, config.hidden_size)
    assert all(np.isfinite(weight).all() for weight in weights.values())


def make_translation(folder, storage="float32"):
    config, vocabulary, weights = model_files.load_model(small_translation.write_model(folder))
    model_files.save_model(str(folder), config, vocabulary, weights, storage)


def read_translation(folder):
    config, vocabulary, weights = model_files.load_model(str(folder))
    vocabulary.decode(vocabulary.encode("Tom has 25 dogs."))
    return config, vocabulary, weights


def make_ctranslate2(folder):
    """What this package itself reads of such folders; model.bin is CTranslate2's own."""
    (folder / "model.bin").write_bytes(b"")
    (folder / "config.json").write_text('{"add_source_eos": false, "eos_token": "</s>"}')
    corpus = itertools.chain.from_iterable(small_translation.TEXTS for _ in range(20))
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus, model_writer=model, vocab_size=40, minloglevel=2)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.getvalue())


def read_ctranslate2(folder):
    pieces = engines.load_pieces(str(folder))
    return pieces.decode(pieces.encode("the cat sat"))


def make_onnx(folder):
    for name, content in zip(("graph", "data"), small_onnx.create_onnx(small_onnx.create_weights())):
        (folder / name).write_bytes(content)


def read_onnx(folder):
    return onnx_weights.read_onnx((folder / "graph").read_bytes(), (folder / "data").read_bytes())


def check_onnx(weights):
    assert all(np.isfinite(weight).all() for weight in weights.values())


# ---- features -------------------------------------------------------------------------------------------------------


def create_features():
    rng = np.random.default_rng(0)
    arrays = {"features": rng.normal(size=[6, 3]), "labels": np.array(["a", "b"] * 3)}
    arrays |= {"unlabeled": rng.normal(size=[8, 3]), "augmented": rng.normal(size=[2, 8, 3])}
    return arrays | {"test_features": rng.normal(size=[2, 3]), "test_labels": np.array(["b", "a"])}


def make_features_file(folder):
    np.savez(folder / "features.npz", **create_features())


def read_features_file(folder):
    config = features.HeadConfig(task_name="features", sup_size=4, dev_size=2)
    data = features.read_file(str(folder / "features.npz"), config)
    return [data.sup, data.dev, data.test], len(data.class_names)


def make_feature_records(folder):
    examples = [{"features": np.arange(4, dtype="<f2").tobytes(), "label": number % 2} for number in range(6)]
    records.begin_set(str(folder), {"view": "original"})
    for shard in range(2):
        records.write_shard(str(folder), shard, 2, lambda: map(records.encode_example, examples))
    records.finish_set(str(folder), 2)


def read_feature_records(folder):
    record_set = records.read_set(str(folder), {"view": "original"}, "Compute them again.")
    return [text.features.read_features(record_set, num_classes=2)], 2


def check_features(result):
    parts, num_classes = result
    for part in filter(None, parts):
        assert np.isfinite(part.features).all() and len(part.features) == len(part.labels)
        assert 0 <= part.labels.min() <= part.labels.max() < num_classes


def make_features_export(folder):
    data = features.create_data(**create_features())
    features.export_head(data, types.SimpleNamespace(evaluation_network=Kernel()), str(folder / "export"))


class Kernel(tf.Module):
    """As little as there can be of a network."""

    def __init__(self):
        self.weights = [tf.Variable(tf.eye(3, 2))]

    def __call__(self, values, training):
        return values @ self.weights[0]


def read_features_export(folder):
    return feature_classifier.FeatureClassifier.load(str(folder / "export"))


def check_features_classifier(classifier):
    check_predictions(classifier, np.ones([2, classifier.trained().facts.width]))


# ---- back-translation -----------------------------------------------------------------------------------------------


def make_lines(name, count=20):
    return lambda folder: (folder / name).write_text("".join(f"Un film, {number}.\n" for number in range(count)))


def read_paraphrases(folder):
    return back_translation.open_paraphrases(str(folder / "para_0.txt"), 20).read(0, 20)


def make_corpora(folder):
    (folder / "pairs.txt").write_text("".join(f"the cat {n}\tle chat {n}\tmore\n" for n in range(8)))
    make_lines("source.txt", 8)(folder)
    make_lines("target.txt", 8)(folder)


def read_corpora(folder):
    paths = {f"{side}_file": str(folder / f"{side}.txt") for side in ("source", "target")}
    return [read_pairs(TrainConfig(held_out=2, **p)) for p in ({"corpus": str(folder / "pairs.txt")}, paths)]


def make_stages(folder):
    make_lines("texts.txt", 5)(folder)
    split_paragraphs.split_file(str(folder / "texts.txt"), str(folder / "sentences.txt"), 1, 0, "rules")


def read_stages(folder):
    sentences, output = str(folder / "sentences.txt"), folder / "para.txt"
    join_paragraphs.join_files([sentences], [sentences], str(output))
    return output.read_text(encoding="utf-8").split("\n")


def check_strings(result):
    assert all(isinstance(line, str) for line in result)


# ---- runs and exported models ---------------------------------------------------------------------------------------


def tiny_parts():
    tf.random.set_seed(0)
    network = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    network.build([None, 3])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(network.trainable_variables)
    return types.SimpleNamespace(network=network, optimizer=optimizer, average_network=None)


def make_run(folder):
    run_dir.prepare(str(folder), settings.RunConfig())
    checkpoints = run_dir.Checkpoints(str(folder), tiny_parts(), 5)
    checkpoints.save(100)
    checkpoints.save(200)
    checkpoints.save_if_best(100, 0.5)
    lines = [f'{{"step": {step}, "loss": 0.5, "examples_per_second": 9.5}}\n' for step in (100, 200)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "result.json").write_text('{"error_rate": 0.5}')
    run_dir.write_start(str(folder), 1)
    probabilities = np.float32([[0.25, 0.75], [0.5, 0.5]])
    evaluation.write(str(folder), evaluation.Evaluation(probabilities, np.array([1, 0]), np.array(["a", "b"])))


def read_run(folder):
    run_dir.prepare(str(folder), settings.RunConfig())
    parts = tiny_parts()
    checkpoints = run_dir.Checkpoints(str(folder), parts, 5)
    steps = checkpoints.restore_last(), checkpoints.restore_chosen(by_dev=True)
    page = run_page.create(report.read_run(str(folder)), [])
    return run_dir.read_metrics(str(folder)), checkpoints.read_best(), steps, parts.network.get_weights(), page


def check_run(result):
    metrics, best, steps, weights, page = result
    assert all(isinstance(line["step"], int) for line in metrics)
    assert best is None or np.isfinite(float(best))
    assert set(steps) <= {0, 100, 200} and all(np.isfinite(weight).all() for weight in weights)
    assert "<h2>Curves</h2>" in "".join(page[1])


def make_text_export(folder):
    make_text_records(folder / "data")
    config = small_run.tiny_config(folder / "data/records", folder / "data/bert", dev_size=4, ema_decay=0.9)
    small_run.export_random_model(config, folder / "export")


def check_text_classifier(classifier):
    check_predictions(classifier, ["A good film.", ""])


def check_image_classifier(classifier):
    check_predictions(classifier, small_images.colored_images(2))


# ---- the table ------------------------------------------------------------------------------------------------------

LOADERS = {
    "cifar10_binary": Loader(
        lambda folder: small_images.write_cifar10(folder, 10, 4), read_official(cifar10), check_image_splits
    ),
    "cifar10_pickles": Loader(make_cifar10_pickles, read_official(cifar10), check_image_splits),
    "svhn": Loader(lambda folder: make_svhn(folder, True), read_official(svhn), check_image_splits),
    "svhn_plain": Loader(lambda folder: make_svhn(folder, False), read_official(svhn), check_image_splits),
    "image_folder": Loader(
        make_image_folder, lambda folder: read_own_images(folder, train_dir="train"), check_source, cases=100
    ),
    "image_arrays": Loader(
        make_image_arrays,
        lambda folder: read_own_images(folder, train_file="train.npz", unlabeled_file="more.npy", test_file="test.npz"),
        check_source,
    ),
    "image_records": Loader(make_image_records, read_image_records, check_records, "records/*", cases=10),
    "imagenet_index": Loader(make_imagenet, read_imagenet, check_imagenet),
    "imagenet_shards": Loader(make_imagenet_shards, read_imagenet_shards, check_imagenet, cases=40),
    "csv": Loader(make_table("train.csv"), read_table("train.csv"), check_texts),
    "csv_gz": Loader(make_table("train.csv.gz"), read_table("train.csv.gz"), check_texts),
    "tsv": Loader(make_table("train.tsv"), read_table("train.tsv"), check_texts),
    "jsonl": Loader(make_table("train.jsonl"), read_table("train.jsonl"), check_texts),
    "jsonl_gz": Loader(make_table("train.jsonl.gz"), read_table("train.jsonl.gz"), check_texts),
    "official_csv": Loader(
        lambda folder: small_data.write_official(folder, "amazon-2", 6, 4),
        lambda folder: read_source(folder, task_name="amazon-2"),
        check_texts,
    ),
    "imdb_archive": Loader(
        lambda folder: small_data.write_imdb(folder, 2, 2, 2, archive=True),
        lambda folder: read_source(folder, task_name="imdb"),
        check_texts,
    ),
    "imdb_folder": Loader(
        lambda folder: small_data.write_imdb(folder, 2, 2, 2), lambda folder: read_source(folder), check_texts
    ),
    "vocab": Loader(make_vocab, read_vocab, check_pieces, cases=60),
    "text_records": Loader(make_text_records, read_text_records, check_records, "records/*", cases=10),
    "pretraining_records": Loader(make_pretraining, read_pretraining, check_pretraining, "records/*", cases=20),
    "survey": Loader(make_survey, read_survey, check_survey),
    "filter_pool": Loader(make_pool, read_pool, check_pool),
    "bert_tensorflow1": Loader(make_tensorflow1, read_bert, check_bert),
    "bert_tensorflow2": Loader(make_tensorflow2, read_bert, check_bert),
    "bert_hugging_face": Loader(make_hugging_face, read_bert, check_bert),
    "tensor2tensor": Loader(make_tensor2tensor, read_tensor2tensor, check_transformer),
    "translation_model": Loader(make_translation, read_translation, check_transformer),
    "translation_model_int8": Loader(
        lambda folder: make_translation(folder, "int8"), read_translation, check_transformer
    ),
    "ctranslate2": Loader(make_ctranslate2, read_ctranslate2, check_strings),
    "paraphrases": Loader(make_lines("para_0.txt"), read_paraphrases, check_strings),
    "translation_corpora": Loader(make_corpora, read_corpora, lambda pairs: None),
    "translation_stages": Loader(make_stages, read_stages, check_strings),
    "run_folder": Loader(make_run, read_run, check_run, cases=40),
    "features_file": Loader(make_features_file, read_features_file, check_features),
    "feature_records": Loader(make_feature_records, read_feature_records, check_features, cases=100),
    "onnx": Loader(make_onnx, read_onnx, check_onnx),
    "exported_features": Loader(make_features_export, read_features_export, check_features_classifier, cases=40),
    # By hand only: to make them takes long, and they are read as exported_features is.
    "exported_texts": Loader(
        make_text_export,
        lambda folder: text.classifier.TextClassifier.load(str(folder / "export")),
        check_text_classifier,
        "export/*",
        cases=0,
    ),
    "exported_images": Loader(
        lambda folder: small_images.export_random_model(folder / "export"),
        lambda folder: image.classifier.ImageClassifier.load(str(folder / "export")),
        check_image_classifier,
        "export/*",
        cases=0,
    ),
}
