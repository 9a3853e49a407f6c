"""KnowledgeGraph: names, three splits of triples and a fingerprint, kept in one .npz file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import (
    check_fingerprint,
    reading_arrays,
    to_bytes,
    to_text,
    write_arrays,
)

__all__ = ["SPLITS", "KnowledgeGraph"]

SPLITS = ("train", "valid", "test")
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """A knowledge graph as integers, with the names they stand for.

    Ids are positions in the sorted names, and triples are sorted inside each split, so that the line order of
    the files changes nothing.

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
            f"KnowledgeGraph({self.name!r}, {self.num_entities:,} entities, {self.num_relations:,} "
            f"relations, {sizes} triples, {self.fingerprint[:12]})"
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
        meta = {
            "format": _FORMAT,
            "name": self.name,
            "split_name": self.split_name,
            "fingerprint": self.fingerprint,
            "entity_labels": dict(self.entity_labels),
            "relation_labels": dict(self.relation_labels),
        }
        arrays = {
            "entities": to_bytes("\n".join(self.entities)),
            "relations": to_bytes("\n".join(self.relations)),
        }
        for split in SPLITS:
            arrays[split] = self.split(split).cpu().numpy().astype(np.int32)
        write_arrays(Path(path), meta, arrays)

    @classmethod
    def load(cls, path: str | Path) -> KnowledgeGraph:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        path = Path(path)
        with reading_arrays(path, _FORMAT, what="knowledge graph", written_by="KnowledgeGraph.save") as (
            meta,
            arrays,
        ):
            graph = cls(
                name=meta["name"],
                entities=_to_names(arrays["entities"]),
                relations=_to_names(arrays["relations"]),
                train=torch.from_numpy(arrays["train"].astype(np.int64)),
                valid=torch.from_numpy(arrays["valid"].astype(np.int64)),
                test=torch.from_numpy(arrays["test"].astype(np.int64)),
                entity_labels=meta["entity_labels"],
                relation_labels=meta["relation_labels"],
                split_name=meta["split_name"],
            )
            check_fingerprint(path, graph.fingerprint, meta["fingerprint"])
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


def _to_names(codes: np.ndarray[Any, Any]) -> tuple[str, ...]:
    return tuple(to_text(codes).split("\n")) if codes.size else ()
