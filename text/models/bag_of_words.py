"""A small, fast baseline that looks at words and not at their order: the mean of their embeddings, classified."""

import tensorflow as tf
from tensorflow.keras import layers

from text.models.dropout import Dropout
from utils.random_state import create_counter, draw_seed

WIDTH = 64  # of the embeddings and of the hidden layer
DROPOUT = 0.1


class MeanEmbedding(layers.Layer):
    """The mean embedding of a text's pieces; it also counts the masks of dropout."""

    def __init__(self, vocab_size, seed):
        # In float32 whatever the others compute in: the sum of a long text would lose too much in 16 bits.
        super().__init__(name="mean_embedding", dtype=tf.float32)
        self.vocab_size, self.seed = vocab_size, seed

    def build(self, input_shape):
        self.table = self.add_weight("embeddings", [self.vocab_size, WIDTH], initializer="uniform")
        self.mask_counter = create_counter(self, "mask_counter")

    def call(self, ids):
        mask = tf.cast(ids != 0, tf.float32)[:, :, tf.newaxis]  # padding does not count
        total = tf.reduce_sum(tf.gather(self.table, ids) * mask, axis=1)  # [batch, length, width] → [batch, width]
        return total / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)

    def next_seed(self):
        return draw_seed(self.seed, self.mask_counter)


def create_bag_of_words(vocab_size, num_classes, dropout=-1.0, trainable_layers=-1, seed=0):
    """Builds the classifier from {"ids", "type_ids"} (int32 [batch, length], padded with 0) to float32 logits.

    Args:
      dropout: rate; -1: the network's own.
      trainable_layers: must be -1, everything, for there is no encoder whose layers could stay as they are.
      seed: of the dropout masks. (The initial weights come from Keras' global seed.)
    """
    if trainable_layers >= 0:
        raise ValueError(f"trainable_layers={trainable_layers}: expected -1, since bag_of_words has no such layers.")
    features = {name: tf.keras.Input([None], dtype=tf.int32, name=name) for name in ("ids", "type_ids")}
    embedding = MeanEmbedding(vocab_size, seed)
    mean = Dropout(DROPOUT if dropout < 0 else dropout, embedding.next_seed)(embedding(features["ids"]))
    hidden = layers.Dense(WIDTH, "relu", name="hidden")(mean)
    logits = layers.Dense(num_classes, dtype=tf.float32, name="logits")(hidden)
    return tf.keras.Model(features, logits, name="bag_of_words")
