"""Inputs that once broke a reader: functions that damage the valid input of a loader in a folder."""

import gzip
import json
import struct
import zlib

from tests.fuzz.loaders import LOADERS  # noqa: F401  what the seeds are of

SEEDS = {}
HARMLESS = ("many_pixels_in_few_bytes",)  # images that cannot be used are left out, and reported


def keep(loader):
    """A decorator that files a function under a loader of tests/fuzz/loaders.py and under its own name."""

    def add(damage):
        SEEDS.setdefault(loader, {})[damage.__name__] = damage
        return damage

    return add


def change_json(path, change):
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@keep("svhn_plain")
def type_of_a_matrix(folder):
    """A crash inside of scipy.io.loadmat."""
    content = bytearray((folder / "train_32x32.mat").read_bytes())
    content[184] = 15
    (folder / "train_32x32.mat").write_bytes(content)


@keep("bert_tensorflow1")
def name_of_a_function_without_end(folder):
    """A message of a million characters."""
    for path in folder.rglob("*config.json"):
        change_json(path, lambda config: config | {"hidden_act": "x" * 1_000_000})


@keep("cifar10_pickles")
def memory_of_a_pickle(folder):
    """An object that is remembered under the number 2**28 takes 4 GB."""
    path = folder / "cifar-10-batches-py/test_batch"
    path.write_bytes(path.read_bytes().replace(b"q\x00", b"r\x00\x00\x00\x10", 1))


@keep("translation_model")
def folder_for_a_file(folder):
    """FailedPreconditionError of TensorFlow."""
    (folder / "vocab.subwords").unlink()
    (folder / "vocab.subwords").mkdir()


@keep("translation_model")
def layers_without_end(folder):
    """20 GB of memory."""

    def change(values):
        values["model"]["num_encoder_layers"] = 2**63
        return values

    change_json(folder / "config.json", change)


@keep("translation_model")
def weights_that_are_cut(folder):
    content = (folder / "weights.npz").read_bytes()
    (folder / "weights.npz").write_bytes(content[: len(content) // 2])


@keep("translation_model")
def weights_of_an_unknown_compression(folder):
    content = bytearray((folder / "weights.npz").read_bytes())
    central = content.rindex(b"PK\x01\x02")
    content[central + 10 : central + 12] = struct.pack("<H", 99)
    (folder / "weights.npz").write_bytes(content)


@keep("image_arrays")
def array_of_terabytes(folder):
    """MemoryError."""
    content = (folder / "more.npy").read_bytes()
    (folder / "more.npy").write_bytes(content.replace(b"(6, 12, 12, 3)", b"(9999999999, 12, 3)"[:14].ljust(14)))


@keep("image_arrays")
def array_with_an_open_bracket(folder):
    """tokenize.TokenError."""
    content = (folder / "more.npy").read_bytes()
    (folder / "more.npy").write_bytes(content.replace(b"(6, 12, 12, 3)", b"(6, 12, 12, 3 "))


@keep("image_folder")
def many_pixels_in_few_bytes(folder):
    """13,000 × 13,000 pixels of one bit each: 20 kB, which took 1.4 GB."""
    size = 13_000

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 1, 0, 0, 0, 0))
    packer, row = zlib.compressobj(9), bytes(1 + size // 8)
    data = b"".join(packer.compress(row) for _ in range(size)) + packer.flush()
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    for number in range(4):
        (folder / "train/a" / f"large_{number}.png").write_bytes(content)


@keep("vocab")
def piece_with_a_nul(folder):
    """RuntimeError."""
    with open(folder / "vocab.txt", "a") as file:
        file.write("a\0b\n")


@keep("vocab")
def piece_of_a_thousand_letters(folder):
    """RuntimeError."""
    with open(folder / "vocab.txt", "a") as file:
        file.write("x" * 1000 + "\n")


@keep("imagenet_shards")
def folder_for_a_shard(folder):
    """FailedPreconditionError of TensorFlow."""
    (folder / "train-00001-of-00002").unlink()
    (folder / "train-00001-of-00002").mkdir()


@keep("run_folder")
def empty_line_of_metrics(folder):
    """KeyError after the training."""
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("{}\n")


@keep("csv_gz")
def line_without_end(folder):
    """4.3 GB of memory before its clean error, for a line of 2 GB."""
    packer = zlib.compressobj(1, wbits=31)
    block = b"x" * (1 << 20)
    with open(folder / "train.csv.gz", "wb") as file:
        file.write(packer.compress(b"text,label,title\n"))
        for _ in range(300):  # MB: more than a case may take
            file.write(packer.compress(block))
        file.write(packer.flush())


@keep("csv")
def returns_for_lines(folder):
    content = (folder / "train.csv").read_bytes().replace(b"\r\n", b"\r").replace(b"\n", b" ")
    (folder / "train.csv").write_bytes(content)


@keep("bert_hugging_face")
def header_of_other_types(folder):
    """TypeError, KeyError, IndexError."""
    change_safetensors(folder, lambda entries: entries | {"x": {"dtype": 3, "shape": None, "data_offsets": [0]}})


@keep("bert_hugging_face")
def negative_shape(folder):
    def change(entries):
        name = next(name for name in entries if name != "__metadata__")
        entries[name]["shape"] = [-1]
        return entries

    change_safetensors(folder, change)


def change_safetensors(folder, change):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(change(json.loads(content[8:end]))).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])


