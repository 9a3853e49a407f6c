"""KnowledgeGraph: names, three splits of triples and a fingerprint, kept in one .npz file."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.errors import DataError
from graphzoo.datasets.files import write_atomically

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
            "meta": _to_bytes(json.dumps(meta, ensure_ascii=False)),
            "entities": _to_bytes("\n".join(self.entities)),
            "relations": _to_bytes("\n".join(self.relations)),
        }
        for split in SPLITS:
            arrays[split] = self.split(split).cpu().numpy().astype(np.int32)

        def write(file: BinaryIO) -> None:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes **kwds for allow_pickle

        write_atomically(Path(path), write)

    @classmethod
    def load(cls, path: str | Path) -> KnowledgeGraph:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        path = Path(path)
        try:
            # opened here: numpy leaves a damaged file open
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
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
                train=torch.from_numpy(arrays["train"].astype(np.int64)),
                valid=torch.from_numpy(arrays["valid"].astype(np.int64)),
                test=torch.from_numpy(arrays["test"].astype(np.int64)),
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
        except (
            OSError,
            EOFError,
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            zipfile.BadZipFile,
        ) as error:
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


def _to_bytes(text: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _to_text(codes: np.ndarray[Any, Any]) -> str:
    return codes.tobytes().decode()


def _to_names(codes: np.ndarray[Any, Any]) -> tuple[str, ...]:
    return tuple(_to_text(codes).split("\n")) if codes.size else ()
