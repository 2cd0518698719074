"""text/tokenization.py against BERT's published rules, character by character."""

import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from tests.text import bert_tokenizer_reference as reference
from text import tokenization
from text.tokenization import Tokenizer, assemble, assemble_in_graph

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Text, its words in lower case without accents, its words otherwise. Written by hand from the published rules.
EXAMPLES = [
    ("", "", ""),
    (" \t\n\r ", "", ""),
    ("Don't stop!!", "don ' t stop ! !", "Don ' t stop ! !"),
    ("a$b`c^d~e|f<g", "a $ b ` c ^ d ~ e | f < g", "a $ b ` c ^ d ~ e | f < g"),
    ("[MASK] x_y", "[ mask ] x _ y", "[ MASK ] x _ y"),
    ("Café CAFÉ Ångström", "cafe cafe angstrom", "Café CAFÉ Ångström"),
    ("e\u0301 \u0301 n\u0303o", "e no", "e\u0301 \u0301 n\u0303o"),
    ("straße STRASSE ẞ", "straße strasse ß", "straße STRASSE ẞ"),
    ("İstanbul Iğdır I", "istanbul igdır i", "İstanbul Iğdır I"),
    ("ΟΔΟΣ. ΟΔΟΣ Σ ΑΣΑ ς", "οδος . οδος σ ασα ς", "ΟΔΟΣ . ΟΔΟΣ Σ ΑΣΑ ς"),
    ("x中文y 日本 々", "x 中 文 y 日 本 々", "x 中 文 y 日 本 々"),
    ("\u3400a\U00020000\uf900。", "\u3400 a \U00020000 \u8c48 。", "\u3400 a \U00020000 \uf900 。"),
    ("ひらがな カタカナ", "ひらかな カタカナ", "ひらがな カタカナ"),
    ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
    ("a\x00b\x01c\x7fd\x85e\x0bf\x0cg\x1ch\x1fi", "abcdefghi", "abcdefghi"),
    ("é\x00b\x01c\x7fd\x85e\x0bf\x0cg\x1ch\x1fi", "ebcdefghi", "ébcdefghi"),
    ("a\ufffdb so\u00adft z\u200bw\u200dj \ufeffbom", "ab soft zwj bom", "ab soft zwj bom"),
    ("n\u00a0b e\u2003m i\u3000s l\u2028s p\u2029s", "n b e m i s l s p s", "n b e m i s l s p s"),
    ("I❤️U 😀👍🏽 👨\u200d👩", "i❤u 😀👍🏽 👨👩", "I❤\ufe0fU 😀👍🏽 👨👩"),
    ("“Well…” – ¿qué? «oui»", "“ well … ” – ¿ que ? « oui »", "“ Well … ” – ¿ qué ? « oui »"),
    ("\u037ea\u1fefb", "; a ` b", "\u037e a\u1fefb"),  # a Greek question mark, and an accent that decomposes to `
    ("ﬁne ² ½ ™ ① ſ", "ﬁne ² ½ ™ ① ſ", "ﬁne ² ½ ™ ① ſ"),
    ("привет Ёлка мир9", "привет елка мир9", "привет Ёлка мир9"),
    ("हिन्दी عَرَبِي ไทย", "हिनदी عربي ไทย", "हिन्दी عَرَبِي ไทย"),
    ("half \ud83d lone", "half lone", "half lone"),
    ("<br />it's 3.50€", "< br / > it ' s 3 . 50€", "< br / > it ' s 3 . 50€"),
    ("\ue000 a\ue000", "\ue000 a\ue000", "\ue000 a\ue000"),  # private use
]
LONG_WORDS = ["ab" * 50, "ab" * 50 + "a", "д" * 100, "д" * 101, "é" * 100, "😀" * 100, "x" * 1000, "中" * 150]
TEXTS = [text for text, _, _ in EXAMPLES if "\ud83d" not in text] + LONG_WORDS + [" ".join(LONG_WORDS)]


def create_vocab():
    """Special pieces and, of the words in TEXTS, most letters and some parts: some words stay unknown."""
    rng = np.random.default_rng(0)
    words = {word[:100] for text in TEXTS for case in (True, False) for word in reference.split(text, case)}
    pieces = {}
    for word in [*sorted(words), "hello", "world", "ab", "дд"]:
        starts = rng.integers(0, len(word), 6)
        parts = [(start, start + rng.integers(1, 5)) for start in starts] + [(i, i + 1) for i in range(len(word))]
        for start, end in parts:
            pieces |= {("##" if start else "") + word[start:end]: None}
    pieces = [piece for piece in pieces if rng.random() < 0.9]
    pieces += ["a", "##b", "##a", "д", "##д", "e", "##e", "é", "##é", "n", "##n", "σ", "##σ", "i", "##ι"]
    return [*SPECIALS, *dict.fromkeys(pieces)]


