"""Converted models translate as the native one does. What needs CTranslate2 is skipped where it is not installed."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from back_translate import convert, engines, model_files, subwords
from back_translate.decoding import Decoder
from back_translate.transformer import Transformer, TransformerConfig, initial_weights
from tests.back_translate.small_translation import TEXTS, write_model

SENTENCES = ["the cat sat.", "I have 25 dogs!", "was it good, Tom?", "x" * 40, "a", "the best film of all. " * 4]
SIZES = {"hidden_size": 16, "num_encoder_layers": 2, "num_decoder_layers": 1, "num_heads": 4, "filter_size": 24}


def random_weights(config, seed=0):
    """Weights none of which is at its beginning: scales other than 1, biases other than 0."""
    rng = np.random.default_rng(seed)
    weights = {name: np.array(weight) for name, weight in initial_weights(config, seed).items()}
    for name in weights:
        weights[name] += rng.normal(0, 0.3, weights[name].shape).astype(np.float32)
    return weights


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("model"))
    vocabulary = subwords.build_vocabulary(subwords.count_words(TEXTS * 5), size=60)
    config = TransformerConfig(len(vocabulary), target_space_id=3, **SIZES)
    model_files.save_model(folder, config, vocabulary, random_weights(config))
    return folder


@pytest.fixture(scope="module")
def translations(model):
    return engines.TensorFlowEngine.load(model, extra_length=20).translate(SENTENCES)


def test_the_converted_model_translates_as_the_native_one(model, translations, tmp_path):
    pytest.importorskip("ctranslate2")
    convert.convert(str(tmp_path / "ct2"), "ctranslate2", "float32", model=model)
    engine = engines.create_engine("ctranslate2", str(tmp_path / "ct2"), extra_length=20)
    assert engine.translate(SENTENCES) == translations
    assert len(set(translations)) == len(SENTENCES)
    assert engine.translate(["", SENTENCES[1], "y " * 600]) == ["", translations[1], "y " * 600]
    assert engine.translate([]) == []


@pytest.mark.parametrize("quantization", ["int8", "float16"])
def test_converted_models_can_be_small(model, tmp_path, monkeypatch, quantization):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(convert, "NUM_POSITIONS", 128)  # they stay float32, and outweigh the rest of so small a model
    sizes = {}
    for name in ("float32", quantization):
        convert.convert(str(tmp_path / name), "ctranslate2", name, model=model)
        sizes[name] = (tmp_path / name / "model.bin").stat().st_size
    assert sizes[quantization] < 0.7 * sizes["float32"]
    engine = engines.create_engine("ctranslate2", str(tmp_path / quantization), extra_length=20)
    assert len(set(engine.translate(SENTENCES[:3]))) == 3


def test_sampling_draws_different_translations(model, tmp_path):
    pytest.importorskip("ctranslate2")
    convert.convert(str(tmp_path / "ct2"), "ctranslate2", "float32", model=model)
    folder, sentences = str(tmp_path / "ct2"), ["the cat sat."] * 20
    options = {"extra_length": 20, "seed": 1}
    assert len(set(engines.create_engine("ctranslate2", folder, temperature=1.0, **options).translate(sentences))) > 10
    only_best = engines.create_engine("ctranslate2", folder, temperature=1.0, top_k=1, **options)
    assert len(set(only_best.translate(sentences))) == 1


@pytest.mark.parametrize("add_source_eos", [False, True])
def test_models_with_sentencepiece_files_are_loaded(tmp_path, add_source_eos):
    ctranslate2 = pytest.importorskip("ctranslate2")
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"), model_prefix=str(tmp_path / "pieces"), vocab_size=40, pad_id=0, eos_id=1,
        unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
    config = TransformerConfig(pieces.get_piece_size(), **SIZES)
    weights = random_weights(config)
    spec = convert.create_spec(ctranslate2, config, weights)
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register([pieces.id_to_piece(number) for number in range(config.vocab_size)])
    spec.config.layer_norm_epsilon, spec.config.add_source_eos = 1e-6, add_source_eos
    spec.validate()
    spec.optimize()
    folder = tmp_path / "opus"
    folder.mkdir()
    spec.save(str(folder))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((tmp_path / "pieces.model").read_bytes())
    sentences = ["the cat sat.", "was it good?"]
    decoder = Decoder(Transformer(config, weights), extra_length=5)
    expected = [pieces.decode(decoder.decode([pieces.encode(sentence) + [1]])[0]) for sentence in sentences]
    assert (
        engines.create_engine("ctranslate2", str(folder), extra_length=5 + add_source_eos).translate(sentences)
        == expected
    )


def test_a_tensor2tensor_checkpoint_becomes_a_model_folder(tmp_path, model):
    config, vocabulary, weights = model_files.load_model(model)
    names = {f"transformer/body/{name}": weight for name, weight in weights.items() if name != "embedding"}
    size = config.hidden_size
    names |= {
        f"transformer/symbol_modality_{len(vocabulary)}_{size}/shared/weights_{number}": shard
        for number, shard in enumerate(np.array_split(weights["embedding"], 16))
    }
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt-5"),
        tensor_names=list(names),
        shape_and_slices=[""] * len(names),
        tensors=list(map(tf.constant, names.values())),
    )
    vocabulary.write(str(tmp_path / "vocab"))
    options = {"checkpoint": str(tmp_path / "model.ckpt-5"), "vocab_file": str(tmp_path / "vocab"), "num_heads": 4}
    convert.convert(str(tmp_path / "out"), "tensorflow", "float32", target_space_id=3, **options)
    read_config, _, read = model_files.load_model(str(tmp_path / "out"))
    assert read_config == dataclasses.replace(config, target_space_id=3)
    assert all(np.array_equal(read[name], weights[name]) for name in weights)
    (tmp_path / "vocab").write_text("'<pad>'\n'<EOS>'\n'a_'\n")
    with pytest.raises(ValueError, match="the vocabulary has 3 subwords, the weights are for"):
        convert.convert(str(tmp_path / "other"), "tensorflow", "float32", **options)


@pytest.mark.parametrize("engine", ["tensorflow", "ctranslate2"])
def test_a_converted_model_recommends_what_its_original_does(tmp_path, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    source, pure = write_model(tmp_path / "source"), write_model(tmp_path / "pure")
    model_files.write_sampling(source, {"top_k": 0, "top_p": 0.8})
    for model, sampling in ((source, {"top_k": 0, "top_p": 0.8}), (pure, model_files.PURE_SAMPLING)):
        convert.convert(f"{model}_converted", engine, "float32", model=model)
        assert model_files.read_sampling(f"{model}_converted") == sampling
        assert len(engines.create_engine(engine, f"{model}_converted", extra_length=5).translate(["the cat."])) == 1


BAD_SETTINGS = {
    "model='', checkpoint='': expected one of them": {},
    "model='a', checkpoint='b': expected one of them": {"model": "a", "checkpoint": "b"},
    "vocab_file='', num_heads=0: expected both with --checkpoint": {"checkpoint": "b"},
    "is not a translation model": {"model": "none"},
    "output_dir=.* is not empty": {"model": "a", "output_dir": "full"},
}


@pytest.mark.parametrize("message", BAD_SETTINGS)
def test_bad_settings_are_named(tmp_path, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    settings = {"output_dir": "new"} | BAD_SETTINGS[message]
    output_dir = tmp_path / settings.pop("output_dir")
    with pytest.raises(ValueError, match=message):
        convert.convert(str(output_dir), "tensorflow", "float32", **settings)
    assert not (tmp_path / "new").exists()


def test_folders_that_ctranslate2_cannot_use_are_named(tmp_path):
    with pytest.raises(ValueError, match="is not a CTranslate2 model: there is no model.bin"):
        engines.load_pieces(write_model(tmp_path / "native"))
    (tmp_path / "model.bin").touch()
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="has neither vocab.subwords nor source.spm and target.spm"):
        engines.load_pieces(str(tmp_path))


def test_ctranslate2_that_is_not_installed_is_asked_for(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match="pip install -r requirements-translation.txt"):
        engines.create_engine("ctranslate2", model)


@pytest.mark.parametrize("content", ["[]", '{"eos_token": 3}', '{"add_source_eos": "yes"}', "{"])
def test_settings_of_another_converter_that_have_the_wrong_shape_are_named(tmp_path, content):
    for name in ("model.bin", "source.spm", "target.spm"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="config.json"):
        engines.load_pieces(str(tmp_path))


def test_damaged_sentencepiece_files_are_named(tmp_path):
    pytest.importorskip("sentencepiece")
    for name in ("model.bin", "source.spm", "target.spm"):
        (tmp_path / name).write_bytes(b"garbage")
    with pytest.raises(ValueError, match="source.spm or .*target.spm cannot be read .*: download the model again"):
        engines.load_pieces(str(tmp_path))
