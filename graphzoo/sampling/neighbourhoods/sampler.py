"""Neighbourhoods of queries: K entities by personalised PageRank and by relation, and their facts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_choice, check_range, check_whole
from graphzoo.ops.relational_spmm.graph import RelationalGraph
from graphzoo.ops.relational_spmm.query_graph import QueryGraph, flat_graph
from graphzoo.ops.threads import run_pieces

_Array = np.ndarray[Any, np.dtype[Any]]
_MAX_PIECES = 16


_Index = tuple[
    tuple[_Array, _Array, _Array, _Array], tuple[_Array, ...], tuple[_Array, _Array], _Array, int,
    deque[tuple[_Array, ...]],
]  # fmt: skip
_indices: WeakKeyDictionary[RelationalGraph, _Index] = WeakKeyDictionary()


class NeighbourhoodSampler:
    """Samples a neighbourhood for every query (head, relation, ?): K entities, and the facts among them.

    Entities are chosen in this order until there are K:

    1. the head;
    2. up to `relation_share` of K entities that answer the same relation in a known fact, the nearest to the
       head first, then the most frequent;
    3. the nearest of all entities;
    4. those with most facts, if the head reaches too few.

    The nearest entities are those of highest personalised PageRank from the head. It is estimated by local
    pushes, whose cost does not depend on the size of the graph. The own fact of a training query is left out
    of the walk, the answers and the facts.

    A neighbourhood is a function of graph and query. It does not depend on batches, threads or processes.

    Args:
        graph: Facts with inverses: edge i + E/2 is the inverse of edge i, and has type r + R for type r. Or
            edges without direction, where both have the same type.
        num_nodes: K, at least 2; values of N and above take the whole graph.
        relation_share: Share of K for entities that answer the same relation, 0 to 1.
        teleport: Probability that the walk restarts at the head.
        tolerance: Pushes stop below this probability for each edge. At most 1 / (teleport x tolerance) edges
            are read for a query. None takes 0.005 / K.

    Raises:
        UsageError: for a setting out of range, or a graph without inverses.
    """

    def __init__(
        self,
        graph: RelationalGraph,
        num_nodes: int,
        *,
        relation_share: float = 0.5,
        teleport: float = 0.15,
        tolerance: float | None = None,
    ) -> None:
        check_whole(at_least=2, num_nodes=num_nodes)
        check_range(at_least=0, at_most=1, relation_share=relation_share)
        check_range(above=0, below=1, teleport=teleport)
        check_range(above=0, tolerance=tolerance)
        self.num_nodes = min(num_nodes, graph.num_nodes)
        self.relation_share, self.teleport = relation_share, teleport
        self.tolerance = 0.005 / max(self.num_nodes, 1) if tolerance is None else tolerance
        self.num_entities, self.num_kinds = graph.num_nodes, graph.num_relations
        self.graph: RelationalGraph | None = graph
        index = _indices.get(graph)  # several samplers of one graph share it
        if index is None:
            index = _indices[graph] = _index_of(graph)
        self._edges, self._answers, self._popular, self._popularity, self._shift, self._free = index

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_free": deque(), "graph": None}  # another process makes its own scratch arrays

    def __call__(
        self,
        head: Tensor,
        relation: Tensor,
        own: Tensor | None = None,
        *,
        hides: Literal["exact", "one_hop", "none"] = "exact",
        outside: Literal["keep", "drop", "bring"] = "keep",
        target: Tensor | None = None,
        with_edges: bool = False,
    ) -> tuple[QueryGraph, Tensor]:
        """Sample the neighbourhoods of B queries.

        Args:
            head: Head of each query, [B], int64.
            relation: Relation of each query, in 0..2R-1, [B], int64.
            own: Answer of each query's own fact, which is left out, [B], int64; -1 leaves out none, and is
                allowed only if `outside` does not need an answer. None leaves out none for all queries.
            hides: What is left out: "exact" the fact and its inverse, "one_hop" all edges between head and
                answer, "none" nothing.
            outside: What happens to a query whose answer is outside its neighbourhood: "keep" keeps the
                query, "drop" leaves it out, "bring" replaces the farthest entity by the answer.
            target: Answers for `outside`, [B], int64; None takes `own`.
            with_edges: Whether to keep the number of each edge in the whole graph, as `QueryGraph.edge`.

        Returns:
            The graphs of the queries that are kept, and the rows of these queries, ascending, [B'], int64.

        Raises:
            UsageError: for an unknown value of `hides` or `outside`, or too many edges for one batch.
            ValueError: for tensors of different lengths, values out of range, or missing answers.
        """
        check_choice("hides", hides, ("exact", "one_hop", "none"))
        check_choice("outside", outside, ("keep", "drop", "bring"))
        tails, wanted = self._answers_of(head.numel(), own, target, outside)
        made = self._make(head, relation, tails, hides, wanted, outside)
        rows = [b for b, part in enumerate(made) if part is not None]
        return self._join([made[b] for b in rows], with_edges), torch.tensor(rows, dtype=torch.int64)

    def with_levels(self, head: Tensor, relation: Tensor) -> tuple[QueryGraph, Tensor]:
        """Sample the neighbourhoods of B queries, and order all other entities behind them.

        The order begins with the entities that the walk from the head reached, by their PageRank. Then come
        known answers of the relation by their frequency, then the others by their number of facts. Entities
        that are equal in this order have the same level.

        Args:
            head: Head of each query, [B], int64.
            relation: Relation of each query, in 0..2R-1, [B], int64.

        Returns:
            The graphs, and levels [B, N], int32: 0 for entities inside, 1 for the nearest outside, and so on.

        Raises:
            ValueError: for tensors of different lengths, or values out of range.
        """
        count = head.numel()
        levels = np.empty((count, self.num_entities), np.int32)
        no_answers = np.full(count, -1, np.int64)
        made = self._make(head, relation, no_answers, "none", no_answers, "keep", levels)
        return self._join(made, with_edges=False), torch.from_numpy(levels)

    def _make(
        self, head: Tensor, relation: Tensor, tails: _Array, hides: str, wanted: _Array, outside: str,
        levels: _Array | None = None,
    ) -> list[Any]:  # fmt: skip
        """Nodes and edges of every query's neighbourhood, None for a dropped query; writes `levels`."""
        from graphzoo.sampling.neighbourhoods import kernels

        count = head.numel()
        self._check(head, relation)
        heads, relations = head.cpu().numpy(), relation.cpu().numpy()
        made: list[Any] = [None] * count
        offsets, neighbour, kind, edge = self._edges

        def work(start: int, stop: int) -> None:
            with self._scratch() as scratch:
                inside, score, touched = scratch[5], scratch[0], scratch[3]
                for b in range(start, stop):
                    hidden = self._hidden(heads[b], relations[b], tails[b], hides)
                    reached, own_edges, own_facts = kernels.push(
                        offsets, neighbour, kind, hidden, self.teleport, self.tolerance, *scratch[:5]
                    )
                    nodes = kernels.choose(
                        hidden, hidden[1], own_edges, own_facts, relations[b], self._answers, self._popular,
                        self.num_nodes, self.relation_share, score, touched, reached, inside,
                    )  # fmt: skip
                    nodes.sort()
                    if outside == "bring":
                        _bring(nodes, heads[b], wanted[b], score)
                    if levels is not None:
                        self._order_outside(relations[b], score, touched[:reached], nodes, levels[b])
                    kernels.undo(score, scratch[1], touched, reached)
                    if outside == "drop" and not _holds(nodes, wanted[b]):
                        continue
                    edges = kernels.induce(
                        offsets, neighbour, kind, edge, nodes, hidden, self.num_kinds, self._shift, inside
                    )
                    made[b] = (nodes, *edges)

        _in_pieces(work, count)
        return made

    def pagerank(self, head: int) -> Tensor:
        """The estimate of personalised PageRank from one head, by which entities are chosen, [N], float64.

        Raises:
            UsageError: if `head` is outside 0..N-1.
        """
        from graphzoo.sampling.neighbourhoods import kernels

        check_whole(at_least=0, below=self.num_entities, head=head)

        offsets, neighbour, kind, _ = self._edges
        with self._scratch() as scratch:
            hidden = self._hidden(head, 0, -1, "none")
            reached, _, _ = kernels.push(
                offsets, neighbour, kind, hidden, self.teleport, self.tolerance, *scratch[:5]
            )
            scores = torch.from_numpy(scratch[0].copy())
            kernels.undo(scratch[0], scratch[1], scratch[3], reached)
        return scores

    def _check(self, head: Tensor, relation: Tensor) -> None:
        """Check heads and relations, since the compiled loops do not check bounds."""
        _check_range("head", head, 0, self.num_entities, head.numel())
        _check_range("relation", relation, 0, self.num_kinds, head.numel())

    def _answers_of(
        self, count: int, own: Tensor | None, target: Tensor | None, outside: str
    ) -> tuple[_Array, _Array]:
        """The queries' own answers, -1 for none, and the answers for `outside`."""
        if own is None and target is None and outside != "keep":
            raise ValueError(f"outside={outside!r} needs the queries' answers: give own or target")
        least = 0 if target is None and outside != "keep" else -1
        tails = np.full(count, -1, np.int64) if own is None else self._entities_of("own", own, least, count)
        return tails, tails if target is None else self._entities_of("target", target, 0, count)

    def _entities_of(self, name: str, entities: Tensor, least: int, count: int) -> _Array:
        _check_range(name, entities, least, self.num_entities, count)
        return entities.cpu().numpy()

    def _hidden(self, head: int, relation: int, tail: int, hides: str) -> _Array:
        if tail < 0 or hides == "none":
            return np.array([head, -1, -1, -1, relation], np.int64)
        if hides == "one_hop":
            return np.array([head, tail, -1, -1, relation], np.int64)
        inverse = (relation + self._shift) % self.num_kinds
        return np.array([head, tail, relation, inverse, relation], np.int64)

    def _order_outside(
        self, relation: int, score: _Array, reached: _Array, nodes: _Array, level: _Array
    ) -> None:
        """Write the levels of `with_levels` for one query, [N]."""
        starts, _, _, frequent, counts = self._answers
        of_relation = slice(*starts[relation : relation + 2])
        np.subtract(-1, self._popularity, out=level)  # negative for entities without a level
        level[nodes] = 0
        reached = reached[np.argsort(-score[reached])]
        last = _rank(level, reached, score[reached], 0)
        last = _rank(level, frequent[of_relation], counts[of_relation], last)
        np.subtract(last, level, out=level, where=level < 0)

    def _join(self, parts: list[Any], with_edges: bool) -> QueryGraph:
        """Join the neighbourhoods of several queries to one batch."""
        from graphzoo.sampling.neighbourhoods import kernels

        count, size = len(parts), self.num_nodes
        first = np.zeros(count + 1, np.int64)
        np.cumsum([part[2].shape[0] for part in parts], out=first[1:])
        total = int(first[-1])
        if max(total, count * size, count * self.num_kinds) >= 2**31:
            raise UsageError(
                f"{count} neighbourhoods have {total:,} edges, too many for one batch\n"
                "Take a smaller --data.batch_size, or a smaller --data.neighbourhood"
            )
        offsets = np.full(count * size + 1, total, np.int32)
        by_kind = np.full(count * self.num_kinds + 1, total, np.int32)
        kinds, mirrored, kind_sources, kind_targets = (np.empty(total, np.int32) for _ in range(4))
        edge_index = np.empty((2, total), np.int32)
        sources, targets = edge_index

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                _, starts, source, second, _ = parts[b]
                kernels.assemble(
                    starts, source, second, b, first[b], self.num_kinds, self._shift,
                    offsets, sources, kinds, mirrored, targets, by_kind, kind_sources, kind_targets,
                )  # fmt: skip

        _in_pieces(work, count)
        nodes = np.stack([part[0] for part in parts]) if parts else np.empty((0, size))
        edge = None
        if with_edges:
            edge = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *(part[4] for part in parts)]))
        flat = flat_graph(
            count * size,
            count * self.num_kinds,
            torch.from_numpy(edge_index),
            torch.from_numpy(kinds),
            torch.from_numpy(mirrored),
            torch.from_numpy(offsets),
            (torch.from_numpy(by_kind), torch.from_numpy(kind_sources), torch.from_numpy(kind_targets)),
        )
        return QueryGraph(torch.from_numpy(nodes.astype(np.int64)), flat, self.num_kinds, edge, self.graph)

    @contextmanager
    def _scratch(self) -> Iterator[tuple[_Array, ...]]:
        """Scratch arrays (score, rest, waiting, touched, queue, inside) for the calling thread.

        After an error they may not be reset, and are not used again.
        """
        try:
            scratch = self._free.pop()
        except IndexError:
            n = self.num_entities
            scratch = (
                np.zeros(n), np.zeros(n), np.zeros(n, np.bool_), np.empty(n, np.int32),
                np.empty(n, np.int32), np.full(n, -1, np.int32),
            )  # fmt: skip
        yield scratch
        self._free.append(scratch)


