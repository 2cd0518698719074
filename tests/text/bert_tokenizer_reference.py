"""BERT's published tokenizer in plain Python, character by character: what text/tokenization.py must agree with."""

import unicodedata

IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_ideograph(character):
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def is_punctuation(character):
    return character in ASCII_PUNCTUATION or unicodedata.category(character)[0] == "P"


def clean(text):
    """Drops what is no character and control characters, makes white space a space, puts spaces around ideographs."""
    output = []
    for character in text:
        category = unicodedata.category(character)
        if character in " \t\n\r" or category == "Zs":
            output.append(" ")
        elif character == "\ufffd" or category in ("Cc", "Cf"):
            continue
        elif is_ideograph(character):
            output.append(f" {character} ")
        else:
            output.append(character)
    return "".join(output)


def lower_without_accents(chunk):
    decomposed = unicodedata.normalize("NFD", chunk.lower())
    return "".join([character for character in decomposed if unicodedata.category(character) != "Mn"])


def split_at_punctuation(chunk):
    words, start_word = [], True
    for character in chunk:
        if is_punctuation(character):
            words.append(character)
            start_word = True
        elif start_word:
            words.append(character)
            start_word = False
        else:
            words[-1] += character
    return words


def split(text, lower_case):
    """The words of a text."""
    words = []
    for chunk in clean(text).split():
        words += split_at_punctuation(lower_without_accents(chunk) if lower_case else chunk)
    return words


def pieces_of_word(word, ids, max_characters=100):
    """The ids of the longest pieces from left to right, or of [UNK] if some part of the word is in no piece.

    Args:
      ids: dict from piece to id.
    """
    if len(word) > max_characters:
        return [ids["[UNK]"]]
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            piece = ids.get(prefix + word[start:end])
            if piece is not None:
                break
        else:
            return [ids["[UNK]"]]
        pieces.append(piece)
        start = end
    return pieces


def piece_ids(words, ids):
    return [piece for word in words for piece in pieces_of_word(word, ids)]


def truncate_pair(a, b, max_pieces, keep_tail):
    """Takes single pieces from the longer list, from b if they are equally long."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_pieces:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if keep_tail else -1)
    return a, b
