"""The text networks by name: each entry describes an encoder for a vocabulary.

encoder_config = create_encoder_config("bert", tokenizer.vocab_size, "uncased_L-12_H-768_A-12/bert_config.json")
network = create_network(encoder_config, num_classes=2, max_seq_length=128)
"""

from text.models.bert import BertConfig, Encoder, create_network, encoder_inputs

__all__ = ["MODELS", "BertConfig", "Encoder", "create_encoder_config", "create_network", "encoder_inputs"]

MODELS = {
    "bert": lambda vocab_size, bert_config_path: BertConfig.read(bert_config_path),
    # The paper's random Transformer (appendix F): BERT-base but for these.
    "transformer": lambda vocab_size, bert_config_path: BertConfig(
        vocab_size,
        num_hidden_layers=6,
        num_attention_heads=8,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
    ),
}


def create_encoder_config(model_name, vocab_size, bert_config_path=""):
    """The BertConfig of the network that `model_name` names, for `vocab_size` word pieces."""
    config = MODELS[model_name](vocab_size, bert_config_path)
    if vocab_size > config.vocab_size:
        raise ValueError(
            f"The vocabulary has {vocab_size} word pieces, but {bert_config_path} says vocab_size={config.vocab_size}: "
            "give the vocab.txt that belongs to it."
        )
    return config
