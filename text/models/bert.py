"""BERT (Devlin et al., 2019) of any size as a classifier, on the encoder of tf-models-official."""

import dataclasses

import tensorflow as tf
from official.nlp.modeling.networks import BertEncoderV2
from tensorflow.keras import layers
from tensorflow.keras.initializers import TruncatedNormal

from text.models.dropout import Dropout
from utils import files
from utils.features import add_head
from utils.random_state import create_counter, draw_seed
from utils.tracing import as_written

ACTIVATIONS = {
    "gelu": tf.keras.activations.gelu,  # BERT's: the exact form, with erf
    "gelu_new": lambda inputs: tf.keras.activations.gelu(inputs, approximate=True),
    "relu": tf.keras.activations.relu,
}
POOLINGS = ("cls", "mean")

# Of a stored configuration. A number beyond these is no size of a BERT, and would ask for all memory there is.
FIELDS = {
    "vocab_size": range(1, 1 << 24),
    "hidden_size": range(1, 1 << 16),
    "num_hidden_layers": range(1, 1 << 10),
    "num_attention_heads": range(1, 1 << 10),
    "intermediate_size": range(1, 1 << 18),
    "hidden_act": str,
    "hidden_dropout_prob": float,
    "attention_probs_dropout_prob": float,
    "max_position_embeddings": range(1, 1 << 20),
    "type_vocab_size": range(1, 1 << 10),
    "initializer_range": float,
}
MAX_WEIGHTS = 4_000_000_000  # as many numbers as the largest published BERT has

# What the encoder always does, where a configuration file could ask for something else.
FIXED = {"model_type": "bert", "position_embedding_type": "absolute", "layer_norm_eps": 1e-12}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The size of an encoder, with the names of bert_config.json; the defaults are BERT-base's."""

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    def __post_init__(self):
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"hidden_act={files.shorten(self.hidden_act)}: expected one of {', '.join(map(repr, ACTIVATIONS))}."
            )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads={self.num_attention_heads}."
            )

    @classmethod
    def read(cls, path, num_pieces=0):
        """Reads Google's bert_config.json or Hugging Face's config.json, which share their keys.

        Args:
          num_pieces: size of the vocabulary that the encoder must have room for.
        """
        values = check_stored(path, files.read_json(path))
        for name, expected in FIXED.items():
            if values.get(name, expected) != expected:
                raise ValueError(
                    f"{path}: {name}={files.shorten(values[name])}, but this encoder only knows {expected!r}."
                )
        if num_pieces > values["vocab_size"]:
            raise ValueError(
                f"The vocabulary has {num_pieces} word pieces, but {path} says vocab_size={values['vocab_size']}: give "
                "the vocab.txt that belongs to it."
            )
        try:
            return cls(**{name: values[name] for name in FIELDS})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path):
        files.write_json(path, dataclasses.asdict(self))


def check_stored(path, values):
    """Returns the content of a configuration file; raises ValueError unless its sizes can be those of a BERT."""
    missing = [name for name in FIELDS if name not in values] if isinstance(values, dict) else []
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: expected the configuration of a BERT.")
    advice = "restore the file that was published with the weights."
    files.check_fields(path, values, FIELDS, advice=advice)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if not 0 <= values[name] < 1:
            raise ValueError(f"{path}: {name}={values[name]}: expected at least 0 and less than 1; {advice}")
    if not 0 < values["initializer_range"] <= 1:
        raise ValueError(f"{path}: initializer_range={values['initializer_range']}: expected more than 0, up to 1.")
    width, inner = values["hidden_size"], values["intermediate_size"]
    num_weights = width * (values["vocab_size"] + values["max_position_embeddings"] + values["type_vocab_size"])
    num_weights += values["num_hidden_layers"] * (4 * width + 2 * inner) * width
    if num_weights > MAX_WEIGHTS:
        raise ValueError(f"{path} tells of {num_weights:,} weights: expected at most {MAX_WEIGHTS:,}; {advice}")
    return values


