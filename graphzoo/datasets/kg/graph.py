"""KnowledgeGraph: names, three splits of triples and a fingerprint, kept in one .npz file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import Content, StoredGraph, to_bytes, to_text
from graphzoo.datasets.files.cache import OTHER_NAMES
from graphzoo.errors import UsageError

SPLITS = ("train", "valid", "test")


def parts_of(tables: Mapping[Any, Any]) -> list[Any]:
    """Train, valid and test of a dict of triples; None for a missing valid or test.

    Raises:
        UsageError: if train is missing, or the dict has other keys.
    """
    meant = {other: split for split, others in OTHER_NAMES.items() for other in others}
    named = {meant.get(name, name): part for name, part in tables.items()}
    if "train" not in named or set(named) - set(SPLITS) or len(named) < len(tables):
        held = ", ".join(map(str, tables)) or "nothing"
        raise UsageError(f"a dict of triples needs train and may have valid and test, not {held}")
    return [named.get(split) for split in SPLITS]


@dataclass(frozen=True, eq=False)
class KnowledgeGraph(StoredGraph):
    """A knowledge graph as integers, with the names of its entities and relations.

    An id is a position in the sorted names, and triples are sorted within each split. So the graph does not
    depend on the order of lines in the files.

    Args:
        name: Name for logs and results.
        entities: Names of the N entities of all splits, sorted by code points.
        relations: Names of the R forward relations, sorted. An inductive graph has those of its training
            graph.
        train: Training triples (head, relation, tail), [n, 3], int64, distinct and sorted.
        valid: Validation triples, as `train`.
        test: Test triples, as `train`.
        entity_labels: Readable text of entities by name, if known.
        relation_labels: Readable text of relations by name, if known.
        split_name: "given", or how the split was drawn.
        fingerprint: sha256 of names and triples; computed if empty. `dataclasses.replace` keeps the old one:
            also give it `fingerprint=""`.
    """

    _what = "knowledge graph"

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

    def __repr__(self) -> str:
        sizes = "/".join(f"{self.split(name).size(0):,}" for name in SPLITS)
        return (
            f"KnowledgeGraph({self.name!r}, {self.num_entities:,} entities, {self.num_relations:,} "
            f"relations, {sizes} triples, {self.fingerprint[:12]})"
        )

    @property
    def num_entities(self) -> int:
        """N, including entities that occur only in valid or test."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """R, the number of forward relations."""
        return len(self.relations)

    def split(self, name: str) -> Tensor:
        """The triples of "train", "valid" or "test", [n, 3], int64.

        Raises:
            ValueError: if there is no such split.
        """
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}; the splits are {', '.join(SPLITS)}")
        triples: Tensor = getattr(self, name)
        return triples

    def known_triples(self) -> Tensor:
        """The triples of all splits, [n, 3], int64; a triple that is in two splits occurs twice."""
        return torch.cat([self.train, self.valid, self.test])

    def without(self, others: Iterable[KnowledgeGraph]) -> KnowledgeGraph:
        """The graph without all triples of other graphs; triples are compared by names. Entities stay."""
        entities, relations = _numbers(self.entities), _numbers(self.relations)
        keys = [torch.empty(0, dtype=torch.int64)]
        for other in others:
            named = _renumbered(other.known_triples(), other, entities, relations)
            keys.append(self._keys(named[(named >= 0).all(dim=1)]))
        taken = torch.cat(keys)
        own = self._keys(_renumbered(self.known_triples(), self, entities, relations))
        splits = [self.split(name) for name in SPLITS]
        kept = torch.split(~torch.isin(own, taken), [len(triples) for triples in splits])
        train, valid, test = (triples[rows] for triples, rows in zip(splits, kept, strict=True))
        return replace(self, train=train, valid=valid, test=test, fingerprint="")

    def _keys(self, triples: Tensor) -> Tensor:
        """One number per triple, [n]."""
        head, relation, tail = triples.unbind(1)
        return (head * self.num_relations + relation) * self.num_entities + tail

    def _parts(self) -> list[np.ndarray[Any, Any]]:
        names = [to_bytes("\n".join(names)) for names in (self.entities, self.relations)]
        return names + [self.split(name).cpu().numpy().astype("<i8", copy=False) for name in SPLITS]

    def _content(self) -> Content:
        meta = {
            "name": self.name,
            "split_name": self.split_name,
            "entity_labels": dict(self.entity_labels),
            "relation_labels": dict(self.relation_labels),
        }
        names = {"entities": self.entities, "relations": self.relations}
        arrays = {kind: to_bytes("\n".join(values)) for kind, values in names.items()}
        return meta, arrays | {split: self.split(split).cpu().numpy().astype(np.int32) for split in SPLITS}

    @classmethod
    def _from_content(cls, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        train, valid, test = (torch.from_numpy(arrays[split].astype(np.int64)) for split in SPLITS)
        return cls(
            meta["name"],
            _to_names(arrays["entities"]),
            _to_names(arrays["relations"]),
            train,
            valid,
            test,
            entity_labels=meta["entity_labels"],
            relation_labels=meta["relation_labels"],
            split_name=meta["split_name"],
        )


def _alike(name: str) -> str:
    """The name with `_` for `:`.

    NELL-995 has `concept_city_paris`, its inductive sets have `concept:city:paris`.
    """
    return name.replace(":", "_")


def _numbers(names: tuple[str, ...]) -> dict[str, int]:
    return {_alike(name): number for number, name in enumerate(names)}


def _renumbered(
    triples: Tensor, graph: KnowledgeGraph, entities: Mapping[str, int], relations: Mapping[str, int]
) -> Tensor:
    """Triples of a graph with the given numbers of its names (see `_alike`); -1 if a name has no number."""
    entity = torch.tensor([entities.get(_alike(name), -1) for name in graph.entities])
    relation = torch.tensor([relations.get(_alike(name), -1) for name in graph.relations])
    head, kind, tail = triples.unbind(1)
    return torch.stack([entity[head], relation[kind], entity[tail]], dim=1)


def _to_names(codes: np.ndarray[Any, Any]) -> tuple[str, ...]:
    return tuple(to_text(codes).split("\n")) if codes.size else ()
