"""Keras 2 on both stacks, whatever TensorFlow comes with: each in a fresh process, because Keras is chosen once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[2]
HAS_KERAS_3 = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)
# Not tf.keras.__version__, which TensorFlow 2.15 lacks.
PRINT_KERAS = "import sys; print(sys.modules[tf.keras.Model.__module__.split('.')[0]].__version__)"
pytestmark = pytest.mark.slow


def run(code, **variables):
    kept = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=ROOT, env=kept | variables, capture_output=True, text=True)


def assert_keras_2(result):
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("2."), result.stdout


@pytest.mark.parametrize("module", ["image.classifier", "text.classifier", "back_translate", "augmentation"])
def test_a_package_imported_first_brings_keras_2(module):
    assert_keras_2(run(f"import {module}; import tensorflow as tf; {PRINT_KERAS}"))


@pytest.mark.parametrize("package", ["image", "utils"])
def test_a_package_imported_after_tensorflow_never_works_with_keras_3(package):
    result = run(f"import tensorflow as tf; import {package}; {PRINT_KERAS}")
    if HAS_KERAS_3:
        assert result.returncode != 0
        message = result.stderr.splitlines()[-1]
        assert message.startswith("ImportError: TensorFlow was imported before this package and has Keras 3")
        assert "before tensorflow, or set TF_USE_LEGACY_KERAS=1 before you start" in message
    else:
        assert_keras_2(result)


def test_tensorflow_may_come_first_if_it_was_told_to_take_keras_2():
    result = run(f"import tensorflow as tf; import image.classifier; {PRINT_KERAS}", TF_USE_LEGACY_KERAS="1")
    assert_keras_2(result)
