"""Settings that contradict each other are refused when the configuration is made."""

import pytest

from image.config import Config

CONTRADICTIONS = {
    "dev_size=20 leaves nothing of sup_size=20": {"sup_size": 20, "dev_size": 20},
    "ema_decay=1.0: expected less than 1": {"ema_decay": 1.0},
    "warmup_steps=10: expected fewer than train_steps=10": {"warmup_steps": 10, "train_steps": 10},
    "uda_softmax_temp=0.0: expected more than 0, or -1 for no sharpening": {"uda_softmax_temp": 0.0},
    "uda_softmax_temp=-2.0: expected more than 0, or -1": {"uda_softmax_temp": -2.0},
    "unsup_ratio=-1: expected at least 0": {"unsup_ratio": -1},
    "tsa='sine': expected one of '', 'log', 'linear', 'exp'": {"tsa": "sine"},
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions_are_explained(message):
    with pytest.raises(ValueError, match=message):
        Config(**CONTRADICTIONS[message])


def test_sharpening_and_the_confidence_mask_can_be_switched_off():
    assert Config(uda_softmax_temp=-1.0, uda_confidence_thresh=-1.0).uda_softmax_temp == -1
