"""Find pairs of inverse relations: with them, a test fact may follow from a training fact."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.datasets.kg.graph import KnowledgeGraph

_SHARE = 0.8  # least share of facts, of both relations, that have an inverse fact
_LEAST = 10  # least number of such facts
_MOST = 8  # inverse facts that are looked at per fact
_Ids = np.ndarray[Any, np.dtype[np.int64]]


def inverse_relations(graph: KnowledgeGraph) -> list[str]:
    """A notice if, for two relations r and s, most training facts (h, r, t) have an inverse (t, s, h)."""
    head, relation, tail = graph.train.T.numpy()
    size = graph.num_relations
    fact, other_way = _turned_round(head, tail, graph.num_entities)
    pairs = relation[fact] * size + relation[other_way]
    found, shared = np.unique(pairs, return_counts=True)
    facts = np.bincount(relation)
    share = shared / np.maximum(facts[found // size], facts[found % size])
    inverse = np.flatnonzero((found // size < found % size) & (shared >= _LEAST) & (share >= _SHARE))
    if not inverse.size:
        return []
    best = inverse[share[inverse].argmax()]
    one, other = (graph.relations[int(number)] for number in divmod(int(found[best]), size))
    more = f"; {inverse.size:,} such pairs" if inverse.size > 1 else ""
    return [
        f"relations {one!r} and {other!r} are inverse to each other in {100 * share[best]:.0f} % of their "
        f"facts{more}: test facts can be read off training facts; keep one of the two"
    ]


def _turned_round(head: _Ids, tail: _Ids, num_entities: int) -> tuple[_Ids, _Ids]:
    """Pairs of facts (h, r, t) and (t, s, h), as two lists of row numbers; at most `_MOST` pairs per fact."""
    turned = tail * num_entities + head
    order = np.argsort(turned, kind="stable")
    wanted, keys = head * num_entities + tail, turned[order]
    begin = np.searchsorted(keys, wanted)
    count = np.minimum(np.searchsorted(keys, wanted, side="right") - begin, _MOST)
    fact = np.repeat(np.arange(count.size), count)
    place = np.arange(fact.size) - np.repeat(np.cumsum(count) - count, count)
    return fact, order[begin[fact] + place]
