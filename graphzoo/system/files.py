"""Write files atomically, so that no reader sees an incomplete one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from graphzoo.errors import DataError, UsageError
from graphzoo.system.memory import available_bytes

# Numbers of an OSError if the disk or quota is full, or a file exceeds a size limit.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Bytes that any compressed file may unpack to, and the factor by which a larger one may grow. One-hot
# features compress by a factor of about 500; only endless zeros reach a little over 1,000.
_UNPACKED, _GROWTH = 1 << 26, 1000


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a compressed file that could fill the memory.

    Args:
        path: The file.
        packed: Its size in bytes.
        unpacked: Bytes that it unpacks to, or that were unpacked so far.

    Raises:
        DataError: if it grows too much, or needs more memory than is available.
    """
    too_large = False
    if unpacked > _UNPACKED:
        import torch  # imported here: some commands that use this module start without torch

        available = available_bytes(torch.device("cpu"))
        too_large = available is not None and unpacked > available
    if unpacked > max(_UNPACKED, _GROWTH * packed) or too_large:
        raise DataError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} bytes or more, which could fill the memory\n"
            "  if you trust the file, write it uncompressed (numpy.savez, gunzip)"
        )


def files_below(folder: Path, name: str) -> list[Path]:
    """All files with a name below a folder, sorted, also below links to folders at most two levels down.

    Links are followed because runs may be on another disk. Links inside run folders are not followed, because
    these may be of unknown origin, and neither are links inside linked folders or to a parent folder.
    """
    linked = (each for pattern in ("*", "*/*") for each in folder.glob(pattern) if each.is_symlink())
    found: dict[Path, Path] = {}
    for place in (folder, *(link for link in sorted(linked) if _leads_on(link, folder))):
        for path in sorted(place.rglob(name)):
            found.setdefault(path.parent.resolve(), path)  # a link may lead to a folder found before
    return sorted(found.values())


def _leads_on(link: Path, folder: Path) -> bool:
    """Whether a link below a folder is not inside a run or a linked folder, and leads to another place."""
    above = [parent for parent in link.parents if parent == folder or folder in parent.parents]
    is_in_run = any((parent / name).is_file() for parent in above for name in ("config.yaml", "results.json"))
    is_behind_link = any(parent.is_symlink() for parent in above if parent != folder)
    return not (is_in_run or is_behind_link or folder.resolve().is_relative_to(link.resolve()))


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a new file beside `path`, then rename it to `path`; missing folders are made.

    Args:
        path: The file.
        write: Writes the content to an open file.

    Raises:
        OSError: if the file cannot be written; it names `path`. Other errors of `write` are not changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    filled = False
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w+b") as file:
            write(file)
            filled = True
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        nameless = error.filename is None and (filled or error.errno in NO_ROOM)
        if error.filename != str(partial) and not nameless:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8 with unchanged line ends; missing folders are made."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def refuse_existing(path: Path, option: str) -> None:
    """Require that the file that an option names does not exist.

    Raises:
        UsageError: if it exists, or its folder cannot be read.
    """
    try:
        if path.exists():
            raise UsageError(f"{option} {path} exists; give a new file")
    except OSError as error:
        raise _unwritable(path, option, error) from error


def write_new_text(path: Path, text: str, option: str) -> None:
    """Write a new text file that an option names.

    Raises:
        UsageError: if the file exists or cannot be written.
    """
    refuse_existing(path, option)
    try:
        write_text_atomically(path, text)
    except OSError as error:
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError) -> UsageError:
    remedy = "Give a file in a folder that you may write to"
    return UsageError(f"{option} {path} cannot be written: {error.strerror or error}\n{remedy}")
