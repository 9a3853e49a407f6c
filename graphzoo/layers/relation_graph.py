"""The graph of relations: how the relations of a knowledge graph meet, whatever they are called."""

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
"""Ways in which two relations meet: the second dimension of `RelationGraph.propagate`."""


class RelationGraph(NamedTuple):
    """What 2R relations, inverses included, have in common.

    Inverting a relation turns its heads into tails, so these two matrices say all of ULTRA's four (heads with
    heads, heads with tails, tails with heads, tails with tails) and the pairs.
    """

    heads: SparseMatrix | Tensor
    """Cosine of the sets of head entities of two relations, [2R, 2R]."""
    pairs: SparseMatrix | Tensor
    """Cosine of the sets of (head, tail) pairs of two relations, [2R, 2R]."""
    inverse: Tensor
    """The inverse of each relation, [2R], int64."""

    def to(self, device: torch.device | str) -> RelationGraph:
        """The same on another device."""
        return RelationGraph(self.heads.to(device), self.pairs.to(device), self.inverse.to(device))

    def to_dense(self) -> RelationGraph:
        """The same with dense matrices, as exported programs take them."""
        heads, pairs = (m if isinstance(m, Tensor) else m.to_dense() for m in (self.heads, self.pairs))
        return RelationGraph(heads, pairs, self.inverse)

    def unweighted(self) -> RelationGraph:
        """The same with 1 wherever two relations meet."""
        heads, pairs = (
            (m != 0).to(m.dtype) if isinstance(m, Tensor) else m.with_values(torch.ones_like(m.values))
            for m in (self.heads, self.pairs)
        )
        return RelationGraph(heads, pairs, self.inverse)

    def propagate(self, states: Tensor) -> Tensor:
        """States of the relations that each relation meets, weighted by the cosines, way by way.

        Args:
            states: [2R, F].

        Returns:
            [2R, 6, F]: of relations whose heads are this one's heads, whose tails are its heads, whose heads
            are its tails, whose tails are its tails, that join the same pairs, that join them in reverse.
        """
        turned = states[self.inverse]
        at_head, turned_at_head = self.heads.matmul(states), self.heads.matmul(turned)
        return torch.stack(
            [
                at_head,
                turned_at_head,
                at_head[self.inverse],
                turned_at_head[self.inverse],
                self.pairs.matmul(states),
                self.pairs.matmul(turned),
            ],
            dim=1,
        )


_known: WeakKeyDictionary[RelationalGraph, dict[torch.device, RelationGraph]] = WeakKeyDictionary()


@run_eagerly
def compare_relations(graph: RelationalGraph | QueryGraph) -> RelationGraph:
    """The graph of relations of all facts, made once per graph and device.

    Args:
        graph: Facts with inverses: edge i and edge i + E/2 are each other's inverse, type r and r + R; or
            links of one relation. Of a `QueryGraph` the whole graph that it is a part of.

    Raises:
        UsageError: for a graph without inverses, or a `QueryGraph` that does not know its whole graph.
    """
    from graphzoo.ops import QueryGraph

    device = graph.device
    if isinstance(graph, QueryGraph):
        if graph.whole is None:
            raise UsageError(
                "relations are compared over the whole graph, which this QueryGraph does not know: "
                "set its attribute `whole`, as NeighbourhoodSampler does"
            )
        graph = graph.whole
    known = _known.setdefault(graph, {})
    if device not in known:
        # in training, though the first call may be in evaluation
        with torch.inference_mode(False):
            counted = next(iter(known.values()), None)  # on another device
            known[device] = (_count_relations(graph) if counted is None else counted).to(device)
    return known[device]


def set_relations(graph: RelationalGraph, heads: Tensor, pairs: Tensor) -> None:
    """Let `compare_relations` give these matrices, [2R, 2R] each, for a graph, instead of counting."""
    count = heads.shape[0]
    inverse = (torch.arange(count, device=heads.device) + count // 2) % count
    _known[graph] = {graph.device: RelationGraph(heads, pairs, inverse)}


def _count_relations(graph: RelationalGraph) -> RelationGraph:
    count, num_facts, num_nodes = graph.num_relations, graph.num_edges // 2, max(graph.num_nodes, 1)
    source, target = (row.cpu().numpy().astype(np.int64) for row in graph.edge_index)
    kind = graph.edge_type.cpu().numpy().astype(np.int64)
    half = count // 2
    inverted = np.array_equal(source[:num_facts], target[num_facts:])
    one_kind = count <= 2 and not kind.any()  # of edges without direction
    if not one_kind and not (inverted and np.array_equal(kind[:num_facts] + half, kind[num_facts:])):
        raise UsageError(
            "comparing relations needs facts with inverses: edge i + E/2 is the inverse of edge i, its type "
            "r + R that of r"
        )
    if num_nodes**2 * count >= 2**63:
        raise UsageError(f"{num_nodes:,} entities and {count:,} relations are too many to compare relations")
    inverse = (np.arange(count) + half) % max(count, 1)
    return RelationGraph(
        _cosines(source, kind, count),
        _cosines(source * num_nodes + target, kind, count),
        torch.from_numpy(inverse),
    )


def _cosines(place: Any, kind: Any, count: int) -> SparseMatrix:
    """Places that both of two relations have over the root of the product of their numbers, [2R, 2R].

    Args:
        place: Where each edge is, [E]: its head, or its pair.
        kind: Type of each edge, [E].
        count: 2R.
    """
    from scipy.sparse import csr_array, diags_array

    # each relation once at each place, place by place; one sort of numbers is much faster than np.unique
    place = np.sort(place * count + kind)
    place = place[np.concatenate([[True], place[1:] != place[:-1]])] if place.size else place
    place, kind = np.divmod(place, max(count, 1))
    size = np.bincount(kind, minlength=count).astype(np.float64)
    first = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]])) if place.size else place
    length = np.diff(np.append(first, place.size))
    # where a relation is alone it meets but itself, which is counted already
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
