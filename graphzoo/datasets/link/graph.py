"""LinkGraph: links to learn from and links to be judged on, kept in one .npz file without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from graphzoo.datasets.link.pairs import check_pairs, in_keys, pair_keys
from graphzoo.datasets.node.build import tidy_edges
from graphzoo.datasets.node.feature_arrays import (
    feature_parts,
    fingerprint_of,
    pack_features,
    unpack_features,
)
from graphzoo.errors import DataError, UsageError

__all__ = ["METRICS", "SPLITS", "LinkGraph", "LinkSplit", "read_link_graph", "write_link_graph"]

METRICS = ("mrr", "hits@20", "hits@50", "hits@100", "auroc")
SPLITS = ("train", "valid", "test")
_FORMAT = 1

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Pairs that are judged: links, and pairs that count as none.

    Args:
        positive: Links [P, 2], int64.
        negative: Pairs that all links are ranked against [Q, 2], int64; or K of its own for each link,
            [P, K, 2].

    Raises:
        DataError: if the shapes do not fit together.
    """

    positive: Tensor = field(repr=False)
    negative: Tensor = field(repr=False)

    def __post_init__(self) -> None:
        if self.positive.ndim != 2 or self.negative.ndim not in (2, 3):
            raise DataError(
                "positives are pairs [P, 2], negatives [Q, 2] or [P, K, 2]; got "
                f"{list(self.positive.shape)} and {list(self.negative.shape)}"
            )
        if self.has_own_negatives and self.negative.size(0) != self.positive.size(0):
            raise DataError(
                f"{self.negative.size(0):,} groups of negatives for {self.positive.size(0):,} links; there "
                "must be one group for each, in the same order"
            )

    def __repr__(self) -> str:
        negatives = "x".join(f"{size:,}" for size in self.negative.shape[:-1])
        return f"LinkSplit({self.positive.size(0):,} links, {negatives} negatives)"

    @property
    def has_own_negatives(self) -> bool:
        """Whether every link has negatives of its own instead of a shared pool."""
        return self.negative.ndim == 3


