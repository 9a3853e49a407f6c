"""NodeGraph: features, edges, labels and splits of a graph, kept in one .npz file without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from graphzoo.datasets.node.feature_arrays import (
    feature_parts,
    fingerprint_of,
    pack_features,
    unpack_features,
)
from graphzoo.datasets.node.splits import PARTS, NodeSplit, draw_split, is_labelled
from graphzoo.errors import DataError, UsageError, suggestion
from graphzoo.types import GraphSpec

__all__ = ["METRICS", "NodeGraph", "read_graph", "write_graph"]

METRICS = ("accuracy", "roc_auc")
_FORMAT = 1
_DRAWN = "random-50-25-25"

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class NodeGraph:
    """A graph with node features, labels and named splits.

    Args:
        name: Name for logs and results.
        x: Features [N, F], float32, dense or sparse CSR.
        edge_index: [2, E], int64, distinct, without self-loops, sorted by (source, target); an undirected
            graph holds both directions.
        y: Classes [N], int64, -1 where unknown; or yes-no labels [N, C], float32 in {0, 1}, NaN where
            unknown.
        class_names: Names of the classes or labels; empty for a graph without labels.
        node_names: Names of the nodes; empty: the numbers 0..N-1.
        splits: Fixed splits by name, each a tuple of one or more.
        metric: What the data set is judged by, "accuracy" or "roc_auc".
        default_split: Name of the split taken when none is named; empty: the first of `splits`, or
            "random-50-25-25" if there is none.
        fingerprint: sha256 of names, features, edges and labels, not of the splits; computed when left out.
        feature_names: Names of the columns of `x`, by which a trained model finds its features; empty where
            the source has none.

    Raises:
        DataError: if the parts do not fit together.
    """

    name: str
    x: Tensor = field(repr=False)
    edge_index: Tensor = field(repr=False)
    y: Tensor = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    node_names: tuple[str, ...] = field(default=(), repr=False)
    splits: Mapping[str, tuple[NodeSplit, ...]] = field(default_factory=dict, repr=False)
    metric: str = "accuracy"
    default_split: str = ""
    fingerprint: str = ""
    feature_names: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self._check()
        if not self.default_split:
            object.__setattr__(self, "default_split", next(iter(self.splits), _DRAWN))
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self._compute_fingerprint())

    def __repr__(self) -> str:
        kind = "labels" if self.is_multi_label else "classes"
        return (
            f"NodeGraph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.x.size(1):,} features, {self.num_classes} {kind}, {self.fingerprint[:12]})"
        )

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """E, both directions of an undirected edge counted."""
        return self.edge_index.size(1)

    @property
    def num_classes(self) -> int:
        """C, classes or yes-no labels; 0 for a graph without labels."""
        return len(self.class_names)

    @property
    def is_multi_label(self) -> bool:
        """Whether a node has any number of yes-no labels instead of one class."""
        return self.y.ndim == 2

    @property
    def spec(self) -> GraphSpec:
        """What an encoder learns of the graph."""
        return GraphSpec(
            num_nodes=self.num_nodes,
            in_channels=self.x.size(1),
            num_classes=self.num_classes,
            is_multi_label=self.is_multi_label,
        )

    def split(self, name: str | None = None, index: int = 0) -> NodeSplit:
        """A fixed split of the data set, or a random one drawn by its name.

        Args:
            name: One of `splits`, "random-50-25-25" (any three shares in per cent), or "random-20-per-class";
                None takes `default_split`.
            index: Which one of that name, from 0; a random split takes any.

        Raises:
            ValueError: if there is no such split; the message names those there are.
        """
        name = name or self.default_split
        if name in self.splits:
            fixed = self.splits[name]
            if not 0 <= index < len(fixed):
                raise UsageError(
                    f"{self.name}: split {name!r} has the indices 0..{len(fixed) - 1}, got {index}"
                )
            return fixed[index]
        drawn = draw_split(self.y, name, index)
        if drawn is not None:
            return drawn
        known = [*self.splits, _DRAWN, "random-20-per-class"]
        hint = suggestion(name, known) or f"There are: {', '.join(known)} (any shares or number)."
        raise UsageError(f"{self.name}: unknown split {name!r}. {hint}")

    def num_splits(self, name: str | None = None) -> int | None:
        """How many splits of a name there are; None where they are drawn, as many as are asked for.

        Args:
            name: As for `split`.
        """
        fixed = self.splits.get(name or self.default_split)
        return None if fixed is None else len(fixed)

    def save(self, path: str | Path) -> None:
        """Write everything into one .npz file without pickle, replacing it at once."""
        write_graph(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> NodeGraph:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        return read_graph(Path(path))[0]

    def _check(self) -> None:
        num_nodes = self.x.size(0)
        if self.x.ndim != 2 or self.x.dtype != torch.float32:
            raise DataError(
                f"{self.name}: features must be float32 [N, F], got {self.x.dtype} {list(self.x.shape)}"
            )
        if self.edge_index.ndim != 2 or self.edge_index.size(0) != 2 or self.edge_index.dtype != torch.int64:
            raise DataError(
                f"{self.name}: edge_index must be int64 of shape [2, E], got {self.edge_index.dtype} "
                f"{list(self.edge_index.shape)}"
            )
        if self.edge_index.numel():
            low, high = (int(value) for value in torch.aminmax(self.edge_index))
            if low < 0 or high >= num_nodes:
                raise DataError(
                    f"{self.name}: edge_index holds node {low if low < 0 else high}, there are {num_nodes} "
                    f"nodes (0..{num_nodes - 1})"
                )
        kinds = {1: torch.int64, 2: torch.float32}
        if self.y.ndim not in kinds or self.y.size(0) != num_nodes or self.y.dtype != kinds[self.y.ndim]:
            raise DataError(
                f"{self.name}: y must be int64 [N] (classes) or float32 [N, C] (yes-no labels) with N = "
                f"{num_nodes}, got {self.y.dtype} {list(self.y.shape)}"
            )
        highest = int(self.y.max()) + 1 if self.y.ndim == 1 and self.y.numel() else 0
        if highest > len(self.class_names) or (self.y.ndim == 2 and self.y.size(1) != len(self.class_names)):
            found = highest or self.y.size(-1)
            raise DataError(
                f"{self.name}: y has {found} classes or labels, class_names has {len(self.class_names)}"
            )
        if self.node_names and len(self.node_names) != num_nodes:
            raise DataError(f"{self.name}: {len(self.node_names)} node names for {num_nodes} nodes")
        if self.feature_names and len(self.feature_names) != self.x.size(1):
            raise DataError(
                f"{self.name}: {len(self.feature_names)} feature names for {self.x.size(1)} features"
            )
        if self.metric not in METRICS:
            raise DataError(f"{self.name}: metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        labelled = is_labelled(self.y)
        for split in (split for group in self.splits.values() for split in group):
            _check_split(self.name, split, labelled)

    def _compute_fingerprint(self) -> str:
        names = json.dumps([self.class_names, self.node_names], ensure_ascii=False)
        return fingerprint_of(
            [
                to_bytes(names),
                *feature_parts(self.x),
                self.edge_index.cpu().numpy().astype("<i8", copy=False),
                self.y.cpu().numpy().astype("<i8" if self.y.ndim == 1 else "<f4", copy=False),
            ]
        )


def write_graph(graph: NodeGraph, path: Path, notices: Sequence[str] = ()) -> None:
    """Write a graph and what was counted while it was parsed (see `NodeGraph.save`)."""
    arrays, features = pack_features(graph.x)
    index_type = np.int32 if graph.num_nodes < 2**31 else np.int64
    arrays["edge_index"] = graph.edge_index.cpu().numpy().astype(index_type)
    arrays["y"] = graph.y.cpu().numpy()
    arrays["node_names"] = to_bytes(json.dumps(graph.node_names, ensure_ascii=False))
    for name, group in graph.splits.items():
        for split in group:
            for part in PARTS:
                key = f"split/{name}/{split.index}/{part}"
                arrays[key] = split.nodes(part).cpu().numpy().astype(index_type)
    meta = {
        "format": _FORMAT,
        "name": graph.name,
        "class_names": graph.class_names,
        "feature_names": graph.feature_names,
        "metric": graph.metric,
        "default_split": graph.default_split,
        "splits": {name: len(group) for name, group in graph.splits.items()},
        "features": features,
        "fingerprint": graph.fingerprint,
        "notices": list(notices),
    }
    write_arrays(path, meta, arrays)


def read_graph(path: Path) -> tuple[NodeGraph, list[str]]:
    """What `write_graph` wrote (see `NodeGraph.load`)."""
    with reading_arrays(path, _FORMAT, what="graph", written_by="NodeGraph.save") as (meta, arrays):
        splits = {
            name: tuple(_read_split(arrays, name, index) for index in range(count))
            for name, count in meta["splits"].items()
        }
        graph = NodeGraph(
            name=meta["name"],
            x=unpack_features(arrays, meta["features"]),
            edge_index=torch.from_numpy(arrays["edge_index"].astype(np.int64)),
            y=torch.from_numpy(arrays["y"]),
            class_names=tuple(meta["class_names"]),
            node_names=tuple(json.loads(to_text(arrays["node_names"]))),
            splits=splits,
            metric=meta["metric"],
            default_split=meta["default_split"],
            # files of earlier versions have none
            feature_names=tuple(meta.get("feature_names", ())),
        )
        check_fingerprint(path, graph.fingerprint, meta["fingerprint"])
        notices = list(meta["notices"])
    return graph, notices


def _read_split(arrays: Mapping[str, _Array], name: str, index: int) -> NodeSplit:
    train, valid, test = (
        torch.from_numpy(arrays[f"split/{name}/{index}/{part}"].astype(np.int64)) for part in PARTS
    )
    return NodeSplit(name, index, train, valid, test)


def _check_split(name: str, split: NodeSplit, labelled: Tensor) -> None:
    for part in PARTS:
        nodes = split.nodes(part)
        if not nodes.numel():
            continue
        low, high = int(nodes[0]), int(nodes[-1])
        if low < 0 or high >= labelled.numel():
            raise DataError(
                f"{name}: split {split.name!r} {split.index} holds node {low if low < 0 else high}, there "
                f"are {labelled.numel()} nodes"
            )
        unknown = nodes[~labelled[nodes]]
        if unknown.numel():
            raise DataError(
                f"{name}: split {split.name!r} {split.index}: node {int(unknown[0])} of {part} has no label "
                f"({unknown.numel():,} such nodes); take them out of the split or label them"
            )
