"""Find the files of a data folder, and cache parsed data by the bytes of the files they came from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from filelock import Timeout

from graphzoo.datasets.files.arrays import StoredGraph
from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.files.text import warn
from graphzoo.errors import DataError
from graphzoo.system.progress import progress
from graphzoo.system.regular_files import open_regular
from graphzoo.system.waiting import TellingLock

_log = logging.getLogger(__name__)
_VERSION = 2
# Smaller files are parsed each time: that is as fast as hashing them and reading the cache.
_MIN_BYTES = 1 << 20
# Seconds to wait for another process that parses the same files.
LOCK_TIMEOUT = 3600.0
TABLES = (".txt", ".tsv", ".csv", ".txt.gz", ".tsv.gz", ".csv.gz")
OTHER_NAMES = {"valid": ("val", "validation", "dev"), "valid_neg": ("val_neg",)}
"""Other common names of a split, which are looked for if there is no file of the usual name."""

_T = TypeVar("_T")
_Graph = TypeVar("_Graph", bound=StoredGraph)


def find_split(folder: Path, split: str, suffixes: Sequence[str] = TABLES) -> Path | None:
    """The file of a split in a folder, or None. The usual name goes first; two files that fit are refused."""
    for names in ((split,), OTHER_NAMES.get(split, ())):
        paths = [path for name in names for end in suffixes if (path := folder / f"{name}{end}").is_file()]
        if len(paths) > 1:
            raise DataError(f"{folder}: has both {paths[0].name} and {paths[1].name}; keep one of them")
        if paths:
            return paths[0]
    return None


def remember(
    files: Sequence[Path],
    purpose: str,
    kind: type[_Graph],
    parse: Callable[[], tuple[_Graph, list[str]]],
    *,
    stacklevel: int = 2,
) -> _Graph:
    """The graph of `parse()`, or its cached result; notices become warnings in both cases.

    Args:
        files: Files that `parse` reads; their bytes are part of the cache key.
        purpose: Everything else that the result depends on, as a text; also part of the cache key.
        kind: Class of the graph.
        parse: Returns the graph and its notices.
        stacklevel: With 1, warnings name the line of this call; with 2, the line that called the caller.
    """
    with progress(f"reading {files[0].parent.name if files else 'data'}"):
        graph, notices = _remembered(files, purpose, kind, parse)
    for notice in notices:
        warn(notice, stacklevel=stacklevel + 1)
    return graph


def _remembered(
    files: Sequence[Path], purpose: str, kind: type[_Graph], parse: Callable[[], tuple[_Graph, list[str]]]
) -> tuple[_Graph, list[str]]:
    try:
        if sum(path.stat().st_size for path in files) < _MIN_BYTES:
            return parse()
    except OSError:
        # The parser's error is more precise.
        return parse()
    digest = hashlib.sha256(f"{_VERSION}\n{purpose}\n".encode())
    for path in files:
        with open_regular(path, holes=False) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return kept(
        cache_root() / "parsed" / f"{digest.hexdigest()}.npz",
        parse,
        kind.read,
        lambda parsed, path: parsed[0].write(path, parsed[1]),
        what="parsed data",
        damaged=lambda error: warn(f"cached data rebuilt: {error}"),
    )


def kept(
    target: Path,
    make: Callable[[], _T],
    read: Callable[[Path], _T],
    write: Callable[[_T, Path], None],
    *,
    what: str,
    damaged: Callable[[DataError], None],
) -> _T:
    """Read a result from a file of the cache, or make it and write it there; one process at a time.

    Args:
        target: The file.
        make: Computes the result.
        read: Reads the file.
        write: Writes the result to the file.
        what: Name of the result, for the log.
        damaged: Called with the `DataError` of a file that `read` refuses. The file is then replaced.

    Returns:
        The result. If the cache cannot be written, the result is computed without it.
    """
    made: list[_T] = []
    is_making = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TellingLock(f"{target}.lock", timeout=LOCK_TIMEOUT):
            if target.exists():
                try:
                    return read(target)
                except DataError as error:
                    damaged(error)
            is_making = True
            made.append(make())
            write(made[0], target)
    except (OSError, Timeout) as error:
        if is_making and not made:  # an error of `make`, not of the cache
            raise
        _log.warning("no cache of %s (%s): %s", what, target.parent, error)
    return made[0] if made else make()
