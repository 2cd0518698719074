"""The models that come with the project translate, and their README says how well."""

import re
from pathlib import Path

import pytest

from back_translate import engines, model_files
from utils import files

MODELS = Path(engines.__file__).parent / "models"
SENTENCES = ["I don't know what to do.", "He bought a new car.", "We are going to the sea next week."]


@pytest.mark.parametrize("name", ["en_fr", "fr_en"])
def test_the_readme_states_the_bleu_of_the_model(name):
    bleu = files.read_json(MODELS / name / "config.json")["facts"]["bleu"]
    assert bleu >= 25
    assert re.search(rf"\| `{name}` \|.*\| {bleu:.1f} \|", (MODELS / "README.md").read_text())


@pytest.mark.parametrize("name", ["en_fr", "fr_en"])
def test_readme_and_script_state_the_sampling_of_the_model(name):
    sampling = model_files.read_sampling(str(MODELS / name))
    assert sampling["top_k"] > 1 and sampling["top_p"] == 1
    for path in ("models/README.md", "run.sh"):
        assert f"embedded models have top_k {sampling['top_k']}" in (MODELS.parent / path).read_text(), path


def test_both_models_together_stay_small():
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < 16e6


def load(name, **options):
    return engines.TensorFlowEngine.load(str(MODELS / name), **options)


def test_there_and_back():
    french = load("en_fr").translate(SENTENCES)
    assert all(word in line for word, line in zip(("sais pas", "voiture", "semaine"), french)), french
    english = load("fr_en").translate(french)
    assert all(word in line for word, line in zip(("don't know", "car", "next week"), english)), english


def test_paraphrases_follow_the_seed():
    engine, draws = load("en_fr", temperature=0.8), []
    for engine.seed in (0, 0, 1):
        draws.append(engine.translate(SENTENCES))
    assert draws[0] == draws[1] != draws[2]
