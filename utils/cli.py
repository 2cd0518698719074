"""The one way into all programs: a known error ends in one line, and so does Ctrl-C.

if __name__ == "__main__":
    cli.run(main, define_flags)
"""

import sys

from absl import app

STOPPED = 130  # the exit code of a program that was ended by Ctrl-C


def run(main, define_flags):
    """Defines the flags, parses them and calls `main`, a function without arguments."""
    define_flags()
    app.run(lambda _: call(main))


def call(main):
    """Calls `main`; errors that a user can do something about become one line and the exit code 1."""
    try:
        main()
    except known_errors() as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        print("\nstopped: what is finished is kept, and the same command goes on from it.", file=sys.stderr)
        raise SystemExit(STOPPED) from None


def known_errors():
    """Errors whose message tells a user what to do; others are defects and show where they come from."""
    tensorflow = sys.modules.get("tensorflow")  # a program that did not load it cannot meet its errors
    if not tensorflow:
        return ValueError, OSError
    # Of TensorFlow's own: a file that is missing, a disk or device that is full.
    return ValueError, OSError, tensorflow.errors.NotFoundError, tensorflow.errors.ResourceExhaustedError
