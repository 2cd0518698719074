"""Small files in exactly the official formats of the six data sets, user's files, and a tiny BERT vocabulary.

Texts are made of a few words, with one word in five that tells the class, so that even a tiny network can learn it.
"""

import csv
import gzip
import io
import json
import string
import tarfile

import numpy as np

from text.datasets import imdb, tables

COMMON_WORDS = tuple("the a this film book place was is of and to in it that with for not very they said".split())
CLASS_WORDS = tuple("good bad fine poor old new fast slow big small warm cold red blue".split())
WORDS = COMMON_WORDS + CLASS_WORDS
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_vocab(path, words=WORDS):
    """Writes a BERT vocabulary, one piece a line: specials, punctuation, letters alone and inside words, and words.

    Returns:
      tuple of the pieces, in the order of their ids.
    """
    characters = string.punctuation + string.digits + string.ascii_lowercase
    inner = [f"##{character}" for character in string.digits + string.ascii_lowercase]
    pieces = tuple(dict.fromkeys([*SPECIAL_PIECES, *characters, *inner, *words]))
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return pieces


def random_text(rng, label, num_words=12):
    """A sentence; every fifth word is the class word. label=-1: of a random class."""
    label = int(rng.integers(2)) if label < 0 else label
    words = [str(rng.choice(COMMON_WORDS)) for _ in range(num_words)]
    words[::5] = [CLASS_WORDS[label]] * len(words[::5])
    return " ".join(words).capitalize() + "."


# ---- IMDb -----------------------------------------------------------------------------------------------------------


def write_imdb(raw_data_dir, per_class=12, num_unsup=6, num_test=4, archive=False, seed=0):
    """Writes the aclImdb folder, or its archive, with few reviews.

    The first ten of each training class have the names of the published 20; every third unsup review is short.

    Returns:
      dict from key, such as train/pos/9716_10.txt, to the text as written.
    """
    rng = np.random.default_rng(seed)
    published = imdb.FACTS.labelled_ids
    names = {"train/pos": [*published[:10]], "train/neg": [*published[10:]], "test/pos": [], "test/neg": []}
    for part, ratings, count in (
        ("train/pos", (7, 8, 9, 10), per_class),
        ("train/neg", (1, 2, 3, 4), per_class),
        ("test/pos", (7, 8, 9, 10), num_test // 2),
        ("test/neg", (1, 2, 3, 4), num_test // 2),
    ):
        more = [f"{number}_{ratings[number % 4]}" for number in range(count)]
        names[part] = (names[part] + more)[:count]
    names["train/unsup"] = [f"{number}_0" for number in range(num_unsup)]
    texts = {}
    for part, part_names in names.items():
        label = {"pos": 0, "neg": 1, "unsup": -1}[part.split("/")[1]]
        for number, name in enumerate(part_names):
            sentences = 12 if label < 0 and number % 3 else 2
            text = "<br /><br />".join(random_text(rng, label) for _ in range(sentences))
            texts[f"{part}/{name}.txt"] = f'A "quoted" café. {text}'
    write_imdb_files(raw_data_dir, texts, archive)
    return texts


def write_imdb_files(raw_data_dir, texts, archive=False):
    """Writes texts by key, among other files of the official archive, in an order that means nothing."""
    others = {"README": "About.", "imdb.vocab": "the", "train/urls_pos.txt": "http", "train/labeledBow.feat": "9 0:1"}
    contents = {f"aclImdb/{key}": text.encode() for key, text in (others | texts).items()}
    paths = [str(path) for path in np.random.default_rng(1).permutation(sorted(contents))]
    raw_data_dir.mkdir(parents=True, exist_ok=True)
    if archive:
        with tarfile.open(raw_data_dir / "aclImdb_v1.tar.gz", "w:gz") as file:
            for path in paths:
                member = tarfile.TarInfo(path)
                member.size = len(contents[path])
                file.addfile(member, io.BytesIO(contents[path]))
    else:
        for path in paths:
            (raw_data_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (raw_data_dir / path).write_bytes(contents[path])


# ---- Yelp, Amazon, DBpedia ------------------------------------------------------------------------------------------


def write_official(raw_data_dir, task_name, num_train=28, num_test=14, seed=0):
    """Writes train.csv and test.csv of a data set of Zhang et al. with few examples, the classes in turn.

    Returns:
      dict from split to a list of (label, title, text) as read_examples should read them; title None if there is none.
    """
    rng = np.random.default_rng(seed)
    facts = tables.OFFICIAL[task_name]
    raw_data_dir.mkdir(parents=True, exist_ok=True)
    examples = {}
    for split, size in (("train", num_train), ("test", num_test)):
        rows, examples[split] = [], []
        for number in range(size):
            label = number % facts.num_classes
            title, text = random_text(rng, label, 3), random_text(rng, label)
            # The files write a new line as \n and a quote as \"", because quotes in a field are doubled.
            rows.append((label + 1, title, rf'{text}\n\""Yes, {number}\""'))
            examples[split].append((label, title if facts.has_title else None, f'{text}  "Yes, {number} "'))
        lines = [_official_line(task_name, *row) for row in rows]
        (raw_data_dir / f"{split}.csv").write_text("".join(lines), encoding="utf-8", newline="")
    return examples


def _official_line(task_name, label, title, text):
    if task_name == "dbpedia":
        return f'{label},"{title}","{text}"\n'
    return f'"{label}","{title}","{text}"\n' if task_name.startswith("amazon") else f'"{label}","{text}"\n'


def write_external(path, task_name, num_texts=10, seed=0):
    """Writes reviews in the published JSON lines of Yelp or Amazon; returns a list of (title, text)."""
    rng = np.random.default_rng(seed)
    pairs = [(random_text(rng, -1, 3), random_text(rng, -1)) for _ in range(num_texts)]
    if task_name.startswith("yelp"):
        other = {"review_id": "xQY8N", "user_id": "OwjRM", "business_id": "2aFiy", "stars": 5.0, "useful": 0}
        records = [other | {"text": text, "date": "2018-07-07 22:09:11"} for _, text in pairs]
        pairs = [(None, text) for _, text in pairs]
    else:
        other = {"reviewerID": "A2SUAM1", "asin": "0000013714", "helpful": [2, 3], "overall": 5.0}
        records = [other | {"reviewText": text, "summary": title} for title, text in pairs]
    write_records(path, records)
    return pairs


# ---- user's files ---------------------------------------------------------------------------------------------------


def write_records(path, records, header=True):
    """Writes dicts as CSV, TSV or JSON lines, as the ending of the path tells, with or without .gz."""
    file = io.StringIO(newline="")
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    if ending in ("jsonl", "json"):
        file.writelines(json.dumps(record) + "\n" for record in records)
    else:
        writer = csv.DictWriter(file, list(records[0]), delimiter={"csv": ",", "tsv": "\t"}[ending])
        if header:
            writer.writeheader()
        writer.writerows(records)
    content = file.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_user_file(path, num_examples=24, class_names=("bad", "good"), title=False, seed=0):
    """Writes a file with the columns text and label, and title if asked for, the classes in turn.

    Returns:
      list of dicts, as written.
    """
    rng = np.random.default_rng(seed)
    records = []
    for number in range(num_examples):
        label = number % len(class_names)
        record = {"text": f'{random_text(rng, label)} "So, {number}\nindeed"', "label": class_names[label]}
        records.append(record | ({"title": random_text(rng, label, 3)} if title else {}))
    write_records(path, records)
    return records
