"""Parsed tensors in the user's cache folder, keyed by the bytes they came from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from graphzoo.datasets.errors import DataError
from graphzoo.datasets.kg import KnowledgeGraph, warn
from graphzoo.datasets.roots import cache_root

__all__ = ["remember"]

_log = logging.getLogger(__name__)
_VERSION = 1
# below this size parsing costs less than the look-up is worth
_MIN_BYTES = 1 << 20
_SEPARATOR = "\x00"


def remember(
    files: Sequence[Path], purpose: str, parse: Callable[[], tuple[KnowledgeGraph, list[str]]]
) -> tuple[KnowledgeGraph, list[str]]:
    """`parse()`, or its earlier result for the same bytes.

    Args:
        files: What the result depends on; their bytes are the key.
        purpose: Anything else it depends on.
        parse: Makes the graph and its notices.

    Returns:
        The graph and its notices.
    """
    try:
        if sum(path.stat().st_size for path in files) < _MIN_BYTES:
            return parse()
    except OSError:
        # the parser names what is wrong with the file
        return parse()
    digest = hashlib.sha256(f"{_VERSION}\n{purpose}\n".encode())
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    target = cache_root() / "parsed" / f"{digest.hexdigest()}.npz"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{target}.lock", timeout=600)
        with lock:
            return _remember_locked(target, parse)
    except (OSError, Timeout) as error:
        _log.warning("no cache of parsed data (%s): %s", target.parent, error)
        return parse()


def _remember_locked(
    target: Path, parse: Callable[[], tuple[KnowledgeGraph, list[str]]]
) -> tuple[KnowledgeGraph, list[str]]:
    if target.exists():
        try:
            stored = KnowledgeGraph.load(target)
            split_name, *notices = stored.split_name.split(_SEPARATOR)
            return replace(stored, split_name=split_name), notices
        except DataError as error:
            warn(f"cached data rebuilt: {error}")
    graph, notices = parse()
    # the notices travel with the graph, so that a cached load warns like the first one
    replace(graph, split_name=_SEPARATOR.join([graph.split_name, *notices])).save(target)
    return graph, notices