class Encoder(BertEncoderV2):
    """tf-models-official's encoder, built from a BertConfig, with dropout that can be resumed."""

    def __init__(self, config, dropout=-1.0, seed=0, output_range=None, with_pooler=True):
        """Creates all weights.

        Args:
          dropout: rate for hidden states and attention alike; -1: as the config says.
          seed: of the dropout masks. (The initial weights come from Keras' global seed.)
          output_range: the last layer computes only so many first tokens; None: all.
          with_pooler: False leaves the pooler and its weights out ("pooled_output" is then the plain first token).
        """
        super().__init__(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            max_sequence_length=config.max_position_embeddings,
            type_vocab_size=config.type_vocab_size,
            inner_dim=config.intermediate_size,
            inner_activation=ACTIVATIONS[config.hidden_act],
            initializer=TruncatedNormal(stddev=config.initializer_range),
            output_range=output_range,
            name="encoder",
        )
        self.seed, self.mask_counter = seed, create_counter(self, "mask_counter")
        if not with_pooler:
            self._pooler_layer = layers.Activation("linear")
        one_token = tf.ones([1, 1], tf.int32)
        self(encoder_inputs(one_token, one_token, one_token))  # the sublayers come into being with the first call
        if dropout >= 0:
            self._replace_dropout(dropout, dropout)
        else:
            self._replace_dropout(config.hidden_dropout_prob, config.attention_probs_dropout_prob)

    def _replace_dropout(self, hidden_rate, attention_rate):
        self._embedding_dropout = Dropout(hidden_rate, self.next_seed)
        for layer in self.transformer_layers:
            layer._attention_layer._dropout_layer = Dropout(attention_rate, self.next_seed)
            # On the attention's output BERT has the rate of hidden states, tf-models-official that of attention.
            layer._attention_dropout = Dropout(hidden_rate, self.next_seed)
            layer._output_dropout = Dropout(hidden_rate, self.next_seed)

    def next_seed(self):
        """The seed of the next dropout mask: one that no other mask of the training has."""
        return draw_seed(self.seed, self.mask_counter)

    def call(self, inputs):
        """Takes what encoder_inputs gives, or {"states", "input_mask"}: then only the layers that are trained follow.

        States are what the layers below those gave: [batch, length, width].
        """
        return self._call(inputs)  # Keras reads the arguments of call, which a decorator would hide

    @as_written
    def _call(self, inputs):
        if "states" not in inputs:
            return super().call(inputs)
        outputs = [inputs["states"]]
        attention_mask = self._attention_mask_layer(inputs["states"], inputs["input_mask"])
        for layer in self.transformer_layers[-self.num_trained : -1]:
            outputs.append(layer([outputs[-1], attention_mask]))
        last = self.transformer_layers[-1]([outputs[-1], attention_mask], output_range=self._output_range)
        pooled = self.pooler_layer(last[:, 0])
        return {"sequence_output": last, "pooled_output": pooled, "encoder_outputs": [*outputs, last]}

    def train_only(self, num_layers):
        """Freezes all but the top `num_layers` layers and the pooler; backpropagation then stops above the others."""
        self.num_trained = num_layers
        trained = [self.pooler_layer, *self.transformer_layers[len(self.transformer_layers) - num_layers :]]
        for layer in self._sublayers():
            layer.trainable = any(layer is other for other in trained)

    @property
    def weights(self):
        """In the order of the layers whether they are trained or not, so that two encoders' weights always match."""
        return [weight for layer in self._sublayers() for weight in layer.weights] + [self.mask_counter]

    def _sublayers(self):
        return list(self._flatten_layers(recursive=False, include_self=False))


def encoder_inputs(ids, type_ids, mask):
    """What an Encoder is called with; it returns a dict with "sequence_output" and "pooled_output"."""
    return {"input_word_ids": ids, "input_type_ids": type_ids, "input_mask": tf.cast(mask, tf.int32)}


