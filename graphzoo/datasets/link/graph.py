"""LinkGraph: links to train on and links to evaluate, kept in one .npz file without pickle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.arrays import Content, StoredGraph, to_bytes, to_text
from graphzoo.datasets.link.pairs import check_pairs, in_keys, pair_keys
from graphzoo.datasets.node.build import tidy_edges
from graphzoo.datasets.node.feature_arrays import feature_parts, pack_features, unpack_features
from graphzoo.errors import DataError, UsageError
from graphzoo.system.units import counted

# Protocols whose published negatives are kept, even if they pair a node with itself.
_PUBLISHED = ("original", "heart", "ogb")
METRICS = ("mrr", "hits@20", "hits@50", "hits@100", "auroc")
SPLITS = ("train", "valid", "test")
# Fields that are written to a file as plain values.
_PLAIN = (
    "name", "num_nodes", "is_directed", "metric", "protocol", "valid_edges_at_test", "may_recur",
    "feature_names",
)  # fmt: skip

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Pairs that are evaluated: links and negatives.

    Args:
        positive: Links [P, 2], int64.
        negative: Negatives, int64: a pool [Q, 2] that all links are ranked against, or K negatives of each
            link, [P, K, 2].

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
                f"negatives [P, K, 2] of {self.negative.size(0):,} links for {self.positive.size(0):,} "
                "links; give K negatives of each link, in the same order"
            )

    def __repr__(self) -> str:
        negatives = "x".join(f"{size:,}" for size in self.negative.shape[:-1])
        return f"LinkSplit({self.positive.size(0):,} links, {negatives} negatives)"

    @property
    def has_own_negatives(self) -> bool:
        """Whether every link has negatives of its own instead of a shared pool."""
        return self.negative.ndim == 3


@dataclass(frozen=True, eq=False)
class LinkGraph(StoredGraph):
    """A graph for link prediction.

    Args:
        name: Name for logs and results.
        num_nodes: N.
        train: Training links [n, 2], int64; an undirected link is listed once, in either direction.
        valid: Validation links and negatives, which choose the model.
        test: Test links and negatives.
        x: Features [N, F], float32, dense or sparse CSR; None for no features.
        is_directed: Whether (u, v) and (v, u) are two links.
        node_names: Distinct names of the nodes; empty for the numbers 0..N-1.
        metric: Metric of the data set: "mrr", "hits@20", "hits@50", "hits@100" or "auroc".
        protocol: How links were split and negatives chosen: "original", "heart", "ogb", ...
        valid_edges_at_test: Whether message passing in testing also uses the validation links, as the rules
            of ogbl-collab allow.
        may_recur: Whether an evaluated link may also be a training link. This is so in some published data:
            links over time, or citations in both directions. Otherwise it would be a leak, and is refused.
        fingerprint: sha256 of everything but the name and the names of features; computed if empty.
            `dataclasses.replace` keeps the old one: also give it `fingerprint=""`.
        feature_names: Names of the columns of `x`, by which a trained model finds its features; empty if they
            have no names.

    Raises:
        DataError: if the parts do not fit together, or an evaluated link is also a training link.
    """

    _what = "link graph"

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
    feature_names: tuple[str, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        sizes = "/".join(f"{self.positive(split).size(0):,}" for split in SPLITS)
        return (
            f"LinkGraph({self.name!r}, {self.num_nodes:,} nodes, {sizes} links, {self.protocol}, "
            f"{self.fingerprint[:12]})"
        )

    def positive(self, split: str) -> Tensor:
        """Links of "train", "valid" or "test", [n, 2], int64.

        Raises:
            UsageError: if there is no such split.
        """
        if split not in SPLITS:
            raise UsageError(f"unknown split {split!r}; the splits are {', '.join(SPLITS)}")
        return self.train if split == "train" else getattr(self, split).positive

    def edge_index(self, split: str) -> Tensor:
        """Edges of message passing for the split "train", "valid" or "test".

        These are the training links, in both directions if they are undirected. For "test",
        `valid_edges_at_test` adds the validation links.

        Returns:
            [2, E], int64, distinct, without self-loops, sorted by (source, target).

        Raises:
            UsageError: if there is no such split.
        """
        links = torch.cat(self.message_links(split))
        return tidy_edges(links.t(), self.num_nodes, undirected=not self.is_directed)[0]

    def message_links(self, split: str) -> list[Tensor]:
        """The links that `edge_index` is made of, as tensors [n, 2], int64."""
        self.positive(split)
        late = split == "test" and self.valid_edges_at_test
        return [self.train, self.valid.positive] if late else [self.train]

    def _pairs(self) -> dict[str, Tensor]:
        evaluated = {
            f"{name}.{kind}": getattr(split, kind)
            for name, split in (("valid", self.valid), ("test", self.test))
            for kind in ("positive", "negative")
        }
        return {"train": self.train} | evaluated

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
        if repeated := [name for name, count in Counter(self.node_names).items() if count > 1]:
            such = counted(len(repeated), "such name")
            raise DataError(
                f"{self.name}: several nodes are called {repeated[0]!r} ({such}); give each a name of its own"
            )
        if self.feature_names and (x is None or len(self.feature_names) != x.size(1)):
            raise DataError(
                f"{self.name}: {len(self.feature_names)} feature names for "
                f"{0 if x is None else x.size(1)} features"
            )
        if self.metric not in METRICS:
            raise DataError(f"{self.name}: metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        keys: dict[str, Tensor] = {}
        for split in SPLITS:
            links = self.positive(split)
            if bool((links[:, 0] == links[:, 1]).any()):
                raise DataError(f"{self.name}: {split} has a link of a node with itself; drop it")
            if split != "train" and self.protocol not in _PUBLISHED:
                _check_negatives(f"{self.name}: {split}", getattr(self, split).negative)
            keys[split] = pair_keys(links, self.num_nodes, is_directed=self.is_directed).sort().values
            if split == "train" and bool((keys[split].diff() == 0).any()):
                raise DataError(f"{self.name}: train has a link twice; list each link once")
        if self.may_recur:
            return
        for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            if shared := int(in_keys(keys[other], keys[one]).sum()):
                raise DataError(
                    f"{self.name}: {shared:,} links of {other} are also in {one}: evaluated links must not "
                    "be trained on; remove them from one of the two"
                )

    def _parts(self) -> list[_Array]:
        facts = [self.num_nodes, self.is_directed, self.metric, self.protocol]
        rules = [self.valid_edges_at_test, self.may_recur]
        parts = [to_bytes(json.dumps([*facts, *rules, self.node_names], ensure_ascii=False))]
        if self.x is not None:
            parts += feature_parts(self.x)
        for pairs in self._pairs().values():
            parts += [to_bytes(str(list(pairs.shape))), pairs.cpu().numpy().astype("<i8", copy=False)]
        return parts

    def _content(self) -> Content:
        arrays, features = ({}, None) if self.x is None else pack_features(self.x)
        index_type = np.int32 if self.num_nodes < 2**31 else np.int64
        for what, pairs in self._pairs().items():
            arrays[what] = pairs.cpu().numpy().astype(index_type)
        arrays["node_names"] = to_bytes(json.dumps(self.node_names, ensure_ascii=False))
        return {key: getattr(self, key) for key in _PLAIN} | {"features": features}, arrays

    @classmethod
    def _from_content(cls, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> Self:
        def pairs(what: str) -> Tensor:
            return torch.from_numpy(arrays[what].astype(np.int64))

        # Files of earlier versions have no names of features.
        plain: dict[str, Any] = {key: meta[key] for key in _PLAIN if key in meta}
        plain |= {key: tuple(value) for key, value in plain.items() if isinstance(value, list)}
        return cls(
            train=pairs("train"),
            valid=LinkSplit(pairs("valid.positive"), pairs("valid.negative")),
            test=LinkSplit(pairs("test.positive"), pairs("test.negative")),
            x=None if meta["features"] is None else unpack_features(arrays, meta["features"]),
            node_names=tuple(json.loads(to_text(arrays["node_names"]))),
            **plain,
        )


def _check_negatives(what: str, pairs: Tensor) -> None:
    same = (pairs[..., 0] == pairs[..., 1]).nonzero()
    if len(same):
        place = tuple(same[0].tolist())
        node = int(pairs[place][0])
        such = counted(len(same), "such pair")
        raise DataError(f"{what}: negative {list(place)} pairs node {node} with itself ({such}); drop it")