@dataclass(frozen=True, eq=False)
class LinkGraph:
    """A graph whose missing links are predicted.

    Args:
        name: Name for logs and results.
        num_nodes: N.
        train: Links to learn from [n, 2], int64; an undirected one is listed once, in either direction.
        valid: What is judged to choose a model.
        test: What is judged once.
        x: Features [N, F], float32, dense or sparse CSR; None without any.
        is_directed: Whether (u, v) and (v, u) are two links.
        node_names: Names of the nodes; empty: the numbers 0..N-1.
        metric: What the data are judged by: "mrr", "hits@20", "hits@50", "hits@100" or "auroc".
        protocol: How links were split and negatives chosen ("original", "heart", "ogb", ...).
        valid_edges_at_test: Whether messages also pass along the validation links while testing, as the rules
            of ogbl-collab allow.
        may_recur: Whether a link that is judged may have been a link before: data of links over time, whose
            source does so. Everywhere else that would be a leak, and is refused.
        fingerprint: sha256 of everything but the name; computed when left out.

    Raises:
        DataError: if the parts do not fit together, or a link that is judged is one to learn from.
    """

    name: str
    num_nodes: int
    train: Tensor = field(repr=False)
    valid: LinkSplit
    test: LinkSplit
    x: Tensor | None = field(default=None, repr=False)
    is_directed: bool = False
    node_names: tuple[str, ...] = field(default=(), repr=False)
    metric: str = "mrr"
    protocol: str = "given"
    valid_edges_at_test: bool = False
    may_recur: bool = False
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self._check()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self._compute_fingerprint())

    def __repr__(self) -> str:
        sizes = "/".join(f"{self.positive(split).size(0):,}" for split in SPLITS)
        return (
            f"LinkGraph({self.name!r}, {self.num_nodes:,} nodes, {sizes} links, {self.protocol}, "
            f"{self.fingerprint[:12]})"
        )

    def positive(self, split: str) -> Tensor:
        """Links of "train", "valid" or "test", [n, 2], int64.

        Raises:
            ValueError: for another name.
        """
        if split not in SPLITS:
            raise UsageError(f"unknown split {split!r}; the splits are {', '.join(SPLITS)}")
        return self.train if split == "train" else getattr(self, split).positive

    def edge_index(self, split: str) -> Tensor:
        """Edges that messages pass along while a split is learnt from or judged.

        They are the training links, for "test" and with `valid_edges_at_test` the validation links too; both
        directions of undirected ones.

        Args:
            split: "train", "valid" or "test".

        Returns:
            [2, E], int64, distinct, without self-loops, sorted by (source, target).

        Raises:
            ValueError: for another split.
        """
        links = torch.cat(self.message_links(split))
        return tidy_edges(links.t(), self.num_nodes, undirected=not self.is_directed)[0]

    def message_links(self, split: str) -> list[Tensor]:
        """The links behind `edge_index`, each [n, 2], int64.

        Raises:
            ValueError: for another split.
        """
        self.positive(split)
        late = split == "test" and self.valid_edges_at_test
        return [self.train, self.valid.positive] if late else [self.train]

    def save(self, path: str | Path) -> None:
        """Write everything into one .npz file without pickle, replacing it at once."""
        write_link_graph(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> LinkGraph:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        return read_link_graph(Path(path))[0]

    def _pairs(self) -> dict[str, Tensor]:
        return {
            "train": self.train,
            "valid.positive": self.valid.positive,
            "valid.negative": self.valid.negative,
            "test.positive": self.test.positive,
            "test.negative": self.test.negative,
        }

    def _check(self) -> None:
        if self.train.ndim != 2 or not self.train.numel():
            raise DataError(
                f"{self.name}: train must be links [n, 2], at least one, got {list(self.train.shape)}"
            )
        check_pairs(self.name, self._pairs(), self.num_nodes)
        x = self.x
        if x is not None and (x.ndim != 2 or x.dtype != torch.float32 or x.size(0) != self.num_nodes):
            raise DataError(
                f"{self.name}: features must be float32 [N, F] with N = {self.num_nodes:,}, got {x.dtype} "
                f"{list(x.shape)}"
            )
        if self.node_names and len(self.node_names) != self.num_nodes:
            raise DataError(f"{self.name}: {len(self.node_names):,} names for {self.num_nodes:,} nodes")
        if self.metric not in METRICS:
            raise DataError(f"{self.name}: metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        keys: dict[str, Tensor] = {}
        for split in SPLITS:
            links = self.positive(split)
            if bool((links[:, 0] == links[:, 1]).any()):
                raise DataError(f"{self.name}: {split} holds a link of a node with itself; drop it")
            keys[split] = pair_keys(links, self.num_nodes, is_directed=self.is_directed).sort().values
            if split == "train" and bool((keys[split].diff() == 0).any()):
                raise DataError(f"{self.name}: train holds a link twice; list each link once")
        if self.may_recur:
            return
        for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            if shared := int(in_keys(keys[other], keys[one]).sum()):
                raise DataError(
                    f"{self.name}: {shared:,} links of {other} are also in {one}: evaluated links must not "
                    "be trained on; take them out of one of the two"
                )

    def _compute_fingerprint(self) -> str:
        facts = [self.num_nodes, self.is_directed, self.metric, self.protocol]
        rules = [self.valid_edges_at_test, self.may_recur]
        parts: list[_Array] = [
            to_bytes(json.dumps([*facts, *rules, self.node_names], ensure_ascii=False)),
            *([] if self.x is None else feature_parts(self.x)),
        ]
        for pairs in self._pairs().values():
            parts += [to_bytes(str(list(pairs.shape))), pairs.cpu().numpy().astype("<i8", copy=False)]
        return fingerprint_of(parts)


def write_link_graph(graph: LinkGraph, path: Path, notices: Sequence[str] = ()) -> None:
    """Write a graph and what was counted while it was parsed (see `LinkGraph.save`)."""
    arrays, features = ({}, None) if graph.x is None else pack_features(graph.x)
    index_type = np.int32 if graph.num_nodes < 2**31 else np.int64
    for what, pairs in graph._pairs().items():
        arrays[what] = pairs.cpu().numpy().astype(index_type)
    arrays["node_names"] = to_bytes(json.dumps(graph.node_names, ensure_ascii=False))
    meta = {
        "format": _FORMAT,
        "name": graph.name,
        "num_nodes": graph.num_nodes,
        "is_directed": graph.is_directed,
        "metric": graph.metric,
        "protocol": graph.protocol,
        "valid_edges_at_test": graph.valid_edges_at_test,
        "may_recur": graph.may_recur,
        "features": features,
        "fingerprint": graph.fingerprint,
        "notices": list(notices),
    }
    write_arrays(path, meta, arrays)


def read_link_graph(path: Path) -> tuple[LinkGraph, list[str]]:
    """What `write_link_graph` wrote (see `LinkGraph.load`)."""
    with reading_arrays(path, _FORMAT, what="link graph", written_by="LinkGraph.save") as (meta, arrays):

        def pairs(what: str) -> Tensor:
            return torch.from_numpy(arrays[what].astype(np.int64))

        graph = LinkGraph(
            name=meta["name"],
            num_nodes=meta["num_nodes"],
            train=pairs("train"),
            valid=LinkSplit(pairs("valid.positive"), pairs("valid.negative")),
            test=LinkSplit(pairs("test.positive"), pairs("test.negative")),
            x=None if meta["features"] is None else unpack_features(arrays, meta["features"]),
            is_directed=meta["is_directed"],
            node_names=tuple(json.loads(to_text(arrays["node_names"]))),
            metric=meta["metric"],
            protocol=meta["protocol"],
            valid_edges_at_test=meta["valid_edges_at_test"],
            may_recur=meta["may_recur"],
        )
        check_fingerprint(path, graph.fingerprint, meta["fingerprint"])
        notices = list(meta["notices"])
    return graph, notices
