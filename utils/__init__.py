"""What images, texts and translation share. To import it prepares TensorFlow, which therefore has to come after it."""

import os
import sys

# TensorFlow 2.15 reports at every start that it registers cuDNN twice; what matters comes as Python exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# From TensorFlow 2.16 on, Keras 2 is a package of its own, tf-keras, to be asked for before TensorFlow starts.
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
if "tensorflow" in sys.modules and os.environ.get(LEGACY_KERAS) not in ("1", "true", "True"):
    if tuple(map(int, sys.modules["tensorflow"].__version__.split(".")[:2])) >= (2, 16):
        raise ImportError(
            "TensorFlow was imported before this package and has Keras 3, but this package is written for Keras 2: "
            f"import image, text, utils or back_translate before tensorflow, or set {LEGACY_KERAS}=1 before you start."
        )
os.environ[LEGACY_KERAS] = "1"