def write_vocab(path, pieces, line_end="\n"):
    path.write_bytes("".join(piece + line_end for piece in pieces).encode())
    return str(path)


@pytest.fixture(scope="module")
def vocab_path(tmp_path_factory):
    return write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", create_vocab())


@pytest.fixture(scope="module")
def tokenizers(vocab_path):
    return {lower_case: Tokenizer(vocab_path, lower_case) for lower_case in (True, False)}


def encode(texts):
    return tf.constant([text.encode() for text in texts])


def check_against_reference(tokenizer, texts):
    """Words, ids, and ids from the graph; returns the ids."""
    ids = {piece: number for number, piece in enumerate(tokenizer.vocab)}
    words = [reference.split(text, tokenizer.lower_case) for text in texts]
    expected = [reference.piece_ids(words_of_text, ids) for words_of_text in words]
    assert tokenizer.split(texts) == words
    assert [pieces.tolist() for pieces in tokenizer.piece_ids(words)] == expected
    assert tokenizer.tokenize(encode(texts)).to_list() == expected
    return expected


@pytest.mark.parametrize("text, lower, cased", EXAMPLES)
def test_words_are_those_of_the_published_rules(tokenizers, text, lower, cased):
    assert tokenizers[True].split([text]) == [lower.split(" ") if lower else []]
    assert tokenizers[False].split([text]) == [cased.split(" ") if cased else []]


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_equal_the_plain_python_tokenizer_on_hard_texts(tokenizers, lower_case):
    tokenizer = tokenizers[lower_case]
    ids = check_against_reference(tokenizer, TEXTS)
    pieces = [tokenizer.vocab[piece] for ids_of_text in ids for piece in ids_of_text]
    assert 5 < pieces.count("[UNK]") < len(pieces) / 2  # both ways are tried
    assert sum(piece.startswith("##") for piece in pieces) > len(pieces) / 5


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_equal_the_plain_python_tokenizer_on_random_texts(tokenizers, lower_case):
    rng = np.random.default_rng(1)
    hard = sorted(set("".join(TEXTS)))
    planes = [chr(number) for number in (*range(0x3000), *range(0xF900, 0x10000), *range(0x1D100, 0x1D200))]
    alphabets = [hard, list("abABiIéß'. \t\x00\x85\u2028Σ\u0301中"), [c for c in planes if is_old(c)]]
    texts = []
    for number in range(1500):
        alphabet = alphabets[number % 3]
        characters = [alphabet[i] for i in rng.integers(len(alphabet), size=rng.integers(40))]
        texts.append("".join(character + "a   b"[: rng.integers(3)] for character in characters))
    check_against_reference(tokenizers[lower_case], texts)


def is_old(character):
    """In Unicode since 2002, so that Python, RE2 and ICU agree about it."""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs")


@pytest.mark.parametrize("lower_case", [True, False])
def test_every_character_follows_the_published_rules(tokenizers, lower_case):
    numbers = (*range(0x3500), *range(0x4D00, 0x4E80), *range(0x9F00, 0xAC80), *range(0xD700, 0xE080), 0xF8FF)
    astral = (*range(0xF900, 0x10400), *range(0x1D000, 0x1D800), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0080))
    characters = [chr(number) for number in {*numbers, *astral} if is_old(chr(number))]
    characters += [chr(first + step) for first, _ in reference.IDEOGRAPHS for step in (-1, 0)]
    characters += [chr(last + step) for _, last in reference.IDEOGRAPHS for step in (0, 1)]
    texts = [f"a{character}B {character}" for character in characters]
    assert len(texts) > 14_000
    check_against_reference(tokenizers[lower_case], texts)


def test_every_pair_of_ascii_characters_follows_the_published_rules(tokenizers):
    ascii_characters = [chr(number) for number in range(128)]
    texts = [f"x{first}{second}Y" for first in ascii_characters for second in ascii_characters]
    for lower_case, tokenizer in tokenizers.items():
        assert tokenizer.split(texts) == [reference.split(text, lower_case) for text in texts]


def test_words_of_more_than_100_characters_are_unknown(tokenizers):
    for letter in "aдé":
        exactly, more = tokenizers[False].pieces_of_words([letter * 100, letter * 101])
        assert len(exactly) >= 25 and tokenizers[False].unk_id not in exactly
        assert more == (tokenizers[False].unk_id,)


