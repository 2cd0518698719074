"""A disk that is full after some bytes of each file, without a mount: larger files fail when they are written."""

import contextlib
import io
import resource


@contextlib.contextmanager
def full_disk(num_bytes=100):
    """In the block this process cannot write beyond the first `num_bytes` of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # What is printed would go to a file of pytest's, too.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
