"""UDAModel: the one training step that images and text share.

    model = UDAModel(create_network, num_classes=10, objective=ObjectiveConfig(train_steps=500_000, tsa="linear"))
    model.compile(optimizer=tf.keras.optimizers.SGD(0.03, momentum=0.9, nesterov=True))
    model.fit(batches)      # dicts of "sup", "label" and, for UDA, "original", "augmented"

Losses are sums over a replica's examples divided by counts of the GLOBAL batch, and Keras adds the replicas' gradients:
so 1, 2 or 8 replicas make the same update from the same global batch. Batch normalisation is the exception: its
statistics are per replica unless the network uses synchronised layers.

Images go through the network in one joint pass over all views; text, which has no batch statistics, in a pass for each
view, of its own length, with the target's pass outside the gradient tape.
"""

import math

import tensorflow as tf

from utils import objective
from utils.tracing import as_written

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
    "view_divergence",  # KL(original || augmented), neither sharpened nor masked: how much the augmentation changes
    "pseudo_label_balance",  # of the classes predicted on original examples: 1 even, 0 one class only, a collapse
    "pseudo_label_distance",  # of their shares of the classes from those of the labels: 0 alike, 1 nothing in common
    "pseudo_label_excess",  # the largest difference by which the share of a class exceeds that in the labels
    "tsa_threshold",
    "learning_rate",
)


