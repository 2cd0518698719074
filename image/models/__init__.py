"""The image networks by name."""

from image.models.wide_resnet import create_wide_resnet

MODELS = {
    "wrn": lambda config, facts: create_wide_resnet(
        facts, config.wrn_depth, config.wrn_size, config.wrn_stem_stride, config.sync_batch_norm
    ),
}


def create_network(config, facts):
    """Builds the network that `config.model_name` names, for data described by `facts` (image.datasets.Facts)."""
    return MODELS[config.model_name](config, facts)
