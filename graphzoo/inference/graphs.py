"""The graph that a model reasons over at prediction time, and where it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphzoo.datasets import AnswerIndex, KnowledgeGraph, load_knowledge_graph, read_triples
from graphzoo.datasets.files.cache import OTHER_NAMES, find_split
from graphzoo.datasets.files.text import listing, warn
from graphzoo.datasets.kg.build import build, from_triples, label_files, with_labels
from graphzoo.datasets.kg.graph import SPLITS, parts_of
from graphzoo.datasets.kg.triples import Columns, heed_first_lines
from graphzoo.errors import UsageError
from graphzoo.inference.names import Vocabulary
from graphzoo.inference.sources import Paths, from_source
from graphzoo.ops import RelationalGraph
from graphzoo.system.units import counted

if TYPE_CHECKING:
    from graphzoo.tasks import KGCompletion

GraphSource = KnowledgeGraph | Paths | pd.DataFrame | Tensor | Sequence[Sequence[str]] | Mapping[str, Any]
"""A graph, a folder with train.txt (valid, test), one to three files, the name of a data set, or triples,
also as a dict of train, valid and test."""


def stored_graph(run: Path) -> KnowledgeGraph:
    """The graph kept in a run directory: the second one of an inductive pair, else the one trained on."""
    second = run / "graph" / "inference_graph.npz"
    return KnowledgeGraph.load(second if second.is_file() else run / "graph" / "knowledge_graph.npz")


def load_graph(source: GraphSource, relations: tuple[str, ...] | None) -> KnowledgeGraph:
    """The graph of a source, its relations numbered as the model was trained with; None: as they come.

    The first of several files holds the facts that are passed along; a split is never drawn from them.

    Raises:
        UsageError: if there is nothing there, or a relation that the model does not know.
        DataError: if a file is malformed or names a relation that the model does not know, with its line.
    """
    if isinstance(source, KnowledgeGraph):
        return _renumber(source, relations)
    if isinstance(source, Mapping):
        return from_triples(*parts_of(source), relations=relations)
    if _are_triples(source):
        return from_triples(source, relations=relations)
    paths = cast(Paths, source)
    return _renumber(from_source(paths, _by_name, lambda paths: _from_files(paths, relations)), relations)


def _are_triples(source: Any) -> bool:
    """Whether it is a table or a sequence of triples, not of paths."""
    if isinstance(source, pd.DataFrame | np.ndarray | Tensor):
        return True
    if isinstance(source, str | PathLike) or not isinstance(source, Sequence) or not source:
        return False
    return not isinstance(source[0], str | PathLike)


def _from_files(paths: Sequence[str | PathLike[str]], relations: tuple[str, ...] | None) -> KnowledgeGraph:
    if not 1 <= len(paths) <= 3:
        raise UsageError(
            f"a graph is a folder or one to three files (train, valid, test), got {len(paths)} paths"
        )
    files = dict(zip(SPLITS, map(Path, paths), strict=False))
    if missing := [str(path) for path in files.values() if not path.exists()]:
        raise UsageError(f"{missing[0]}: no such file")
    folder = files["train"]
    if folder.is_dir():
        if len(paths) > 1:
            raise UsageError(f"{folder}: a graph is one folder, or one to three files (train, valid, test)")
        present = {split: find_split(folder, split) for split in SPLITS}
        files = {split: path for split, path in present.items() if path is not None}
        if "train" not in files:
            raise UsageError(
                f"{folder}: no train.txt, train.tsv or train.csv (.gz allowed); the folder has "
                f"{listing(folder)}"
            )
    if len(files) == 1 and folder.suffix == ".npz":
        return KnowledgeGraph.load(folder)
    columns, first = heed_first_lines({split: read_triples(path) for split, path in files.items()})
    columns = {split: columns.get(split, Columns.empty(split)) for split in SPLITS}
    graph, notices = build(columns, folder.resolve().name, relations=relations)
    labelled, more = with_labels(graph, label_files(files["train"].parent))
    for notice in [*first, *notices, *_not_read(paths, labelled), *more]:
        warn(notice)
    return labelled


def _not_read(paths: Sequence[str | PathLike[str]], graph: KnowledgeGraph) -> list[str]:
    """Notices for a second and third file if neither name nor folder says that they are splits."""
    rest = zip(SPLITS[1:], map(Path, paths[1:]), strict=False)
    shared = Path(paths[0]).parts  # a folder of all files says nothing of one of them
    return [
        f"{path} is read as the {split} split ({counted(len(graph.split(split)), 'triple')}): it counts as "
        f"known, but answers do not draw on it; to use its triples as facts, add them to {paths[0]}"
        for split, path in rest
        if not any(
            word.startswith(split) or word in OTHER_NAMES.get(split, ())
            for part in path.parts
            if part not in shared
            for word in re.split(r"[\W_\d]+", part.lower())
        )
    ]


def _by_name(name: str) -> KnowledgeGraph:
    graph, second = load_knowledge_graph(name)
    return graph if second is None else second


def _renumber(graph: KnowledgeGraph, relations: tuple[str, ...] | None) -> KnowledgeGraph:
    if relations is None or graph.relations == relations:
        return graph
    known = Vocabulary("relation", relations)
    unknown = [name for name in graph.relations if known.get(name) is None]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise UsageError(
            f"graph {graph.name!r} has a relation that the model was not trained with{more}: "
            f"{known.explain(unknown[0])}"
        )
    position = torch.tensor(known.find_all(graph.relations), dtype=torch.int64)

    def renumber(triples: Tensor) -> Tensor:
        head, relation, tail = triples.unbind(1)
        return torch.stack([head, position[relation], tail], dim=1)

    splits: Any = {split: renumber(getattr(graph, split)) for split in SPLITS}
    return replace(graph, relations=relations, fingerprint="", **splits)


class PredictionGraph:
    """A knowledge graph with what scoring on a task's device needs, each made at its first use.

    Its training facts pass messages, those of all splits count as known.
    """

    def __init__(self, graph: KnowledgeGraph, task: KGCompletion) -> None:
        self.knowledge_graph = graph
        self._task = task
        self._messages: tuple[torch.device, RelationalGraph] | None = None
        self.entities = Vocabulary("entity", graph.entities, graph.entity_labels)
        self.relations = Vocabulary("relation", graph.relations, graph.relation_labels)

    @property
    def messages(self) -> RelationalGraph:
        """Facts forwards, then inverted, as in training; where the task is now."""
        graph, made, device = self.knowledge_graph, self._messages, self._task.device
        if made is None or made[0] != device:
            with torch.inference_mode(False):  # kept, and explanations need gradients
                messages = RelationalGraph.from_triples(graph.train, graph.num_entities, graph.num_relations)
                self._messages = made = device, messages.to(device)
        return made[1]

    @cached_property
    def answers(self) -> Any:
        """Known answers of every query."""
        graph = self.knowledge_graph
        return AnswerIndex(graph.known_triples(), graph.num_entities, graph.num_relations)
