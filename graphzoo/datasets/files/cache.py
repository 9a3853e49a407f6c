"""Files of a data folder, and parsed tensors in the user's cache, keyed by the bytes they came from."""

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
# below this size parsing costs less than the look-up is worth
_MIN_BYTES = 1 << 20
# seconds that another process may take to parse the same files
LOCK_TIMEOUT = 3600.0
TABLES = (".txt", ".tsv", ".csv", ".txt.gz", ".tsv.gz", ".csv.gz")
OTHER_NAMES = {"valid": ("val", "validation", "dev"), "valid_neg": ("val_neg",)}
"""What others call a split; looked for where there is no file of the usual name."""

_T = TypeVar("_T")
_Graph = TypeVar("_Graph", bound=StoredGraph)


def find_split(folder: Path, split: str, suffixes: Sequence[str] = TABLES) -> Path | None:
    """The file of a split in a folder, or None: the usual name first; two that fit equally are refused."""
    for names in ((split,), OTHER_NAMES.get(split, ())):
        paths = [path for name in names for end in suffixes if (path := folder / f"{name}{end}").is_file()]
        if len(paths) > 1:
            raise DataError(f"{folder}: both {paths[0].name} and {paths[1].name}; keep one of them")
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
    """`parse()`, or its earlier result for the same bytes; its notices become warnings either way.

    The result depends on the bytes of `files` and on `purpose`. With a `stacklevel` of 1 warnings name the
    line of this call, with 2 that of the calling function's call.
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
        # the parser names what is wrong with the file
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
    """What a file of the cache holds, or what `make` makes and `write` puts there; one process at a time.

    A file that `read` refuses is told to `damaged` and replaced; without a cache the result is only made.
    """
    made: list[_T] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TellingLock(f"{target}.lock", timeout=LOCK_TIMEOUT):
            if target.exists():
                try:
                    return read(target)
                except DataError as error:
                    damaged(error)
            made.append(make())
            write(made[0], target)
    except (OSError, Timeout) as error:
        _log.warning("no cache of %s (%s): %s", what, target.parent, error)
    return made[0] if made else make()