class UDAModel(tf.keras.Model):
    """A classifier trained on labelled examples and on consistency between two views of unlabelled ones."""

    def __init__(
        self,
        create_network,
        num_classes,
        objective,
        weight_decay_rate=0.0,
        joint_pass=True,
        num_parts=1,
        fixed_target=False,
    ):
        """Builds the network, and its moving average if the objective's `ema_decay` is not 0.

        Args:
          create_network: a function without arguments that returns a built Keras model from features to logits.
          objective: utils.settings.ObjectiveConfig, such as the configuration of a run.
          weight_decay_rate: times half the squared norm of ALL trainable weights, added to the loss; with joint_pass.
          joint_pass: one pass of the network over all views, which batch-norm statistics need. Without it every view
            has its own pass, so that their shapes may differ and the target costs no backward work.
          num_parts: without joint_pass, the parts in which a batch goes through the network, for devices with little
            memory; the update is that of the whole batch.
          fixed_target: without joint_pass, the target is not what the network predicts at the time but what it
            predicted, without dropout, when start_copies was called, such as after an earlier stage of the training;
            the loss is the mean of both views'.
        """
        super().__init__()
        if joint_pass and num_parts > 1:
            raise ValueError(f"num_parts={num_parts}: the joint pass cannot be made in parts; use joint_pass=False.")
        if weight_decay_rate and not joint_pass:
            raise ValueError(
                f"weight_decay_rate={weight_decay_rate}: separate passes have no such term; let the optimizer decay."
            )
        if fixed_target and joint_pass:
            raise ValueError("fixed_target with joint_pass: expected a pass of its own for the target.")
        self.network = create_network()
        self.average_network = _create_copy(create_network) if objective.ema_decay else None
        self.target_network = _create_copy(create_network) if fixed_target else None
        self.start_copies()
        self.num_classes, self.objective, self.weight_decay_rate = num_classes, objective, weight_decay_rate
        self.joint_pass, self.num_parts = joint_pass, num_parts
        self.train_metrics = {name: tf.keras.metrics.Mean(name) for name in METRIC_NAMES}
        for name, create in CLASS_METRICS.items():
            self.train_metrics[name] = create(name, num_classes)
        self.test_metrics = {
            "loss": tf.keras.metrics.Mean("loss"),
            "accuracy": tf.keras.metrics.SparseCategoricalAccuracy("accuracy"),
        }
        if num_classes > 5:
            self.test_metrics["top5_accuracy"] = tf.keras.metrics.SparseTopKCategoricalAccuracy(5, "top5_accuracy")

    @property
    def evaluation_network(self):
        """The network whose predictions count: the moving average where there is one."""
        return self.average_network or self.network

    @property
    def metrics(self):
        return [*self.train_metrics.values(), *self.test_metrics.values()]

    def call(self, features, training=False):
        return self.network(features, training=True) if training else self.evaluation_network(features, training=False)

    @as_written
    def train_step(self, batch):
        compute_gradients = self.gradients_of_joint_pass if self.joint_pass else self.gradients_of_separate_passes
        gradients, metrics = compute_gradients(batch)
        metrics["learning_rate"] = self.optimizer.learning_rate
        if "pseudo_label_balance" in metrics:
            pair = tf.stack([self.shares_of(batch["label"]), metrics["pseudo_label_balance"]])
            metrics |= {"pseudo_label_distance": pair, "pseudo_label_excess": pair}
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_variables))
        self.update_average()
        for name, value in metrics.items():
            self.train_metrics[name].update_state(value)
        return {name: self.train_metrics[name].result() for name in metrics}

    def gradients_of_joint_pass(self, batch):
        views = [batch["sup"]]  # features [B, …]; the unlabelled views have r·B rows
        if "original" in batch:
            views += [batch["original"], batch["augmented"]]
        with tf.GradientTape() as tape:
            # One pass over all views: they share batch-norm statistics, as in the original release.
            features = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *views)
            logits = _split_like(self.network(features, training=True), views)  # [B, K], then twice [r·B, K]
            metrics = self.supervised_terms(self.supervised_sums(logits[0], batch["label"]))
            if "original" in batch:
                metrics |= self.unsupervised_terms(*logits[1:])
            metrics["l2_loss"] = self.weight_decay_rate * _half_squared_norm(self.network.trainable_variables)
            metrics["loss"] = metrics["sup_loss"] + self.unlabelled_objective(metrics) + metrics["l2_loss"]
            # Each metric is this replica's estimate of a global mean; gradients are summed over the replicas.
            objective_share = self.scale_loss(metrics["loss"] / self.num_replicas)
        return self.unscale_gradients(tape.gradient(objective_share, self.network.trainable_variables)), metrics

    def gradients_of_separate_passes(self, batch):
        sup_parts = _split_batch({key: batch[key] for key in ("sup", "label")}, self.num_parts)
        gradients = [tf.zeros(variable.shape) for variable in self.network.trainable_variables]
        sums = []
        for part in sup_parts:
            with tf.control_dependencies(gradients), tf.GradientTape() as tape:
                sums.append(self.supervised_sums(self.network(part["sup"], training=True), part["label"]))
                loss = self.scale_loss(sums[-1]["loss"])
            gradients = self.add_gradients(gradients, tape, loss)
        sums = tf.nest.map_structure(lambda *parts: tf.add_n(parts), *sums)
        metrics = self.supervised_terms(sums)
        # Only now is it known how many labelled examples are kept.
        gradients = [gradient / self.global_kept_count(sums) for gradient in gradients]
        if "original" in batch:
            unsup_parts = _split_batch({key: batch[key] for key in ("original", "augmented")}, self.num_parts)
            terms = []
            for part in unsup_parts:
                with tf.control_dependencies(gradients):
                    gradients, part_terms = self.add_unsupervised_pass(gradients, part)
                terms.append(part_terms)
            metrics |= tf.nest.map_structure(lambda *parts: tf.add_n(parts) / self.num_parts, *terms)
        metrics["loss"] = metrics["sup_loss"] + self.unlabelled_objective(metrics)
        return self.unscale_gradients(gradients), metrics

    def add_unsupervised_pass(self, gradients, part):
        # The target is a constant for the gradient: no tape watches the pass of the originals, unless they are trained.
        has_fixed_target = self.target_network is not None
        target_logits = self.target_network(part["original"], training=False) if has_fixed_target else None
        trains_originals = has_fixed_target or self.objective.ent_min_coeff
        original_logits = None if trains_originals else self.network(part["original"], training=True)
        with tf.GradientTape() as tape:
            if trains_originals:
                original_logits = self.network(part["original"], training=True)
            augmented_logits = self.network(part["augmented"], training=True)
            terms = self.unsupervised_terms(original_logits, augmented_logits, target_logits)
            loss = self.scale_loss(self.unlabelled_objective(terms) / (self.num_parts * self.num_replicas))
        return self.add_gradients(gradients, tape, loss), terms

    def add_gradients(self, gradients, tape, loss):
        more = tape.gradient(loss, self.network.trainable_variables, unconnected_gradients="zero")
        return [gradient + tf.convert_to_tensor(addend) for gradient, addend in zip(gradients, more)]

    def scale_loss(self, loss):
        return self.optimizer.get_scaled_loss(loss) if self.scales_loss else loss

    def unscale_gradients(self, gradients):
        return self.optimizer.get_unscaled_gradients(gradients) if self.scales_loss else gradients

    @property
    def scales_loss(self):
        """Whether the gradients are computed in float16, in which small ones would vanish."""
        return isinstance(self.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)

    def supervised_sums(self, logits, labels):
        """Sums over this replica's labelled examples; logits [b, K], labels [b] → scalars."""
        losses, kept_mask = objective.supervised_loss(logits, labels, self.tsa_threshold())
        correct = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
        sums = {"loss": losses, "kept": kept_mask, "correct": correct, "count": tf.ones_like(losses)}
        return {name: tf.reduce_sum(values) for name, values in sums.items()}

    def supervised_terms(self, sums):
        return {
            # The kept examples may lie unevenly on the replicas, so their global count divides.
            "sup_loss": sums["loss"] * self.num_replicas / self.global_kept_count(sums),
            "sup_accuracy": sums["correct"] / sums["count"],
            "sup_kept_ratio": sums["kept"] / sums["count"],
            "tsa_threshold": self.tsa_threshold(),
        }

    def tsa_threshold(self):
        settings, step = self.objective, self.optimizer.iterations
        return objective.tsa_threshold(settings.tsa, step, settings.train_steps, self.num_classes)

    def global_kept_count(self, sums):
        return tf.maximum(tf.distribute.get_replica_context().all_reduce("SUM", sums["kept"]), 1.0)

    def unsupervised_terms(self, original_logits, augmented_logits, target_logits=None):
        """Means over this replica's unlabelled examples; logits [n, K] → scalars, and the shares of the classes [K].

        Args:
          target_logits: of a fixed target. Both views are drawn to it: what is predicted on the originals would drift.
            By default the originals are the target, as in the paper.
        """
        views = [augmented_logits] if target_logits is None else [augmented_logits, original_logits]
        target_logits = original_logits if target_logits is None else target_logits
        target = objective.target_log_probs(target_logits, self.objective.uda_softmax_temp)
        mask = objective.confidence_mask(target_logits, self.objective.uda_confidence_thresh)
        divergence = tf.add_n([objective.consistency_loss(target, logits) for logits in views]) / len(views)
        plain_target = objective.target_log_probs(original_logits, -1)
        terms = {
            # The mean is over the whole batch, masked examples included (section 2.4).
            "unsup_loss": tf.reduce_mean(mask * divergence),
            "unsup_cross_entropy": tf.reduce_mean(mask * (divergence + objective.entropy(target))),
            "unsup_kept_ratio": tf.reduce_mean(mask),
            "original_confidence": tf.reduce_mean(objective.confidence(original_logits)),
            "augmented_confidence": tf.reduce_mean(objective.confidence(augmented_logits)),
            "view_divergence": tf.reduce_mean(objective.consistency_loss(plain_target, augmented_logits)),
            "pseudo_label_balance": self.shares_of(tf.argmax(original_logits, axis=-1)),
        }
        if self.objective.ent_min_coeff:
            log_probs = tf.nn.log_softmax(tf.cast(original_logits, tf.float32))
            terms["entropy_loss"] = self.objective.ent_min_coeff * tf.reduce_mean(objective.entropy(log_probs))
        return terms

    def shares_of(self, classes):
        """Which part of the examples belongs to each class [K]; class numbers [n]."""
        return tf.reduce_mean(tf.one_hot(classes, self.num_classes), axis=0)

    def unlabelled_objective(self, terms):
        return terms.get("entropy_loss", 0.0) + self.objective.unsup_coeff * terms.get("unsup_loss", 0.0)

    @property
    def num_replicas(self):
        return tf.distribute.get_strategy().num_replicas_in_sync

    def start_copies(self):
        """Sets moving average and fixed target to the weights as they are, such as after loading pre-trained ones."""
        for copy in (self.average_network, self.target_network):
            if copy is not None:
                copy.set_weights(self.network.get_weights())

    def update_average(self):
        if self.average_network is None:
            return
        for average, weight in zip(self.average_network.weights, self.network.weights):
            if weight.dtype.is_floating:  # a counter has no average
                average.assign_sub((1.0 - self.objective.ema_decay) * (average - weight))

    @as_written
    def test_step(self, batch):
        """Accuracy (of more than five classes also top-5) and loss on "sup" and "label"; a "weight" of 0 is padding."""
        logits = self(batch["sup"], training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], tf.cast(logits, tf.float32))
        self.test_metrics["loss"].update_state(losses, batch.get("weight"))
        for name, metric in self.test_metrics.items():
            if name != "loss":
                metric.update_state(batch["label"], logits, batch.get("weight"))
        return {name: metric.result() for name, metric in self.test_metrics.items()}

    @as_written
    def predict_step(self, batch):
        """The logarithms of the probabilities [batch, K] as "sup", and what else is in the batch as it is."""
        return batch | {"sup": tf.nn.log_softmax(tf.cast(self(batch["sup"], training=False), tf.float32))}


