"""Terms, numbers and URLs that stay, or else the original does."""

import re

import pytest

from back_translate.protect import KINDS, Protection, read_terms, restore
from tests.back_translate.small_translation import FunctionEngine

PROTECTION = Protection(["Acme", "New York", "New York City", "C++"])


def test_terms_numbers_and_urls_are_found():
    text = "Acme (not Acmes) paid $1,000.50 for 3D in New York City, New York, on 2020-01-02 at 10:30; C++, 5th, 7."
    items = ["Acme", "1,000.50", "3D", "New York City", "New York", "2020-01-02", "10:30", "C++", "5th", "7"]
    assert PROTECTION.find(text) == items
    text = "See https://a.org/b?c=1, www.example.com. Or (http://x.y/z) or me.you+1@mail.example.org!"
    urls = ["https://a.org/b?c=1", "www.example.com", "http://x.y/z", "me.you+1@mail.example.org"]
    assert PROTECTION.find(text) == urls
    assert PROTECTION.find("acme ACME new york, no number") == []


def test_what_is_protected_does_not_reach_the_model_and_comes_back():
    engine = FunctionEngine(lambda text: f"le {text}".replace("owes", "doit"))
    sentence = "Acme owes 25 to www.a.com and Acme."
    (result,) = PROTECTION.translate(engine.translate, [sentence])
    assert result == "le Acme doit 25 to www.a.com and Acme."
    assert not set(PROTECTION.find(engine.asked[0])) & set(PROTECTION.find(sentence))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: re.sub(r"\b(X2|Boston)\b", "", text),  # lost
        lambda text: f"{text} {text}",  # repeated
        lambda text: re.sub(r"\b(X1|Tom)\b", r"\1a", text),  # changed
    ],
)
def test_a_sentence_whose_placeholders_do_not_come_through_keeps_its_original(spoil):
    sentences = ["Acme has 25.", "Nothing here."]
    results = PROTECTION.translate(FunctionEngine(spoil).translate, sentences)
    assert results == ["Acme has 25.", spoil("Nothing here.")]


def test_another_kind_of_placeholder_is_tried_before_giving_up():
    engine = FunctionEngine(lambda text: text.upper())
    assert PROTECTION.translate(engine.translate, ["see Acme now"]) == ["SEE Acme NOW"]
    assert len(engine.asked) == 2


def test_placeholders_that_the_sentence_contains_are_not_used():
    text, hidden = PROTECTION.hide("Tom's tomboy likes Acme and New York", KINDS[0])
    assert (text, hidden) == ("Tom's tomboy likes Boston and Tokyo", {"Boston": "Acme", "Tokyo": "New York"})
    assert restore(text, hidden) == "Tom's tomboy likes Acme and New York"
    assert PROTECTION.hide("Acme, 1 and 2", ("Tom", "Boston")) is None


def test_a_sentence_with_too_much_to_protect_keeps_its_original():
    sentence = "Numbers: " + " ".join(map(str, range(50)))
    engine = FunctionEngine(str.upper)
    assert PROTECTION.translate(engine.translate, [sentence]) == [sentence]
    assert engine.asked == []


def test_results_come_in_the_order_of_the_sentences():
    sentences = ["a Acme", "b", "c 5", "d"]
    assert PROTECTION.translate(FunctionEngine(lambda text: f"{text}!").translate, sentences) == [
        "a Acme!",
        "b!",
        "c 5!",
        "d!",
    ]


def test_numbers_that_the_translation_adds_do_no_harm_but_a_second_term_does():
    originals = ["three of 5", "Acme is"]
    results = PROTECTION.translate(lambda texts: [f"3 {text}" for text in texts], ["trois de 5", "Acme"], originals)
    assert results == ["3 trois de 5", "3 Acme"]
    results = PROTECTION.translate(lambda texts: [f"5 {text}" for text in texts], ["trois de 5", "est"], originals)
    assert results == ["three of 5", "Acme is"]


def test_terms_are_read_from_a_list_or_a_file(tmp_path):
    assert read_terms(" Acme, New York,Acme,") == ["Acme", "New York"]
    assert read_terms("numbers") == []
    (tmp_path / "terms.txt").write_text("Acme, Inc.\r\n\nNew York\n")
    assert read_terms(str(tmp_path / "terms.txt")) == ["Acme, Inc.", "New York"]
