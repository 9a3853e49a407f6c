"""The table of graphs with node labels: files, counts, hashes, addresses, licence. Standard library only.

Hashes and sizes lie in `node_files.json` beside this file, by path below the data root. Files whose original
was never seen have none; the counts of the parsed graph are checked in any case.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from graphzoo.errors import UsageError, normalise, suggestion

__all__ = ["Counts", "NodeFile", "NodeSource", "find_node_source", "list_node_graphs"]

_RAW = "https://raw.githubusercontent.com"
# pinned to commits; a branch as second choice is safe too, since every such file has a hash
_PLANETOID = (
    f"{_RAW}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data",
    f"{_RAW}/kimiyoung/planetoid/master/data",
)
_GEOM_GCN = (
    f"{_RAW}/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f",
    f"{_RAW}/graphdml-uiuc-jlu/geom-gcn/master",
)
_HETEROPHILOUS = f"{_RAW}/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data"


@dataclass(frozen=True)
class NodeFile:
    """A file of a data set.

    Args:
        path: Below the folder of the data set.
        urls: Addresses, tried in order.
        archive: Path of the zip archive it is fetched in (its `urls` are then the archive's), or "".
        member: Its name in the archive.
    """

    path: str
    urls: tuple[str, ...] = ()
    archive: str = ""
    member: str = ""


@dataclass(frozen=True)
class Counts:
    """What the parsed graph must have; an undirected edge counts twice."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class NodeSource:
    """One row of the table.

    Args:
        name: Name on the command line.
        reader: Module of `graphzoo.datasets.node` and function in it that read the files, "module.function".
        folder: Folder below the data root.
        files: What is read; empty for data that a dependency brings along.
        counts: What the graph must have.
        licence: As stated by the repositories named in the addresses.
        citation: Where the data set was published.
        metric: What it is judged by.
        default_split: The split taken when none is named; empty: the first fixed one.
        num_neighbors: Neighbours of a node, itself included, for data sets without a graph; 0 for others.
        note: What a user should know.
    """

    name: str
    reader: str
    folder: str
    files: tuple[NodeFile, ...]
    counts: Counts
    licence: str
    citation: str
    metric: str = "accuracy"
    default_split: str = ""
    num_neighbors: int = 0
    note: str = ""

    def facts(self, file: NodeFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""
        values = _facts().get(f"{self.folder}/{file.archive or file.path}", {})
        return values.get("sha256"), int(values.get("bytes", 0))


def list_node_graphs() -> list[str]:
    """Names of the table, in its order."""
    return [source.name for source in _SOURCES]


def find_node_source(name: str) -> NodeSource:
    """The row of a data set; case, `-` and `_` do not matter.

    Raises:
        ValueError: if there is none; the message names the nearest.
    """
    for source in _SOURCES:
        if normalise(name) == normalise(source.name):
            return source
    names = list_node_graphs()
    hint = suggestion(name, names) or f"Known: {', '.join(names)}, or nodes with a path of your own."
    raise UsageError(f"unknown graph {name!r}. {hint}")


@cache
def _facts() -> dict[str, dict[str, Any]]:
    file = resources.files("graphzoo.datasets.node").joinpath("node_files.json")
    facts: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return facts


def _planetoid(name: str, folder: str, counts: Counts) -> NodeSource:
    stem = name.lower()
    raw = ("x", "y", "allx", "ally", "tx", "ty", "graph", "test.index")
    splits = [f"{stem}_split_0.6_0.2_{index}.npz" for index in range(10)]
    return NodeSource(
        name,
        "planetoid.read_planetoid",
        f"planetoid/{folder}",
        (
            *(
                NodeFile(f"raw/ind.{stem}.{part}", tuple(f"{base}/ind.{stem}.{part}" for base in _PLANETOID))
                for part in raw
            ),
            *(
                NodeFile(f"geom-gcn-splits/{file}", tuple(f"{base}/splits/{file}" for base in _GEOM_GCN))
                for file in splits
            ),
        ),
        counts,
        "MIT (kimiyoung/planetoid); splits: none stated (geom-gcn)",
        "Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016; ten splits: Pei et "
        "al., Geom-GCN, ICLR 2020",
    )


_SOURCES = (
    _planetoid("cora", "Cora", Counts(2_708, 10_556, 1_433, 7)),
    _planetoid("citeseer", "CiteSeer", Counts(3_327, 9_104, 3_703, 6)),
    _planetoid("pubmed", "PubMed", Counts(19_717, 88_648, 500, 3)),
)
