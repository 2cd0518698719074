"""Pre-trains BERT further on the texts of a task, as for the paper's BERT_FINETUNE, or from scratch.

python -m text.pretrain --task_name=imdb --raw_data_dir=data/raw/imdb --model_dir=runs/imdb_pretrained \\
    --init_checkpoint=bert-base
python -m text.main --init_checkpoint=runs/imdb_pretrained/bert ...        # likewise text.preprocess

The best weights go to <model_dir>/bert; text/pretrain_data.py makes the sequences; docs/texts.md tells more.
"""

import functools
import os

import numpy as np
import tensorflow as tf
from absl import flags, logging

from text import bert_weights, datasets, encoders, pretrain_data
from text.config import SourceConfig
from text.models.bert import BertConfig
from text.models.pretrainer import PretrainingModel, create_pretraining_network
from text.tokenization import Tokenizer
from utils import cli, cluster, distribution, run_dir, settings, training
from utils.optimizers import create_bert_adamw
from utils.settings import RunConfig, config_class, setting

FLAGS = flags.FLAGS
NO_DECAY = ("layer_norm", "LayerNorm", "bias")  # the second name is that of the head


@config_class(
    train_batch_size=32, train_steps=100_000, learning_rate=5e-5, warmup_steps=10_000, save_steps=5000, max_save=2
)
class PretrainConfig(SourceConfig, RunConfig):
    # Texts
    data_dir: str = setting("", "Where the records go, for several runs; default <model_dir>/records.", resumable=True)
    dev_size: int = setting(1000, "Texts held out; the loss on them decides which checkpoint is kept.", minimum=1)
    max_seq_length: int = setting(128, "Most word pieces of a sequence.", minimum=8)

    # Objective
    whole_word_masking: bool = setting(False, "Mask all pieces of a word together.")
    next_sentence: bool = setting(True, "Also predict whether the second segment follows the first, as BERT does.")
    # The loss depends on it, since the segments of other texts are those of the same batch.
    eval_batch_size: int = setting(32, "Sequences per evaluation step.", minimum=1)

    # Network
    bert_config_file: str = setting("", "Size of the BERT; default the file that lies beside init_checkpoint.")
    init_checkpoint: str = setting("", "Pre-trained model: a name (docs/texts.md) or the path of a BERT; '' for none.")
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))

    # Optimisation
    weight_decay_rate: float = setting(0.01, "AdamW's decay, of all weights but biases and LayerNorm.", minimum=0)
    clip_norm: float = setting(1.0, "Largest norm of the whole gradient; 0 for no clipping.", minimum=0)

    def __post_init__(self):
        super().__post_init__()
        if not self.init_checkpoint and not (self.bert_config_file and self.vocab_file):
            raise ValueError(
                "init_checkpoint='': give a checkpoint, or bert_config_file and vocab_file to start without one."
            )
        for name in ("train_batch_size", "eval_batch_size"):
            if self.next_sentence and getattr(self, name) < 2:
                raise ValueError(f"{name}=1: expected 2 or more, since next_sentence takes segments of other texts.")


