"""The other side of tests.benchmarks.encoding, for a Python with onnxruntime, onnx, torch and transformers.

For each line on its standard input, "batches.npz features.npy", it encodes the batches, writes the features and prints
the seconds of the processor that took, all threads together.
"""

import os
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import torch
import transformers


class LastHiddenState(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.encoder = transformers.BertModel.from_pretrained(
            folder, add_pooling_layer=False, attn_implementation="eager"
        )

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids, attention_mask).last_hidden_state


def create_session(folder, num_threads):
    """An onnxruntime session of the encoder in a Hugging Face style folder."""
    names, example = ["input_ids", "attention_mask"], torch.ones(2, 8, dtype=torch.long)
    axes = {name: {0: "batch", 1: "length"} for name in (*names, "hidden")}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    with tempfile.TemporaryDirectory() as temporary:
        path, io = os.path.join(temporary, "encoder.onnx"), {"input_names": names, "output_names": ["hidden"]}
        model = LastHiddenState(folder).eval()
        torch.onnx.export(model, (example, example), path, **io, dynamic_axes=axes, dynamo=False)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def encode(session, ids):
    """The mean of the tokens: int32 [batch, length], padded with 0 → float32 [batch, width]."""
    mask = (ids != 0).astype(np.int64)
    hidden = session.run(["hidden"], {"input_ids": ids.astype(np.int64), "attention_mask": mask})[0]
    return (hidden * mask[:, :, None].astype(np.float32)).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def main():
    session = create_session(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        batches_path, features_path = line.split()
        with np.load(batches_path) as content:
            batches = [content[name] for name in content]
        start = time.process_time()
        features = [encode(session, batch) for batch in batches]
        duration = time.process_time() - start
        np.save(features_path, np.concatenate(features).astype(np.float32))
        print(duration, flush=True)


if __name__ == "__main__":
    main()
