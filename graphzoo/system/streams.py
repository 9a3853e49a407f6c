"""Make standard output and error safe to write to, even if they are closed, full, unread or ASCII only."""

from __future__ import annotations

import contextlib
import io
import os
import sys


class Unread(io.StringIO):
    """A stand-in for a closed stream, which drops all text; `lost` says whether there was any."""

    lost = False

    def write(self, text: str) -> int:
        """Drop the text."""
        self.lost = self.lost or bool(text)
        return len(text)


def open_streams() -> None:
    """Make sure that standard output and error can be written to.

    A closed descriptor (`>&-`) is opened to the null device. Otherwise the next file would get its number,
    and output of libraries would be written to that file. Characters that the encoding does not have are
    written with a backslash and their number.
    """
    with contextlib.suppress(OSError):  # if no descriptor is left, the next open raises the error
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
    """Write a line end to standard output; returns whether that failed, for example on a full disk."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def drop_output() -> None:
    """Drop output that could not be written, so that the interpreter does not try again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # A failed flush keeps the text: write it to the null device.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            stream.flush()