class ClassMetric(tf.keras.metrics.Metric):
    """Adds up shares of the classes, of one kind or several."""

    def __init__(self, name, *shape):
        super().__init__(name)
        self.shares = self.add_weight("shares", shape, initializer="zeros")

    def update_state(self, shares):
        self.shares.assign_add(shares)

    def reset_state(self):
        self.shares.assign(tf.zeros_like(self.shares))

    @property
    def count(self):
        return tf.reduce_sum(self.shares)

    def normalized(self):
        return self.shares / tf.maximum(tf.reduce_sum(self.shares, axis=-1, keepdims=True), 1.0)


class ClassBalance(ClassMetric):
    """Entropy of the shares of the classes [K], as a part of the largest possible one."""

    def result(self):
        shares = self.normalized()
        return -tf.reduce_sum(tf.math.xlogy(shares, shares)) / math.log(self.shares.shape[0])


class ClassDistance(ClassMetric):
    """Half the sum of the differences between the shares of the classes in labels and in predictions [2, K]."""

    def __init__(self, name, num_classes):
        super().__init__(name, 2, num_classes)

    def result(self):
        labels, predictions = tf.unstack(self.normalized())
        return tf.reduce_sum(tf.abs(predictions - labels)) / 2


class ClassExcess(ClassDistance):
    """The largest difference by which the share of a class in predictions exceeds that in labels."""

    def result(self):
        labels, predictions = tf.unstack(self.normalized())
        return tf.reduce_max(predictions - labels)