def _check_range(name: str, values: Tensor, low: int, high: int, count: int) -> None:
    if values.dtype not in (torch.int64, torch.int32) or values.shape != (count,):
        raise ValueError(
            f"{name} must be whole numbers [{count}], one for each query, "
            f"got {values.dtype} {list(values.shape)}"
        )
    if values.numel() and not low <= int(values.min()) <= int(values.max()) < high:
        raise ValueError(
            f"{name} must lie in {low}..{high - 1}, got {int(values.min())}..{int(values.max())}"
        )


def _holds(nodes: _Array, node: int) -> bool:
    place = int(np.searchsorted(nodes, node))
    return place < nodes.shape[0] and int(nodes[place]) == node


def _rank(level: _Array, nodes: _Array, worth: _Array, last: int) -> int:
    """Write levels after `last`, by descending worth, for nodes that have none; returns the last level."""
    is_new = level[nodes] < 0
    place = last + np.cumsum(np.diff(worth[is_new], prepend=np.inf) != 0)
    level[nodes[is_new]] = place
    return int(place.max(initial=last))


def _bring(nodes: _Array, head: int, node: int, score: _Array) -> None:
    """Replace the node of lowest score, except the head, by `node`, in place."""
    if not _holds(nodes, node):
        nodes[np.argmin(np.where(nodes == head, np.inf, score[nodes]))] = node
        nodes.sort()