@run_dir.alone
def pretrain(config, model_dir, strategy, workers=1):
    """Runs or continues the pre-training that `config` describes, and writes its best weights to model_dir/bert.

    Returns:
      The content of result.json, as a dict.
    """
    encoders.check_case(config.init_checkpoint, config.do_lower_case)
    source = datasets.open_source(config)
    vocab_path = config.vocab_file or bert_weights.find_vocab(config.init_checkpoint)
    vocabulary = pretrain_data.Vocabulary(Tokenizer(vocab_path, config.do_lower_case))
    encoder_config = read_encoder_config(config, vocabulary.tokenizer)
    cluster.check_settings(strategy, config)
    training.check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config)
    data_dir = config.data_dir or os.path.join(cluster.folder_to_read(model_dir), "records")
    with cluster.chief_first(strategy):
        train_set, dev_set = pretrain_data.write_records(config, source, vocab_path, data_dir, workers)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = create_model(config, encoder_config)
        optimizer = create_bert_adamw(config, NO_DECAY)
        training.compile_model(model, optimizer, config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save, "dev_loss", lowest_is_best=True)
    step = checkpoints.restore_last()
    cluster.check_step(strategy, step, model_dir)
    fixed_length = config.jit_compile or isinstance(strategy, tf.distribute.TPUStrategy)
    create_batch = functools.partial(
        pretrain_data.create_pretraining_batch, config=config, vocabulary=vocabulary, fixed_length=fixed_length
    )

    def create_batches(first_step):
        return distribution.distribute(
            strategy, functools.partial(pretrain_data.create_train_dataset, config, train_set, create_batch, first_step)
        )

    create_dev_batches = functools.partial(
        pretrain_data.create_dev_dataset, dev_set, config.eval_batch_size, create_batch
    )

    def evaluate_dev():
        metrics = training.evaluate(model, strategy, create_dev_batches, dev_set.num_examples, config.eval_batch_size)
        return {"loss": sum(value for name, value in metrics.items() if name.endswith("_loss"))} | metrics

    if step == 0:
        initial = {f"dev_{name}": value for name, value in evaluate_dev().items()}
        training.write_initial_metrics(config, model_dir, initial)
    if step < config.train_steps:
        dev_metrics = ("loss", *model.test_metrics)
        training.train(
            model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, dev_metrics=dev_metrics
        )

    cluster.wait_for_all(strategy)  # the chief has written what all restore now
    step = checkpoints.restore_chosen(by_dev=True)
    cluster.wait_for_all(strategy)  # a worker that ends early would be missed by the others
    bert_weights.save_weights(model.network, encoder_config, vocab_path, os.path.join(model_dir, "bert"))
    return training.write_result(model_dir, create_result(config, model_dir, step))


def read_encoder_config(config, tokenizer):
    path = config.bert_config_file or bert_weights.find_config(config.init_checkpoint)
    encoder_config = BertConfig.read(path, tokenizer.vocab_size)
    if config.max_seq_length > encoder_config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length={config.max_seq_length}: the encoder of {path} has "
            f"{encoder_config.max_position_embeddings} positions at most."
        )
    return encoder_config


def create_model(config, encoder_config):
    with training.precision(config.mixed_precision):
        network = create_pretraining_network(encoder_config, config.next_sentence, config.seed)
    if config.init_checkpoint:
        report = bert_weights.load_weights(network, config.init_checkpoint)
        if any(name.startswith("cls/predictions/") for name in report.initial):
            logging.warning(
                "%s has no head of a language model, as sentence encoders have none: it begins with a random one, and "
                "what the encoder knows of sentences may be lost (docs/texts.md, in-domain pre-training).",
                config.init_checkpoint,
            )
    return PretrainingModel(network)


def create_result(config, model_dir, step):
    lines = {line["step"]: line for line in run_dir.read_metrics(model_dir)}
    speeds = [line["examples_per_second"] for line in lines.values() if "examples_per_second" in line]
    return {
        "task_name": config.task_name,
        "initial": {name: value for name, value in lines[0].items() if name.startswith("dev_")},
        "best": {name: value for name, value in lines[step].items() if name.startswith("dev_")},
        "step": step,
        "train_steps": config.train_steps,
        "seed": config.seed,
        "examples_per_second": float(np.median(speeds)),
        "versions": run_dir.versions(),
    }


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of the run; the weights go to its folder bert.", required=True)
    flags.DEFINE_enum("strategy", "auto", distribution.STRATEGIES, "How to use several devices.")
    flags.DEFINE_string("tpu", "", "Name or address of the TPU, or local on a TPU VM.")
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes that cut the texts.", lower_bound=1)
    settings.define_flags(PretrainConfig)


def main():
    logging.set_verbosity(logging.WARNING)
    config = settings.from_flags(PretrainConfig)
    strategy = distribution.create_strategy(FLAGS.strategy, FLAGS.tpu)
    result = pretrain(config, FLAGS.model_dir, strategy, FLAGS.workers)
    before, after = result["initial"]["dev_loss"], result["best"]["dev_loss"]
    if not cluster.current_task().is_chief:
        return
    print(f"{config.task_name}: loss on texts held out {before:.4f} at first, {after:.4f} at step {result['step']}")
    print(f"the weights of that step are in {os.path.join(FLAGS.model_dir, 'bert')}")


if __name__ == "__main__":
    cli.run(main, define_flags)