def create_bert(
    encoder_config,
    num_classes,
    max_seq_length,
    pooling="cls",
    dropout=-1.0,
    trainable_layers=-1,
    seed=0,
    feature_layers=(),
    standardized=False,
    from_states=False,
):
    """Builds the classifier from {"ids", "type_ids"} (int32 [batch, length], padded with 0) to float32 logits.

    Args:
      encoder_config, max_seq_length, pooling, dropout, trainable_layers, seed, feature_layers, from_states: see
        create_encoder.
      standardized: end in the head of utils.features, which is trained on frozen features first.
    """
    settings = (pooling, dropout, trainable_layers, seed, feature_layers, from_states)
    network = create_encoder(encoder_config, max_seq_length, *settings)
    if standardized:
        return tf.keras.Model(network.input, add_head(network.output, num_classes), name="bert")
    hidden = Dropout(0.1, network.get_layer("encoder").next_seed, name="head_dropout")(network.output)
    head = layers.Dense(num_classes, kernel_initializer=TruncatedNormal(stddev=0.02), dtype=tf.float32, name="logits")
    return tf.keras.Model(network.input, head(hidden), name="bert")


def create_encoder(
    encoder_config,
    max_seq_length,
    pooling="cls",
    dropout=-1.0,
    trainable_layers=-1,
    seed=0,
    feature_layers=(),
    from_states=False,
):
    """Builds the network from {"ids", "type_ids"} to the features of each text: [batch, hidden_size · layers].

    Args:
      encoder_config: BertConfig.
      max_seq_length: the longest input there will be; the network takes any length up to max_position_embeddings.
      pooling: "cls": BERT's pooler on the first token; "mean": the mean over the tokens, as sentence encoders have it.
      dropout, seed: see Encoder.
      trainable_layers: train only so many of the encoder's top layers, and the pooler; -1: everything.
      feature_layers: numbers, from 1, of the layers whose outputs are taken, side by side; those above them do not
        exist. Only the last one, if there are none; "cls" takes one at most.
      from_states: the network begins with the layers that are trained, and takes {"states", "mask"}, float32 [batch,
        length, hidden_size] and int32 [batch, length]. The others are there all the same: see take_ids.
    """
    _check(encoder_config, max_seq_length, pooling, trainable_layers, feature_layers)
    num_layers = max(feature_layers, default=encoder_config.num_hidden_layers)
    if from_states:
        check_states(num_layers, trainable_layers, feature_layers)
    encoder_config = dataclasses.replace(encoder_config, num_hidden_layers=num_layers)
    # The pooler looks at the first token only, so the last layer need not compute the others.
    output_range = 1 if pooling == "cls" else None
    encoder = Encoder(encoder_config, dropout, seed, output_range, with_pooler=pooling == "cls")
    encoder.pooling, encoder.feature_layers = pooling, feature_layers or (num_layers,)
    if trainable_layers >= 0:
        encoder.train_only(trainable_layers)
    if from_states:
        states = tf.keras.Input([None, encoder_config.hidden_size], name="states")
        inputs = {"states": states, "mask": tf.keras.Input([None], dtype=tf.int32, name="mask")}
    else:
        inputs = _id_inputs()
    return tf.keras.Model(inputs, _encode(encoder, inputs), name="features")


def take_ids(network):
    """The same layers as those of a network that takes states, as one from {"ids", "type_ids"}."""
    inputs = _id_inputs()
    outputs = _encode(network.get_layer("encoder"), inputs)
    for layer in network.layers:
        if layer.name in ("standardize", "head_dropout", "logits"):
            outputs = layer(outputs)
    return tf.keras.Model(inputs, outputs, name="bert")


def create_lower_layers(encoder_config, max_seq_length, num_layers):
    """Builds the network from {"ids", "type_ids"} to the states that the lowest layers give: [batch, length, width]."""
    _check(encoder_config, max_seq_length, "mean", 0, (num_layers,))
    encoder_config = dataclasses.replace(encoder_config, num_hidden_layers=num_layers)
    encoder, inputs = Encoder(encoder_config, dropout=0.0, with_pooler=False), _id_inputs()
    outputs, _ = _run_layers(encoder, inputs)
    return tf.keras.Model(inputs, {"states": outputs["sequence_output"]}, name="states")


