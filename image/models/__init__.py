"""The image networks by name."""

from image.models.pyramidnet import create_pyramidnet
from image.models.resnet import create_resnet
from image.models.shake_shake import create_shake_shake
from image.models.wide_resnet import create_wide_resnet

MODELS = {
    "wrn": lambda config, facts: create_wide_resnet(
        facts, config.wrn_depth, config.wrn_size, config.wrn_stem_stride, config.sync_batch_norm
    ),
    "shake_shake": lambda config, facts: create_shake_shake(
        facts, config.shake_shake_width, synchronized=config.sync_batch_norm, seed=config.seed
    ),
    "pyramid_net": lambda config, facts: create_pyramidnet(
        facts, synchronized=config.sync_batch_norm, seed=config.seed
    ),
    "resnet50": lambda config, facts: create_resnet(facts, synchronized=config.sync_batch_norm),
}


def create_network(config, facts):
    """Builds the network that `config.model_name` names, for data described by `facts` (image.datasets.Facts)."""
    return MODELS[config.model_name](config, facts)
