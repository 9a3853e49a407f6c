"""Standard output and error of a command, whatever they are: closed, full, unread, or ASCII alone."""

from __future__ import annotations

import contextlib
import io
import os
import sys


class Unread(io.StringIO):
    """Stands for a closed standard output: what is written is gone, and it is known whether anything was."""

    lost = False

    def write(self, text: str) -> int:
        """Forget the text."""
        self.lost = self.lost or bool(text)
        return len(text)


def open_streams() -> None:
    """Make standard output and error ones that can be written to.

    A descriptor that was closed (`>&-`) is opened on nothing: the next file would get its number, and what a
    library prints would land there. Letters that an encoding has not, and bytes of file names that are no
    text, are written as numbers behind a backslash.
    """
    with contextlib.suppress(OSError):  # no descriptor is left: whatever is opened next says so
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
            continue
        os.close(opened)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            setattr(sys, name, Unread())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def refuses_output() -> bool:
    """Whether standard output cannot take the end of a line, as on a full disk; else that is written."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def drop_output() -> None:
    """Let go of what could not be written, so that the interpreter does not try again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # a flush that fails keeps the text: it goes where it can go
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            stream.flush()
