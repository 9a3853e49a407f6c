"""The graph that subgraphs are sampled from, as a file of the user's cache that processes map together."""

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
"""With as many training links, subgraphs are sampled from a file that all processes map."""

_log = logging.getLogger(__name__)


def subgraph_sampler(
    graph: LinkGraph, split: str, edge_index: Callable[[], Tensor], **settings: Any
) -> PairSubgraphSampler:
    """A sampler of the edges that messages pass along in a split; large graphs are mapped from a file.

    The ranks of a run, and later runs, share the file's pages. Where the cache cannot be written the graph
    stays in memory; a damaged file is made anew. `edge_index` gives the edges, [2, E], int64, where no file
    has them; the settings are the sampler's.
    """

    def in_memory() -> PairSubgraphSampler:
        return PairSubgraphSampler(edge_index(), graph.num_nodes, directed=graph.is_directed, **settings)

    if len(graph.train) < MAPPED_LINKS:
        return in_memory()
    return _mapped(_digest(graph, split), in_memory, **settings)


def _digest(graph: LinkGraph, split: str) -> str:
    """sha256 of the edges: other features, negatives or figures leave it as it is."""
    digest = hashlib.sha256(f"{graph.num_nodes} {graph.is_directed}".encode())
    for links in graph.message_links(split):
        digest.update(links.contiguous().numpy().data)
    return digest.hexdigest()


def _mapped(name: str, make: Callable[[], PairSubgraphSampler], **settings: Any) -> PairSubgraphSampler:
    target = cache_root() / "pair-graphs" / f"{name}.graph"
    if target.exists():
        try:  # without the lock: files appear whole, and the folder may be one to read only
            return PairSubgraphSampler.from_file(target, **settings)
        except DataError as error:
            warn(f"cached graph rebuilt: {error}")
    made: PairSubgraphSampler | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TellingLock(f"{target}.lock", timeout=LOCK_TIMEOUT):
            with suppress(DataError):  # another process may have made it meanwhile
                return PairSubgraphSampler.from_file(target, **settings)
            made = make()
            made.save(target)
            return PairSubgraphSampler.from_file(target, check=False, **settings)
    except (OSError, Timeout) as error:
        _log.warning(
            "the graph stays in memory, once in every process, since %s cannot be written: %s; "
            "make room in %s, or the right to write there",
            target,
            error,
            target.parent,
        )
    return make() if made is None else made
