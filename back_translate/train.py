"""Trains a translation model on a parallel corpus, and saves it in the format that back_translate.translate loads.

python -m back_translate.train --corpus=fra.txt --model_dir=runs/en_fr
python -m back_translate.train --corpus=fra.txt --reverse --model_dir=runs/fr_en
python -m back_translate.train --source_file=train.en --target_file=train.fr --model_dir=runs/en_fr

The first form takes a file with a source text, a tab and its translation in each line (further columns are not used).
The finished model is in <model_dir>/model. A run that was stopped goes on when the same command is given again; with
other --train_steps it goes on for longer, or ends with the checkpoints that it has.
"""

import collections
import os
import time
import types
import unicodedata

import numpy as np
import sacrebleu
import tensorflow as tf
from absl import flags

from back_translate import engines, model_files, stage_files
from back_translate.subwords import EOS_ID, PAD_ID, build_vocabulary, count_words
from back_translate.transformer import SIZES, Noise, Transformer, TransformerConfig
from utils import cli, files, run_dir, settings
from utils.schedules import WarmupInverseSqrt
from utils.settings import Settings, config_class, setting

FLAGS = flags.FLAGS
Pair = collections.namedtuple("Pair", "source target")
InitialModel = collections.namedtuple("InitialModel", "config vocabulary weights")
WINDOW_BATCHES = 50  # so many batches are drawn together and sorted by length


@config_class()
class TrainConfig(Settings):
    # Corpus
    corpus: str = setting("", "File of lines: source text, tab, target text.", resumable=True)
    source_file: str = setting("", "Instead of corpus: a text on each line.", resumable=True)
    target_file: str = setting("", "Their translations, line by line.", resumable=True)
    reverse: bool = setting(False, "Translate from the target to the source side.")
    held_out: int = setting(2000, "Pairs to measure BLEU on; no other pair with one of their texts is used.", minimum=1)
    max_length: int = setting(64, "Longest text that is trained on, in subwords.", minimum=2)
    vocab_size: int = setting(4000, "About how many subwords both languages have together.", minimum=50)

    # Model
    size: str = setting("small", "Size of the Transformer.", tuple(SIZES))
    init_model: str = setting("", "Folder of a model of this size whose weights and subwords the run starts from.")
    dropout: float = setting(0.1, "Dropout.", minimum=0, maximum=0.9)

    # Optimisation
    # Neither the schedule nor the batches depend on it.
    train_steps: int = setting(20_000, "Number of updates.", minimum=1, resumable=True)
    batch_tokens: int = setting(2048, "About how many target subwords are in a batch.", minimum=1)
    learning_rate: float = setting(1e-3, "Learning rate at the end of the warm-up.", minimum=0)
    warmup_steps: int = setting(2000, "Steps of linear warm-up; then the rate falls as 1/√step.", minimum=1)
    label_smoothing: float = setting(0.1, "Probability that the target gives to all other subwords.", minimum=0)
    average: int = setting(5, "The model is the mean of so many last checkpoints.", minimum=1)
    seed: int = setting(0, "Seed of weights, order, dropout and choice of held-out pairs.", minimum=0, maximum=2**29)

    # Course of the run
    save_steps: int = setting(1000, "Steps between checkpoints.", minimum=1)
    log_steps: int = setting(100, "Steps between lines of metrics.", minimum=1, resumable=True)

    # The saved model
    storage: str = setting("float16", "Numbers in the saved model.", model_files.STORAGES, resumable=True)
    top_k: int = setting(0, "top_k that translate is to use with the model; 0 for none.", minimum=0, resumable=True)
    top_p: float = setting(
        1.0, "top_p that translate is to use with the model; 1 for none.", minimum=0.01, maximum=1, resumable=True
    )

    def __post_init__(self):
        super().__post_init__()
        if bool(self.corpus) == bool(self.source_file and self.target_file):
            raise ValueError("expected either corpus, or source_file and target_file.")


# ---- corpus ---------------------------------------------------------------------------------------------------------


def read_pairs(config):
    """Reads the corpus: a list of Pairs without repetitions, in the order of the file.

    Lines with an empty side are left out. Spaces of all kinds become plain ones.
    """
    pairs = dict.fromkeys(map(_clean, _read_corpus(config)))
    pairs = [pair for pair in pairs if pair.source and pair.target]
    if config.reverse:
        pairs = [Pair(pair.target, pair.source) for pair in pairs]
    if len(pairs) <= config.held_out:
        raise ValueError(f"held_out={config.held_out}: the corpus has only {len(pairs)} pairs.")
    return pairs


def _read_corpus(config):
    if config.corpus:
        for number, line in enumerate(stage_files.read_lines(config.corpus), start=1):
            if line and "\t" not in line:
                raise ValueError(f"{config.corpus}, line {number}: expected a tab between two texts.")
            if line:
                yield Pair(*line.split("\t")[:2])
        return
    sources, targets = (list(stage_files.read_lines(path)) for path in (config.source_file, config.target_file))
    if len(sources) != len(targets):
        raise ValueError(
            f"{config.source_file} has {len(sources)} lines, {config.target_file} has {len(targets)}: expected as many."
        )
    yield from map(Pair, sources, targets)


