"""Subword vocabularies in tensor2tensor's format: text ↔ ids, and building a vocabulary from a corpus.

    vocabulary = SubwordVocabulary.read("vocab.translate_enfr_wmt32k.32768.subwords")
    ids = vocabulary.encode("A film about déjà vu.")        # without the end token
    text = vocabulary.decode(ids)

A text is cut into runs of letters and digits and runs of everything else; a single space between two such runs is left
out, and is understood when they are joined. Each run is escaped ("_" and characters that the vocabulary lacks), ended
by "_", and cut into the longest subwords from the left. Every text comes back from encoding and decoding unchanged.
"""

import collections
import itertools
import re
import unicodedata

import tensorflow as tf

from utils import files

PAD_ID, EOS_ID = 0, 1
RESERVED = ("<pad>", "<EOS>")
ESCAPE_CHARACTERS = frozenset("\\_u;0123456789")
ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")
UNKNOWN_CHARACTER = "\u3013"  # what a number that is no character becomes


class SubwordVocabulary:
    """The subwords of a vocabulary file, in the order of their ids."""

    def __init__(self, subwords):
        """Args:
        subwords: list of str; the first two are the reserved ones for padding and the end of a text.
        """
        self.subwords = list(subwords)
        # tensor2tensor writes reserved words with the end mark of words, which they do not mean.
        if [subword.removesuffix("_") for subword in self.subwords[:2]] != list(RESERVED):
            found = files.shorten(self.subwords[:2])
            raise ValueError(f"expected a vocabulary that begins with {RESERVED}, found {found}.")
        self.ids = {subword: number for number, subword in enumerate(self.subwords) if number >= len(RESERVED)}
        self.longest = max(map(len, self.ids), default=1)
        self.alphabet = frozenset("".join(self.ids)) | ESCAPE_CHARACTERS
        self._known = {}

    def __len__(self):
        return len(self.subwords)

    @classmethod
    def read(cls, path):
        if not tf.io.gfile.exists(path):
            raise ValueError(f"vocabulary {path} does not exist: expected the path of a subword file.")
        with files.open_file(path, "rb") as file:
            content = file.read()
        try:
            lines = [line.rstrip("\r") for line in content.decode("utf-8").split("\n")]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 ({error}): restore the vocabulary of the model.") from error
        quoted = re.compile(r"(['\"]).*\1$", re.DOTALL)
        subwords = [line[1:-1] if len(line) > 1 and quoted.match(line) else line for line in lines if line]
        try:
            return cls(subwords)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path):
        with files.replacing(path) as file:  # what is there counts as whole
            file.write("".join(f"'{subword}'\n" for subword in self.subwords))

    def encode(self, text):
        """Ids of the subwords of a text, a list of int without the end token."""
        ids = []
        for word in split_words(text):
            found = self._known.get(word)
            if found is None:
                found = self._known[word] = [self.ids[piece] for piece in self._cut(self.escape(word))]
                if len(self._known) > 500_000:  # bounded memory on a text of any length
                    self._known.clear()
            ids += found
        return ids

    def decode(self, ids):
        """The text of a sequence of ids up to its end token; padding is left out."""
        pieces = []
        for number in ids:
            if number == EOS_ID:
                break
            if number != PAD_ID:
                pieces.append(self.subwords[number])
        return join_words([unescape(word) for word in "".join(pieces).split("_") if word])

    def escape(self, word):
        """The word in characters of the alphabet, with the end mark."""
        word = word.replace("\\", "\\\\").replace("_", "\\u")
        if not self.alphabet.issuperset(word) or "\n" in word:
            word = "".join(
                character if character in self.alphabet and character != "\n" else f"\\{ord(character)};"
                for character in word
            )
        return word + "_"

    def _cut(self, escaped):
        start = 0
        while start < len(escaped):
            for end in range(min(len(escaped), start + self.longest), start, -1):
                if escaped[start:end] in self.ids:
                    yield escaped[start:end]
                    start = end
                    break
            else:
                raise ValueError(f"the vocabulary lacks the character {escaped[start]!r}, which escaping needs.")


