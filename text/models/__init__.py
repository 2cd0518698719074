"""The text networks by name.

network = create_network(config, facts, tokenizer.vocab_size)
logits = network({"ids": ids, "type_ids": type_ids})       # int32 [batch, length], padded with 0 → float32 [batch, K]
"""

from collections.abc import Callable
from typing import NamedTuple

from text import bert_weights, encoders
from text.models.bag_of_words import create_bag_of_words
from text.models.bert import BertConfig, create_bert


class Entry(NamedTuple):
    create: Callable  # from a text.config.Config, Facts and the number of word pieces to the network
    # Fills the network from `init_checkpoint`, beside which, or in `bert_config_file`, stands its size. None: the
    # network has neither.
    load_weights: Callable | None = None


def _create_published_bert(config, facts, vocab_size):
    path = config.bert_config_file or bert_weights.find_config(config.init_checkpoint)
    return _create_bert(config, facts, BertConfig.read(path, vocab_size))


def _create_transformer(config, facts, vocab_size):
    """The paper's random Transformer (appendix F): BERT-base but for these."""
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    return _create_bert(config, facts, BertConfig(vocab_size, num_hidden_layers=6, num_attention_heads=8, **dropout))


def _create_bert(config, facts, encoder_config):
    pooling, feature_layers = choose_features(config)
    sizes, layers = (encoder_config, facts.num_classes, config.max_seq_length), config.trainable_layers
    head = config.head_steps > 0, config.keep_states
    return create_bert(*sizes, pooling, config.model_dropout, layers, config.seed, feature_layers, *head)


def choose_features(config):
    """The pooling, and the numbers of the layers, that config, a text.config.EncoderConfig, asks for.

    Both are what the encoder wants where config leaves it to that. No number: the last layer.
    """
    wanted = encoders.describe(config.init_checkpoint)
    pooling = wanted.pooling if config.pooling == "auto" else config.pooling
    # Which layers are best was found for the pooling that the encoder wants.
    return pooling, tuple(config.feature_layers) or (wanted.feature_layers if pooling == wanted.pooling else ())


MODELS = {
    "bert": Entry(_create_published_bert, bert_weights.load_weights),
    "transformer": Entry(_create_transformer),
    "bag_of_words": Entry(
        lambda config, facts, vocab_size: create_bag_of_words(
            vocab_size, facts.num_classes, config.model_dropout, config.trainable_layers, config.seed
        )
    ),
}


def create_network(config, facts, vocab_size):
    """Builds the network that `config.model_name` names, for `vocab_size` word pieces and the classes of `facts`."""
    return MODELS[config.model_name].create(config, facts, vocab_size)
