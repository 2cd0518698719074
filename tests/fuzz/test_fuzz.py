"""Damaged inputs end in one line of error, or are read as what they are; more of them: python -m tests.fuzz.run."""

import numpy as np
import pytest

from tests.fuzz import broken, cases, loaders, mutations, seeds
from tests.fuzz.cases import Child


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    with Child(tmp_path_factory.mktemp("fuzz")) as child:
        yield child


@pytest.mark.parametrize("loader", [name for name, loader in loaders.LOADERS.items() if loader.cases])
def test_damaged_inputs_are_refused_in_one_line_or_read(child, loader):
    for seed, outcome in child.run(loader, range(loaders.LOADERS[loader].cases)):
        again = f"python -m tests.fuzz.run --loader={loader} --seed={seed} --cases=1"
        assert outcome.kind != "failed", f"{outcome.damage}: {outcome.message}\n{again}"


@pytest.mark.parametrize("loader", seeds.SEEDS)
def test_what_once_broke_a_reader_is_refused(child, loader):
    for seed, outcome in child.run(loader, seeds.SEEDS[loader]):
        harmless = seed in seeds.HARMLESS and outcome.kind == "accepted"
        assert outcome.kind == "refused" or harmless, f"{seed}: {outcome.message}"


def test_the_same_seed_does_the_same_damage(tmp_path):
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "x.json").write_text('{"a": [1, 2, {"b": "c"}], "d": 5}')
        done = [mutations.mutate([folder / "x.json"], np.random.default_rng(seed)) for seed in range(3)]
        contents.append((done, (folder / "x.json").exists() and (folder / "x.json").read_bytes()))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("way", sorted({way.__name__ for way in (*mutations.WAYS, mutations.change_json)}))
def test_every_way_of_damage_can_change_a_file(tmp_path, way):
    function = next(other for other in (*mutations.WAYS, mutations.change_json) if other.__name__ == way)
    content, changed = b'{"a": [1, 2, {"b": "c"}], "d": 5}', 0
    for seed in range(20):
        path = tmp_path / f"{seed}.json"
        path.write_bytes(content)
        function(str(path), np.random.default_rng(seed))
        changed += not path.is_file() or path.read_bytes() != content
    assert changed > 5


def test_a_reader_that_breaks_is_noticed_and_the_next_case_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "MAX_SECONDS", 3)
    asked = [seed for kind in broken.KINDS for seed in (kind, "fine")]
    with Child(tmp_path, "tests.fuzz.broken") as child:
        found = [(seed, outcome.kind) for seed, outcome in child.run("broken", asked)]
    assert found == [(seed, "refused" if seed == "fine" else "failed") for seed in asked]


def test_a_caller_that_stops_early_gets_no_answers_of_before(tmp_path):
    with Child(tmp_path, "tests.fuzz.broken") as child:
        assert next(child.run("broken", ["fine", "traceback"]))[1].kind == "refused"
        assert [outcome.kind for _, outcome in child.run("broken", ["fine"])] == ["refused"]
