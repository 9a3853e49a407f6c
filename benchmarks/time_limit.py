"""A time limit for a block of code."""

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["OutOfTime", "time_limit"]


class OutOfTime(BaseException):  # noqa: N818 - not an error
    """Raised when the time is up. It is not an Exception, so that the block does not handle it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in a block that takes longer; for the main thread only, and not nested."""

    def ring(*_: object) -> None:
        raise OutOfTime(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