# ---- words ----------------------------------------------------------------------------------------------------------


def is_word_character(character):
    """Whether it is a letter or a digit, in the sense of Unicode's categories L and N."""
    return unicodedata.category(character)[0] in "LN"


def split_words(text):
    """Runs of letters and digits, and runs of everything else; single spaces inside are left out."""
    words, start = [], 0
    kinds = [is_word_character(character) for character in text]
    for end in range(1, len(text) + 1):
        if end == len(text) or kinds[end] != kinds[start]:
            if text[start:end] != " " or start == 0 or end == len(text):
                words.append(text[start:end])
            start = end
    return words


def join_words(words):
    """The reverse of split_words: a space between two runs of letters or digits."""
    text, before = [], False
    for word in words:
        kind = is_word_character(word[0])
        text += [" ", word] if before and kind else [word]
        before = kind
    return "".join(text)


def unescape(word):
    def character(match):
        if match.group(1) is None:
            return "_" if match.group(0) == "\\u" else "\\"
        number = int(match.group(1))
        return chr(number) if number <= 0x10FFFF else UNKNOWN_CHARACTER

    return ESCAPE.sub(character, word)


# ---- building a vocabulary ------------------------------------------------------------------------------------------


def count_words(texts):
    """A Counter of the words of an iterable of texts."""
    return collections.Counter(itertools.chain.from_iterable(map(split_words, texts)))


def build_vocabulary(word_counts, size, rare_characters=5):
    """Makes a vocabulary of about `size` subwords, never more than 2 % above it.

    A subword is kept if it occurs so often that the size comes out; the right count is found by bisection.

    Args:
      word_counts: as count_words returns it.
      rare_characters: characters that occur less often are spelled as numbers.
    """
    characters = collections.Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    alphabet = {character for character, count in characters.items() if count >= rare_characters}
    alphabet = (alphabet | ESCAPE_CHARACTERS) - {"\n"}
    if len(alphabet) + len(RESERVED) > size:
        raise ValueError(f"vocab_size={size}: the corpus has {len(alphabet)} characters; use a larger one.")
    low, high, best = 1, max(word_counts.values(), default=1) + 1, None
    while low <= high:
        min_count = int((low * high) ** 0.5)  # counts of words spread over several orders of magnitude
        vocabulary = _build(word_counts, alphabet, min_count)
        if len(vocabulary) <= 1.02 * size:
            best = vocabulary
            high = min_count - 1
        else:
            low = min_count + 1
        if abs(len(vocabulary) - size) <= 0.02 * size:
            return vocabulary
    return best or _build(word_counts, alphabet, high + 1)


def _build(word_counts, alphabet, min_count, rounds=4):
    subwords = sorted(alphabet)
    for _ in range(rounds):
        vocabulary = SubwordVocabulary([*RESERVED, *subwords])
        subwords = _choose(_count_subwords(word_counts, vocabulary), alphabet, min_count)
    return SubwordVocabulary([*RESERVED, *subwords])


def _count_subwords(word_counts, vocabulary):
    """Counts every beginning of what is left of a word at the cuts of the present vocabulary."""
    counts = collections.Counter()
    for word, count in word_counts.items():
        escaped, start = vocabulary.escape(word), 0
        for piece in vocabulary._cut(escaped):
            for end in range(start + 1, len(escaped) + 1):
                counts[escaped[start:end]] += count
            start += len(piece)
    return counts


def _choose(counts, alphabet, min_count):
    """The frequent subwords, the most frequent first; what a longer one covers no longer counts for its beginnings."""
    frequent = [subword for subword, count in counts.items() if count >= min_count]
    chosen = {}
    for subword in sorted(frequent, key=lambda subword: (-len(subword), subword)):
        count = counts[subword]
        if count >= min_count or subword in alphabet:
            chosen[subword] = count
            for end in range(1, len(subword)):
                counts[subword[:end]] -= count
    chosen |= {character: max(counts[character], 0) for character in alphabet}
    return sorted(chosen, key=lambda subword: (-chosen[subword], subword))