def _clean(pair):
    return Pair(*(" ".join(unicodedata.normalize("NFC", text).split()) for text in pair))


def hold_out(pairs, count, seed):
    """Takes `count` pairs out, and everything that shares a text with them.

    Returns:
      (train, held_out): lists of Pairs. No source and no target of one list is in the other.
    """
    # By the texts of a pair in either order, so that both directions hold out the same ones.
    order = sorted(range(len(pairs)), key=lambda number: sorted(pairs[number]))
    chosen, sources, targets = [], set(), set()
    for number in np.random.default_rng([seed, 1]).permutation(order):
        pair = pairs[number]
        if len(chosen) < count and pair.source not in sources and pair.target not in targets:
            chosen.append(pair)
            sources.add(pair.source)
            targets.add(pair.target)
    train = [pair for pair in pairs if pair.source not in sources and pair.target not in targets]
    if not train:
        raise ValueError(f"held_out={count} leaves no pair to train on.")
    return train, chosen


class Corpus:
    """Encoded pairs, and their batches as a function of seed and epoch."""

    def __init__(self, pairs, vocabulary, config):
        encoded = [Pair(*(vocabulary.encode(text) + [EOS_ID] for text in pair)) for pair in pairs]
        self.pairs = [pair for pair in encoded if max(map(len, pair)) <= config.max_length]
        if not self.pairs:
            longer = f"all {len(encoded)} pairs are longer: use a larger one, or split the texts into sentences"
            raise ValueError(f"max_length={config.max_length}: {longer}.")
        self.num_too_long = len(encoded) - len(self.pairs)
        self.lengths = np.array([[len(pair.source), len(pair.target)] for pair in self.pairs])
        self.batch_tokens, self.seed = config.batch_tokens, config.seed

    def batches_of_epoch(self, epoch):
        """A list of arrays of numbers of pairs of similar length, every pair once."""
        rng = np.random.default_rng([self.seed, 2, epoch])
        order, batches = rng.permutation(len(self.pairs)), []
        mean_length = self.lengths[:, 1].mean()
        window = max(int(WINDOW_BATCHES * self.batch_tokens / mean_length), 1)
        for start in range(0, len(order), window):
            numbers = order[start : start + window]
            numbers = numbers[np.lexsort([self.lengths[numbers, 0], self.lengths[numbers, 1]])]
            batches += self._cut(numbers)
        return [batches[number] for number in rng.permutation(len(batches))]

    def _cut(self, numbers):
        """Cuts sorted numbers into batches of at most batch_tokens, padding included."""
        first, longest = 0, 0
        for position, number in enumerate(numbers):
            longest = max(longest, self.lengths[number].max())
            if position > first and longest * (position + 1 - first) > self.batch_tokens:
                yield numbers[first:position]
                first, longest = position, self.lengths[number].max()
        yield numbers[first:]

    def batches(self, start_step):
        """Batches of the steps from start_step on, without end: Pairs of int32 [rows, length]."""
        step, epoch = 0, 0
        while True:
            batches = self.batches_of_epoch(epoch)
            for numbers in batches[max(start_step - step, 0) :]:
                yield Pair(*(pad([self.pairs[number][side] for number in numbers]) for side in (0, 1)))
            step, epoch = step + len(batches), epoch + 1


def pad(rows):
    length = max(map(len, rows))
    return np.array([row + [PAD_ID] * (length - len(row)) for row in rows], np.int32)


# ---- training -------------------------------------------------------------------------------------------------------


def smoothed_loss(logits, target_ids, label_smoothing):
    """Mean cross-entropy per target subword against a smoothed target, which would be 0 for a perfect prediction."""
    vocab_size = logits.shape[-1]
    log_probs = tf.nn.log_softmax(logits)
    true = tf.gather(log_probs, target_ids, batch_dims=2)
    other = label_smoothing / (vocab_size - 1)
    losses = -(1.0 - label_smoothing - other) * true - other * tf.reduce_sum(log_probs, axis=-1)
    real = tf.cast(target_ids != PAD_ID, tf.float32)
    correct = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == target_ids, tf.float32)
    mean = lambda values: tf.reduce_sum(values * real) / tf.reduce_sum(real)  # noqa: E731
    return mean(losses), mean(-true), mean(correct)


def create_train_step(model, optimizer, config):
    variables = list(model.weights.values())

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def train_step(source_ids, target_ids):
        noise = Noise(config.seed, optimizer.iterations)
        with tf.GradientTape() as tape:
            logits = model.decode(model.encode(source_ids, noise), source_ids, target_ids, noise)
            loss, cross_entropy, accuracy = smoothed_loss(logits, target_ids, config.label_smoothing)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        optimizer.apply_gradients(zip(gradients, variables))
        return {"loss": loss, "cross_entropy": cross_entropy, "token_accuracy": accuracy}

    return train_step


