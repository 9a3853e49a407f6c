"""Open files of unknown origin safely: only regular files, and no more bytes than expected.

A run directory, a checkpoint or a data file may come from other people. Reading a named pipe in its place
would wait forever, a device such as /dev/zero never ends, and a link may lead to a private file. Importing
this needs the standard library only.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from graphzoo.system.memory import free_bytes

MOST_TEXT = 1 << 26
"""Most bytes of a text file of a run, such as results, settings or descriptions."""

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
    """The `os.stat` of a regular file, or of the target of a link if `follow`; the file is not opened.

    Raises:
        OSError: if it does not exist or is not a regular file; the message says what it is.
    """
    facts = os.stat(path, follow_symlinks=follow)
    _check(facts, path)
    return facts


def open_regular(
    path: str | os.PathLike[str], *, most: int | None = None, follow: bool = True, holes: bool = True
) -> io.BufferedReader:
    """Open a regular file for reading.

    Args:
        path: The file.
        most: Most bytes that it may have; None sets no limit.
        follow: Whether it may be a link.
        holes: Whether it may consist almost only of holes. These need no space on the disk, but reading them
            takes minutes and memory.

    Raises:
        OSError: if it is not such a file; the message says why.
    """
    # Checked before opening, as opening a device can have effects, and after, as the file may have changed.
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
        # Compressed and network file systems count blocks differently, so that only large holes are refused.
        if not holes and blocks is not None and facts.st_size > MOST_TEXT + 1024 * 512 * blocks:
            reason = f"almost all of its {facts.st_size:,} bytes are holes"
            raise OSError(errno.EINVAL, reason, os.fspath(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str], *, most: int | None = None, grows: bool = False) -> bytes:
    """The bytes of a regular file.

    Args:
        path: The file.
        most: Most bytes that it may have; None limits it to the free memory, and refuses a file of holes.
        grows: Whether it may grow while it is read, as the log of a run does; what is added is left out.

    Raises:
        OSError: as `open_regular`, or if the file grows while it is read and `grows` is not set.
    """
    with open_regular(path, most=most, holes=most is not None) as file:
        facts = os.fstat(file.fileno())
        if most is None and facts.st_size > MOST_TEXT:
            free = free_bytes()
            if free is not None and facts.st_size > free:
                sizes = f"{facts.st_size / 2**30:,.1f} GiB, but {free / 2**30:,.1f} GiB of memory are free"
                raise OSError(errno.ENOMEM, f"it has {sizes}: give a smaller file", os.fspath(path))
        data = file.read(facts.st_size + 1)
    if len(data) > facts.st_size and not grows:
        raise OSError(errno.EINVAL, "it grows while it is read", os.fspath(path))
    return data[: facts.st_size]


def read_regular_text(
    path: str | os.PathLike[str], *, most: int = MOST_TEXT, errors: str = "strict", grows: bool = False
) -> str:
    r"""The text of a regular file of at most `most` bytes in UTF-8, with all line ends as "\n".

    With `grows`, what is added while it is read is left out.

    Raises:
        OSError: as `open_regular`.
        UnicodeDecodeError: a ValueError, if the file is not UTF-8 and `errors` is "strict".
    """
    text = read_regular(path, most=most, grows=grows).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def copy_regular(source: Path, target: Path, *, most: int | None = None) -> None:
    """Copy a regular file to a new one. A link is refused, because its target may be private.

    Raises:
        OSError: as `open_regular`, or if `target` exists.
    """
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
