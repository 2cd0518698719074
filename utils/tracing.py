"""What is traced into a graph is traced as written.

    @as_written
    def train_step(self, batch): ...

AutoGraph would rewrite a function, and all that it calls down into Keras, before TensorFlow traces it: several times
the work of tracing, at the start of every program, for code that has no Python condition or loop over tensors.
"""

import tensorflow as tf

as_written = tf.autograph.experimental.do_not_convert
