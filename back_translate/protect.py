"""Keeps given terms, numbers and URLs unchanged in a translation.

    protection = Protection(read_terms("Acme,New York"))
    translations = protection.translate(engine.translate, sentences)

What is protected is replaced by a placeholder before a sentence is translated, and put back afterwards. A translation
that lost, repeated or changed a placeholder is tried again with another kind of placeholder; if none comes through, the
sentence keeps its original.
"""

import collections
import re

from back_translate import stage_files
from utils import files

ONLY_NUMBERS = "numbers"  # stands for an empty list of terms
URL = r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]'”’]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
# With the letters of 5th or 3D, and the marks inside 1,000.50, 10:30 and 2020-01-02.
NUMBER = r"[^\W_]*\d(?:\w|[.,:/'’-](?=\d))*"
# Kinds of placeholders, in the order in which they are tried. These names are the same in both languages in 98 to 100 %
# of Tatoeba's English–French pairs, and one subword each in the embedded models; the others suit larger models.
KINDS = (
    ("Tom", "Boston", "Tokyo", "Paris"),
    tuple(f"X{number}" for number in range(1, 10)),
)


def read_terms(value):
    """The terms of --protect: a file with one term per line, or a list joined by commas."""
    if files.is_file(value):
        terms = stage_files.read_lines(value)
    elif value.endswith(".txt"):
        raise ValueError(f"protect={value}: there is no such file. Give a file of terms or a list joined by commas.")
    else:
        terms = [] if value == ONLY_NUMBERS else value.split(",")
    return sorted({term.strip() for term in terms} - {""})


class Protection:
    def __init__(self, terms=()):
        # The longest first: New York City before New York.
        patterns = [_whole_word(term) for term in sorted(terms, key=lambda term: (-len(term), term))]
        self.pattern = re.compile("|".join([*patterns, URL, _whole_word_pattern(NUMBER)]))

    def find(self, sentence):
        """What is protected in a sentence, in its order: a list of str."""
        return [match[0] for match in self.pattern.finditer(sentence)]

    def translate(self, translate, sentences, originals=None):
        """Translates sentences.

        Args:
          translate: function from a list of sentences to their translations.
          originals: what each sentence falls back to, such as the sentence that it is a translation of; None: itself. A
            sentence that is its own original with something protected in it was given up before, and stays.
        """
        originals = sentences if originals is None else originals
        results = list(originals)
        waiting, plain = [], []
        for number, sentence in enumerate(sentences):
            if not self.find(sentence):
                plain.append(number)
            elif originals is sentences or sentence != originals[number]:
                waiting.append(number)
        for number, translation in zip(plain, translate([sentences[number] for number in plain])):
            results[number] = self._checked(translation, originals[number])
        for names in KINDS:
            hidden = {number: self.hide(sentences[number], names) for number in waiting}
            tried = [number for number in waiting if hidden[number] is not None]
            translations = translate([hidden[number][0] for number in tried])
            waiting = [number for number in waiting if hidden[number] is None]
            for number, translation in zip(tried, translations):
                restored = restore(translation, hidden[number][1])
                if restored is None:
                    waiting.append(number)
                else:
                    results[number] = self._checked(restored, originals[number])
        return results

    def hide(self, sentence, names):
        """Returns the sentence with placeholders, and a dict from placeholder to what it stands for; or None.

        None means that there are not enough names that the sentence does not contain itself.
        """
        free = iter(name for name in names if name.lower() not in sentence.lower())
        hidden = {}

        def replace(match):
            name = next(free, None)
            hidden[name] = match[0]
            return name or ""

        text = self.pattern.sub(replace, sentence)
        return None if None in hidden else (text, hidden)

    def _checked(self, translation, original):
        """The translation, if everything that is protected in the original is in it as often, else the original."""
        wanted, found = (collections.Counter(self.find(text)) for text in (original, translation))
        return translation if all(found[item] == count for item, count in wanted.items()) else original


def restore(translation, hidden):
    """Puts back what the placeholders stand for. None if one of them does not occur exactly once."""
    pattern = re.compile("|".join(_whole_word(name) for name in hidden))
    if sorted(pattern.findall(translation)) != sorted(hidden):
        return None
    return pattern.sub(lambda match: hidden[match[0]], translation)


def _whole_word(term):
    return _whole_word_pattern(re.escape(term), term[0], term[-1])


def _whole_word_pattern(pattern, first="a", last="a"):
    """A pattern that does not begin or end inside a word; an end that is no letter or digit needs no such care."""
    before = r"(?<!\w)" if re.match(r"\w", first) else ""
    after = r"(?!\w)" if re.match(r"\w", last) else ""
    return f"{before}(?:{pattern}){after}"