@keep("bert_tensorflow1")
def index_that_is_cut(folder):
    """IndexError."""
    path = next(folder.glob("*.index"))
    path.write_bytes(path.read_bytes()[:-30])


@keep("tensor2tensor")
def data_that_are_cut(folder):
    path = next(folder.glob("*.data*"))
    path.write_bytes(path.read_bytes()[:100])


@keep("imdb_archive")
def archive_that_unpacks_to_gigabytes(folder):
    """3 GB of memory."""
    path = folder / "aclImdb_v1.tar.gz"
    content = gzip.decompress(path.read_bytes())
    header = bytearray(content[:512])
    header[:100] = b"aclImdb/train/pos/1_9.txt".ljust(100, b"\0")
    header[124:136] = b"%011o\0" % (3 << 30)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    packer = zlib.compressobj(1, wbits=31)
    with open(path, "wb") as file:
        file.write(packer.compress(bytes(header)))
        for _ in range(300):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.compress(content) + packer.flush())


@keep("text_records")
def description_without_classes(folder):
    change_json(folder / "records/dataset.json", lambda values: values | {"facts": {}})


@keep("text_records")
def description_that_is_nested(folder):
    (folder / "records/dataset.json").write_text("[" * 100_000)


@keep("image_records")
def mean_of_one_channel(folder):
    change_json(folder / "records/dataset.json", lambda values: values | {"mean": [1]})


@keep("image_records")
def another_number_of_examples(folder):
    change_json(folder / "records/test/info.json", lambda values: values | {"num_examples": 5000})


@keep("translation_stages")
def workers_without_end(folder):
    change_json(folder / "sentences.txt.json", lambda values: values | {"replicas": 10**18})


# ---- messages of any length, for which values and names of a file were taken as they are ----------------------------


@keep("csv")
def column_of_fifty_thousand_letters(folder):
    content = (folder / "train.csv").read_bytes()
    (folder / "train.csv").write_bytes(b"x" * 50_000 + content)


@keep("translation_model")
def subword_of_fifty_thousand_letters(folder):
    content = (folder / "vocab.subwords").read_bytes()
    (folder / "vocab.subwords").write_bytes(b"x" * 50_000 + content)


@keep("cifar10_pickles")
def protocol_of_fifty_thousand_digits(folder):
    for path in folder.rglob("data_batch_1"):
        content = path.read_bytes()
        path.write_bytes(content[:14] + b"9" * 50_000 + content[14:])


@keep("imagenet_index")
def thousands_of_splits(folder):
    change_json(folder / "index.json", lambda index: index | {"splits": dict.fromkeys(map(str, range(5000)), {})})


@keep("image_records")
def order_of_fifty_thousand_letters(folder):
    change_json(folder / "records/dataset.json", lambda values: values | {"label_order": "x" * 50_000})


@keep("exported_features")
@keep("run_folder")
@keep("bert_tensorflow1")
@keep("tensor2tensor")
def footer_of_an_index(folder):
    """A block of 2**34 bytes, for which TensorFlow asks before it looks at a checksum."""
    for path in folder.rglob("*.index"):
        content = path.read_bytes()
        path.write_bytes(content[:-48] + b"\x80\x80\x80\x80\x40" * 4 + bytes(20) + content[-8:])


@keep("ctranslate2")
def half_a_surrogate_pair(folder):
    """TypeError of SentencePiece."""
    change_json(folder / "config.json", lambda config: config | {"eos_token": "\ud800"})