@run_dir.alone
def train(config, model_dir):
    """Runs or continues the training, then measures and saves the model.

    Returns:
      The content of result.json.
    """
    pairs, held_out = hold_out(read_pairs(config), config.held_out, config.seed)
    initial = load_initial_model(config) if config.init_model else None
    run_dir.prepare(model_dir, config)
    vocabulary = initial.vocabulary if initial else create_vocabulary(pairs, config, model_dir)
    corpus = Corpus(pairs, vocabulary, config)
    print(
        f"{len(corpus.pairs):,} pairs to train on ({corpus.num_too_long:,} left out as too long), {len(held_out):,} "
        f"held out, {len(vocabulary):,} subwords"
    )
    model_config = TransformerConfig(len(vocabulary), **SIZES[config.size])
    weights = initial.weights if initial else None
    model = Transformer(model_config, weights, dropout=config.dropout, seed=config.seed)
    schedule = WarmupInverseSqrt(config.learning_rate, config.train_steps, config.warmup_steps)
    optimizer = tf.keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9, jit_compile=False)
    optimizer.build(list(model.weights.values()))
    parts = types.SimpleNamespace(network=model, optimizer=optimizer, average_network=None)
    checkpoints = run_dir.Checkpoints(model_dir, parts, config.average)
    step = checkpoints.restore_last()
    step = make_steps(create_train_step(model, optimizer, config), corpus, config, model_dir, checkpoints, step)
    return finish(config, model_dir, step, model_config, vocabulary, average_weights(checkpoints, model), held_out)


def load_initial_model(config):
    initial = InitialModel(*model_files.load_model(config.init_model))
    expected = TransformerConfig(len(initial.vocabulary), **SIZES[config.size])
    if initial.config != expected:
        raise ValueError(
            f"init_model={config.init_model} has {initial.config}, but size={config.size} is {expected}: give the "
            "--size of that model, or train without --init_model."
        )
    return initial


def create_vocabulary(pairs, config, model_dir):
    """Builds the vocabulary, or takes the one that the run has built before."""
    path = os.path.join(model_dir, "vocab.subwords")
    if not tf.io.gfile.exists(path):
        vocabulary = build_vocabulary(count_words(text for pair in pairs for text in pair), config.vocab_size)
        with run_dir.explain_refusal(model_dir):
            vocabulary.write(path)
    return model_files.SubwordVocabulary.read(path)


def make_steps(train_step, corpus, config, model_dir, checkpoints, step):
    """Makes the steps from `step` on. Returns the number of steps made in all."""
    writer = run_dir.MetricsWriter(model_dir, step, config.train_steps)
    sums, num_steps, num_tokens, started = collections.Counter(), 0, 0, time.time()
    for source_ids, target_ids in corpus.batches(step):
        if step >= config.train_steps:
            break
        sums.update({name: float(value) for name, value in train_step(source_ids, target_ids).items()})
        num_tokens += int((target_ids != PAD_ID).sum())
        step, num_steps = step + 1, num_steps + 1
        writer.advance(step)
        if step % config.log_steps == 0 or step == config.train_steps:
            metrics = {name: value / num_steps for name, value in sums.items()}
            if not np.isfinite(metrics["loss"]):
                raise ValueError(f"step={step}: loss={metrics['loss']}. Use a lower --learning_rate.")
            writer.write(step, metrics | {"tokens_per_second": num_tokens / (time.time() - started)})
            sums, num_steps, num_tokens, started = collections.Counter(), 0, 0, time.time()
        if step % config.save_steps == 0 or step == config.train_steps:
            checkpoints.save(step)
    writer.close()
    return step


def average_weights(checkpoints, model):
    """The mean of the weights of all checkpoints that are kept: dict from name to array."""
    sums = {name: 0.0 for name in model.weights}
    paths = checkpoints.manager.checkpoints
    for path in paths:
        checkpoints.restore(path)
        for name, weight in model.weights.items():
            sums[name] = sums[name] + weight.numpy() / len(paths)
    return sums


def finish(config, model_dir, step, model_config, vocabulary, weights, held_out):
    """Saves the model, translates the held-out pairs with it as saved, and writes result.json."""
    folder = os.path.join(model_dir, "model")
    model_files.save_model(folder, model_config, vocabulary, weights, config.storage)
    outputs = engines.TensorFlowEngine.load(folder).translate([pair.source for pair in held_out])
    bleu = sacrebleu.corpus_bleu(outputs, [[pair.target for pair in held_out]])
    result = {"bleu": bleu.score, "num_held_out": len(held_out), "train_steps": step}
    result["examples"] = [{"source": s.source, "target": s.target, "output": o} for s, o in zip(held_out[:20], outputs)]
    model_files.save_model(folder, model_config, vocabulary, weights, config.storage, {"bleu": round(bleu.score, 2)})
    model_files.write_sampling(folder, {"top_k": config.top_k, "top_p": config.top_p})
    files.write_json(os.path.join(model_dir, "result.json"), result | run_dir.versions())
    return result


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of the run.", required=True)
    settings.define_flags(TrainConfig)


def main():
    result = train(settings.from_flags(TrainConfig), FLAGS.model_dir)
    print(f"BLEU {result['bleu']:.2f} on {result['num_held_out']:,} pairs; the model is in {FLAGS.model_dir}/model")


if __name__ == "__main__":
    cli.run(main, define_flags)