def test_bytes_that_are_no_characters_are_dropped_in_the_graph(tokenizers):
    texts = tf.constant([b"a\xff\xfeb", b"a\xed\xa0\xbdb", b"ab\xe4\xb8", b"ab"])
    ids = tokenizers[True].tokenize(texts).to_list()
    assert ids == 4 * [ids[3]] and tokenizers[True].unk_id not in ids[3]


def test_pieces_of_words_are_the_parts_of_piece_ids(tokenizers):
    words = tokenizers[False].split([" ".join(TEXTS)])[0]
    pieces = tokenizers[False].pieces_of_words(words)
    assert all(isinstance(ids, tuple) and isinstance(ids[0], int) for ids in pieces)
    (ids,) = tokenizers[False].piece_ids([words])
    assert ids.dtype == np.int32 and ids.flags.writeable
    assert ids.tolist() == [piece for ids_of_word in pieces for piece in ids_of_word]


def test_no_texts_and_texts_without_words_give_no_pieces(tokenizers):
    assert tokenizers[True].split([]) == [] and tokenizers[True].piece_ids([]) == []
    assert [len(ids) for ids in tokenizers[True].piece_ids([[], []])] == [0, 0]
    assert tokenizers[True].tokenize(tf.constant(["", " \x00"])).to_list() == [[], []]
    assert tokenizers[True].tokenize(tf.constant([], tf.string)).to_list() == []


def test_memory_of_words_is_bounded(vocab_path, monkeypatch):
    monkeypatch.setattr(tokenization, "MAX_REMEMBERED", 12)
    tokenizer = Tokenizer(vocab_path)
    for start in range(0, 60, 3):
        texts = [f"é{number} b{number % 7}" for number in range(start, start + 3)]
        assert tokenizer.split(texts) == [reference.split(text, True) for text in texts]
        tokenizer.piece_ids(tokenizer.split(texts))
        assert 0 < len(tokenizer._words_of_chunk) <= 12 and 0 < len(tokenizer._pieces_of_word) <= 12


# ---- tensorflow_text's own BERT tokenizers ---------------------------------------------------------------------------

DEVIATIONS = ["ß", "ς", "ΟΔΟΣ", "ſ", "ﬁ", "²", "…", "\u0345", "a\x00b", "a\x85b", "a\ufffdb", "д" * 60]


@pytest.mark.parametrize("text", DEVIATIONS, ids=ascii)
def test_we_follow_the_published_rules_where_tensorflow_text_deviates(text, tmp_path):
    letters = ["ß", "ς", "σ", "ο", "δ", "ſ", "s", "ﬁ", "fi", "²", "2", "…", ".", "ι", "a", "b", "д"]
    vocab_path = write_vocab(tmp_path / "vocab.txt", [*SPECIALS, *letters, *("##" + letter for letter in letters)])
    tokenizer = Tokenizer(vocab_path)
    (expected,) = check_against_reference(tokenizer, [text])
    fast = tensorflow_text.FastBertTokenizer(tokenizer.vocab, lower_case_nfd_strip_accents=True)
    slow = tensorflow_text.BertTokenizer(vocab_path, lower_case=True)
    assert fast.tokenize(encode([text])).flat_values.numpy().tolist() != expected
    assert slow.tokenize(encode([text])).flat_values.numpy().tolist() != expected


# ---- in a SavedModel -------------------------------------------------------------------------------------------------

LOAD_AND_RUN = """
import sys
import tensorflow as tf
import tensorflow_text
assert "text.tokenization" not in sys.modules
texts = tf.constant([bytes.fromhex(line) for line in sys.argv[2].split(",")])
ids, type_ids = tf.saved_model.load(sys.argv[1]).run(texts)
print(tf.concat([ids, type_ids], axis=1).numpy().tolist())
"""


