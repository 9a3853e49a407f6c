"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from graphzoo.datasets.errors import DataError

__all__ = ["check_growth", "write_atomically"]

# Bytes that any packed file may unpack to, and how many times its own size a larger one may.
_UNPACKED, _GROWTH = 1 << 26, 200


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a small file that would fill the memory.

    Text shrinks to a tenth, and packing's best is a thousandth: what grows so much was made to do so.

    Args:
        path: The file.
        packed: Its size in bytes.
        unpacked: What it unpacks to, or has unpacked to so far.

    Raises:
        DataError: with the numbers.
    """
    if unpacked > max(_UNPACKED, _GROWTH * packed):
        raise DataError(
            f"{path}: {packed:,} bytes that unpack to {unpacked:,} or more, which could fill the memory\n"
            "  if you trust the file, unpack it yourself"
        )


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file beside `path`, then give it that name at once; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