def _index_of(graph: RelationalGraph) -> _Index:
    """Edges by source, answers by relation, entities by number of facts, and a list for scratch arrays."""
    source, target = (row.cpu().numpy() for row in graph.edge_index)
    kind = graph.edge_type.cpu().numpy()
    shift = _inverse_shift(source, target, kind, graph.num_relations)
    degree = np.bincount(source, minlength=graph.num_nodes)
    popular = np.lexsort((np.arange(graph.num_nodes), -degree)).astype(np.int32)
    falling = degree[popular]
    level = np.zeros(graph.num_nodes, np.int32)
    level[popular[1:]] = np.cumsum(falling[1:] != falling[:-1])
    edges = _by_source(source, target, kind, degree)
    answers = _answers_by_relation(source, target, kind, graph.num_relations)
    return edges, answers, (popular, falling.astype(np.int32)), level, shift, deque()


def _inverse_shift(source: _Array, target: _Array, kind: _Array, num_kinds: int) -> int:
    """The shift from a type to that of its inverse: R, or 0 if edges have no direction."""
    half, facts = num_kinds // 2, kind.shape[0] // 2
    if (
        num_kinds % 2 == 0
        and kind.shape[0] % 2 == 0
        and np.array_equal(source[:facts], target[facts:])
        and np.array_equal(target[:facts], source[facts:])
    ):
        for shift in (half, 0):
            if np.array_equal(kind[:facts] + shift, kind[facts:]):
                return shift
    raise UsageError(
        "neighbourhoods need a graph with inverses: edge i + E/2 must be the inverse of edge i, and have "
        "type r + R for type r, or the same type if edges have no direction"
    )


