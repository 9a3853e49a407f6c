"""Text of a command on the terminal."""

from __future__ import annotations

import sys

from graphzoo.errors import shorten
from graphzoo.system.shown import tell
from graphzoo.system.streams import drop_output

LINES = 6
"""No error takes more lines than this."""


def fail(message: str, status: int = 2) -> int:
    """Print an error in at most six lines and return the exit status."""
    try:
        tell(shorten(f"graphzoo: {message}", lines=LINES) + "\n")
    except OSError:
        drop_output()  # standard error is closed: only the exit status can tell
    return status


def show(text: str) -> int:
    """Write help to standard output; the exit status of a command that did no more."""
    sys.stdout.write(text.rstrip() + "\n")
    return 0
