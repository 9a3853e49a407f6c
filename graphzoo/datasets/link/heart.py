"""Hard negatives for every evaluated link, by the method of HeaRT (Li et al., NeurIPS 2023).

A link (u, v) has 2k negatives: k pairs (u, x) and k pairs (x, v). For (u, x), the x are the k candidates that
are most like neighbours of u. Candidates are all nodes but u, v and the known neighbours of u. Known are the
training links, and for test negatives also the validation links.

Candidates are ranked by three scores on the message graph: resource allocation, personalised PageRank of u,
and cosine similarity of the features if there are any. The rank by a score is one plus the number of
candidates with a higher score, and the smallest rank of a candidate counts. Ties are broken by a hash of
(seed, u, v, x). Candidates with scores of zero rank last, so that they fill the remaining places at random.

The published generator differs in some details, so that its negatives are others. Results on the two are not
comparable; therefore this protocol has its own name, `heart-ours`.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import check_fingerprint, fingerprint_of, reading_arrays, write_arrays
from graphzoo.datasets.files.cache import kept
from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.link.graph import LinkGraph, LinkSplit
from graphzoo.errors import DataError, UsageError
from graphzoo.ops.threads import run_pieces
from graphzoo.system.progress import progress

_log = logging.getLogger(__name__)
_VERSION = 1
_Array = np.ndarray[Any, np.dtype[Any]]
# Probability that a walk of PageRank starts again at u.
_TELEPORT = 0.15
# Similarities that are in memory at once.
_BLOCK_VALUES = 1 << 23


def hard_negatives(
    graph: LinkGraph, *, num_negatives: int = 500, ppr_tolerance: float = 1e-7, seed: int = 42
) -> tuple[LinkSplit, LinkSplit]:
    """Hard negatives for each validation and test link of a graph.

    They are computed once and kept in the user's cache, by the fingerprint of the graph and the arguments.

    Args:
        graph: An undirected graph.
        num_negatives: Negatives of each link, an even number.
        ppr_tolerance: Residual per edge below which personalised PageRank stops.
        seed: Seed of the order of equal ranks.

    Returns:
        Validation and test links, each with negatives [P, num_negatives, 2].

    Raises:
        UsageError: if `num_negatives` is odd or below 2.
        DataError: if the graph is directed, or a node has too few candidates.
    """
    if num_negatives < 2 or num_negatives % 2:
        raise UsageError(f"num_negatives must be an even number of at least 2, got {num_negatives}")
    if graph.is_directed:
        raise DataError(f"{graph.name}: hard negatives are made for undirected graphs only")
    settings = f"{_VERSION} {graph.fingerprint} {num_negatives} {_TELEPORT} {ppr_tolerance!r} {seed}"
    return kept(
        cache_root() / "negatives" / f"{hashlib.sha256(settings.encode()).hexdigest()}.npz",
        lambda: _make(graph, num_negatives, ppr_tolerance, seed),
        partial(_read, graph),
        _write,
        what="hard negatives",
        damaged=lambda error: _log.warning("hard negatives are computed again: %s", error),
    )


def _write(made: tuple[LinkSplit, LinkSplit], path: Path) -> None:
    negatives = (split.negative.numpy().astype(np.int32) for split in made)
    arrays = dict(zip(("valid", "test"), negatives, strict=True))
    write_arrays(path, {"format": _VERSION, "fingerprint": fingerprint_of(arrays.values())}, arrays)


def _read(graph: LinkGraph, path: Path) -> tuple[LinkSplit, LinkSplit]:
    with reading_arrays(path, _VERSION, what="negatives", written_by="graphzoo") as (meta, arrays):
        kept = [arrays["valid"], arrays["test"]]
        check_fingerprint(path, fingerprint_of(kept), meta["fingerprint"])
        valid, test = (torch.from_numpy(part.astype(np.int64)) for part in kept)
        return LinkSplit(graph.valid.positive, valid), LinkSplit(graph.test.positive, test)


def _make(
    graph: LinkGraph, num_negatives: int, ppr_tolerance: float, seed: int
) -> tuple[LinkSplit, LinkSplit]:
    count = f"{graph.valid.positive.size(0) + graph.test.positive.size(0):,}"
    message = "%s: computing %d negatives for each of %s links, once; this takes minutes on a large graph"
    _log.warning(message, graph.name, num_negatives, count)
    similarity = _Similarity(graph.x)
    splits = []
    for split, evaluated in (("valid", graph.valid), ("test", graph.test)):
        known = graph.train if split == "valid" else torch.cat([graph.train, graph.valid.positive])
        neighbours = _csr(torch.cat([known, known.flip(1)]), graph.num_nodes)
        messages = _csr(graph.edge_index(split).t(), graph.num_nodes)
        chosen = _choose(
            evaluated.positive, messages, neighbours, similarity, num_negatives // 2, ppr_tolerance, seed
        )
        splits.append(LinkSplit(evaluated.positive, _pairs(evaluated.positive, chosen)))
    return splits[0], splits[1]


def _pairs(positive: Tensor, chosen: _Array) -> Tensor:
    """The nodes [P, 2, k] that replace v and u, as pairs [P, 2k, 2]."""
    others = torch.from_numpy(chosen)
    num_links, _, k = others.shape
    source = torch.cat([positive[:, :1].expand(num_links, k), others[:, 1]], dim=1)
    target = torch.cat([others[:, 0], positive[:, 1:].expand(num_links, k)], dim=1)
    return torch.stack([source, target], dim=2)


def _csr(pairs: Tensor, num_nodes: int) -> tuple[_Array, _Array]:
    """CSR of the distinct pairs: starts [N + 1] of each first end, and the sorted second ends."""
    keys = torch.unique(pairs[:, 0] * num_nodes + pairs[:, 1]).numpy()
    start = np.searchsorted(keys // num_nodes, np.arange(num_nodes + 1))
    return start.astype(np.int64), (keys % num_nodes).astype(np.int64)


class _Similarity:
    """Rows of the matrix of cosine similarities; sums have a fixed order, so that results repeat exactly."""

    def __init__(self, x: Tensor | None) -> None:
        # imported here: only needed to compute negatives
        from scipy import sparse

        self.matrix = None
        if x is None:
            return
        if x.layout == torch.sparse_csr:
            parts = x.values().double().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()
            matrix = sparse.csr_array(parts, shape=tuple(x.shape))
        else:
            matrix = sparse.csr_array(x.double().numpy())
        norm = np.sqrt(matrix.multiply(matrix).sum(axis=1))
        self.matrix = sparse.diags_array(1 / np.where(norm > 0, norm, 1)) @ matrix
        self.transposed = self.matrix.T.tocsr()

    def rows(self, nodes: _Array, num_nodes: int) -> _Array:
        """Similarities of nodes to all nodes, [len(nodes), N], float32; [len(nodes), 0] without features."""
        if self.matrix is None:
            return np.zeros((len(nodes), 0), dtype=np.float32)
        rows: _Array = (self.matrix[nodes] @ self.transposed).toarray().astype(np.float32)
        return rows


def _choose(
    positive: Tensor,
    messages: tuple[_Array, _Array],
    neighbours: tuple[_Array, _Array],
    similarity: _Similarity,
    k: int,
    ppr_tolerance: float,
    seed: int,
) -> _Array:
    """For each end of every link, the k nodes that replace the other end, [P, 2, k], int64."""
    # imported here: importing numba takes a second, and most runs find the negatives in the cache
    from graphzoo.datasets.link.heart_kernels import choose_for_node

    num_nodes = messages[0].size - 1
    # Sort the queries by their node, so that its scores are computed once.
    ends, partners = positive.t().reshape(-1).numpy(), positive.flip(1).t().reshape(-1).numpy()
    order = np.argsort(ends, kind="stable")
    nodes, start = np.unique(ends[order], return_index=True)
    start = np.append(start, ends.size)
    _check_enough(nodes, neighbours, k)
    chosen = np.empty((ends.size, k), dtype=np.int64)
    size = max(1, _BLOCK_VALUES // num_nodes)
    with progress("choosing hard negatives", nodes.size) as advance:
        for first in range(0, nodes.size, size):
            block = nodes[first : first + size]
            similar = similarity.rows(block, num_nodes)

            def work(row: int, block: _Array = block, similar: _Array = similar, first: int = first) -> None:
                queries = order[start[first + row] : start[first + row + 1]]
                node, facing = block[row], partners[queries]
                settings = similar[row], k, _TELEPORT, ppr_tolerance, seed
                chosen[queries] = choose_for_node(node, facing, *messages, *neighbours, *settings)

            run_pieces(work, block.size)
            advance(block.size)
    return chosen.reshape(2, -1, k).transpose(1, 0, 2)


def _check_enough(nodes: _Array, neighbours: tuple[_Array, _Array], k: int) -> None:
    start = neighbours[0]
    free = start.size - 1 - (start[nodes + 1] - start[nodes]) - 2
    if free.min() < k:
        node = int(nodes[free.argmin()])
        raise DataError(
            f"node {node} has {max(int(free.min()), 0):,} nodes that are not its neighbours, but {k:,} are "
            "needed for hard negatives; evaluate against a pool of random pairs instead"
        )