def add_states(network, num_layers):
    """The network of create_encoder, as one that also gives the states of its lowest layers: {"features", "states"}."""
    encoder, inputs = network.get_layer("encoder"), _id_inputs()
    outputs, mask = _run_layers(encoder, inputs)
    both = {"features": _pool(encoder, outputs, mask), "states": outputs["encoder_outputs"][num_layers - 1]}
    return tf.keras.Model(inputs, both, name="features_and_states")


def _id_inputs():
    return {name: tf.keras.Input([None], dtype=tf.int32, name=name) for name in ("ids", "type_ids")}


def _encode(encoder, inputs):
    """Features of the texts of one of the two kinds of inputs: [batch, width]."""
    if "states" in inputs:
        return _pool(encoder, encoder({"states": inputs["states"], "input_mask": inputs["mask"]}), inputs["mask"])
    return _pool(encoder, *_run_layers(encoder, inputs))


def _run_layers(encoder, inputs):
    """What an encoder gives of {"ids", "type_ids"}, and which of the ids are real ones."""
    mask = tf.not_equal(inputs["ids"], 0)
    return encoder(encoder_inputs(inputs["ids"], inputs["type_ids"], mask)), mask


def _pool(encoder, outputs, mask):
    if encoder.pooling == "cls":
        return outputs["pooled_output"]
    # From the end: of states there are fewer outputs.
    places = [layer - encoder.feature_layers[-1] - 1 for layer in encoder.feature_layers]
    means = [_mean(outputs["encoder_outputs"][place], mask) for place in places]
    return means[0] if len(means) == 1 else tf.concat(means, axis=1)


def _mean(hidden, mask):
    """The mean of the real tokens: [batch, length, width] → [batch, width]."""
    mask = tf.cast(mask, hidden.dtype)[:, :, tf.newaxis]
    return tf.reduce_sum(hidden * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)


def check_states(num_layers, trainable_layers, feature_layers):
    """Raises ValueError unless the features follow from the states below the trained ones of `num_layers` layers."""
    if not 0 < trainable_layers < num_layers:
        raise ValueError(
            f"trainable_layers={trainable_layers}: expected 1 to {num_layers - 1}, so that there are frozen layers "
            "below those that are trained, whose states can be kept."
        )
    if num_layers - trainable_layers > min(feature_layers, default=num_layers):
        raise ValueError(
            f"trainable_layers={trainable_layers}: expected at least {num_layers - min(feature_layers)}, so that all "
            f"of the layers {_join(feature_layers)}, which the classifier sees, follow from the states that are kept."
        )


def _join(layers):
    return ",".join(map(str, layers))


def _check(config, max_seq_length, pooling, trainable_layers, feature_layers):
    if max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length={max_seq_length}: the encoder has {config.max_position_embeddings} positions at most."
        )
    if pooling not in POOLINGS:
        raise ValueError(f"pooling={pooling!r}: expected one of {', '.join(map(repr, POOLINGS))}.")
    num_layers = max(feature_layers, default=config.num_hidden_layers)
    if num_layers > config.num_hidden_layers:
        raise ValueError(
            f"feature_layer={_join(feature_layers)}: expected 1 to {config.num_hidden_layers}, the number of the "
            "encoder's layers."
        )
    if pooling == "cls" and len(feature_layers) > 1:
        raise ValueError(f"feature_layer={_join(feature_layers)}: pooling=cls sees one layer; use pooling=mean.")
    if not -1 <= trainable_layers <= num_layers:
        raise ValueError(
            f"trainable_layers={trainable_layers}: expected -1 (everything) or 0 to {num_layers}, the number of the "
            "layers that are used."
        )
