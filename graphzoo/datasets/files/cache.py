"""Files of a data folder, and parsed tensors in the user's cache, keyed by the bytes they came from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from filelock import Timeout

from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.files.text import warn
from graphzoo.errors import DataError
from graphzoo.system.progress import progress
from graphzoo.system.regular_files import open_regular
from graphzoo.system.waiting import TellingLock

__all__ = ["LOCK_TIMEOUT", "find_split", "remember_as"]

_log = logging.getLogger(__name__)
_VERSION = 1
# below this size parsing costs less than the look-up is worth
_MIN_BYTES = 1 << 20
# seconds that another process may take to parse the same files
LOCK_TIMEOUT = 3600.0
_SUFFIXES = (".txt", ".tsv", ".csv", ".txt.gz", ".tsv.gz", ".csv.gz")

_Graph = TypeVar("_Graph")


def find_split(folder: Path, split: str, suffixes: Sequence[str] = _SUFFIXES) -> Path | None:
    """The file of a split in a folder, or None; two candidates are an error."""
    paths = [path for suffix in suffixes if (path := folder / f"{split}{suffix}").is_file()]
    if len(paths) > 1:
        raise DataError(f"{folder}: both {paths[0].name} and {paths[1].name}; keep one of them")
    return paths[0] if paths else None


def remember_as(
    files: Sequence[Path],
    purpose: str,
    parse: Callable[[], tuple[_Graph, list[str]]],
    read: Callable[[Path], tuple[_Graph, list[str]]],
    write: Callable[[_Graph, Path, Sequence[str]], None],
    *,
    stacklevel: int = 2,
) -> _Graph:
    """`parse()`, or its earlier result for the same bytes; its notices become warnings either way.

    Args:
        files: What the result depends on; their bytes are the key.
        purpose: Anything else it depends on.
        parse: Makes the graph and its notices.
        read: Reads what `write` wrote; raises `DataError` if it cannot.
        write: Writes a graph and its notices.
        stacklevel: Whose line the warnings name: 1 that of this call, 2 that of the calling function's call.

    Returns:
        The graph.
    """
    with progress(f"reading {files[0].parent.name if files else 'data'}"):
        graph, notices = _remember(files, purpose, parse, read, write)
    for notice in notices:
        warn(notice, stacklevel=stacklevel + 1)
    return graph


def _remember(
    files: Sequence[Path],
    purpose: str,
    parse: Callable[[], tuple[_Graph, list[str]]],
    read: Callable[[Path], tuple[_Graph, list[str]]],
    write: Callable[[_Graph, Path, Sequence[str]], None],
) -> tuple[_Graph, list[str]]:
    try:
        if sum(path.stat().st_size for path in files) < _MIN_BYTES:
            return parse()
    except OSError:
        # the parser names what is wrong with the file
        return parse()
    digest = hashlib.sha256(f"{_VERSION}\n{purpose}\n".encode())
    for path in files:
        with open_regular(path, holes=False) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    target = cache_root() / "parsed" / f"{digest.hexdigest()}.npz"
    parsed = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TellingLock(f"{target}.lock", timeout=LOCK_TIMEOUT):
            if target.exists():
                try:
                    return read(target)
                except DataError as error:
                    warn(f"cached data rebuilt: {error}")
            parsed = parse()
            write(parsed[0], target, parsed[1])
    except (OSError, Timeout) as error:
        _log.warning("no cache of parsed data (%s): %s", target.parent, error)
    return parse() if parsed is None else parsed