@pytest.mark.slow
def test_saved_model_gives_the_same_ids_in_a_new_process_with_another_locale(tokenizers, tmp_path):
    """In Turkish the small form of I is ı, and TensorFlow's operation goes by the locale."""
    tokenizer = tokenizers[True]

    class Exported(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def run(self, texts):
            return assemble_in_graph(tokenizer.tokenize(texts), None, 16, True, tokenizer)

    texts = ["I İI stop", "", *TEXTS[2:]]
    tf.saved_model.save(Exported(), str(tmp_path))
    expected = tf.concat(Exported().run(encode(texts)), axis=1).numpy().tolist()
    command = [sys.executable, "-c", LOAD_AND_RUN, str(tmp_path), ",".join(text.encode().hex() for text in texts)]
    environment = os.environ | {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert output.strip() == str(expected)
    ids, _ = assemble(tokenizer.piece_ids(tokenizer.split(texts[:1]))[0], None, 16, True, tokenizer)
    assert expected[0][: len(ids)] == ids.tolist()


# ---- vocabulary ------------------------------------------------------------------------------------------------------


def test_special_pieces_have_their_ids(tmp_path):
    tokenizer = Tokenizer(write_vocab(tmp_path / "vocab.txt", ["[PAD]", "a", "[SEP]", "[CLS]", "[UNK]", "[MASK]"]))
    assert (tokenizer.pad_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.unk_id, tokenizer.mask_id) == (
        0,
        2,
        3,
        4,
        5,
    )
    assert tokenizer.vocab_size == 6 and tokenizer.vocab[1] == "a"


def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path):
    pieces = [*SPECIALS, "a", "\u2028", "\x85", "é"]
    plain, windows = (Tokenizer(write_vocab(tmp_path / "vocab.txt", pieces, end)) for end in ("\n", "\r\n"))
    assert plain.vocab == windows.vocab == tuple(pieces)
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + "\n".join(pieces).encode())
    marked = Tokenizer(str(tmp_path / "vocab.txt"))
    assert plain.sha256 == windows.sha256 == marked.sha256


