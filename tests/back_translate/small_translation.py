"""A tiny translation model with random weights, and engines that are plain functions."""

import numpy as np

from back_translate import model_files, subwords
from back_translate.transformer import TransformerConfig, initial_weights

TEXTS = ("the cat sat on the mat.", "Tom has 25 dogs, and I have none!", "was it good? it was the best film of all.")


def write_model(folder, seed=0):
    """Writes a model that translates into nonsense, the same nonsense each time. Returns the folder as str."""
    vocabulary = subwords.build_vocabulary(subwords.count_words(TEXTS * 5), size=60)
    sizes = {"hidden_size": 8, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "filter_size": 16}
    config = TransformerConfig(len(vocabulary), **sizes)
    weights = {name: np.array(weight) for name, weight in initial_weights(config, seed).items()}
    # About every fifth subword ends the translation: what the last layer adds points to the end token.
    end = weights["embedding"][subwords.EOS_ID]
    weights["decoder/layer_prepostprocess/layer_norm/layer_norm_bias"] += 2 * end / np.square(end).sum()
    model_files.save_model(str(folder), config, vocabulary, weights)
    return str(folder)


class FunctionEngine:
    """Translates each sentence by a function, and remembers what it was asked for."""

    def __init__(self, function):
        self.function, self.asked = function, []

    def translate(self, sentences):
        self.asked += sentences
        return [self.function(sentence) for sentence in sentences]