def _in_pieces(work: Callable[[int, int], None], count: int) -> None:
    """Divide 0..count-1 into ranges, and call `work(start, stop)` for each on all threads."""
    num_pieces = min(_MAX_PIECES, count)
    run_pieces(lambda piece: work(count * piece // num_pieces, count * (piece + 1) // num_pieces), num_pieces)


def _by_source(
    source: _Array, target: _Array, kind: _Array, degree: _Array
) -> tuple[_Array, _Array, _Array, _Array]:
    """First positions, target, type and number of edges, sorted as `kernels.induce` needs them."""
    # `place` is the position of a node in the order of (degree, number).
    place = np.empty(degree.shape[0], np.int64)
    place[np.lexsort((np.arange(degree.shape[0]), degree))] = np.arange(degree.shape[0])
    order = np.argsort(kind, kind="stable")
    order = order[np.argsort(-place[target[order]], kind="stable")]
    order = order[np.argsort(source[order], kind="stable")]
    offsets = np.zeros(degree.shape[0] + 1, np.int64)
    np.cumsum(degree, out=offsets[1:])
    return offsets, target[order].astype(np.int32), kind[order].astype(np.int32), order


def _answers_by_relation(source: _Array, target: _Array, kind: _Array, num_kinds: int) -> tuple[_Array, ...]:
    """Distinct answers of every relation, see `answers` of `kernels.choose`; repeated facts count once."""
    size = int(max(source.max(initial=0), target.max(initial=0))) + 1
    if size * size * num_kinds >= 2**63:
        raise UsageError(
            f"{size:,} entities with {num_kinds:,} relations are too many to be sampled: "
            "numbers of facts do not fit into 64 bits"
        )
    # One sorted number per fact is an order of magnitude faster than a sort by three columns.
    fact = np.sort((kind.astype(np.int64) * size + target) * size + source)
    fact = fact[np.diff(fact, prepend=-1) != 0]
    key, count = np.unique(fact // size, return_counts=True)
    relation, member = key // size, (key % size).astype(np.int32)
    starts = np.zeros(num_kinds + 1, np.int64)
    np.cumsum(np.bincount(relation, minlength=num_kinds), out=starts[1:])
    order = np.lexsort((member, -count, relation))
    count = count.astype(np.int32)
    return starts, member, count, member[order], count[order]
