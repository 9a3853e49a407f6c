"""Text of a command on the terminal."""

from __future__ import annotations

import contextlib
import sys

from graphzoo.errors import shorten
from graphzoo.system.shown import tell

__all__ = [
    "LINES",
    "fail",
    "show",
]


LINES = 6
"""No error takes more lines than this."""


def fail(message: str, status: int = 2) -> int:
    """Print an error in at most six lines and return the exit status."""
    with contextlib.suppress(OSError):  # nobody can read it: the status alone tells
        tell(shorten(f"graphzoo: {message}", lines=LINES) + "\n")
    return status


def show(text: str) -> int:
    """Write help to standard output; the exit status of a command that did no more."""
    sys.stdout.write(text.rstrip() + "\n")
    return 0
