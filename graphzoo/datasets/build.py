"""From string triples to a KnowledgeGraph: ids, and a count of everything odd."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.errors import DataError, GraphzooDataWarning
from graphzoo.datasets.kg import KnowledgeGraph
from graphzoo.datasets.triples import Columns, triples_from_table
from graphzoo.errors import suggestion

__all__ = ["build", "from_triples", "warn"]


def from_triples(
    train: Any,
    valid: Any = None,
    test: Any = None,
    *,
    name: str = "kg",
    relations: tuple[str, ...] | None = None,
    entity_labels: Mapping[str, str] | None = None,
    relation_labels: Mapping[str, str] | None = None,
) -> KnowledgeGraph:
    """A knowledge graph from tables of string triples.

    Args:
        train: DataFrame (columns head, relation, tail), array [n, 3] or sequence of (head, relation, tail).
        valid: Validation triples, or None for none.
        test: Test triples, or None for none.
        name: Name for logs and results.
        relations: Relation names with fixed ids, e.g. those of the training graph; None takes those of
            `train`.
        entity_labels: Readable text of entities.
        relation_labels: Readable text of relations.

    Returns:
        The graph; duplicates, overlaps and entities unseen in `train` are counted in a `GraphzooDataWarning`.

    Raises:
        DataError: malformed rows, or a relation that has no id.

    >>> graph = from_triples([("a", "r", "b"), ("b", "r", "c")])
    >>> graph.entities, graph.relations, graph.train.tolist()
    (('a', 'b', 'c'), ('r',), [[0, 0, 1], [1, 0, 2]])
    """
    columns = {"train": triples_from_table(train, "train")}
    for split, table in (("valid", valid), ("test", test)):
        columns[split] = Columns([], [], [], split) if table is None else triples_from_table(table, split)
    graph, notices = build(columns, name, relations=relations)
    for notice in notices:
        warn(notice)
    return replace(
        graph, entity_labels=dict(entity_labels or {}), relation_labels=dict(relation_labels or {})
    )


def build(
    columns: Mapping[str, Columns],
    name: str,
    *,
    relations: tuple[str, ...] | None = None,
    split_name: str = "given",
) -> tuple[KnowledgeGraph, list[str]]:
    """Names to ids. Returns the graph and one line per oddity that was counted (see `from_triples`)."""
    train = columns["train"]
    if not len(train):
        raise DataError(f"{train.source}: no training triples")
    vocabulary = tuple(sorted(set(train.relation))) if relations is None else relations
    seen = set().union(*(part.head for part in columns.values()), *(part.tail for part in columns.values()))
    entities = tuple(sorted(seen))
    relation_ids = dict(zip(vocabulary, range(len(vocabulary)), strict=True))
    entity_ids = dict(zip(entities, range(len(entities)), strict=True))

    notices: list[str] = []
    encoded: dict[str, Tensor] = {}
    lines: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
    for split, part in columns.items():
        _check_relations(part, relation_ids, split, given=relations is not None)
        ids = np.empty((len(part), 3), dtype=np.int64)
        for column, (values, table) in enumerate(
            ((part.head, entity_ids), (part.relation, relation_ids), (part.tail, entity_ids))
        ):
            ids[:, column] = np.fromiter(map(table.__getitem__, values), dtype=np.int64, count=len(values))
        order, is_new = _sort(ids)
        repeated = order[~is_new]
        if repeated.size:
            first = part.where(int(repeated.min()))
            notices.append(f"{_times(repeated.size, 'duplicate triple')} in {split} dropped (first: {first})")
        lines[split] = order[is_new]
        encoded[split] = torch.from_numpy(ids[lines[split]])
    notices += _overlaps(columns, encoded, lines)
    notices += _unseen(columns, encoded, entities, lines)
    graph = KnowledgeGraph(
        name, entities, vocabulary, encoded["train"], encoded["valid"], encoded["test"], split_name=split_name
    )
    return graph, notices


def warn(notice: str, *, stacklevel: int = 2) -> None:
    """One line as a `GraphzooDataWarning`."""
    warnings.warn(notice, GraphzooDataWarning, stacklevel=stacklevel + 1)


def _sort(ids: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Stable order by (head, relation, tail), and where in it a triple occurs for the first time."""
    order = np.lexsort((ids[:, 2], ids[:, 1], ids[:, 0]))
    rows = ids[order]
    is_new = np.ones(len(ids), dtype=bool)
    is_new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return order, is_new


def _check_relations(part: Columns, known: Mapping[str, int], split: str, *, given: bool) -> None:
    unknown = set(part.relation).difference(known)
    if not unknown:
        return
    position = next(i for i, relation in enumerate(part.relation) if relation in unknown)
    relation = part.relation[position]
    more = f" ({len(unknown)} such relations)" if len(unknown) > 1 else ""
    where = "in the training graph" if given else "in train"
    remedy = suggestion(relation, known) or f"Correct the name or drop the {split} triples that use it."
    raise DataError(f"{part.where(position)}: relation {relation!r} does not occur {where}{more}. {remedy}")


def _overlaps(
    columns: Mapping[str, Columns], encoded: Mapping[str, Tensor], lines: Mapping[str, Any]
) -> list[str]:
    notices = []
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        first, second = encoded[one], encoded[other]
        if not first.numel() or not second.numel():
            continue
        both = np.concatenate([first.numpy(), second.numpy()])
        order, is_new = _sort(both)
        # the sort is stable, so the repetition of a triple is the one of the second split
        shared = order[~is_new] - first.size(0)
        if shared.size:
            where = columns[other].where(int(lines[other][shared].min()))
            notices.append(
                f"{_times(shared.size, f'{other} triple')} also in {one}, kept: scores on {other} are "
                f"optimistic (first: {where})"
            )
    return notices


def _unseen(
    columns: Mapping[str, Columns],
    encoded: Mapping[str, Tensor],
    entities: tuple[str, ...],
    lines: Mapping[str, Any],
) -> list[str]:
    in_train = np.zeros(len(entities), dtype=bool)
    in_train[encoded["train"][:, [0, 2]].numpy().ravel()] = True
    notices = []
    for split in ("valid", "test"):
        ends = encoded[split][:, [0, 2]].numpy()
        rows = np.flatnonzero(~in_train[ends].all(axis=1))
        if rows.size:
            position = int(lines[split][rows].min())
            part = columns[split]
            name = next(
                value
                for value in (part.head[position], part.tail[position])
                if not in_train[int(np.searchsorted(np.array(entities, dtype=object), value))]
            )
            count = np.unique(ends[~in_train[ends]]).size
            notices.append(
                f"{_times(count, 'entity', 'entities')} of {split} without a training triple, kept as "
                f"isolated: {_times(rows.size, 'triple')} (first: {part.where(position)}, {name!r})"
            )
    return notices


def _times(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
