"""BERT's two pre-training tasks on one encoder: masked words and the next sentence (Devlin et al., 2019).

network = create_pretraining_network(encoder_config, next_sentence=True)
model = PretrainingModel(network)
"""

import tensorflow as tf
from official.nlp.modeling.layers import MaskedLM
from tensorflow.keras import layers
from tensorflow.keras.initializers import TruncatedNormal

from text.models.bert import ACTIVATIONS, Encoder, encoder_inputs
from utils.tracing import as_written


class NextSentence(layers.Layer):
    """Two logits from the pooled output: class 0 is the true next segment, 1 a random one. Weights are as Google's."""

    def __init__(self, initializer_range):
        super().__init__(name="cls/seq_relationship")
        self.initializer = TruncatedNormal(stddev=initializer_range)

    def build(self, input_shape):
        self.kernel = self.add_weight("output_weights", [2, input_shape[-1]], initializer=self.initializer)
        self.bias = self.add_weight("output_bias", [2], initializer="zeros")

    def call(self, pooled):
        return tf.matmul(pooled, self.kernel, transpose_b=True) + self.bias


def create_pretraining_network(encoder_config, next_sentence=True, seed=0):
    """Builds the network from {"ids", "type_ids", "positions"} to the logits of the tasks.

    The features are int32: ids and type_ids [batch, length], positions [batch, predictions] of the masked pieces.

    Returns:
      A Keras model that returns a dict: "mlm" [batch, predictions, vocabulary], and "nsp" [batch, 2] if next_sentence.
    """
    encoder = Encoder(encoder_config, seed=seed)
    encoder.pooler_layer.trainable = next_sentence  # nothing else trains it
    features = {name: tf.keras.Input([None], dtype=tf.int32, name=name) for name in ("ids", "type_ids", "positions")}
    mask = tf.not_equal(features["ids"], 0)
    outputs = encoder(encoder_inputs(features["ids"], features["type_ids"], mask))
    predictions = MaskedLM(  # its output matrix is the table of embeddings
        encoder.get_embedding_table(),
        activation=ACTIVATIONS[encoder_config.hidden_act],
        initializer=TruncatedNormal(stddev=encoder_config.initializer_range),
        name="cls/predictions",
    )
    logits = {"mlm": predictions(outputs["sequence_output"], masked_positions=features["positions"])}
    if next_sentence:
        logits["nsp"] = NextSentence(encoder_config.initializer_range)(outputs["pooled_output"])
    return tf.keras.Model(features, logits, name="bert_pretraining")


class PretrainingModel(tf.keras.Model):
    """Trains such a network on batches of its features and, for each task, "<task>_labels" and "<task>_weights".

    The loss is the sum of the tasks' losses, each a mean over the global batch, whatever the number of replicas.
    """

    average_network = None  # run_dir.Checkpoints asks for it

    def __init__(self, network):
        super().__init__()
        self.network = network
        names = [f"{task}_{measure}" for task in network.output for measure in ("loss", "accuracy")]
        self.train_metrics = {name: tf.keras.metrics.Mean(name) for name in ("loss", *names, "learning_rate")}
        self.test_metrics = {name: tf.keras.metrics.Mean(name) for name in names}

    @property
    def metrics(self):
        return [*self.train_metrics.values(), *self.test_metrics.values()]

    @as_written
    def train_step(self, batch):
        with tf.GradientTape() as tape:
            measures = self.compute_measures(batch, training=True)
            metrics = {name: self.global_mean(*values) for name, values in measures.items()}
            metrics["loss"] = tf.add_n([value for name, value in metrics.items() if name.endswith("_loss")])
            # Each metric is this replica's estimate of a global mean; gradients are summed over the replicas.
            objective_share = metrics["loss"] / self.num_replicas
        metrics["learning_rate"] = self.optimizer.learning_rate
        self.optimizer.minimize(objective_share, self.network.trainable_variables, tape=tape)
        for name, value in metrics.items():
            self.train_metrics[name].update_state(value)
        return {name: self.train_metrics[name].result() for name in metrics}

    @as_written
    def test_step(self, batch):
        for name, (values, weights) in self.compute_measures(batch, training=False).items():
            self.test_metrics[name].update_state(values, weights)
        return {name: metric.result() for name, metric in self.test_metrics.items()}

    def compute_measures(self, batch, training):
        """The loss and the accuracy of each task: dict from name to (value of each prediction, its weight)."""
        features = {name: batch[name] for name in ("ids", "type_ids", "positions")}
        measures = {}
        for task, logits in self.network(features, training=training).items():
            labels, weights, logits = batch[f"{task}_labels"], batch[f"{task}_weights"], tf.cast(logits, tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            correct = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
            # Flat, because Keras' metrics would make shapes equal that they do not know on several replicas.
            losses, correct, weights = (tf.reshape(values, [-1]) for values in (losses, correct, weights))
            measures |= {f"{task}_loss": (losses, weights), f"{task}_accuracy": (correct, weights)}
        return measures

    def global_mean(self, values, weights):
        # The predictions may lie unevenly on the replicas, so their global count divides.
        count = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(weights))
        return tf.reduce_sum(values * weights) * self.num_replicas / tf.maximum(count, 1.0)

    @property
    def num_replicas(self):
        return tf.distribute.get_strategy().num_replicas_in_sync