CLASS_METRICS = {
    "pseudo_label_balance": ClassBalance,
    "pseudo_label_distance": ClassDistance,
    "pseudo_label_excess": ClassExcess,
}


def _create_copy(create_network):
    """A second network whose weights each replica updates on its own, without talking to the others."""

    def create_local_variable(next_creator, **kwargs):
        if tf.as_dtype(kwargs["dtype"]).is_floating:  # not Keras' own counters
            kwargs["trainable"] = False
            kwargs["synchronization"] = tf.VariableSynchronization.ON_READ
            kwargs["aggregation"] = tf.VariableAggregation.MEAN
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create_local_variable):
        copy = create_network()
    copy.trainable = False
    return copy


def _split_batch(batch, num_parts):
    """Cuts every tensor into equal parts along its first dimension. Returns a list of such batches."""
    flat_parts = [tf.split(tensor, num_parts) for tensor in tf.nest.flatten(batch)]
    return [tf.nest.pack_sequence_as(batch, part) for part in zip(*flat_parts)]


def _split_like(logits, views):
    sizes = [tf.shape(tf.nest.flatten(view)[0])[0] for view in views]
    return tf.split(logits, sizes) if len(views) > 1 else [logits]


def _half_squared_norm(variables):
    return tf.add_n([tf.nn.l2_loss(tf.cast(variable, tf.float32)) for variable in variables])
