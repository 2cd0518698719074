"""BERT's tokenizer, text to words to word pieces, and the layout of a sequence: [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

A prefix such as "query: ", which some encoders want before every text, comes right after [CLS] and is never cut off.

    tokenizer = Tokenizer("vocab.txt", lower_case=True)
    words_of_texts = tokenizer.split(texts)                     # words are what augmentation replaces
    pieces_of_texts = tokenizer.piece_ids(words_of_texts)
    ids, num_second = assemble(pieces_of_texts[0], None, 128, keep_tail=True, tokenizer=tokenizer)

    pieces = tokenizer.tokenize(tf.constant(texts))             # the same within a graph, for a SavedModel
    ids, type_ids = assemble_in_graph(pieces, None, 128, keep_tail=True, tokenizer=tokenizer)

The rules are written once, as TensorFlow operations. Splitting a text at white space first changes nothing, because no
rule looks across white space: so preprocessing applies them to each distinct chunk only, and remembers its words.
Chunks of ASCII, for which the rules come down to one regular expression, go an even shorter way.

Ids are those of BERT's published tokenizer; docs/differences.md tells where tensorflow_text's own tokenizers, and other
tables of Unicode, deviate from it.
"""

import hashlib
import itertools
import re

import numpy as np
import tensorflow as tf
import tensorflow_text

from utils import files

MAX_CHARACTERS_PER_WORD = 100  # a longer word is [UNK], as in the original UDA
MAX_REMEMBERED = 2**20  # entries of each dictionary: some 200 MB

WHITE_SPACE = r"[\t\n\r\p{Z}]"
REMOVED = r"[\p{Cc}\p{Cf}\x{FFFD}]"
IDEOGRAPH = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
ACCENT = r"\p{Mn}"
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"  # with the ASCII symbols, some of which Unicode does not call punctuation

# For Python's re. Of the control characters some are white space for str.split, so they must go first.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")


class Tokenizer:
    """Text to words to word pieces.

    Args:
      vocab_path: BERT's vocab.txt, one piece a line, in the order of their ids.
      lower_case: also strips accents. It must be as the vocabulary was made.
      prefix: text that every sequence begins with; `prefix_ids` are its word pieces.
    """

    def __init__(self, vocab_path, lower_case=True, prefix=""):
        self.vocab = read_vocab(vocab_path)
        self.vocab_size = len(self.vocab)
        self.sha256 = hashlib.sha256("\n".join(self.vocab).encode()).hexdigest()
        self.lower_case = lower_case
        self.pad_id, self.unk_id, self.cls_id, self.sep_id = map(self.vocab.index, ("[PAD]", "[UNK]", "[CLS]", "[SEP]"))
        self._vocab_path = vocab_path
        options = {"max_bytes_per_word": 4 * MAX_CHARACTERS_PER_WORD, "no_pretokenization": True}
        with files.explain_damage(vocab_path, "restore the file."):  # it refuses pieces that are too long, and others
            self._wordpiece = tensorflow_text.FastWordpieceTokenizer(self.vocab, token_out_type=tf.int32, **options)
        strings = tf.TensorSpec([None], tf.string)
        self._run_split = tf.function(self._split_in_graph, input_signature=[strings], autograph=False)
        self._run_wordpiece = tf.function(self._wordpiece_in_graph, input_signature=[strings], autograph=False)
        self._words_of_chunk = {}
        self._pieces_of_word = {}
        self.prefix = prefix
        self.prefix_ids = self.piece_ids(self.split([prefix]))[0] if prefix else np.zeros(0, np.int32)

    @property
    def mask_id(self):
        if "[MASK]" not in self.vocab:
            raise ValueError(f"{self._vocab_path} lacks [MASK], which pre-training needs: use another vocabulary.")
        return self.vocab.index("[MASK]")

    def split(self, texts):
        """The words of each text, as lists of strings."""
        texts = [CONTROL.sub("", text) for text in texts]
        chunks = (text.split() for text in texts if not text.isascii())
        not_ascii = [itertools.filterfalse(str.isascii, chunks_of_text) for chunks_of_text in chunks]
        _remember(self._words_of_chunk, not_ascii, self._split_chunks)
        return [self._split_ascii(text) if text.isascii() else self._split_mixed(text) for text in texts]

    def piece_ids(self, words_of_texts):
        """The word pieces of each text, as int32 arrays."""
        _remember(self._pieces_of_word, words_of_texts, self._split_words)
        pieces_of = self._pieces_of_word.__getitem__
        return [np.frombuffer(bytearray().join(map(pieces_of, words)), np.int32) for words in words_of_texts]

    def pieces_of_words(self, words):
        """The word pieces of each word, as tuples of ids."""
        _remember(self._pieces_of_word, [words], self._split_words)
        return [tuple(memoryview(self._pieces_of_word[word]).cast("i")) for word in words]

    def tokenize(self, texts):
        """The word pieces of each text within a graph; a SavedModel with it needs `import tensorflow_text` to load.

        Args:
          texts: string [n].

        Returns:
          int32 RaggedTensor [n, (pieces)].
        """
        return self._wordpiece_in_graph(self._split_in_graph(texts)).merge_dims(1, 2)

    def _split_in_graph(self, texts):
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = tf.strings.regex_replace(texts, WHITE_SPACE, " ")
        texts = tf.strings.regex_replace(texts, REMOVED, "")
        texts = tf.strings.regex_replace(texts, IDEOGRAPH, r" \0 ")
        if self.lower_case:
            # Lower case follows the locale of the machine: in a Turkish or Azerbaijani one, I would become ı.
            texts = tf.strings.lower(tf.strings.regex_replace(texts, "I", "i"), encoding="utf-8")
            texts = tf.strings.regex_replace(tensorflow_text.normalize_utf8(texts, "NFD"), ACCENT, "")
        return tf.strings.split(tf.strings.regex_replace(texts, PUNCTUATION, r" \0 "))

    def _wordpiece_in_graph(self, words):
        too_long = tf.strings.length(words, unit="UTF8_CHAR") > MAX_CHARACTERS_PER_WORD
        return self._wordpiece.tokenize(tf.where(too_long, "[UNK]", words))

    def _split_ascii(self, text):
        return ASCII_WORD.findall(text.lower() if self.lower_case else text)

    def _split_mixed(self, text):
        words = []
        for is_ascii, chunks in itertools.groupby(text.split(), str.isascii):
            if is_ascii:
                words += self._split_ascii(" ".join(chunks))
            else:
                words += itertools.chain.from_iterable(map(self._words_of_chunk.__getitem__, chunks))
        return words

    def _split_chunks(self, chunks):
        words = self._run_split(chunks)
        return _slices([word.decode() for word in words.values.numpy()], words.row_splits.numpy())

    def _split_words(self, words):
        """The ids of each word as bytes, which are joined twice as fast as numbers."""
        pieces = self._run_wordpiece(words)
        return _slices(pieces.values.numpy().tobytes(), 4 * pieces.row_splits.numpy())


