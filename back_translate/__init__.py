import os

# TensorFlow 2.15 reports at every start that it registers cuDNN twice; what matters comes as Python exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
