"""Relations that turn one another round: a test fact could be read off a training fact."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.datasets.kg.graph import KnowledgeGraph

_SHARE, _LEAST = 0.8, 10  # of the facts of both that have a counterpart; how many facts are enough to tell
_Ids = np.ndarray[Any, np.dtype[np.int64]]
_MOST = 8  # counterparts of one fact that are looked at


def inverse_relations(graph: KnowledgeGraph) -> list[str]:
    """One line if (h, r, t) mostly comes with (t, s, h) in training, for two relations r and s."""
    head, relation, tail = graph.train.T.numpy()
    size = graph.num_relations
    fact, other_way = _turned_round(head, tail, graph.num_entities)
    pairs = relation[fact] * size + relation[other_way]
    found, shared = np.unique(pairs, return_counts=True)
    facts = np.bincount(relation, minlength=size)
    share = shared / np.maximum(facts[found // size], facts[found % size])
    inverse = np.flatnonzero((found // size < found % size) & (shared >= _LEAST) & (share >= _SHARE))
    if not inverse.size:
        return []
    best = inverse[share[inverse].argmax()]
    one, other = (graph.relations[int(number)] for number in divmod(int(found[best]), size))
    more = f"; {inverse.size:,} such pairs" if inverse.size > 1 else ""
    return [
        f"relations {one!r} and {other!r} turn each other round in {100 * share[best]:.0f} % of their facts"
        f"{more}: test facts can be read off training facts; keep one of the two"
    ]


def _turned_round(head: _Ids, tail: _Ids, num_entities: int) -> tuple[_Ids, _Ids]:
    """Numbers of facts, and of facts between the same two entities the other way; at most `_MOST` of each."""
    turned = tail * num_entities + head
    order = np.argsort(turned, kind="stable")
    wanted, keys = head * num_entities + tail, turned[order]
    begin = np.searchsorted(keys, wanted)
    count = np.minimum(np.searchsorted(keys, wanted, side="right") - begin, _MOST)
    fact = np.repeat(np.arange(count.size), count)
    place = np.arange(fact.size) - np.repeat(np.cumsum(count) - count, count)
    return fact, order[begin[fact] + place]
