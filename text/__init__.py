import utils  # noqa: F401  prepares TensorFlow, before other modules import it
