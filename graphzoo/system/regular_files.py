"""Opening files that may come from others: regular ones only, and no more of them than was asked for.

A run directory, a checkpoint or a data file may come from anybody. A named pipe in its place would be waited
for without end, a device such as /dev/zero never ends, a link may lead to what nobody meant to share.
Importing this needs the standard library only.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from graphzoo.system.memory import free_bytes

MOST_TEXT = 1 << 26
"""Bytes of any text that a run writes: results, settings, descriptions."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}
_PIECE = 1 << 20


def require_regular(path: str | os.PathLike[str], *, follow: bool = True) -> os.stat_result:
    """The facts of a regular file, or of the one that a link leads to; it is not opened.

    Of anything else an `OSError` says what it is.
    """
    facts = os.stat(path, follow_symlinks=follow)
    _check(facts, path)
    return facts


def open_regular(
    path: str | os.PathLike[str], *, most: int | None = None, follow: bool = True, holes: bool = True
) -> io.BufferedReader:
    """Open a regular file of at most `most` bytes for reading; an `OSError` says what else it is.

    Unless `follow`, no link may stand for it; unless `holes`, it may not consist of holes alone. They take no
    room on the disk, but who reads all of them needs minutes, and memory.
    """
    # Looked at twice: opening a device can do something, and between look and opening the file may change.
    require_regular(path, follow=follow)
    flags = os.O_RDONLY
    for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):  # as far as the system has them
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    try:
        facts = os.fstat(descriptor)
        _check(facts, path)
        if most is not None and facts.st_size > most:
            raise OSError(errno.EINVAL, f"larger than {most:,} bytes ({facts.st_size:,})", os.fspath(path))
        blocks = getattr(facts, "st_blocks", None)
        # packed and network file systems count blocks in ways of their own: only gross holes are refused
        if not holes and blocks is not None and facts.st_size > MOST_TEXT + 1024 * 512 * blocks:
            reason = f"almost all of its {facts.st_size:,} bytes are holes"
            raise OSError(errno.EINVAL, reason, os.fspath(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str], *, most: int | None = None) -> bytes:
    """The bytes of a regular file, at most `most`; errors as of `open_regular`.

    None stands for as many as memory is free; a file with holes is refused then, which takes no room on its
    disk but would take all memory.
    """
    with open_regular(path, most=most, holes=most is not None) as file:
        facts = os.fstat(file.fileno())
        if most is None and facts.st_size > MOST_TEXT:
            free = free_bytes()
            if free is not None and facts.st_size > free:
                sizes = f"{facts.st_size / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB of memory are free"
                raise OSError(errno.ENOMEM, f"it has {sizes}: give a smaller file", os.fspath(path))
        data = file.read(facts.st_size + 1)
    if len(data) > facts.st_size:
        raise OSError(errno.EINVAL, "it grows while it is read", os.fspath(path))
    return data


def read_regular_text(path: str | os.PathLike[str], *, most: int = MOST_TEXT, errors: str = "strict") -> str:
    """The text of a regular file of at most `most` bytes in UTF-8, line ends as `open` makes them.

    Bytes that are not UTF-8 raise a `UnicodeDecodeError` (a ValueError), unless `errors` says otherwise.
    """
    text = read_regular(path, most=most).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def copy_regular(source: Path, target: Path, *, most: int | None = None) -> None:
    """Copy a regular file to a new one. A link is refused: what it leads to may not be meant to be shared."""
    with open_regular(source, most=most, follow=False, holes=False) as file, target.open("xb") as copy:
        left = os.fstat(file.fileno()).st_size
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            copy.write(piece)
            left -= len(piece)


def _check(facts: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(facts.st_mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", os.fspath(path))
