"""Find relations that repeat facts of others, or their own: a test fact may follow from a training fact."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.datasets.kg.graph import KnowledgeGraph

_SHARE = 0.8  # least share of facts, of both relations, that are repeated
_LEAST = 10  # least number of such facts
_MOST = 32  # facts that are looked at per fact, or the cost of a pair of entities would be quadratic
_Ids = np.ndarray[Any, np.dtype[np.int64]]


def repeated_relations(graph: KnowledgeGraph) -> list[str]:
    """A notice for each kind of repetition that holds for most training facts of a relation.

    Relations r and s are inverse if most facts (h, r, t) have an inverse (t, s, h), r is symmetric if most
    have one (t, r, h), and r and s are equal if most pairs (h, t) have both.
    """
    head, relation, tail = graph.train.T.numpy()
    size = graph.num_relations
    ahead, behind = head * graph.num_entities + tail, tail * graph.num_entities + head
    facts = np.bincount(relation, minlength=size)

    def share(fact: _Ids, other: _Ids) -> tuple[_Ids, _Ids, np.ndarray[Any, np.dtype[np.float64]]]:
        """Pairs of relations r <= s, most of whose facts are pairs of `fact` and `other`, by their share."""
        pairs, shared = np.unique(relation[fact] * size + relation[other], return_counts=True)
        one, two = np.divmod(pairs, size)
        of_both = shared / np.maximum(facts[one], facts[two])
        found = np.flatnonzero((one <= two) & (shared >= _LEAST) & (of_both >= _SHARE))
        found = found[np.argsort(-of_both[found], kind="stable")]
        return one[found], two[found], of_both[found]

    fact, turned = _matches(ahead, behind)
    one, two, of_both = share(fact[fact != turned], turned[fact != turned])  # a loop is its own inverse
    is_own = one == two
    notices = []
    if (~is_own).any():
        names = _names(graph, one[~is_own], two[~is_own])
        percent = 100 * of_both[~is_own][0]
        notices.append(
            f"relations {names} are inverse to each other in {percent:.0f} % of their facts"
            f"{_more(~is_own, 'such pairs')}: test facts can be read off training facts; keep one of the two"
        )
    if is_own.any():
        notices.append(
            f"relation {graph.relations[one[is_own][0]]!r} holds in both directions in "
            f"{100 * of_both[is_own][0]:.0f} % of its facts{_more(is_own, 'such relations')}: "
            "test facts can be read off training facts; keep one direction of each"
        )
    fact, same = _matches(ahead, ahead)
    one, two, of_both = share(fact[fact != same], same[fact != same])
    if one.size:
        notices.append(
            f"relations {_names(graph, one, two)} hold for the same pairs in {100 * of_both[0]:.0f} % of "
            f"their facts{_more(one >= 0, 'such pairs')}: test facts can be read off training facts; "
            "keep one of the two"
        )
    return notices


def _names(graph: KnowledgeGraph, one: _Ids, two: _Ids) -> str:
    return f"{graph.relations[int(one[0])]!r} and {graph.relations[int(two[0])]!r}"


def _more(found: np.ndarray[Any, np.dtype[np.bool_]], what: str) -> str:
    count = np.count_nonzero(found)
    return f"; {count:,} {what}" if count > 1 else ""


def _matches(wanted: _Ids, keys: _Ids) -> tuple[_Ids, _Ids]:
    """Pairs of rows i and j with wanted[i] = keys[j], as two lists; at most `_MOST` for each i."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begin = np.searchsorted(keys, wanted)
    count = np.minimum(np.searchsorted(keys, wanted, side="right") - begin, _MOST)
    row = np.repeat(np.arange(count.size), count)
    place = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    return row, order[begin[row] + place]
