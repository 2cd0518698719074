"""What one stack writes, another one reads: records, checkpoints and exported models (scripts/check_stacks.sh).

python -m tests.stack_exchange --write=FOLDER       # on one stack
python -m tests.stack_exchange --read=FOLDER        # on the other
"""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import flags

from image import export as image_export
from image import main as image_main
from image import preprocess as image_preprocess
from tests.programs import parsed_flags
from tests.text import small_data
from text import export as text_export
from text import main as text_main
from text import preprocess as text_preprocess
from utils import cli, files

FLAGS = flags.FLAGS
IMAGE_RECORDS = ["--task_name=digits", "--sup_size=20", "--use_equal_split", "--aug_copy=1"]
IMAGE_RUN = [*IMAGE_RECORDS, "--wrn_depth=10", "--wrn_size=4", "--wrn_stem_stride=2", "--train_batch_size=4"]
IMAGE_RUN += ["--unsup_ratio=2", "--ema_decay=0.9", "--train_steps=6", "--save_steps=3", "--log_steps=3"]
TEXT_RECORDS = ["--task_name=csv", "--sup_size=4", "--aug_ops=tf_idf-0.3+unif-0.2", "--max_seq_length=32"]
TEXT_RUN = [*TEXT_RECORDS, "--model_name=bag_of_words", "--learning_rate=0.01", "--warmup_steps=0", "--unsup_ratio=2"]
TEXT_RUN += ["--train_batch_size=4", "--train_steps=6", "--save_steps=3", "--log_steps=3"]


def run(module, *arguments):
    with parsed_flags(module, *arguments):
        module.main()


def write_raw(folder):
    """The same texts and vocabulary on every stack."""
    folder.mkdir(parents=True)
    small_data.write_vocab(folder / "vocab.txt")
    for name, size in (("train", 80), ("test", 20)):
        small_data.write_user_file(folder / f"{name}.csv", size, seed=size)


def write_records(folder):
    raw = folder / "raw"
    write_raw(raw)
    run(image_preprocess, *IMAGE_RECORDS, f"--data_dir={folder}/images", "--workers=1")
    paths = [f"--train_file={raw}/train.csv", f"--test_file={raw}/test.csv", f"--vocab_file={raw}/vocab.txt"]
    run(text_preprocess, *TEXT_RECORDS, *paths, f"--data_dir={folder}/texts", "--workers=1")


def train(folder, *, do_train):
    """Trains, or evaluates what was trained: either way the checkpoint is restored and the model exported."""
    do = ["--do_train", "--do_eval"] if do_train else ["--do_eval"]
    run(image_main, *do, *IMAGE_RUN, f"--data_dir={folder}/images", f"--model_dir={folder}/image_run")
    run(text_main, *do, *TEXT_RUN, f"--data_dir={folder}/texts", f"--model_dir={folder}/text_run")


def predict(folder):
    images = np.random.default_rng(0).integers(0, 256, [8, 32, 32, 3]).astype(np.uint8)
    texts = [small_data.random_text(np.random.default_rng(number), number % 2) for number in range(8)]
    return {
        "images": image_export.load(f"{folder}/image_run/export").predict_proba(images),
        "texts": text_export.load(f"{folder}/text_run/export").predict_proba(texts),
    }


def read_results(folder):
    names = "accuracy", "loss", "step"
    results = {run: files.read_json(f"{folder}/{run}/result.json") for run in ("image_run", "text_run")}
    return {run: [result[name] for name in names] for run, result in results.items()}


def compare_records(folder, other):
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.tfrecord"))
    different = [str(path) for path in paths if (folder / path).read_bytes() != (other / path).read_bytes()]
    if different or not paths:
        raise ValueError(f"{len(different)} of {len(paths)} files of records differ, such as {different[:1]}.")
    print(f"{len(paths)} files of records are the same, byte for byte")


def compare_predictions(what, found, expected):
    for name in expected:
        difference = np.abs(found[name] - expected[name]).max()
        print(f"{what}, {name}: predictions differ by {difference:.1e} at most")
        if not difference <= 1e-5:
            raise ValueError(f"{what}, {name}: expected a difference of 1e-5 at most.")


def read(folder):
    """Compares what another stack wrote with what this one makes of it."""
    with tempfile.TemporaryDirectory() as own:
        write_records(Path(own))
        compare_records(Path(own), folder)
    with np.load(folder / "predictions.npz") as expected:
        expected = dict(expected)
    compare_predictions("the other stack's export", predict(folder), expected)
    before = read_results(folder)
    train(folder, do_train=False)  # restores the checkpoint, evaluates and exports it anew
    after = read_results(folder)
    print(f"accuracy, loss, step: {before}, evaluated here: {after}")
    if not all(np.allclose(before[run], after[run], atol=1e-5) for run in before):
        raise ValueError("a restored checkpoint does not give the same evaluation.")
    compare_predictions("the other stack's checkpoint, exported here", predict(folder), expected)


def define_flags():
    flags.DEFINE_string("write", "", "Folder to write.")
    flags.DEFINE_string("read", "", "Folder that another stack has written.")


def main():
    write_folder, read_folder = FLAGS.write, FLAGS.read
    print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
    if write_folder:
        write_records(Path(write_folder))
        train(Path(write_folder), do_train=True)
        files.write_arrays(f"{write_folder}/predictions.npz", **predict(write_folder))
    else:
        read(Path(read_folder))


if __name__ == "__main__":
    cli.run(main, define_flags)
