"""Node classification for Lightning: features, splits, batches of the whole graph or of parts of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from graphzoo.datamodules.base import Feed, GraphDataModule, Kind, loaded
from graphzoo.datamodules.batches import rank_and_world_size
from graphzoo.datamodules.features import FeatureTransform, TreatsFeatures, check_scaling
from graphzoo.datamodules.node_batches import NodeBatches, PartSampler, WholeGraphBatch, WholeGraphSampler
from graphzoo.datasets import (
    NodeGraph,
    NodeSplit,
    load_node_graph,
    node_graph_from_data,
    node_graph_from_files,
)
from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.files.text import warn
from graphzoo.datasets.node.build import is_symmetric
from graphzoo.datasets.node.splits import PARTS
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import UsageError, check_choice, check_whole
from graphzoo.sampling import partition as partition_nodes
from graphzoo.types import GraphSpec, NodeBatch

# Parts of splits with a warning about missing classes: a process may load its data several times.
_told: set[tuple[str, str, str]] = set()


class NodeDataModule(TreatsFeatures, GraphDataModule):
    """A graph with labelled nodes, by name or path.

    Training sees the whole graph once an epoch, or the parts of a random partition that is a function of
    (seed, epoch). Validation and test always see the whole graph. Labels of validation and test nodes never
    enter a training batch's targets.

    Args:
        name: Data set (`graphzoo list`); None or "nodes" for your own `path`; None without a path is cora.
        path: Own graph: a saved PyG `Data`, a .npz file, a folder with nodes.csv and edges.csv, or these two;
            see `graphzoo.datasets.node_graph_from_files`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether missing files may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        split: Name of the split: one of the data set's, "random-50-25-25" (any shares),
            "random-20-per-class", or "public-redrawn", which draws new training nodes from the training and
            validation nodes of the fixed split. None takes the data set's usual one.
        split_index: Which split of that name; a random one is a function of this number, not of the seed.
        batch_size: Nodes of a training part; None trains on the whole graph. With several processes, each
            takes a part of its own in every step.
        partition: What is cut into parts: "all" nodes, or only the "train"ing nodes.
        normalize_features: Whether to divide each node's features by the sum of their absolute values.
        standardize_features: Whether to subtract the mean of each feature and divide by its standard
            deviation over all nodes. None does so for your own graph if its features look like measurements:
            some values are neither 0 nor 1, and more than a quarter is not 0 or one is beyond ±10.
        num_neighbors: k of data sets whose graph joins nearest neighbours; None takes the data set's default.
        neighbor_metric: Distance by which these neighbours are near.
        reduce_channels: Number of leading singular vectors to project the features onto; None keeps them.
        seed: Seed of the partitions.
        num_workers: Loader processes; they only help with `batch_size`.
    """

    kind = Kind("nodes", "cora", "graph", "FILE", "nodes", "data")

    @has_other_forms
    def __init__(
        self,
        name: str | None = None,
        path: str | list[str] | None = None,
        root: str | None = None,
        download: bool | None = None,
        split: str | None = None,
        split_index: int = 0,
        batch_size: int | None = None,
        partition: Literal["all", "train"] = "all",
        normalize_features: bool = False,
        standardize_features: bool | None = None,
        num_neighbors: int | None = None,
        neighbor_metric: Literal["euclidean", "cosine"] = "euclidean",
        reduce_channels: int | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            name, path, root, download, batch_size=batch_size, seed=seed, num_workers=num_workers
        )
        check_whole(at_least=0, below=2**32, split_index=split_index)
        for option, is_given in (
            ("num_neighbors", num_neighbors is not None),
            ("neighbor_metric", neighbor_metric != "euclidean"),
        ):
            if path is not None and is_given:
                raise UsageError(f"{option} is for data sets without a graph; your own graph has its edges")
        check_choice("neighbor_metric", neighbor_metric, ("euclidean", "cosine"))
        check_choice("partition", partition, ("all", "train"))
        if partition == "train" and batch_size is None:
            raise UsageError(
                "partition='train' needs batch_size: without it the graph is not cut into parts\n"
                "Add --data.batch_size N, or leave out --data.partition"
            )
        check_scaling(normalize_features, standardize_features)
        self.split_name, self.split_index = split, split_index
        self.partition = partition
        self.num_neighbors, self.neighbor_metric = num_neighbors, neighbor_metric
        self.normalize_features, self.reduce_channels = normalize_features, reduce_channels
        self.standardize_features = standardize_features
        self.skip_edges = False
        """Whether parts come without edges. A task sets it if its encoder precomputes all it needs."""
        self._raw: NodeGraph | None = None
        self._graph: NodeGraph | None = None
        self._split: NodeSplit | None = None
        self._evaluation: dict[str, NodeBatch] = {}

    @classmethod
    def from_data(cls, data: Any, *, name: str = "nodes", directed: bool = False, **settings: Any) -> Self:
        """A DataModule for a graph in memory; `NodeDataModule(data=...)` is the same.

        Args:
            data: A PyG `Data` object with `x`, `edge_index`, `y` and, if there are fixed splits, masks; or a
                `NodeGraph`.
            name: Name in logs and results.
            directed: Whether edges stay as they are; if not, both directions of each edge are stored.
            **settings: Further arguments of the class.

        Raises:
            DataError: if something is missing or does not fit together.
        """
        graph = (
            data if isinstance(data, NodeGraph) else node_graph_from_data(data, name=name, directed=directed)
        )
        module = cls(**settings)
        module.name, module._raw, module.in_memory = graph.name, graph, True
        return module

    @cached_property
    def is_directed(self) -> bool:
        """Whether some edge of an own graph is stored in one direction only."""
        own = self.in_memory or self.path is not None
        return own and not is_symmetric(self.graph.edge_index, self.graph.num_nodes)

    def setup(self, stage: str | None = None) -> None:
        """Load the graph and its split, once.

        A fit starts with this graph's own treatment of the features; the task then applies that of its
        weights.
        """
        if self._graph is not None:
            if stage == "fit":
                self.take_features(None)
            return
        raw = self._load(self._fetches)
        if not raw.num_classes:
            raise UsageError(f"{raw.name} has no labels: graphzoo can predict on it, but not train on it")
        self._split = raw.split(self.split_name, self.split_index)
        for part in ("train", "valid") if stage in (None, "fit") else ():
            if not getattr(self._split, part).numel():
                raise UsageError(
                    f"{raw.name}: the {part} part of split {self._split.name!r} is empty; a fit needs "
                    "training nodes, and validation nodes to choose the checkpoint\n"
                    "Move some nodes into that part, or draw both: --data.split random-50-25-25"
                )
        if not self.is_named:
            self._notice_absent_classes(raw)
        self._transform = self._own_transform = FeatureTransform.fit(
            raw.x,
            normalize=self.normalize_features,
            reduce_channels=self.reduce_channels,
            names=raw.feature_names,
            standardize=self._standardizes(raw.x),
        )
        self._raw = raw
        self._graph = self.transformed(raw)

    def _treat(self, transform: FeatureTransform) -> None:
        self._graph = self.transformed(loaded(self._raw))
        self._evaluation.clear()

    def _notice_absent_classes(self, graph: NodeGraph) -> None:
        """Warn of classes that a part of the split lacks: accuracies mean less then, ROC-AUC may be nan."""
        present = torch.unique(graph.y[graph.y >= 0]) if graph.y.dim() == 1 else graph.y.new_empty(0)
        for part in PARTS:
            nodes = self.split.nodes(part)
            absent = present[~torch.isin(present, graph.y[nodes])] if nodes.numel() else present[:0]
            if absent.numel():
                case = (graph.fingerprint, self.split.fingerprint, part)
                if case in _told:
                    continue
                _told.add(case)
                more = f" ({absent.numel():,} such classes)" if absent.numel() > 1 else ""
                name = self.split.name
                remedy = "label more nodes"
                if name.startswith("random-"):
                    again = f"draw another one (--data.split_index {self.split.index + 1})"
                    remedy = f"{again}, choose other shares or {remedy}"
                warn(
                    f"{graph.name}: no {part} node of split {name!r} is of class "
                    f"{graph.class_names[int(absent[0])]!r}{more}; {remedy}"
                )

    def _load(self, download: bool | None) -> NodeGraph:
        if self._raw is not None:
            return self._raw
        if self.path is not None:
            return node_graph_from_files(self.path)
        return load_node_graph(
            self.name,
            root=self.root,
            download=download,
            num_neighbors=self.num_neighbors,
            neighbor_metric=self.neighbor_metric,
        )

    @property
    def num_splits(self) -> int | None:
        """How many splits of the chosen name there are; None if they are drawn. Loads the graph."""
        return self._load(self.download).num_splits(self.split_name)

    @property
    def graph(self) -> NodeGraph:
        """The graph with the features that the encoder sees."""
        return loaded(self._graph)

    @property
    def num_valid(self) -> int:
        """Nodes of a validation."""
        return int(self.split.valid.numel())

    @property
    def split(self) -> NodeSplit:
        """The training, validation and test nodes."""
        return loaded(self._split)

    @property
    def transform(self) -> FeatureTransform:
        """Treatment of the raw features."""
        return loaded(self._transform)

    @property
    def spec(self) -> GraphSpec:
        """Sizes of the graph, features as the encoder sees them."""
        return self.graph.spec

    @property
    def fingerprint(self) -> str:
        """sha256 over graph and treatment of the features, the same for every split."""
        described = json.dumps(self.transform.describe(), sort_keys=True)
        return hashlib.sha256(f"{loaded(self._raw).fingerprint}\n{described}".encode()).hexdigest()

    def describe_split(self) -> dict[str, Any]:
        """Name, index, fingerprint and sizes of the split, for results and checkpoints."""
        split = self.split
        sizes = {part: int(getattr(split, part).numel()) for part in ("train", "valid", "test")}
        return {"name": split.name, "index": split.index, "fingerprint": split.fingerprint, **sizes}

    @property
    def num_tested(self) -> int:
        """Test nodes."""
        return int(self.split.test.numel())

    def describe_graph(self) -> dict[str, int]:
        """Sizes of the graph and its split, in the order of display."""
        graph, split = self.graph, self.split
        sizes = {"nodes": graph.num_nodes, "edges": int(graph.edge_index.shape[1])}
        channels = {"features": self.spec.in_channels, "classes": self.spec.num_classes}
        parts = {f"{name} nodes": int(getattr(split, name).numel()) for name in ("train", "valid", "test")}
        return sizes | channels | parts

    @property
    def cache_directory(self) -> Path:
        """Folder in which encoders keep precomputed values of a graph."""
        return cache_root() / "precomputed"

    def transformed(self, graph: NodeGraph) -> NodeGraph:
        """A graph with its features as the encoder sees them."""
        x = self.transform(graph.x, graph.feature_names)
        if x is graph.x:
            return graph
        return dataclasses.replace(graph, x=x, fingerprint="", feature_names=())

    def _training(self) -> Feed:
        rank, world_size = rank_and_world_size(self.trainer)
        sampler: WholeGraphSampler | PartSampler
        if self.batch_size is None:
            sampler = WholeGraphSampler(self.split.train, rank, world_size)
        else:
            is_target = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
            is_target[self.split.train] = True
            accumulate = self.trainer.accumulate_grad_batches if self.trainer is not None else 1
            cut = self.graph.num_nodes if self.partition == "all" else self.split.train.numel()
            num_parts = math.ceil(cut / self.batch_size)
            sampler = PartSampler(self._parts, num_parts, is_target, accumulate, rank, world_size)
        return NodeBatches(self.graph, with_edges=not self.skip_edges), sampler, 0

    def save_artifacts(self, directory: str | os.PathLike[str]) -> None:
        """Write what prediction needs: meta.json, the graph unless it is large, the features' projection."""
        raw, directory = loaded(self._raw), Path(directory)
        self.transform.save(directory / "projection.npy")
        facts = {
            "fingerprint": self.fingerprint,
            "split": self.describe_split(),
            "spec": self.spec.to_dict(),
            "num_neighbors": self.num_neighbors,
            "neighbor_metric": self.neighbor_metric,
        }
        self._save_graph(directory, raw, "node_graph.npz", _size(raw), facts)

    def _evaluation_loader(self, split: Literal["valid", "test"]) -> DataLoader[NodeBatch]:
        """The whole graph with the nodes of a part as targets, in every rank."""
        if split not in self._evaluation:
            graph, target = self.graph, getattr(self.split, split)
            self._evaluation[split] = WholeGraphBatch(
                graph.x, graph.edge_index, graph.y, target, index=None, num_global=int(target.numel())
            )
        # its own generator, or each pass would draw a seed for the workers from the global one
        return DataLoader([self._evaluation[split]], batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]

    def _parts(self, epoch: int) -> list[Tensor]:
        assert self.batch_size is not None
        nodes = self.graph.num_nodes if self.partition == "all" else self.split.train
        return partition_nodes(nodes, self.batch_size, seed=self.seed, epoch=epoch)


def _size(graph: NodeGraph) -> int:
    """Approximate bytes of the graph in a file: zeros of sparse features are not written."""
    x = graph.x
    features = x.values().numel() * 12 if x.layout is torch.sparse_csr else min(
        x.numel() * 4, int(torch.count_nonzero(x)) * 12
    )  # fmt: skip
    return features + graph.edge_index.numel() * 4 + graph.y.numel() * 8
