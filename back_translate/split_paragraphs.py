r"""Splits paragraphs, one per line, into sentences, one per line, and keeps their numbers.

python -m back_translate.split_paragraphs --input_file=texts.txt --output_file=work/sentences.txt
python -m back_translate.split_paragraphs --input_file=texts.txt --output_file=work/s_1.txt --replicas=3 --worker_id=1

<output_file>.counts.json is a JSON list of the number of sentences of each paragraph, one number per line.
"""

import re

from absl import flags

from back_translate import stage_files
from utils import cli, files

FLAGS = flags.FLAGS
MAX_DIGITS = 9  # of a number of sentences
MAX_LENGTH = 300  # a piece is shorter
# Where to cut long pieces: at which character, and how far from the beginning of the rest the search starts. The last
# one cuts anywhere.
CUTS = ((".", 5), (";", 5), (",", 5), (" ", 100), ("", 100))


# ---- pieces ---------------------------------------------------------------------------------------------------------


def split_paragraph(text, split_sentences):
    """The pieces of a paragraph that are translated one by one: a list of str."""
    text = text.strip()
    if not has_letters(text):
        return [text] if text else []
    pieces = []
    for sentence in split_sentences(text):
        pieces += cut_long(sentence)
    return [piece.strip() for piece in pieces if piece.strip()]


def has_letters(text):
    return any(map(str.isalpha, text))


def cut_long(sentence):
    """Cuts a sentence until each piece is short, first at stops, then at semicolons, and so on."""
    pieces = [sentence]
    for delimiter, offset in CUTS:
        if all(len(piece) < MAX_LENGTH for piece in pieces):
            break
        pieces = [
            part for piece in pieces for part in ([piece] if len(piece) < MAX_LENGTH else cut(piece, delimiter, offset))
        ]
    return pieces


def cut(piece, delimiter, offset):
    """Cuts after every delimiter that is at least `offset` characters from the beginning of its part."""
    parts, start = [], 0
    while start < len(piece):
        position = piece.find(delimiter, start + offset) if delimiter else start + offset
        end = len(piece) if position < 0 else position + 1
        parts.append(piece[start:end])
        start = end
    return parts


# ---- sentences by rules ---------------------------------------------------------------------------------------------

# A stop with what closes a quotation or a bracket, a space, and what may open the next sentence.
BOUNDARY = re.compile(
    r"""(?<![.!?…])(?P<stop>[.!?…]+)(?P<close>["'”’)\]}»]*)\s+(?=(?P<open>["'“‘(\[{«¿¡-]*\s?)(?P<next>\S))"""
)
LAST_WORD = re.compile(r"[^\s\"'“‘(\[{«]*$")
LONGEST_WORD = 40  # so many characters before a stop are looked at, so that texts of any form take linear time
FIRST_WORD = re.compile(r"[\w’']+")

# What a stop belongs to. After these comes a name, a number or more of the same sentence ...
TITLES = "mr mrs ms mx messrs mme mlle dr drs prof rev fr sra gen col maj capt cmdr lt sgt cpl pvt adm gov sen"
TITLES += " pres supt insp st mt ste vs viz cf eg ie i.e e.g ca approx esp incl resp"
# ... after these a number, or else they are words or end the sentence ...
NUMBERED = "no nos nr p pp pg vol ch chap sec fig figs eq art par vv ed op ver v mar"
# ... and these may end a sentence: it does where a word follows that often begins one.
AMBIGUOUS = "etc inc ltd co corp bros llc plc jr sr esq ph.d m.d b.a m.a d.c u.s u.s.a u.k u.n e.u a.m p.m a.d b.c"
AMBIGUOUS += " al dept univ assn ft ave blvd rd tel hr hrs misc jan feb apr jun jul aug sept oct nov dec mon tue tues"
AMBIGUOUS += " thu thurs fri"
TITLES, NUMBERED, AMBIGUOUS = (frozenset(table.split()) for table in (TITLES, NUMBERED, AMBIGUOUS))
STARTERS = frozenset(
    "a an the this that these those there here he she it we they you i his her its our their your my what when where "
    "who why how which while if in on at for from with as after before but and or so yet then however also although "
    "because since once no not never all some many most every each one is are was were do does did has have had can "
    "could will would should may let please perhaps maybe well yes oh".split()
)


def split_by_rules(text):
    """The sentences of an English text: a list of str without the spaces between them."""
    sentences, start = [], 0
    for match in BOUNDARY.finditer(text):
        before = text[max(start, match.start() - LONGEST_WORD) : match.start()]
        if ends_sentence(before, match, text):
            sentences.append(text[start : match.end()].rstrip())
            start = match.end()
    return [*sentences, text[start:]]


def ends_sentence(before, match, text):
    """Whether a sentence ends at a stop.

    Args:
      before: the end of the sentence before the stop.
    """
    stop, next_is_lower = match["stop"], match["next"].islower()
    if next_is_lower and (match["close"] or stop in ("…", "..", "...", "....")):
        return False  # "What?" he said; and so ... it went on
    if stop != ".":
        return True
    word = LAST_WORD.search(before)[0].lower()
    if word.isdigit() and word == before.strip():
        return False  # the number of an item of a list
    if word in NUMBERED:
        return not match["next"].isdigit()
    if word in TITLES:
        return False
    if word not in AMBIGUOUS and not is_initials(before):
        return True
    first_word = FIRST_WORD.match(text, match.end() + len(match["open"]))
    return not next_is_lower and first_word is not None and first_word[0].lower() in STARTERS


