"""Build a KnowledgeGraph from string triples: number the names, and count duplicates and overlaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.cache import find_split
from graphzoo.datasets.files.tables import clean, read_bytes
from graphzoo.datasets.files.text import lookalikes, warn
from graphzoo.datasets.kg.graph import KnowledgeGraph
from graphzoo.datasets.kg.triples import Columns, triples_from_table
from graphzoo.errors import DataError, suggestion
from graphzoo.system.units import counted

_LABELS = {"entity": ("entity_names", "entity2text"), "relation": ("relation2text",)}
_Ids = np.ndarray[Any, np.dtype[np.int64]]


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
        valid: Validation triples; None for no validation triples.
        test: Test triples; None for no test triples.
        name: Name for logs and results.
        relations: Relation names in the order of their ids, such as those of the training graph; None takes
            the sorted ones of `train`.
        entity_labels: Readable text of entities, by name.
        relation_labels: Readable text of relations, by name.

    Returns:
        The graph. A `GraphzooDataWarning` counts duplicates, overlaps of splits, and entities that do not
        occur in `train`.

    Raises:
        DataError: if `train` is empty, a row is malformed, or a relation has no id.

    >>> graph = from_triples([("a", "r", "b"), ("b", "r", "c")])
    >>> graph.entities, graph.relations, graph.train.tolist()
    (('a', 'b', 'c'), ('r',), [[0, 0, 1], [1, 0, 2]])
    """
    columns = {"train": triples_from_table(train, "train")}
    for split, table in (("valid", valid), ("test", test)):
        columns[split] = Columns.empty(split) if table is None else triples_from_table(table, split)
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
    """Number the names; return the graph, and notices for warnings (see `from_triples`)."""
    train = columns["train"]
    if not len(train):
        raise DataError(f"{train.source}: no training triples")
    vocabulary = tuple(sorted(train.relation.names)) if relations is None else relations
    names = [column.names for part in columns.values() for column in (part.head, part.tail)]
    entities = tuple(sorted(set().union(*names)))
    relation_ids = {relation: number for number, relation in enumerate(vocabulary)}
    entity_ids = {entity: number for number, entity in enumerate(entities)}

    notices = [notice for part in columns.values() for notice in part.notices]
    notices += [*lookalikes(entities, "entities"), *lookalikes(vocabulary, "relations")]
    both = len(entity_ids.keys() & relation_ids.keys())
    if both >= 10 and 2 * both > len(vocabulary):
        notices.append(
            f"{both:,} of {len(vocabulary):,} relations are also entities: "
            "the columns must be head, relation, tail, in this order"
        )
    encoded: dict[str, Tensor] = {}
    lines: dict[str, _Ids] = {}
    keys: dict[str, _Ids] = {}
    for split, part in columns.items():
        _check_relations(part, relation_ids, entity_ids, split, given=relations is not None)
        ids = part.renumber(entity_ids, relation_ids)
        part_keys = triple_keys(ids, len(entities), len(vocabulary))
        order = np.argsort(part_keys, kind="stable")
        keys[split] = part_keys[order]
        # The sort is stable, so that the first of equal triples is the first in the file.
        is_new = np.diff(keys[split], prepend=-1) != 0
        keys[split] = keys[split][is_new]
        repeated = order[~is_new]
        if repeated.size:
            first = part.where(int(repeated.min()))
            count = counted(repeated.size, "duplicate triple")
            notices.append(f"{count} in {split} dropped (first: {first})")
        lines[split] = order[is_new]
        encoded[split] = torch.from_numpy(ids[lines[split]])
    notices += _overlaps(columns, keys, lines)
    notices += _unseen(columns, encoded, entities, lines)
    graph = KnowledgeGraph(
        name, entities, vocabulary, encoded["train"], encoded["valid"], encoded["test"], split_name=split_name
    )
    return graph, notices


def label_files(folder: Path) -> dict[str, Path]:
    """The files beside the triples that have readable texts of entities and relations."""
    present = {
        kind: [path for stem in stems if (path := find_split(folder, stem, (".txt", ".txt.gz"))) is not None]
        for kind, stems in _LABELS.items()
    }
    return {kind: paths[0] for kind, paths in present.items() if paths}


