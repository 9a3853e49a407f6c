"""KnowledgeGraph: names, three splits of triples, and a fingerprint; built from string triples, kept in one .npz."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.errors import DataError, GraphzooDataWarning
from graphzoo.datasets.triples import Columns, triples_from_table
from graphzoo.errors import suggestion

__all__ = ["SPLITS", "KnowledgeGraph", "build", "from_triples", "warn"]

SPLITS = ("train", "valid", "test")
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """A knowledge graph as integers, with the names they stand for.

    Ids are positions in the sorted names, and triples are sorted inside each split, so that the line order of the
    files changes nothing.

    Args:
        name: Name for logs and results.
        entities: Names of the N entities, sorted (code points); the union over all splits.
        relations: Names of the R forward relations, sorted (those of the training graph for an `_ind` graph).
        train: Training triples (head, relation, tail), [n, 3], int64, distinct and sorted.
        valid: Validation triples, as `train`.
        test: Test triples, as `train`.
        entity_labels: Readable text of entities, where known.
        relation_labels: Readable text of relations, where known.
        split_name: "given", or how the split was drawn.
        fingerprint: sha256 of names and triples; computed when left out.
    """

    name: str
    entities: tuple[str, ...]
    relations: tuple[str, ...]
    train: Tensor
    valid: Tensor
    test: Tensor
    entity_labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    relation_labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    split_name: str = "given"
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self._compute_fingerprint())

    def __repr__(self) -> str:
        sizes = "/".join(f"{self.split(name).size(0):,}" for name in SPLITS)
        return (
            f"KnowledgeGraph({self.name!r}, {self.num_entities:,} entities, {self.num_relations:,} relations, "
            f"{sizes} triples, {self.fingerprint[:12]})"
        )

    @property
    def num_entities(self) -> int:
        """N, entities that occur only in valid or test included."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """R, forward relations."""
        return len(self.relations)

    def split(self, name: str) -> Tensor:
        """The triples of a split, [n, 3].

        Raises:
            ValueError: if the name is not train, valid or test.
        """
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}; the splits are {', '.join(SPLITS)}")
        triples: Tensor = getattr(self, name)
        return triples

    def known_triples(self) -> Tensor:
        """All triples of all splits, [n, 3]; a triple of two splits occurs twice."""
        return torch.cat([self.train, self.valid, self.test])

    def save(self, path: str | Path) -> None:
        """Write everything into one .npz file without pickle, replacing it at once."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = {
            "format": _FORMAT,
            "name": self.name,
            "split_name": self.split_name,
            "fingerprint": self.fingerprint,
            "entity_labels": dict(self.entity_labels),
            "relation_labels": dict(self.relation_labels),
        }
        arrays = {
            "meta": _to_bytes(json.dumps(meta, ensure_ascii=False)),
            "entities": _to_bytes("\n".join(self.entities)),
            "relations": _to_bytes("\n".join(self.relations)),
        }
        for split in SPLITS:
            arrays[split] = self.split(split).cpu().numpy().astype(np.int32)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes **kwds for allow_pickle
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with partial.open("wb") as file:
                file.write(buffer.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> KnowledgeGraph:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        path = Path(path)
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(_to_text(arrays["meta"]))
            if meta["format"] != _FORMAT:
                raise DataError(
                    f"{path}: format {meta['format']!r}, this version reads {_FORMAT}; write it again"
                )
            graph = cls(
                name=meta["name"],
                entities=_to_names(arrays["entities"]),
                relations=_to_names(arrays["relations"]),
                **{split: torch.from_numpy(arrays[split].astype(np.int64)) for split in SPLITS},
                entity_labels=meta["entity_labels"],
                relation_labels=meta["relation_labels"],
                split_name=meta["split_name"],
            )
        except FileNotFoundError as error:
            raise DataError(
                f"{path}: no such file; it is written by `save_artifacts` or `KnowledgeGraph.save`"
            ) from error
        except DataError:
            raise
        except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{path}: not a readable knowledge graph file ({error}); write it again"
            ) from error
        if graph.fingerprint != meta["fingerprint"]:
            raise DataError(
                f"{path}: content does not match its fingerprint; the file was changed, write it again"
            )
        return graph

    def _compute_fingerprint(self) -> str:
        digest = hashlib.sha256()
        parts = ["\n".join(self.entities).encode(), "\n".join(self.relations).encode()]
        parts += [
            np.ascontiguousarray(self.split(name).cpu().numpy(), dtype="<i8").tobytes() for name in SPLITS
        ]
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


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
        relations: Relation names with fixed ids, e.g. those of the training graph; None takes those of `train`.
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
        warn(notice, stacklevel=3)
    labels = {"entity_labels": dict(entity_labels or {}), "relation_labels": dict(relation_labels or {})}
    return KnowledgeGraph(**{**vars(graph), **labels})


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
    graph = KnowledgeGraph(name, entities, vocabulary, **encoded, split_name=split_name)
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
                f"{_times(shared.size, f'{other} triple')} also in {one}, kept: scores on {other} are optimistic "
                f"(first: {where})"
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
                f"{_times(count, 'entity', 'entities')} of {split} without a training triple, kept as isolated: "
                f"{_times(rows.size, 'triple')} (first: {part.where(position)}, {name!r})"
            )
    return notices


def _times(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _to_bytes(text: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _to_text(codes: np.ndarray[Any, Any]) -> str:
    return codes.tobytes().decode()


def _to_names(codes: np.ndarray[Any, Any]) -> tuple[str, ...]:
    return tuple(_to_text(codes).split("\n")) if codes.size else ()
