"""Reading JSON that may come from anybody: a plain file of a sane size, and every fault a `ValueError`."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

__all__ = ["check_plain", "read_json", "read_text"]

MOST_BYTES = 1 << 24
"""Far above what graphzoo writes of a run."""
_MOST_DEPTH = 50
_LARGEST = 2**63


def read_text(path: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """The text of a plain file; bytes that are no UTF-8 are replaced.

    Args:
        path: The file.
        most_bytes: A larger one is refused before it is read.

    Raises:
        ValueError: for anything but a plain file, and for one that is too large.
        OSError: for a file that cannot be read.
    """
    # without waiting for who would write into a pipe
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no plain file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"larger than {most_bytes:,} bytes")
    return data.decode("utf-8", errors="replace")


def read_json(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """The plain values in a JSON file.

    Args:
        path: The file.
        most_bytes: A larger one is refused before it is read.

    Raises:
        ValueError: for no plain file, one that is too large, and for content that is no JSON of a sane shape.
        OSError: for a file that cannot be read.
    """
    try:
        found = json.loads(read_text(path, most_bytes=most_bytes))
        check_plain(found)
    except RecursionError as error:
        raise ValueError(f"nested more than {_MOST_DEPTH} deep") from error
    return found


def check_plain(value: Any, depth: int = 0) -> None:
    """Refuse values on which later sums, sorts and formats would stumble.

    Args:
        value: From JSON.
        depth: Of the value in the whole.

    Raises:
        ValueError: for numbers beyond 64 bits, and for what lies too deep in lists and dictionaries.
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"nested more than {_MOST_DEPTH} deep")
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"a number of {math.floor(math.log10(abs(value))) + 1:,} digits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_plain(item, depth + 1)
