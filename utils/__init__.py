"""What images, texts and translation share. To import it prepares TensorFlow, which therefore has to come after it."""

import os
import signal
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


def _end_quietly(number, _):
    os.write(2, b"\nstopped.\n")
    os._exit(128 + number)


# To import TensorFlow takes seconds, in which Ctrl-C would end one of our programs with pages of a traceback, if at
# all: extension modules may swallow it. utils/cli.py has another handler for the time from then on. A user's own
# program, which has not been started as `python -m image.main` or the like, keeps its own.
PROGRAMS = ("image.", "text.", "back_translate.")
if sys.argv[:1] == ["-m"] and sys.orig_argv[sys.orig_argv.index("-m") + 1].startswith(PROGRAMS):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_quietly)
