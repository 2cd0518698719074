"""Trains, evaluates and applies text classifiers.

python -m text.main --do_train --do_eval --task_name=imdb --data_dir=data/imdb \\
    --init_checkpoint=bert-base --model_dir=runs/imdb
python -m text.main --do_predict --model_dir=runs/imdb --predict_input=reviews.txt
"""

import os

from absl import app, flags, logging

from text import export, report
from text.config import Config
from text.train import choose_settings, train_and_evaluate
from utils import auto_settings, cli, cluster, distribution, predictions, settings

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_bool("do_train", False, "Train, or continue the training in model_dir.")
    flags.DEFINE_bool("do_eval", False, "Evaluate the chosen checkpoint on the test set and write result.json.")
    flags.DEFINE_bool("do_predict", False, "Classify the texts of --predict_input with the exported model.")
    flags.DEFINE_string("model_dir", None, "Folder of the run: checkpoints, metrics, exported model.", required=True)
    flags.DEFINE_enum("strategy", "auto", distribution.STRATEGIES, "How to use several devices.")
    flags.DEFINE_string("tpu", "", "Name or address of the TPU, or local on a TPU VM.")
    flags.DEFINE_string(
        "predict_input", "", "For --do_predict: a .txt file with one text a line, or a .csv, .tsv or .jsonl file."
    )
    flags.DEFINE_string("predict_output", "", "For --do_predict: CSV file; default <model_dir>/predictions.csv.")
    flags.DEFINE_string("text_column", "text", "For --do_predict: column of the text; a number without a header.")
    flags.DEFINE_string("title_column", "", "For --do_predict: column of the title, where the training had one.")
    predictions.define_flags()
    auto_settings.define_flags()
    settings.define_flags(Config)


def main():
    logging.set_verbosity(logging.WARNING)  # TensorFlow's notes on saving models are not for users
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise app.UsageError("Nothing to do: give --do_train, --do_eval or --do_predict.")
    if FLAGS.do_train or FLAGS.do_eval:
        train()
    if FLAGS.do_predict:
        predict()


def train():
    config = settings.from_flags(Config, fit=auto_settings.fit_warmup if FLAGS.settings else None)
    strategy = distribution.create_strategy(FLAGS.strategy, FLAGS.tpu)
    auto_settings.check_mode(FLAGS.settings, FLAGS.minutes)
    if FLAGS.settings:
        given = settings.given_flags(Config)
        config = choose_settings(config, given, FLAGS.model_dir, strategy, FLAGS.minutes)
    result = train_and_evaluate(config, FLAGS.model_dir, strategy, FLAGS.do_train, FLAGS.do_eval)
    if result and cluster.current_task().is_chief:
        print(f"{config.task_name}: accuracy {result['accuracy']:.4f}, error rate {result['error_rate']:.4f}")
        report.write_run_page(FLAGS.model_dir)


def predict():
    exported = export.load(os.path.join(FLAGS.model_dir, "export"))
    texts, titles = export.read_texts(FLAGS.predict_input, FLAGS.text_column, FLAGS.title_column)
    path, class_names = FLAGS.predict_output or f"{FLAGS.model_dir}/predictions.csv", exported.facts.class_names
    predictions.check(path, class_names, FLAGS.top_k)
    probabilities = exported.predict_proba(texts, titles)
    predictions.write_predictions(path, texts, probabilities, class_names, **predictions.chosen_options())
    print(f"predictions for {len(texts)} texts are in {path}")


if __name__ == "__main__":
    cli.run(main, define_flags)
