"""NodeGraph: features, edges, labels and splits of a graph, kept in one .npz file without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import Content, StoredGraph, to_bytes, to_text
from graphzoo.datasets.node.feature_arrays import feature_parts, pack_features, unpack_features
from graphzoo.datasets.node.splits import PARTS, REDRAWN, NodeSplit, draw_split, is_labelled, redrawn_split
from graphzoo.errors import DataError, UsageError, suggestion
from graphzoo.types import GraphSpec

METRICS = ("accuracy", "roc_auc")
_DRAWN = "random-50-25-25"
# Fields that are written to a file as plain values.
_PLAIN = ("name", "class_names", "feature_names", "metric", "default_split")

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class NodeGraph(StoredGraph):
    """A graph with node features, labels and named splits.

    Args:
        name: Name for logs and results.
        x: Features [N, F], float32, dense or sparse CSR.
        edge_index: [2, E], int64, distinct, without self-loops, sorted by (source, target); an undirected
            graph holds both directions.
        y: Classes [N], int64, -1 if unknown; or yes-no labels [N, C], float32 in {0, 1}, NaN if unknown.
        class_names: Distinct names of the classes or labels; empty for a graph without labels.
        node_names: Distinct names of the nodes; empty for the numbers 0..N-1.
        splits: Fixed splits by name, each a tuple of one or more.
        metric: Metric of the data set, "accuracy" or "roc_auc".
        default_split: Name of the split that is used if none is named. Empty takes the first of `splits`, or
            "random-50-25-25" if there are none.
        fingerprint: sha256 of names of classes and nodes, features, edges and labels, but not of splits;
            computed if empty. `dataclasses.replace` keeps the old one: also give it `fingerprint=""`.
        feature_names: Names of the columns of `x`, by which a trained model finds its features; empty if they
            have no names.

    Raises:
        DataError: if the parts do not fit together.
    """

    _what = "graph"

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
        super().__post_init__()
        if not self.default_split:
            object.__setattr__(self, "default_split", next(iter(self.splits), _DRAWN))

    def __repr__(self) -> str:
        kind = "labels" if self.is_multi_label else "classes"
        return (
            f"NodeGraph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.x.size(1):,} features, {self.num_classes} {kind}, {self.fingerprint[:12]})"
        )

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """E, the number of edges; an undirected edge counts twice."""
        return self.edge_index.size(1)

    @property
    def num_classes(self) -> int:
        """C, the number of classes or yes-no labels; 0 for a graph without labels."""
        return len(self.class_names)

    @property
    def is_multi_label(self) -> bool:
        """Whether a node has any number of yes-no labels instead of one class."""
        return self.y.ndim == 2

    @property
    def spec(self) -> GraphSpec:
        """The sizes of the graph that an encoder is built for."""
        return GraphSpec(
            num_nodes=self.num_nodes,
            in_channels=self.x.size(1),
            num_classes=self.num_classes,
            is_multi_label=self.is_multi_label,
        )

    def split(self, name: str | None = None, index: int = 0) -> NodeSplit:
        """A fixed split of the data set, or a random split that is drawn.

        Args:
            name: One of the following; None takes `default_split`.

                - a name of `splits`
                - a name of `splits` that has one split, followed by "-redrawn"; see `redrawn_split`
                - "random-50-25-25", or any three shares in per cent; see `random_split`
                - "random-20-per-class", or any number; see `per_class_split`
            index: Which split of that name, from 0; any index for a random split.

        Raises:
            UsageError: if there is no such split, or it cannot be drawn; the message lists the names.
        """
        name = name or self.default_split
        if name in self.splits:
            fixed = self.splits[name]
            if not 0 <= index < len(fixed):
                raise UsageError(
                    f"{self.name}: split {name!r} has the indices 0..{len(fixed) - 1}, got {index}"
                )
            return fixed[index]
        if (fixed_name := name.removesuffix(REDRAWN)) != name and fixed_name in self.splits:
            if (count := len(self.splits[fixed_name])) > 1:
                raise UsageError(
                    f"{self.name}: {name!r} is only for a single split, but there are {count} splits "
                    f"{fixed_name!r}, and test nodes of one may be training nodes of another\n"
                    f"Search on a few: --data.split {fixed_name} --splits 0-{min(count, 3) - 1}"
                )
            return redrawn_split(self.y, self.splits[fixed_name][0], index=index)
        if (drawn := draw_split(self.y, name, index)) is not None:
            return drawn
        redrawn = [f"{name}{REDRAWN}" for name, fixed in self.splits.items() if len(fixed) == 1]
        known = [*self.splits, *redrawn, _DRAWN, "random-20-per-class"]
        hint = suggestion(name, known) or f"There are: {', '.join(known)} (with any shares or number)."
        raise UsageError(f"{self.name}: unknown split {name!r}. {hint}")

    def num_splits(self, name: str | None = None) -> int | None:
        """The number of fixed splits of a name; None if splits of this name are drawn."""
        fixed = self.splits.get(name or self.default_split)
        return None if fixed is None else len(fixed)

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
                    f"{self.name}: edge_index has node {low if low < 0 else high}, but there are {num_nodes} "
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
            num_classes = highest or self.y.size(-1)
            raise DataError(
                f"{self.name}: y has {num_classes} classes or labels, but class_names has "
                f"{len(self.class_names)}"
            )
        if len(set(self.class_names)) < len(self.class_names):
            twice = next(name for name in self.class_names if self.class_names.count(name) > 1)
            raise DataError(f"{self.name}: class_names has {twice!r} twice; names must differ")
        if self.node_names and len(self.node_names) != num_nodes:
            raise DataError(f"{self.name}: {len(self.node_names)} node names for {num_nodes} nodes")
        place = {name: number for number, name in reversed(list(enumerate(self.node_names)))}
        if len(place) < len(self.node_names):
            repeated = next(i for i, name in enumerate(self.node_names) if place[name] != i)
            name = self.node_names[repeated]
            raise DataError(
                f"{self.name}: nodes {place[name]} and {repeated} are both called {name!r}\n"
                "Give each node a name of its own"
            )
        if self.feature_names and len(self.feature_names) != self.x.size(1):
            raise DataError(
                f"{self.name}: {len(self.feature_names)} feature names for {self.x.size(1)} features"
            )
        if self.metric not in METRICS:
            raise DataError(f"{self.name}: metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        labelled = is_labelled(self.y)
        for split in chain.from_iterable(self.splits.values()):
            _check_split(self.name, split, labelled)

    def _parts(self) -> list[_Array]:
        names = json.dumps([self.class_names, self.node_names], ensure_ascii=False)
        return [
            to_bytes(names),
            *feature_parts(self.x),
            self.edge_index.cpu().numpy().astype("<i8", copy=False),
            self.y.cpu().numpy().astype("<i8" if self.y.ndim == 1 else "<f4", copy=False),
        ]

    def _content(self) -> Content:
        arrays, features = pack_features(self.x)
        index_type = np.int32 if self.num_nodes < 2**31 else np.int64
        arrays["edge_index"] = self.edge_index.cpu().numpy().astype(index_type)
        arrays["y"] = self.y.cpu().numpy()
        arrays["node_names"] = to_bytes(json.dumps(self.node_names, ensure_ascii=False))
        for name, group in self.splits.items():
            for split, part in product(group, PARTS):
                nodes = split.nodes(part).cpu().numpy().astype(index_type)
                arrays[f"split/{name}/{split.index}/{part}"] = nodes
        splits = {name: len(group) for name, group in self.splits.items()}
        return {key: getattr(self, key) for key in _PLAIN} | {"splits": splits, "features": features}, arrays

    @classmethod
    def _from_content(cls, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> Self:
        # Files of earlier versions have no names of features.
        plain: dict[str, Any] = {key: meta[key] for key in _PLAIN if key in meta}
        plain |= {key: tuple(value) for key, value in plain.items() if isinstance(value, list)}
        return cls(
            x=unpack_features(arrays, meta["features"]),
            edge_index=torch.from_numpy(arrays["edge_index"].astype(np.int64)),
            y=torch.from_numpy(arrays["y"]),
            node_names=tuple(json.loads(to_text(arrays["node_names"]))),
            splits={
                name: tuple(_read_split(arrays, name, index) for index in range(count))
                for name, count in meta["splits"].items()
            },
            **plain,
        )


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
                f"{name}: split {split.name!r} {split.index} has node {low if low < 0 else high}, but there "
                f"are {labelled.numel()} nodes"
            )
        unknown = nodes[~labelled[nodes]]
        if unknown.numel():
            raise DataError(
                f"{name}: split {split.name!r} {split.index}: node {int(unknown[0])} of {part} has no label "
                f"({unknown.numel():,} such nodes); remove them from the split or label them"
            )
