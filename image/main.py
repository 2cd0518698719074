"""Trains, evaluates and applies image classifiers.

python -m image.main --do_train --do_eval --task_name=cifar10 --data_dir=data/cifar10 --model_dir=runs/cifar10_4000
python -m image.main --do_predict --model_dir=runs/cifar10_4000 --predict_input=photos/
"""

import os

from absl import app, flags, logging

from image import export, report
from image.config import Config
from image.train import choose_settings, train_and_evaluate
from utils import auto_settings, cli, cluster, distribution, predictions, settings

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_bool("do_train", False, "Train, or continue the training in model_dir.")
    flags.DEFINE_bool("do_eval", False, "Evaluate the chosen checkpoint on the test set and write result.json.")
    flags.DEFINE_bool("do_predict", False, "Classify the images of --predict_input with the exported model.")
    flags.DEFINE_string("model_dir", None, "Folder of the run: checkpoints, metrics, exported model.", required=True)
    flags.DEFINE_enum("strategy", "auto", distribution.STRATEGIES, "How to use several devices.")
    flags.DEFINE_string("tpu", "", "Name or address of the TPU, or local on a TPU VM.")
    flags.DEFINE_string("predict_input", "", "For --do_predict: a folder of images, an image file or a .npy file.")
    flags.DEFINE_string("predict_output", "", "For --do_predict: CSV file; default <model_dir>/predictions.csv.")
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
    config = settings.from_flags(Config)
    strategy = distribution.create_strategy(FLAGS.strategy, FLAGS.tpu)
    auto_settings.check_mode(FLAGS.settings, FLAGS.minutes)
    if FLAGS.settings:
        given = settings.given_flags(Config)
        config = choose_settings(config, given, FLAGS.model_dir, strategy, FLAGS.minutes)
    result = train_and_evaluate(config, FLAGS.model_dir, strategy, FLAGS.do_train, FLAGS.do_eval)
    if result and cluster.current_task().is_chief:
        top5 = f" (top-5 {result['top5_accuracy']:.4f})" if "top5_accuracy" in result else ""
        print(f"{config.task_name}: accuracy {result['accuracy']:.4f}{top5}, error rate {result['error_rate']:.4f}")
        report.write_run_page(FLAGS.model_dir)


def predict():
    if not FLAGS.predict_input:
        raise ValueError("--do_predict needs --predict_input: a folder of images, an image file or a .npy file.")
    exported = export.load(os.path.join(FLAGS.model_dir, "export"))
    path, class_names = FLAGS.predict_output or f"{FLAGS.model_dir}/predictions.csv", exported.facts.class_names
    predictions.check(path, class_names, FLAGS.top_k)
    names, probabilities = export.predict_files(exported, FLAGS.predict_input)
    predictions.write_predictions(path, names, probabilities, class_names, **predictions.chosen_options())
    print(f"predictions for {len(names)} images are in {path}")


if __name__ == "__main__":
    cli.run(main, define_flags)