def _slices(values, row_splits):
    splits = row_splits.tolist()
    return [values[start:end] for start, end in zip(splits, splits[1:])]


def _remember(known, lists, compute):
    """Adds the strings in `lists` that `known` lacks, with what `compute` returns for them; if full, forgets all."""
    strings = set().union(*lists)
    missing = strings.difference(known)
    if len(known) + len(missing) > MAX_REMEMBERED:
        known.clear()
        missing = strings
    if missing:
        encoded = [string.encode("utf-8", "surrogatepass") for string in missing]
        # New strings as keys lie close together; the given ones would hold the memory of the whole batch.
        keys = [string.decode("utf-8", "surrogatepass") for string in encoded]
        known.update(zip(keys, compute(tf.constant(encoded))))


# ---- vocabulary -----------------------------------------------------------------------------------------------------


def read_vocab(vocab_path):
    """The pieces of a vocabulary file, in the order of their ids. The file is checked."""
    lines = _read_lines(vocab_path)
    first_lines = {}
    for number, piece in enumerate(lines, 1):
        if not piece:
            raise ValueError(f"{vocab_path}, line {number}: expected a word piece, found nothing. Restore the file.")
        if "\0" in piece:
            shown = files.shorten(piece)
            raise ValueError(f"{vocab_path}, line {number}: a NUL byte in the piece {shown}. Restore the file.")
        if piece in first_lines:
            raise ValueError(
                f"{vocab_path}, line {number}: the piece {files.shorten(piece)} is on line {first_lines[piece]} "
                "already, so its id would be ambiguous. Restore the file."
            )
        first_lines[piece] = number
    missing = [piece for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if piece not in first_lines]
    if missing:
        raise ValueError(f"{vocab_path} lacks {', '.join(missing)}: expected the vocab.txt of a BERT model.")
    if lines[0] != "[PAD]":
        raise ValueError(f"{vocab_path}, line {first_lines['[PAD]']}: [PAD] must be on line 1, for padding is id 0.")
    return tuple(lines)


