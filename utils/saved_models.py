"""Exported networks: SavedModels with one signature, from named inputs to class probabilities.

save("runs/mine/export", module, serve)
serve = load("runs/mine/export", {"features": [384]}, num_classes=2)

A SavedModel is a program (docs/security.md). What damage by chance would make of it nobody can tell, so that its
checksum lies beside it.
"""

import os

import tensorflow as tf

from utils import checkpoint_index, files

CHECKSUMS = "saved_model.json"
CHECKED = ("saved_model.pb", "fingerprint.pb")  # the weights have checksums of TensorFlow's own
EXPORT_AGAIN = "export it again: the training command does, at its end."
SAME_COMMAND = "make room there; the same command goes on from the last checkpoint."


def save(export_dir, module, serve):
    """Writes a tf.Module that has the weights of the function `serve`."""
    with explain_refusal(export_dir):
        if files.is_remote(export_dir) and files.is_folder(export_dir):
            # Not every file system lets TensorFlow replace the weights of an earlier one.
            files.remove_folder(export_dir)
        for folder in (export_dir, os.path.join(export_dir, "variables")):
            files.remove_unfinished(folder)
        tf.saved_model.save(module, export_dir, signatures={"serving_default": serve})
        checksums = {name: files.checksum(os.path.join(export_dir, name)) for name in CHECKED}
        files.write_json(os.path.join(export_dir, CHECKSUMS), checksums)


def explain_refusal(export_dir):
    return files.explain_refusal(f"export_dir={export_dir}", SAME_COMMAND)


def check_exists(export_dir):
    if not tf.io.gfile.exists(os.path.join(export_dir, "saved_model.pb")):
        raise ValueError(f"{export_dir} holds no exported model: train first, with --do_train.")


def load(export_dir, inputs, num_classes):
    """The function behind the signature.

    Args:
      inputs: dict from the name of each input to its shape without the batch.

    Raises:
      ValueError: if the SavedModel is damaged, or takes or gives something else.
    """
    _check_content(export_dir)
    with files.explain_damage(export_dir, EXPORT_AGAIN):
        checkpoint_index.check(os.path.join(export_dir, "variables/variables"))
        serve = tf.saved_model.load(export_dir).signatures["serving_default"]
        signature = sorted(serve.structured_input_signature[1].items())  # which TensorFlow has in any order
        found = {name: spec.shape[1:].as_list() for name, spec in signature}
        shape = serve.structured_outputs["probabilities"].shape[1:].as_list()
    if found != inputs or shape != [num_classes]:
        raise ValueError(
            f"{export_dir}: its model takes {found} and gives probabilities of shape={shape}, but the .json file "
            f"beside it tells of {inputs} and of {num_classes} classes: {EXPORT_AGAIN}"
        )
    return serve


def _check_content(export_dir):
    path = os.path.join(export_dir, CHECKSUMS)
    if not tf.io.gfile.exists(path):  # of a version of this package that wrote none
        return
    expected = files.check_fields(path, files.read_json(path), dict.fromkeys(CHECKED, str), advice=EXPORT_AGAIN)
    for name in CHECKED:
        with files.explain_damage(f"{export_dir}/{name}", EXPORT_AGAIN):
            found = files.checksum(os.path.join(export_dir, name))
            if found != expected[name]:
                raise ValueError(f"sha256={found}, expected {expected[name]}")
