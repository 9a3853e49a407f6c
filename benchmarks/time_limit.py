"""A time limit on a block of code, for what must not hang."""

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["OutOfTime", "time_limit"]


class OutOfTime(BaseException):  # noqa: N818 - what happened, not a mistake
    """Not an Exception: nothing in the block may take it for an error of its own."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in a block that takes longer; in the main thread, and one at a time."""

    def ring(*_: object) -> None:
        raise OutOfTime(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
