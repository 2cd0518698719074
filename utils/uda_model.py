"""UDAModel: the one training step that images and text share.

    model = UDAModel(create_network, num_classes=10, train_steps=500_000, unsup_coeff=1.0)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.03, momentum=0.9, nesterov=True))
    model.fit(batches)      # dicts of "sup", "label" and, for UDA, "original", "augmented"

Losses are sums over a replica's examples divided by counts of the GLOBAL batch, and Keras adds the replicas' gradients:
so 1, 2 or 8 replicas make the same update from the same global batch. Batch normalisation is the exception: its
statistics are per replica unless the network uses synchronised layers.
"""

import tensorflow as tf

from utils import objective

METRIC_NAMES = (
    "loss",
    "sup_loss",
    "unsup_loss",  # KL(target || prediction), masked: what is minimised
    "unsup_cross_entropy",  # the paper's form: the same plus the target's entropy
    "entropy_loss",
    "l2_loss",
    "sup_accuracy",
    "sup_kept_ratio",
    "unsup_kept_ratio",
    "original_confidence",
    "augmented_confidence",
    "tsa_threshold",
    "learning_rate",
)


class UDAModel(tf.keras.Model):
    """A classifier trained on labelled examples and on consistency between two views of unlabelled ones."""

    def __init__(
        self,
        create_network,
        num_classes,
        train_steps,
        tsa="",
        softmax_temp=-1.0,
        confidence_thresh=-1.0,
        unsup_coeff=1.0,
        ent_min_coeff=0.0,
        weight_decay_rate=0.0,
        ema_decay=0.0,
    ):
        """Builds the network, and its moving average if `ema_decay` is not 0.

        Args:
          create_network: a function without arguments that returns a built Keras model from features to logits.
          tsa, softmax_temp, confidence_thresh: see utils/objective.py; "" and -1 switch them off.
          unsup_coeff: λ, the weight of the consistency loss.
          ent_min_coeff: weight of the entropy of predictions on original unlabelled examples.
          weight_decay_rate: times half the squared norm of ALL trainable weights, added to the loss.
          ema_decay: decay of the moving average of weights and batch-norm statistics that evaluation uses.
        """
        super().__init__()
        self.network = create_network()
        self.average_network = _create_average(create_network, self.network) if ema_decay else None
        self.num_classes, self.train_steps = num_classes, train_steps
        self.tsa, self.softmax_temp, self.confidence_thresh = tsa, softmax_temp, confidence_thresh
        self.unsup_coeff, self.ent_min_coeff = unsup_coeff, ent_min_coeff
        self.weight_decay_rate, self.ema_decay = weight_decay_rate, ema_decay
        self.train_metrics = {name: tf.keras.metrics.Mean(name) for name in METRIC_NAMES}
        self.test_metrics = {
            "loss": tf.keras.metrics.Mean("loss"),
            "accuracy": tf.keras.metrics.SparseCategoricalAccuracy("accuracy"),
        }

    @property
    def evaluation_network(self):
        """The network whose predictions count: the moving average where there is one."""
        return self.average_network or self.network

    @property
    def metrics(self):
        return [*self.train_metrics.values(), *self.test_metrics.values()]

    def call(self, features, training=False):
        return self.network(features, training=True) if training else self.evaluation_network(features, training=False)

    def train_step(self, batch):
        views = [batch["sup"]]
        if "original" in batch:
            views += [batch["original"], batch["augmented"]]
        with tf.GradientTape() as tape:
            # One pass over all views: they share batch-norm statistics, as in the original release.
            features = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *views)
            logits = _split_like(self.network(features, training=True), views)
            metrics = self.supervised_terms(logits[0], batch["label"])
            if "original" in batch:
                metrics |= self.unsupervised_terms(*logits[1:])
            metrics["l2_loss"] = self.weight_decay_rate * _half_squared_norm(self.network.trainable_variables)
            metrics["loss"] = (
                metrics["sup_loss"]
                + metrics.get("entropy_loss", 0.0)
                + self.unsup_coeff * metrics.get("unsup_loss", 0.0)
                + metrics["l2_loss"]
            )
            # Each metric is this replica's estimate of a global mean; gradients are summed over the replicas.
            objective_share = metrics["loss"] / self.num_replicas
        metrics["learning_rate"] = self.optimizer.learning_rate
        variables = self.network.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(objective_share, variables), variables))
        self.update_average()
        for name, value in metrics.items():
            self.train_metrics[name].update_state(value)
        return {name: self.train_metrics[name].result() for name in metrics}

    def supervised_terms(self, logits, labels):
        threshold = objective.tsa_threshold(self.tsa, self.optimizer.iterations, self.train_steps, self.num_classes)
        losses, kept_mask = objective.supervised_loss(logits, labels, threshold)
        kept_count = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(kept_mask))
        correct = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
        return {
            # The kept examples may lie unevenly on the replicas, so their global count divides.
            "sup_loss": tf.reduce_sum(losses) * self.num_replicas / tf.maximum(kept_count, 1.0),
            "sup_accuracy": tf.reduce_mean(correct),
            "sup_kept_ratio": tf.reduce_mean(kept_mask),
            "tsa_threshold": threshold,
        }

    def unsupervised_terms(self, original_logits, augmented_logits):
        target = objective.target_log_probs(original_logits, self.softmax_temp)
        mask = objective.confidence_mask(original_logits, self.confidence_thresh)
        divergence = objective.consistency_loss(target, augmented_logits)
        terms = {
            # The mean is over the whole batch, masked examples included (section 2.4).
            "unsup_loss": tf.reduce_mean(mask * divergence),
            "unsup_cross_entropy": tf.reduce_mean(mask * (divergence + objective.entropy(target))),
            "unsup_kept_ratio": tf.reduce_mean(mask),
            "original_confidence": tf.reduce_mean(objective.confidence(original_logits)),
            "augmented_confidence": tf.reduce_mean(objective.confidence(augmented_logits)),
        }
        if self.ent_min_coeff:
            log_probs = tf.nn.log_softmax(tf.cast(original_logits, tf.float32))
            terms["entropy_loss"] = self.ent_min_coeff * tf.reduce_mean(objective.entropy(log_probs))
        return terms

    @property
    def num_replicas(self):
        return tf.distribute.get_strategy().num_replicas_in_sync

    def update_average(self):
        if self.average_network is None:
            return
        for average, weight in zip(self.average_network.weights, self.network.weights):
            if weight.dtype.is_floating:  # a counter has no average
                average.assign_sub((1.0 - self.ema_decay) * (average - weight))

    def test_step(self, batch):
        """Accuracy and cross-entropy on "sup" and "label"; a "weight" of 0 marks padding."""
        logits = self(batch["sup"], training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], tf.cast(logits, tf.float32))
        self.test_metrics["loss"].update_state(losses, batch.get("weight"))
        self.test_metrics["accuracy"].update_state(batch["label"], logits, batch.get("weight"))
        return {name: metric.result() for name, metric in self.test_metrics.items()}


def _create_average(create_network, network):
    """A second network whose weights each replica updates on its own, without talking to the others."""

    def create_local_variable(next_creator, **kwargs):
        if tf.as_dtype(kwargs["dtype"]).is_floating:  # not Keras' own counters
            kwargs["trainable"] = False
            kwargs["synchronization"] = tf.VariableSynchronization.ON_READ
            kwargs["aggregation"] = tf.VariableAggregation.MEAN
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create_local_variable):
        average = create_network()
    average.trainable = False
    average.set_weights(network.get_weights())
    return average


def _split_like(logits, views):
    sizes = [tf.shape(tf.nest.flatten(view)[0])[0] for view in views]
    return tf.split(logits, sizes) if len(views) > 1 else [logits]


def _half_squared_norm(variables):
    return tf.add_n([tf.nn.l2_loss(tf.cast(variable, tf.float32)) for variable in variables])