def _read_lines(vocab_path):
    try:
        with tf.io.gfile.GFile(vocab_path, "rb") as file:
            content = file.read()
    except tf.errors.OpError as error:
        raise ValueError(f"vocab_path={vocab_path} cannot be read: {error.message}. Expected a vocab.txt.") from error
    if not content.strip():
        raise ValueError(f"{vocab_path} is empty: expected one word piece a line.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{vocab_path}, line {number}: not UTF-8 ({error.reason}). Restore the file.") from error
    # Not splitlines, which also ends lines at characters that are pieces of multilingual vocabularies.
    return [line.strip(" \t\r") for line in text.removesuffix("\n").split("\n")]


# ---- layout ---------------------------------------------------------------------------------------------------------


def assemble(a, b, max_seq_length, keep_tail, tokenizer):
    """Lays out one sequence, with the tokenizer's prefix before a, and cuts it to length, without padding.

    Args:
      a, b: int arrays of word pieces; b is None (or empty) for a single text.
      max_seq_length: the most that ids may have, prefix and special pieces included.
      keep_tail: cut at the front, which keeps the end of a review, where its verdict is; else cut at the end.

    Returns:
      (ids, num_second): int32 [length], and how many of the last ids belong to b, with its [SEP]: 0 without b.
    """
    b = a[:0] if b is None else b
    has_second = int(len(b) > 0)
    start_a = 1 + len(tokenizer.prefix_ids)
    kept_a, kept_b = _kept_lengths(len(a), len(b), start_a, has_second, max_seq_length, min, max)
    start_b = start_a + kept_a + 1
    ids = np.full(start_b + kept_b + has_second, tokenizer.sep_id, np.int32)
    ids[0], ids[1:start_a] = tokenizer.cls_id, tokenizer.prefix_ids
    ids[start_a : start_a + kept_a] = a[len(a) - kept_a :] if keep_tail else a[:kept_a]
    ids[start_b : start_b + kept_b] = b[len(b) - kept_b :] if keep_tail else b[:kept_b]
    return ids, kept_b + has_second


def assemble_in_graph(a, b, max_seq_length, keep_tail, tokenizer):
    """The same for a batch within a graph.

    Args:
      a, b: int32 RaggedTensors [n, (pieces)]; b may be None.

    Returns:
      (ids, type_ids): int32 [n, max_seq_length]; ids are padded with 0, type_ids are 1 for b and its [SEP], else 0.
    """
    b = a[:, :0] if b is None else b
    has_second = tf.cast(b.row_lengths() > 0, tf.int64)
    begin = tf.constant([tokenizer.cls_id, *tokenizer.prefix_ids])
    lengths = a.row_lengths(), b.row_lengths(), begin.shape[0]
    kept_a, kept_b = _kept_lengths(*lengths, has_second, max_seq_length, tf.minimum, tf.maximum)
    begin, sep = (tf.tile(pieces[tf.newaxis], [a.nrows(), 1]) for pieces in (begin, tf.constant([tokenizer.sep_id])))
    second_sep = tf.RaggedTensor.from_tensor(sep, lengths=has_second)
    a, b = (_cut(pieces, kept, keep_tail) for pieces, kept in ((a, kept_a), (b, kept_b)))
    ids = tf.concat([begin, a, sep, b, second_sep], axis=1).to_tensor(0, shape=[None, max_seq_length])
    start = lengths[2] + kept_a + 1
    start, end = (border[:, tf.newaxis] for border in (start, start + kept_b + has_second))
    position = tf.range(max_seq_length, dtype=tf.int64)
    return ids, tf.cast((start <= position) & (position < end), tf.int32)


def _cut(pieces, kept, keep_tail):
    starts = pieces.row_limits() - kept if keep_tail else pieces.row_starts()
    return tf.gather(pieces.values, tf.ragged.range(starts, starts + kept))


def _kept_lengths(length_a, length_b, start_a, has_second, max_seq_length, minimum, maximum):
    """What is left when pieces are taken one by one from the longer text, from b if they are equally long."""
    if max_seq_length < start_a + 2:
        prefix = ", the prefix" if start_a > 1 else ""
        raise ValueError(
            f"max_seq_length={max_seq_length}: expected at least {start_a + 2}, for [CLS]{prefix} and two [SEP]."
        )
    room = max_seq_length - start_a - 1 - has_second
    kept_a = minimum(length_a, maximum((room + 1) // 2, room - length_b))
    kept_b = minimum(length_b, maximum(room // 2, room - length_a))
    return kept_a, kept_b