def is_initials(before):
    """Whether a text ends in a single capital, other than I, or in letters with stops between them."""
    return re.search(r"(?<![\w.’'])(?:(?![I])[^\W\d_a-z]|(?:[^\W\d_]\.)+[^\W\d_])$", before) is not None


# ---- nltk -----------------------------------------------------------------------------------------------------------


def find_nltk():
    """nltk's splitter, or None if nltk or its data are not installed."""
    try:
        from nltk.tokenize import sent_tokenize

        sent_tokenize("It works. It does.")
    except (ImportError, LookupError):  # LookupError: no data
        return None
    return sent_tokenize


def choose_splitter(name):
    """Returns (name, function) of the splitter: "nltk", "rules", or what "auto" finds."""
    from_nltk = None if name == "rules" else find_nltk()
    if name == "nltk" and from_nltk is None:
        raise ValueError(
            "sentence_splitter=nltk: nltk or its data are not installed. Run `pip install -r "
            "requirements-translation.txt` and `python -m nltk.downloader punkt_tab`, or give "
            "--sentence_splitter=rules."
        )
    return ("rules", split_by_rules) if from_nltk is None else ("nltk", from_nltk)


# ---- files ----------------------------------------------------------------------------------------------------------


def shard_of(num_lines, replicas, worker_id):
    """The lines of a worker, start and end: neighbouring ones, and one more for the first (num_lines mod replicas)."""
    if not 0 <= worker_id < replicas:
        raise ValueError(f"worker_id={worker_id}: expected 0 to {replicas - 1}, since replicas={replicas}.")
    if num_lines < replicas:
        raise ValueError(f"replicas={replicas}: the file has only {num_lines} lines. Use at most as many replicas.")
    size, more = divmod(num_lines, replicas)
    start = worker_id * size + min(worker_id, more)
    return start, start + size + (worker_id < more)


def split_file(input_file, output_file, replicas=1, worker_id=0, sentence_splitter="auto"):
    """Writes output_file and its counts, unless they are there. Returns the settings beside it."""
    num_lines = stage_files.count_lines(input_file)
    if not num_lines:
        raise ValueError(f"{input_file} is empty: expected one paragraph per line.")
    start, end = shard_of(num_lines, replicas, worker_id)
    splitter_name, split_sentences = choose_splitter(sentence_splitter)
    settings = {
        "stage": "split",
        "input_sha256": stage_files.sha256_of(input_file),
        "num_lines": num_lines,
        "replicas": replicas,
        "worker_id": worker_id,
        "sentence_splitter": splitter_name,
    }
    if stage_files.is_finished(output_file, settings):
        print(f"{output_file} is already complete.")
        return settings
    num_sentences = 0
    with stage_files.create(output_file, settings) as file:
        with files.open_file(f"{output_file}.counts.json", "w") as counts:
            for number, line in enumerate(stage_files.read_lines(input_file)):
                if start <= number < end:
                    pieces = split_paragraph(line, split_sentences)
                    file.writelines(f"{piece}\n".encode() for piece in pieces)
                    counts.write(f"{'[' if number == start else ','}\n{len(pieces)}")
                    num_sentences += len(pieces)
            counts.write("\n]\n")
            stage_files.sync(counts)
    how = {"nltk": "nltk's punkt", "rules": "the built-in rules (nltk's punkt is not installed or not asked for)"}
    print(f"{output_file}: {num_sentences:,} sentences of {end - start:,} lines, found by {how[splitter_name]}")
    return settings


def read_counts(split_file):
    """Yields the number of sentences of each paragraph of a file that split_file has written."""
    path = f"{split_file}.counts.json"
    for number, line in enumerate(stage_files.read_lines(path), start=1):
        if line not in ("[", "]"):
            count = line.removesuffix(",")
            if not (count.isdecimal() and len(count) <= MAX_DIGITS):
                raise ValueError(
                    f"{path}, line {number}: expected a number, found {files.shorten(line)}. Split the paragraphs "
                    "again."
                )
            yield int(count)


def define_flags():
    flags.DEFINE_string("input_file", None, "Text file, one paragraph per line.", required=True)
    flags.DEFINE_string("output_file", None, "Where the sentences go.", required=True)
    flags.DEFINE_integer("replicas", 1, "Number of workers that share the lines.", lower_bound=1)
    flags.DEFINE_integer("worker_id", 0, "Which of the replicas this is, from 0.", lower_bound=0)
    flags.DEFINE_enum("sentence_splitter", "auto", ["auto", "nltk", "rules"], "auto: nltk if it is installed.")


def main():
    split_file(FLAGS.input_file, FLAGS.output_file, FLAGS.replicas, FLAGS.worker_id, FLAGS.sentence_splitter)


if __name__ == "__main__":
    cli.run(main, define_flags)
