import os

# As utils does, which is not imported here: whoever comes first imports TensorFlow.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