def test_other_pieces_have_another_checksum(tmp_path):
    one, other = (Tokenizer(write_vocab(tmp_path / "vocab.txt", [*SPECIALS, piece])) for piece in "ab")
    assert one.sha256 != other.sha256 and len(one.sha256) == 64


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "vocab.txt is empty"),
        (b"\n\n", "vocab.txt is empty"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\na\n", "line 7: the piece 'a' is on line 5 already"),
        (b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n", "line 3: expected a word piece, found nothing"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\ncaf\xe9\n", "line 5: not UTF-8"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\0b\n", "line 5: a NUL byte in the piece"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + b"x" * 300, r"vocab.txt cannot be read \(.*\): restore the file"),
        (b"[PAD]\na\nb\n[CLS]\n", r"lacks \[UNK\], \[SEP\]"),
        (b"a\n[UNK]\n[PAD]\n[CLS]\n[SEP]\n", r"line 3: \[PAD\] must be on line 1"),
    ],
)
def test_broken_vocabularies_are_refused_with_file_and_line(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Tokenizer(str(tmp_path / "vocab.txt"))


def test_missing_vocabulary_is_refused(tmp_path):
    with pytest.raises(ValueError, match="vocab_path=.*none.txt cannot be read"):
        Tokenizer(str(tmp_path / "none.txt"))


def test_mask_is_needed_only_when_asked_for(tmp_path):
    tokenizer = Tokenizer(write_vocab(tmp_path / "vocab.txt", SPECIALS[:4]))
    with pytest.raises(ValueError, match=r"lacks \[MASK\]"):
        tokenizer.mask_id  # noqa: B018


# ---- layout ----------------------------------------------------------------------------------------------------------


def lay_out(a, b, max_seq_length, keep_tail, tokenizer):
    """(ids, num_second) by popping single pieces."""
    begin = [tokenizer.cls_id, *tokenizer.prefix_ids.tolist()]
    kept_a, kept_b = reference.truncate_pair(a, b, max_seq_length - len(begin) - (2 if b else 1), keep_tail)
    second = [*kept_b, tokenizer.sep_id] if b else []
    return [*begin, *kept_a, tokenizer.sep_id, *second], len(second)


PAIRS = [(list(range(10, 10 + i)), list(range(30, 30 + j))) for i in range(9) for j in range(9)]


@pytest.mark.parametrize("keep_tail", [True, False])
def test_truncation_equals_popping_single_pieces(tokenizers, keep_tail):
    for max_seq_length in range(3, 21):
        for a, b in PAIRS:
            expected = lay_out(a, b, max_seq_length, keep_tail, tokenizers[True])
            arrays = np.array(a, np.int32), np.array(b, np.int32)
            ids, num_second = assemble(*arrays, max_seq_length, keep_tail, tokenizers[True])
            assert (ids.tolist(), num_second) == expected and ids.dtype == np.int32


@pytest.mark.parametrize("keep_tail", [True, False])
@pytest.mark.parametrize("max_seq_length", [3, 4, 7, 10, 20])
def test_layout_in_the_graph_is_the_same_with_padding_and_segments(tokenizers, max_seq_length, keep_tail):
    a, b = (tf.ragged.constant(texts, tf.int32, ragged_rank=1) for texts in zip(*PAIRS))
    ids, type_ids = assemble_in_graph(a, b, max_seq_length, keep_tail, tokenizers[True])
    assert ids.dtype == type_ids.dtype == tf.int32 and ids.shape == type_ids.shape == [len(PAIRS), max_seq_length]
    for pair, row, types in zip(PAIRS, ids.numpy().tolist(), type_ids.numpy().tolist()):
        expected, num_second = lay_out(*pair, max_seq_length, keep_tail, tokenizers[True])
        padding = [0] * (max_seq_length - len(expected))
        assert row == expected + padding
        assert types == [0] * (len(expected) - num_second) + [1] * num_second + padding


@pytest.fixture
def prefixed(tmp_path):
    return Tokenizer(write_vocab(tmp_path / "vocab.txt", [*SPECIALS, "qu", "##ery", ":"]), prefix="Query: ")


def test_a_prefix_comes_right_after_cls_and_survives_both_truncations(prefixed):
    cls, sep, begin = prefixed.cls_id, prefixed.sep_id, list(map(prefixed.vocab.index, ("qu", "##ery", ":")))
    assert prefixed.prefix_ids.tolist() == begin
    text = np.arange(10, 20, dtype=np.int32)
    assert assemble(text[:0], None, 8, True, prefixed)[0].tolist() == [cls, *begin, sep]
    assert assemble(text, None, 8, True, prefixed)[0].tolist() == [cls, *begin, 17, 18, 19, sep]
    assert assemble(text, None, 8, False, prefixed)[0].tolist() == [cls, *begin, 10, 11, 12, sep]


@pytest.mark.parametrize("keep_tail", [True, False])
@pytest.mark.parametrize("max_seq_length", [6, 7, 10, 13, 30])
def test_a_prefix_leaves_that_much_less_room_to_both_texts(prefixed, max_seq_length, keep_tail):
    settings = max_seq_length, keep_tail, prefixed
    expected = [lay_out(a, b, *settings) for a, b in PAIRS]
    for (a, b), (ids, num_second) in zip(PAIRS, expected):
        found = assemble(np.array(a, np.int32), np.array(b, np.int32), *settings)
        assert (found[0].tolist(), found[1]) == (ids, num_second)
    a, b = (tf.ragged.constant(texts, tf.int32, ragged_rank=1) for texts in zip(*PAIRS))
    ids, type_ids = assemble_in_graph(a, b, *settings)
    assert ids.shape == type_ids.shape == [len(PAIRS), max_seq_length]
    for row, types, (one, num_second) in zip(ids.numpy().tolist(), type_ids.numpy().tolist(), expected):
        padding = [0] * (max_seq_length - len(one))
        assert row == one + padding and types == [0] * (len(one) - num_second) + [1] * num_second + padding


def test_a_prefix_changes_neither_words_nor_pieces(prefixed, tmp_path):
    plain, texts = Tokenizer(str(tmp_path / "vocab.txt")), ["query : query", "", "Qu"]
    assert not len(plain.prefix_ids) and plain.prefix_ids.dtype == prefixed.prefix_ids.dtype == np.int32
    assert plain.split(texts) == prefixed.split(texts) and plain.sha256 == prefixed.sha256
    assert plain.tokenize(tf.constant(texts)).to_list() == prefixed.tokenize(tf.constant(texts)).to_list()


def test_single_text_keeps_its_tail_or_its_head(tokenizers):
    tokenizer, text = tokenizers[True], np.arange(10, 20, dtype=np.int32)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert assemble(text, None, 5, True, tokenizer)[0].tolist() == [cls, 17, 18, 19, sep]
    assert assemble(text, None, 5, False, tokenizer)[0].tolist() == [cls, 10, 11, 12, sep]
    assert assemble(text, None, 12, True, tokenizer)[1] == 0
    ids, type_ids = assemble_in_graph(tf.RaggedTensor.from_tensor(text[np.newaxis]), None, 5, True, tokenizer)
    assert ids.numpy().tolist() == [[cls, 17, 18, 19, sep]] and not np.any(type_ids)


def test_too_short_sequences_are_refused(tokenizers):
    with pytest.raises(ValueError, match="max_seq_length=2: expected at least 3"):
        assemble(np.arange(4), None, 2, True, tokenizers[True])


def test_sequences_too_short_for_the_prefix_are_refused(prefixed):
    with pytest.raises(ValueError, match=r"max_seq_length=5: expected at least 6, for \[CLS\], the prefix and two"):
        assemble(np.arange(4), None, 5, True, prefixed)
