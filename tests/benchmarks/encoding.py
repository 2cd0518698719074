"""Speed of text.features.compute_features, beside onnxruntime in float32 on the same weights of e5-small.

    python -m tests.benchmarks.encoding --peer_python=OTHER/bin/python [--num_threads=1]

OTHER is an environment with onnxruntime, onnx, torch and transformers. Both encode the same batches of texts of similar
length, in turn, through all twelve layers. Times are of the processor, all threads together, so that other work on the
machine counts little. Without --peer_python, this code alone is measured.
"""

import argparse
import os
import subprocess
import tempfile
import time

import numpy as np
import tensorflow as tf

from text import bert_weights, encoders, features

ENCODER, VOCAB_SIZE = "e5-small", 30522
PEER = os.path.join(os.path.dirname(__file__), "peer_onnxruntime.py")


def create_texts(num_texts, max_length, rng):
    """Texts half of which are longer than two thirds of max_length, and a quarter are cut to it."""
    lengths = np.clip(rng.lognormal(np.log(max_length / 1.5), 0.6, num_texts), 6, max_length).astype(int)
    return [(rng.integers(1000, VOCAB_SIZE, length).astype(np.int32), 0) for length in lengths]


class OnnxRuntime:
    """onnxruntime in a process of its own, with the batches that compute_features makes of the texts."""

    def __init__(self, python, num_threads, folder):
        self.folder, pipes = folder, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([python, PEER, encoders.locate(ENCODER), str(num_threads)], **pipes)

    def prepare(self, batches):
        np.savez(os.path.join(self.folder, "batches.npz"), *batches)

    def encode(self):
        """Seconds of the processor, and the features."""
        paths = [os.path.join(self.folder, name) for name in ("batches.npz", "features.npy")]
        print(*paths, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"onnxruntime ended with {self.process.wait()}")
        return float(answer), np.load(paths[1])


def compare(network, peer, texts, num_rounds):
    """Median texts a second of each, the median ratio, and the largest difference of a feature."""
    batches = list(features.create_batches(texts))
    rows = np.concatenate([rows for rows, _ in batches])
    if peer:
        peer.prepare([batch["ids"] for _, batch in batches])
        peer.encode()
    features.compute_features(network, texts)
    times, difference = [], 0.0
    for _ in range(num_rounds):
        start = time.process_time()
        ours = features.compute_features(network, texts)
        times.append([time.process_time() - start, np.nan])
        if peer:
            times[-1][1], theirs = peer.encode()
            difference = max(difference, np.abs(ours[rows] - theirs).max())
    ratios = [theirs / ours for ours, theirs in times]
    return *(len(texts) / np.median(times, axis=0)), np.median(ratios), difference


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer_python", default="", help="the Python of OTHER")
    parser.add_argument("--num_threads", type=int, default=1)
    parser.add_argument("--num_texts", type=int, default=512)
    parser.add_argument("--num_rounds", type=int, default=5)
    flags = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(flags.num_threads)
    config_path = bert_weights.find_config(ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        peer = OnnxRuntime(flags.peer_python, flags.num_threads, folder) if flags.peer_python else None
        for max_length in (40, 128):
            network = features.load_network(ENCODER, config_path, max_length, "mean", ())
            texts = create_texts(flags.num_texts * 40 // max_length, max_length, np.random.default_rng(max_length))
            ours, theirs, ratio, difference = compare(network, peer, texts, flags.num_rounds)
            print(f"up to {max_length} pieces: {ours:.1f} texts per second of a core", end="")
            print(f", onnxruntime {theirs:.1f}, ratio {ratio:.2f}, differ by {difference:.1e}" if peer else "")


if __name__ == "__main__":
    main()
