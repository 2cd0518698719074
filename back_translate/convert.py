"""Converts a translation model, or a tensor2tensor checkpoint, to what an engine of back_translate.translate loads.

python -m back_translate.convert --model=back_translate/models/en_fr --output_dir=models/en_fr_ct2 --quantization=int8
python -m back_translate.convert --checkpoint=enfr/model.ckpt-500000 --vocab_file=enfr/vocab.subwords --num_heads=16 \
    --engine=tensorflow --output_dir=models/en_fr

The first kind of output is a CTranslate2 model (needs requirements-translation.txt), the second a folder of the native
engine. In greedy decoding both give the same translations from float32 weights.
"""

import os

import numpy as np
from absl import flags

from back_translate import engines, model_files, t2t_checkpoint
from back_translate.subwords import EOS_ID, PAD_ID, SubwordVocabulary
from back_translate.transformer import NORM_EPSILON, timing_signal
from utils import cli, files
from utils.settings import flag_values

FLAGS = flags.FLAGS
NUM_POSITIONS = engines.SubwordPieces.num_positions


def write_ctranslate2(output_dir, config, vocabulary, weights, quantization):
    """Writes a CTranslate2 model. Its tokens are the numbers of our subwords, whose file lies beside it."""
    files.require_local("output_dir", output_dir, engines.WHY_LOCAL)
    ctranslate2 = engines.import_ctranslate2()

    class Converter(ctranslate2.converters.Converter):
        def _load(self):
            spec = create_spec(ctranslate2, config, weights)
            tokens = [str(number) for number in range(config.vocab_size)]
            spec.register_source_vocabulary(tokens)
            spec.register_target_vocabulary(tokens)
            spec.config.eos_token, spec.config.unk_token = str(EOS_ID), str(PAD_ID)
            spec.config.bos_token = spec.config.decoder_start_token = str(PAD_ID)
            spec.config.layer_norm_epsilon = NORM_EPSILON
            return spec

    Converter().convert(output_dir, quantization=quantization, force=True)
    vocabulary.write(os.path.join(output_dir, engines.SUBWORD_FILE))


def create_spec(ctranslate2, config, weights):
    """The model in CTranslate2's names; its matrices are [outputs, inputs]."""
    layers = (config.num_encoder_layers, config.num_decoder_layers)
    spec = ctranslate2.specs.TransformerSpec.from_config(layers, config.num_heads, pre_norm=True)
    weights = {name: np.asarray(array, np.float32) for name, array in weights.items()}
    embedding = weights["embedding"].copy()
    embedding[PAD_ID] = 0  # as an input; as an output, padding has its row
    timing = timing_signal(NUM_POSITIONS, config.hidden_size).numpy()
    language = weights["target_space_embedding/kernel"][config.target_space_id]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embedding
    spec.encoder.position_encodings.encodings = timing + language
    spec.decoder.position_encodings.encodings = timing
    spec.decoder.projection.weight = weights["embedding"]
    spec.decoder.start_from_zero_embedding = True
    for name, half in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        set_norm(half.layer_norm, weights, f"{name}/")
        for number, layer in enumerate(half.layer):
            prefix = f"{name}/layer_{number}"
            set_attention(layer.self_attention, weights, f"{prefix}/self_attention", ("qkv", "output"))
            if name == "decoder":
                set_attention(layer.attention, weights, f"{prefix}/encdec_attention", ("q", "kv", "output"))
            set_norm(layer.ffn.layer_norm, weights, f"{prefix}/ffn/")
            for linear, part in ((layer.ffn.linear_0, "conv1"), (layer.ffn.linear_1, "conv2")):
                linear.weight = weights[f"{prefix}/ffn/{part}/kernel"].T
                linear.bias = weights[f"{prefix}/ffn/{part}/bias"]
    return spec


def set_norm(spec, weights, prefix):
    prefix = f"{prefix}layer_prepostprocess/layer_norm/layer_norm_"
    spec.gamma, spec.beta = weights[f"{prefix}scale"], weights[f"{prefix}bias"]


def set_attention(spec, weights, name, groups):
    """Args:
    groups: which kernels each matrix of the specification joins.
    """
    set_norm(spec.layer_norm, weights, f"{name}/")
    for linear, group in zip(spec.linear, groups):
        parts = ["output_transform"] if group == "output" else group
        kernels = [weights[f"{name}/multihead_attention/{part}/kernel"] for part in parts]
        linear.weight = np.concatenate([kernel.T for kernel in kernels])


def convert(output_dir, engine, quantization, model="", checkpoint="", vocab_file="", num_heads=0, target_space_id=0):
    """Args:
    engine: which engine loads the output.
    model: a model folder; or checkpoint, vocab_file, num_heads and target_space_id of tensor2tensor.
    """
    if bool(model) == bool(checkpoint):
        raise ValueError(f"model={model!r}, checkpoint={checkpoint!r}: expected one of them.")
    if checkpoint and not (vocab_file and num_heads):
        raise ValueError(
            f"vocab_file={vocab_file!r}, num_heads={num_heads}: expected both with --checkpoint; transformer_base has "
            "8 heads, transformer_big 16."
        )
    if files.is_folder(output_dir) and files.list_folder(output_dir):
        raise ValueError(f"output_dir={output_dir} is not empty: choose another one, or delete it.")
    if checkpoint:
        vocabulary = SubwordVocabulary.read(vocab_file)
        config, weights = t2t_checkpoint.read_checkpoint(checkpoint, num_heads, target_space_id)
        model_files.check_vocabulary(vocab_file, config, vocabulary)
    else:
        config, vocabulary, weights = model_files.load_model(model)
    write = write_ctranslate2 if engine == "ctranslate2" else model_files.save_model
    write(output_dir, config, vocabulary, weights, quantization)
    if model:
        model_files.write_sampling(output_dir, model_files.read_sampling(model))


def define_flags():
    flags.DEFINE_string("model", "", "Folder of a model of back_translate.train.")
    flags.DEFINE_string("checkpoint", "", "Instead: prefix of a tensor2tensor checkpoint, such as model.ckpt-500000.")
    flags.DEFINE_string("vocab_file", "", "With checkpoint: its subword vocabulary.")
    flags.DEFINE_integer(
        "num_heads", 0, "With checkpoint: attention heads; transformer_base has 8, transformer_big 16."
    )
    flags.DEFINE_integer("target_space_id", 0, "With checkpoint: target_space_id of its problem, 0 in most.", 0, 31)
    flags.DEFINE_string("output_dir", None, "Folder to write.", required=True)
    flags.DEFINE_enum("engine", "ctranslate2", list(engines.ENGINES), "Engine that is to load it.")
    flags.DEFINE_enum("quantization", "float32", model_files.STORAGES, "Numbers that the weights are stored as.")


def main():
    of_checkpoint = flag_values("checkpoint", "vocab_file", "num_heads", "target_space_id")
    convert(**flag_values("output_dir", "engine", "quantization", "model"), **of_checkpoint)
    print(f"{FLAGS.output_dir} is complete: use it with --engine={FLAGS.engine} --model={FLAGS.output_dir}")


if __name__ == "__main__":
    cli.run(main, define_flags)
