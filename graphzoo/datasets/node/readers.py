"""Readers of data sets with their own file formats; most are named after the makers of the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.tables import read_bytes
from graphzoo.datasets.node.build import Parsed, from_masks, read_mask_file, sparse_features
from graphzoo.datasets.node.splits import PARTS, NodeSplit
from graphzoo.datasets.node.unpickle import read_pickle, read_pickled_array
from graphzoo.errors import DataError
from graphzoo.system.memory import reading

_ACTOR_FEATURES = 932
_DEEZER_ARTISTS = 31_241
_PLANETOID_VALID = 500


def read_actor(files: Mapping[str, Path]) -> Parsed:
    """Read Actor, also called Film (Pei et al., ICLR 2020), with its ten splits, named "geom-gcn".

    The edges of the file are directed: an actor is named on another's page. `NodeGraph` stores them in both
    directions, as in the published results.
    """
    features, labels = _read_actors(files["out1_node_feature_label.txt"])
    edges = np.loadtxt(files["out1_graph_edges.txt"], dtype=np.int64, skiprows=1, ndmin=2)
    masks = [read_mask_file(files[name]) for name in sorted(files) if name.endswith(".npz")]
    return Parsed.of_arrays(features, edges.T, labels, splits={"geom-gcn": from_masks("geom-gcn", masks)})


def _read_actors(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Binary features and classes, from lines `node<TAB>feature,feature,...<TAB>class` below a header."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    features = np.zeros((len(lines), _ACTOR_FEATURES), dtype=np.float32)
    labels = np.full(len(lines), -1, dtype=np.int64)
    for number, line in enumerate(lines, start=2):
        try:
            node, present, label = line.split("\t")
            features[int(node), [int(feature) for feature in present.split(",")]] = 1
            labels[int(node)] = int(label)
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}, line {number}: {error}; fetch the file again") from error
    return features, labels


def read_deezer(files: Mapping[str, Path]) -> Parsed:
    """Read Deezer Europe (Rozemberczki & Sarkar, CIKM 2020), with the splits of LINKX, named "linkx".

    Nodes are users, edges say who follows whom, and sparse binary features are the artists that a user likes.
    The five splits are those of Lim et al. (NeurIPS 2021).
    """
    liked = json.loads(read_bytes(files["deezer_europe_features.json"]))
    target = np.loadtxt(files["deezer_europe_target.csv"], dtype=np.int64, delimiter=",", skiprows=1)
    edges = np.loadtxt(files["deezer_europe_edges.csv"], dtype=np.int64, delimiter=",", skiprows=1)
    y = np.full(len(target), -1, dtype=np.int64)
    y[target[:, 0]] = target[:, 1]
    x = sparse_features([liked.get(str(node), []) for node in range(len(y))], _DEEZER_ARTISTS)
    splits = [
        [torch.from_numpy(np.asarray(split[part], dtype=np.int64)) for part in PARTS]
        for split in read_pickled_array(files["deezer-europe-splits.npy"])
    ]
    linkx = tuple(NodeSplit("linkx", index, *parts) for index, parts in enumerate(splits))
    return Parsed.of_arrays(x, edges.T, y, splits={"linkx": linkx})


def read_linkx(files: Mapping[str, Path]) -> Parsed:
    """Read Pokec from the MATLAB file of LINKX (Lim et al., NeurIPS 2021).

    The fields are `edge_index`, `node_feat`, `num_nodes` and `label` (-1 if unknown). `NodeGraph` stores the
    edges in both directions.
    """
    # imported here: only this format needs it
    from scipy.io import loadmat
    from scipy.sparse import issparse

    (path,) = files.values()
    with reading(path, "a readable MATLAB file"):
        fields = loadmat(path)
        x, y = fields["node_feat"], fields["label"].reshape(-1).astype(np.int64)
        edges, num_nodes = fields["edge_index"].astype(np.int64), int(fields["num_nodes"].reshape(-1)[0])
        x = np.asarray(x.todense() if issparse(x) else x, dtype=np.float32)
    if len(x) != num_nodes or len(y) != num_nodes:
        raise DataError(
            f"{path}: {len(x):,} rows of features and {len(y):,} labels for {num_nodes:,} nodes; delete it "
            "to fetch it again"
        )
    return Parsed.of_arrays(x, edges, y)


def read_masked(files: Mapping[str, Path]) -> Parsed:
    """Read Tolokers, or the filtered Squirrel or Chameleon (Platonov et al., ICLR 2023).

    The `.npz` file has features, edges (each once), labels and ten splits, named "public".
    """
    (path,) = files.values()
    with np.load(path, allow_pickle=False) as file:
        x, y, edges = file["node_features"], file["node_labels"], file["edges"]
        masks = [file[name] for name in ("train_masks", "val_masks", "test_masks")]
    public = from_masks("public", list(zip(*masks, strict=True)))
    return Parsed.of_arrays(x, edges.T, y, splits={"public": public})


def read_planetoid(files: Mapping[str, Path]) -> Parsed:
    """Read Cora, CiteSeer or PubMed (Yang et al., ICML 2016), with "public" and Geom-GCN's ten splits.

    The files `allx` and `tx` are CSR matrices: features of all nodes but the test nodes, and of the test
    nodes. `y`, `ally` and `ty` are one-hot classes of the training nodes, of all nodes but the test nodes,
    and of the test nodes. `graph` has the neighbours of each node. `test.index` has the numbers of the test
    nodes in the order of `tx`.

    CiteSeer has 15 nodes without edges, features and classes, which `test.index` does not list. They are
    kept with zero features and class 0, as in all published results; the public split does not contain them.
    """
    parts = _planetoid_parts(files)
    matrices = {key: read_pickle(parts[key]).to_dense() for key in ("allx", "tx")}
    onehot = {key: np.asarray(read_pickle(parts[key])) for key in ("y", "ally", "ty")}
    neighbours = read_pickle(parts["graph"])
    test = np.loadtxt(parts["test.index"], dtype=np.int64)
    num_known = matrices["allx"].shape[0]
    num_nodes = int(test.max()) + 1
    if test.min() < num_known or test.size != matrices["tx"].shape[0] or num_nodes != len(neighbours):
        raise DataError(f"{parts['test.index']}: does not fit the other files; fetch them again")

    x = np.zeros((num_nodes, matrices["allx"].shape[1]), dtype=np.float32)
    y = np.zeros(num_nodes, dtype=np.int64)
    for rows, features, classes in (
        (np.arange(num_known), matrices["allx"], onehot["ally"]),
        (test, matrices["tx"], onehot["ty"]),
    ):
        x[rows] = features
        y[rows] = classes.argmax(1)

    num_train = onehot["y"].shape[0]
    valid = torch.arange(num_train, num_train + _PLANETOID_VALID)
    public = NodeSplit("public", 0, torch.arange(num_train), valid, torch.from_numpy(test))
    masks = [read_mask_file(path) for name, path in sorted(files.items()) if name.endswith(".npz")]
    splits = {"public": (public,), "geom-gcn": from_masks("geom-gcn", masks)}
    return Parsed.of_arrays(x, _listed_edges(neighbours), y, splits=splits)


def read_citations(files: Mapping[str, Path]) -> Tensor:
    """The citations between different papers of Cora, CiteSeer or PubMed, as the file lists them.

    Two papers that cite each other are listed twice.

    Returns:
        [n, 2], int64, the lower number first.
    """
    edges = torch.from_numpy(_listed_edges(read_pickle(_planetoid_parts(files)["graph"])))
    # Each citation is listed once as a neighbour of either paper.
    return edges[:, edges[0] < edges[1]].t()


def _planetoid_parts(files: Mapping[str, Path]) -> dict[str, Path]:
    """The files by the rest of their name after `ind.<name>.`."""
    return {path.name.split(".", 2)[2]: path for path in files.values() if path.name.startswith("ind.")}


def _listed_edges(neighbours: Mapping[int, Sequence[int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Edges from every node to each of its neighbours, [2, E]."""
    lengths = [len(targets) for targets in neighbours.values()]
    sources = np.repeat(np.fromiter(neighbours, dtype=np.int64), lengths)
    targets = np.fromiter((target for row in neighbours.values() for target in row), dtype=np.int64)
    return np.stack([sources, targets])
