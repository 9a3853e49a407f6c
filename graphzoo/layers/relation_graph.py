"""The graph of relations, whose edges join relations of a knowledge graph that share entities.

It depends only on the facts, not on the names or numbers of relations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import SparseMatrix

if TYPE_CHECKING:
    from graphzoo.ops import QueryGraph, RelationalGraph


NUM_WAYS = 6
"""Number of ways in which two relations can share entities; second dimension of `RelationGraph.propagate`."""


class RelationGraph(NamedTuple):
    """The entities and pairs that 2R relations, inverses included, have in common.

    ULTRA has four matrices: heads with heads, heads with tails, tails with heads, tails with tails. The
    inverse of a relation has its tails as heads. So `heads` and `inverse` contain all four, and `pairs` adds
    the pairs of entities.
    """

    heads: SparseMatrix | Tensor
    """Cosine of the sets of head entities of two relations, [2R, 2R]."""
    pairs: SparseMatrix | Tensor
    """Cosine of the sets of (head, tail) pairs of two relations, [2R, 2R]."""
    inverse: Tensor
    """The inverse of each relation, [2R], int64."""

    def to(self, device: torch.device | str) -> RelationGraph:
        """Copy the matrices to another device."""
        return RelationGraph(self.heads.to(device), self.pairs.to(device), self.inverse.to(device))

    def to_dense(self) -> RelationGraph:
        """Convert to dense matrices, which exported programs take."""
        heads, pairs = (m if isinstance(m, Tensor) else m.to_dense() for m in (self.heads, self.pairs))
        return RelationGraph(heads, pairs, self.inverse)

    def unweighted(self) -> RelationGraph:
        """Replace every positive cosine by 1."""
        heads, pairs = (
            (m != 0).to(m.dtype) if isinstance(m, Tensor) else m.with_values(torch.ones_like(m.values))
            for m in (self.heads, self.pairs)
        )
        return RelationGraph(heads, pairs, self.inverse)

    def propagate(self, states: Tensor) -> Tensor:
        """Sum the states of related relations, weighted by the cosines, for each of six ways to be related.

        Args:
            states: States of the relations, [2R, F].

        Returns:
            [2R, 6, F]. For each relation these are the sums over relations whose heads are among its heads,
            whose tails are among its heads, whose heads are among its tails, whose tails are among its tails,
            that have the same (head, tail) pairs, and that have these pairs reversed.
        """
        of_inverse = states[self.inverse]
        heads_at_head, tails_at_head = self.heads.matmul(states), self.heads.matmul(of_inverse)
        return torch.stack(
            [
                heads_at_head,
                tails_at_head,
                heads_at_head[self.inverse],
                tails_at_head[self.inverse],
                self.pairs.matmul(states),
                self.pairs.matmul(of_inverse),
            ],
            dim=1,
        )


_known: WeakKeyDictionary[RelationalGraph, dict[torch.device, RelationGraph]] = WeakKeyDictionary()


@run_eagerly
def compare_relations(graph: RelationalGraph | QueryGraph) -> RelationGraph:
    """The graph of relations of a knowledge graph, computed once for each graph and device.

    Args:
        graph: Facts with inverses, or links of one relation. Edge i + E/2 must be the inverse of edge i, and
            have type r + R for type r. For a `QueryGraph` its attribute `whole` is used.

    Raises:
        UsageError: for facts without inverses, a `QueryGraph` whose `whole` is None, or too many entities.
    """
    from graphzoo.ops import QueryGraph

    device = graph.device
    if isinstance(graph, QueryGraph):
        if graph.whole is None:
            raise UsageError(
                "relations are compared over the whole graph, but this QueryGraph has no `whole`: set this "
                "attribute to the RelationalGraph that it was sampled from"
            )
        graph = graph.whole
    known = _known.setdefault(graph, {})
    if device not in known:
        # The first call may be in inference mode, and a later one needs gradients.
        with torch.inference_mode(False):
            counted = next(iter(known.values()), None)  # from another device
            known[device] = (_count_relations(graph) if counted is None else counted).to(device)
    return known[device]


def set_relations(graph: RelationalGraph, heads: Tensor, pairs: Tensor) -> None:
    """Set the matrices [2R, 2R] that `compare_relations` returns for a graph instead of computing them."""
    count = heads.shape[0]
    inverse = (torch.arange(count, device=heads.device) + count // 2) % count
    _known[graph] = {graph.device: RelationGraph(heads, pairs, inverse)}


def _count_relations(graph: RelationalGraph) -> RelationGraph:
    count, num_facts, num_nodes = graph.num_relations, graph.num_edges // 2, graph.num_nodes
    source, target = (row.cpu().numpy().astype(np.int64) for row in graph.edge_index)
    kind = graph.edge_type.cpu().numpy().astype(np.int64)
    half = count // 2
    inverted = np.array_equal(source[:num_facts], target[num_facts:])
    one_kind = count <= 2 and not kind.any()  # links, which have no direction
    if not one_kind and not (inverted and np.array_equal(kind[:num_facts] + half, kind[num_facts:])):
        raise UsageError(
            "comparing relations needs facts with inverses: edge i + E/2 must be the inverse of edge i, and "
            "have type r + R for type r, as RelationalGraph.from_triples makes them"
        )
    if num_nodes**2 * count >= 2**63:
        raise UsageError(f"{num_nodes:,} entities and {count:,} relations are too many to compare relations")
    inverse = (np.arange(count) + half) % count
    return RelationGraph(
        _cosines(source, kind, count),
        _cosines(source * num_nodes + target, kind, count),
        torch.from_numpy(inverse),
    )


def _cosines(place: Any, kind: Any, count: int) -> SparseMatrix:
    """Cosines of the sets of places of two relations, [2R, 2R].

    The cosine is the number of common places, divided by the root of the product of both numbers of places.

    Args:
        place: Place of each edge, [E]: the number of its head, or of its (head, tail) pair.
        kind: Type of each edge, [E].
        count: 2R.
    """
    from scipy.sparse import csr_array, diags_array

    # Distinct (place, relation), sorted by place. Sorting single numbers is much faster than np.unique.
    place = np.sort(place * count + kind)
    place = place[np.concatenate([[True], place[1:] != place[:-1]])] if place.size else place
    place, kind = np.divmod(place, count)
    size = np.bincount(kind, minlength=count).astype(np.float64)
    first = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]])) if place.size else place
    length = np.diff(np.append(first, place.size))
    # A place with a single relation contributes only to the diagonal, which is added below.
    shared, rows = np.repeat(length > 1, length), length[length > 1]
    table = csr_array(
        (
            np.ones(int(rows.sum()), np.float32),
            kind[shared].astype(np.int32),
            np.concatenate([[0], np.cumsum(rows)]),
        ),
        shape=(rows.size, count),
    )
    common = (table.T @ table).tocsr()
    alone = size - common.diagonal()
    common = (common + diags_array(alone.astype(np.float32), format="csr")).tocsr()
    common.eliminate_zeros()
    common.sort_indices()
    row = np.repeat(np.arange(count), np.diff(common.indptr))
    values = common.data / np.sqrt(size[row] * size[common.indices])
    return SparseMatrix(
        torch.from_numpy(common.indptr.astype(np.int64)),
        torch.from_numpy(common.indices.astype(np.int64)),
        torch.from_numpy(values.astype(np.float32)),
        (count, count),
    )
