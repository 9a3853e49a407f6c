"""Leaves the triples of data sets that a model must not see out of a knowledge graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from graphzoo.datasets.kg.graph import KnowledgeGraph
from graphzoo.datasets.kg.load import load_knowledge_graph
from graphzoo.datasets.kg.table import find_source, list_knowledge_graphs
from graphzoo.errors import UsageError

_log = logging.getLogger(__name__)


def names_to_leave_out(names: str) -> list[str]:
    """Names of data sets, separated by commas; "inductive" means all inductive pairs.

    >>> names_to_leave_out("umls, wn18rr-v1")
    ['umls', 'wn18rr-v1']
    """
    chosen = [part.strip() for part in names.split(",") if part.strip()]
    pairs = [name for name in list_knowledge_graphs() if find_source(name).inductive is not None]
    return [find_source(name).name for part in chosen for name in (pairs if part == "inductive" else [part])]


def without_triples_of(
    graph: KnowledgeGraph,
    names: Sequence[str],
    validated: KnowledgeGraph | None,
    *,
    root: str | None,
    download: bool | None,
) -> KnowledgeGraph:
    """The graph without the triples of the named data sets, of a pair those of the graph that is tested on.

    Args:
        graph: The graph that is trained on.
        names: Data sets to leave out.
        validated: A second graph, if its validation triples are used.
        root: See `load_knowledge_graph`, like `download`.
        download: Whether missing files may be fetched.

    Raises:
        UsageError: if nothing is left to train on, or a data set is also `validated`.
    """
    unseen = []
    for name in names:
        first, second = load_knowledge_graph(name, root=root, download=download)
        unseen.append(second or first)
        if validated is not None and unseen[-1].fingerprint == validated.fingerprint:
            raise UsageError(
                f"validate_on inference validates on {unseen[-1].name}, which --data.leave_out {name} "
                "leaves out\nDrop one of the two"
            )
    kept = graph.without(unseen)
    if not len(kept.train):
        raise UsageError(f"{kept.name} has no training triples left without {', '.join(names)}")
    num_left_out = len(graph.train) - len(kept.train)
    _log.info("%s: %d of %d training triples left out", kept.name, num_left_out, len(graph.train))
    return kept
