"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from graphzoo.errors import DataError, UsageError
from graphzoo.system.memory import available_bytes

# Of an OSError: the disk or quota is full, or a limit of the size of files is reached.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Bytes that any packed file may unpack to, and how many times its own size a larger one may: one-hot features
# shrink to a five-hundredth, and packing's best, a little over a thousandth, is left to endless zeros.
_UNPACKED, _GROWTH = 1 << 26, 1000


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Refuse (`DataError`) a small file that would fill the memory; it may be only partly unpacked so far."""
    too_large = False
    if unpacked > _UNPACKED:
        import torch  # only here: this module serves commands that start without it

        available = available_bytes(torch.device("cpu"))
        too_large = available is not None and unpacked > available
    if unpacked > max(_UNPACKED, _GROWTH * packed) or too_large:
        raise DataError(
            f"{path}: {packed:,} bytes that unpack to {unpacked:,} or more, which could fill the memory\n"
            "  if you trust the file, write it unpacked (numpy.savez, gunzip)"
        )


def files_below(folder: Path, name: str) -> list[Path]:
    """All files of that name below a folder, sorted, also below links to folders at most two levels down.

    Runs may lie on another disk. Links in runs, which may come from anybody, are not followed, nor are links
    in linked folders and those that lead up.
    """
    linked = (each for pattern in ("*", "*/*") for each in folder.glob(pattern) if each.is_symlink())
    found: dict[Path, Path] = {}
    for place in (folder, *(link for link in sorted(linked) if _leads_on(link, folder))):
        for path in sorted(place.rglob(name)):
            found.setdefault(path.parent.resolve(), path)  # a link may lead to what was found already
    return sorted(found.values())


def _leads_on(link: Path, folder: Path) -> bool:
    """Whether a link below a folder stands outside of runs and leads elsewhere."""
    above = [parent for parent in link.parents if parent == folder or folder in parent.parents]
    is_in_run = any((parent / name).is_file() for parent in above for name in ("config.yaml", "results.json"))
    is_behind_link = any(parent.is_symlink() for parent in above if parent != folder)
    return not (is_in_run or is_behind_link or folder.resolve().is_relative_to(link.resolve()))


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file beside `path`, then give it that name at once; the folder is made.

    An OSError names `path` if the file cannot be opened or kept, or there is no room for it; what `write`
    raises otherwise stays as it is.
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
    """Give a file a new content at once, in UTF-8, line ends as they are; the folder is made."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def refuse_existing(path: Path, option: str) -> None:
    """Refuse (`UsageError`) a file that is there, or cannot be looked for, as the new one of an option."""
    try:
        if path.exists():
            raise UsageError(f"{option} {path} exists; give a new file")
    except OSError as error:
        raise _unwritable(path, option, error) from error


def write_new_text(path: Path, text: str, option: str) -> None:
    """Write a new file that an option names; a file that is there or a system that refuses: `UsageError`."""
    refuse_existing(path, option)
    try:
        write_text_atomically(path, text)
    except OSError as error:
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError) -> UsageError:
    remedy = "Give a file in a folder that you may write to"
    return UsageError(f"{option} {path} cannot be written: {error.strerror or error}\n{remedy}")
