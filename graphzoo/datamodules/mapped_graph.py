"""The graph that subgraphs are sampled from, as a file in the user's cache that processes map into memory."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from filelock import Timeout
from torch import Tensor

from graphzoo.datasets import LinkGraph
from graphzoo.datasets.files.cache import LOCK_TIMEOUT
from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.files.text import warn
from graphzoo.errors import DataError
from graphzoo.sampling import PairSubgraphSampler
from graphzoo.system.waiting import TellingLock

MAPPED_LINKS = 1_000_000
"""From this number of training links on, subgraphs are sampled from a file that all processes map."""

_log = logging.getLogger(__name__)


def subgraph_sampler(
    graph: LinkGraph, split: str, edge_index: Callable[[], Tensor], **settings: Any
) -> PairSubgraphSampler:
    """A sampler of subgraphs from a split's message graph; large graphs are mapped from a file.

    The ranks of a run, and later runs, share the memory of the file. If the cache cannot be written, the
    graph stays in memory. A damaged file is written again.

    Args:
        graph: The graph.
        split: Split whose message graph is sampled.
        edge_index: Makes the edges [2, E], int64, if there is no file.
        **settings: Further arguments of the sampler.
    """

    def in_memory() -> PairSubgraphSampler:
        return PairSubgraphSampler(edge_index(), graph.num_nodes, directed=graph.is_directed, **settings)

    if len(graph.train) < MAPPED_LINKS:
        return in_memory()
    return _mapped(_digest(graph, split), in_memory, **settings)


def _digest(graph: LinkGraph, split: str) -> str:
    """sha256 of the edges; features and negatives do not enter it."""
    digest = hashlib.sha256(f"{graph.num_nodes} {graph.is_directed}".encode())
    for links in graph.message_links(split):
        digest.update(links.contiguous().numpy().data)
    return digest.hexdigest()


def _mapped(name: str, make: Callable[[], PairSubgraphSampler], **settings: Any) -> PairSubgraphSampler:
    target = cache_root() / "pair-graphs" / f"{name}.graph"
    if target.exists():
        try:  # without the lock: files appear whole, and the folder may be read-only
            return PairSubgraphSampler.from_file(target, **settings)
        except DataError as error:
            warn(f"cached graph rebuilt: {error}")
    made: PairSubgraphSampler | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TellingLock(f"{target}.lock", timeout=LOCK_TIMEOUT):
            with suppress(DataError):  # another process may have written it meanwhile
                return PairSubgraphSampler.from_file(target, **settings)
            made = make()
            made.save(target)
            return PairSubgraphSampler.from_file(target, check=False, **settings)
    except (OSError, Timeout) as error:
        _log.warning(
            "%s cannot be written, so every process keeps the graph in its own memory: %s; "
            "free disk space in %s, or make it writable",
            target,
            error,
            target.parent,
        )
    return make() if made is None else made