def with_labels(graph: KnowledgeGraph, files: Mapping[str, Path]) -> tuple[KnowledgeGraph, list[str]]:
    """The graph with the texts of `label_files`, lines `name<TAB>text`, and notices about unused lines."""
    labels: dict[str, dict[str, str]] = {"entity": {}, "relation": {}}
    names = {"entity": graph.entities, "relation": graph.relations}
    notices = []
    for kind, path in files.items():
        of_kind, wrong, again = labels[kind], list[int](), list[int]()
        lines = clean(read_bytes(path), str(path)).decode().split("\n")
        for number, line in enumerate(lines, start=1):
            name, tab, text = line.partition("\t")
            if not tab:
                wrong += [number] if line.strip() else []
            elif of_kind.setdefault(name, text.strip()) != text.strip():
                again.append(number)
        for numbers, what in (
            (wrong, "without a tab between name and text, skipped"),
            (again, "with a second text of a name, skipped: the first text counts"),
        ):
            if numbers:
                notices.append(f"{path}: {counted(len(numbers), 'line')} {what} (first: line {numbers[0]})")
        # A file may serve larger graphs, too, so a few names are enough.
        if of_kind and of_kind.keys().isdisjoint(names[kind]):
            notices.append(
                f"{path}: none of its names is a known {kind} (first: {next(iter(of_kind))!r}, the graph has "
                f"{names[kind][0]!r}); the name must come before the text"
            )
    labelled = replace(graph, entity_labels=labels["entity"], relation_labels=labels["relation"])
    return labelled, notices


def triple_keys(ids: _Ids, num_entities: int, num_relations: int) -> _Ids:
    """One number per triple, [n], int64; the numbers sort like (head, relation, tail)."""
    if num_entities * num_entities * 2 * max(num_relations, 1) >= 2**63:
        raise DataError(
            f"{num_entities:,} entities with {num_relations:,} relations are too many: indices of queries "
            "and answers do not fit into 64 bits"
        )
    keys: _Ids = (ids[:, 0] * num_relations + ids[:, 1]) * num_entities + ids[:, 2]
    return keys


def _check_relations(
    part: Columns, known: Mapping[str, int], entities: Mapping[str, int], split: str, *, given: bool
) -> None:
    unknown = set(part.relation.names).difference(known)
    if not unknown:
        return
    position = part.relation.first(unknown)
    relation = part.relation[position]
    more = f" ({len(unknown)} such relations)" if len(unknown) > 1 else ""
    where = "in the training graph" if given else "in train"
    remedy = suggestion(relation, known)
    if not remedy and relation in entities:
        remedy = "It is an entity: the columns must be head, relation, tail, or have these names in line 1."
    remedy = remedy or f"Correct the name, or drop the {split} triples that use it."
    raise DataError(f"{part.where(position)}: relation {relation!r} does not occur {where}{more}. {remedy}")


def _overlaps(
    columns: Mapping[str, Columns], keys: Mapping[str, _Ids], lines: Mapping[str, _Ids]
) -> list[str]:
    notices = []
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = np.flatnonzero(np.isin(keys[other], keys[one], assume_unique=True))
        if shared.size:
            where = columns[other].where(int(lines[other][shared].min()))
            notices.append(
                f"{counted(shared.size, f'{other} triple')} also in {one}, kept: scores on {other} are "
                f"optimistic (first: {where})"
            )
    return notices


def _unseen(
    columns: Mapping[str, Columns],
    encoded: Mapping[str, Tensor],
    entities: tuple[str, ...],
    lines: Mapping[str, _Ids],
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
            head_is_new = not in_train[ends[rows[lines[split][rows].argmin()], 0]]
            name = part.head[position] if head_is_new else part.tail[position]
            count = np.unique(ends[~in_train[ends]]).size
            notices.append(
                f"{counted(count, 'entity', 'entities')} of {split} without a training triple, kept as "
                f"isolated: {counted(rows.size, 'triple')} (first: {part.where(position)}, {name!r})"
            )
    return notices
