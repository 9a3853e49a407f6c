"""Write data in memory to a file that `--data.path` can name, so that all training reads its data alike."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets import (
    KnowledgeGraph,
    LinkGraph,
    NodeGraph,
    link_graph_from_edges,
    node_graph_from_data,
    split_triples,
)
from graphzoo.datasets.files.text import is_missing, names_of, warn
from graphzoo.datasets.kg.graph import parts_of
from graphzoo.datasets.link.edge_list import node_order
from graphzoo.datasets.link.named_pairs import link_columns, pairs_from_table
from graphzoo.datasets.node.arrays import checked_features, notices_of_links, refuse_batch
from graphzoo.datasets.node.build import proper_names
from graphzoo.errors import GraphzooDataWarning, UsageError
from graphzoo.system.files import write_atomically
from graphzoo.system.units import counted

_FORMS = (
    "triples (a DataFrame, an array [n, 3], a list of (head, relation, tail), or a dict of train, valid and "
    "test), a PyG Data object, a networkx graph, an edge_index [2, E], a sparse adjacency of torch or scipy, "
    "or a name (`graphzoo list data`)"
)
_RELATIONS = ("relation", "rel", "predicate")  # a column of triples
_LABELS = ("y", "label")
_PARTS = {"train": "train_mask", "valid": "val_mask", "val": "val_mask", "test": "test_mask"}
_Attributes = Mapping[Any, Mapping[Any, Any]]  # of each node
_Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class GivenData:
    """A graph in memory that can be written to a file."""

    kind: str  # the data preset that reads the file: "kg", "nodes" or "links"
    write: Callable[[Path], None]  # writes the file
    is_directed: bool = False  # whether links have a direction; False if the data do not say
    links: Mapping[str, np.ndarray[Any, np.dtype[Any]]] | None = None  # arrays of the file; None if no links


def links_in_memory(data: Any) -> GivenData:
    """Read links in any form that `given_data` takes for a pair encoder, without drawing a split.

    Raises:
        UsageError: if the data are not links.
    """
    given = _read(data, "pair", None)
    if given.links is None:
        kind = type(data).__name__
        raise UsageError(f"data= is a {kind}, but the model predicts links\nGive a graph of links")
    return given


def given_data(data: Any, encoder: str, split_index: int = 0) -> GivenData:
    """Check data in memory: triples, a graph of PyG, networkx or graphzoo, an edge_index or an adjacency.

    If the data have both labels and links, node encoders learn the labels and all others the links.

    Args:
        data: The data.
        encoder: Kind of the model's encoder, "node", "pair" or "query"; "" if it is not known.
        split_index: Which split is drawn from triples. Splits of nodes and links are not drawn here, but when
            the file is read.

    Raises:
        UsageError: if graphzoo cannot train on the data; a `DataError` names the value.
    """
    given = _read(data, encoder, split_index)
    if given.links is not None:
        _try_split(given.links, is_directed=given.is_directed)
    return given


def _read(data: Any, encoder: str, split_index: int | None) -> GivenData:
    """`given_data` without a trial split; a `split_index` of None refuses triples."""
    data = _single(data)
    if isinstance(data, KnowledgeGraph):
        return GivenData("kg", data.save)
    if isinstance(data, LinkGraph):
        return GivenData("links", data.save, data.is_directed)
    if isinstance(data, NodeGraph):
        return GivenData("nodes", data.save)
    if is_from("networkx", data):
        return _networkx(data, encoder)
    if is_from("torch_geometric", data):
        return _pyg(data, encoder)
    if hasattr(data, "tocoo") or (isinstance(data, Tensor) and data.layout is not torch.strided):
        return _links(_of_adjacency(data))
    if isinstance(data, Tensor) or (isinstance(data, np.ndarray) and data.dtype.kind in "iu"):
        edges = data.cpu().numpy() if isinstance(data, Tensor) else data
        if edges.ndim != 2 or edges.shape[1] != 3 or edges.shape[0] == 2:
            return _links({"edge_index": edges})
        data = edges
    return _tables(data, encoder, split_index)


def is_from(package: str, data: Any) -> bool:
    """Whether the data's class, or a class that it inherits from, is one of the package."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(data).__mro__)


def _single(data: Any) -> Any:
    """The one graph of a PyG data set; a list of graphs is refused."""
    if (
        isinstance(data, list | tuple)
        and data
        and any(is_from(package, data[0]) for package in ("torch_geometric", "networkx"))
    ):
        kind = type(data[0]).__name__
        many = "" if len(data) == 1 else "; graphzoo trains on one"
        raise UsageError(f"data is a list of {counted(len(data), kind)}{many}\nGive one alone: data[0]")
    if not is_from("torch_geometric", data) or not hasattr(data, "processed_dir"):
        return data
    if len(data) != 1:
        raise UsageError(
            f"{type(data).__name__} has {len(data):,} graphs; graphzoo trains on one\nGive one: dataset[0]"
        )
    return data[0]


def _of_adjacency(matrix: Any) -> _Arrays:
    """Links of a sparse adjacency [N, N]; rows are sources in scipy, but targets in torch, as in PyG."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UsageError(
            f"data is a sparse matrix of shape {[*matrix.shape]}; an adjacency has as many rows as columns"
        )
    if isinstance(matrix, Tensor):
        entries: Any = matrix.detach().cpu()
        entries = entries.to_sparse_coo()
        if entries.dense_dim():
            raise UsageError("data is a sparse tensor with dense dimensions; give data.to_sparse(2)")
        edges, values = entries._indices().flip(0).numpy(), entries._values().double().numpy()
    else:
        entries = matrix.tocoo()
        edges, values = np.stack([entries.row, entries.col]).astype(np.int64), entries.data
    if not (values == 1).all():
        warn("values of the adjacency are ignored as weights; stored entries of 0 are not links")
    return {"edge_index": edges[:, values != 0], "num_nodes": np.array(matrix.shape[0])}


def _tables(data: Any, encoder: str, split_index: int | None) -> GivenData:
    """Triples, or pairs of names."""
    if isinstance(data, Mapping) and "train" in data:
        return _triples(split_index, *parts_of(data))
    rows = data
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = [str(name).lower() for name in data.columns]
        is_typed = any(name in _RELATIONS for name in names)
        if is_typed and len(names) == 2:
            raise UsageError(
                f"triples have three columns, head, relation and tail, but data has {[*data.columns]}\n"
                "Give all three as columns; reset_index() makes columns of an index"
            )
        ends = link_columns(names, "data")
        others = [kind for i, kind in enumerate(data.dtypes) if ends is not None and i not in ends]
        # For other models, a third column of numbers is a weight, and a third column of words a relation.
        weighted = ends is not None and all(getattr(kind, "kind", "O") in "iufb" for kind in others)
        learns_links = encoder in ("pair", "node") or weighted
        if len(names) == 2 or (learns_links and not is_typed):
            return _named_links(data)
        return _triples(split_index, data)
    if isinstance(data, np.ndarray) or (isinstance(data, Sequence) and not isinstance(data, str | bytes)):
        rows = list(data)
        if rows and all(isinstance(row, Sequence | np.ndarray) and len(row) == 2 for row in rows):
            return _named_links(rows)
        return _triples(split_index, data)
    refuse_data_module(data)
    raise UsageError(f"data is a {type(data).__name__}; graphzoo takes {_FORMS}")


def refuse_data_module(data: Any) -> None:
    """Refuse a DataModule where a graph is expected, and name its attribute that is the graph.

    Raises:
        UsageError: for a DataModule.
    """
    kind = type(data)
    if not hasattr(kind, "train_dataloader") or hasattr(kind, "training_step"):
        return
    parts = [name for name in ("knowledge_graph", "graph") if isinstance(getattr(kind, name, None), property)]
    what = f"data=datamodule.{parts[0]}" if parts else "one graph of it"
    raise UsageError(f"data is a {kind.__name__}, but a graph is expected\nGive {what}")


def _triples(split_index: int | None, *parts: Any) -> GivenData:
    if split_index is None:
        raise UsageError("data= has no pairs of nodes, but the model predicts links\nGive a graph of links")
    return GivenData("kg", split_triples(*parts, split_seed=split_index).save)


def _named_links(pairs: Any) -> GivenData:
    named = pairs_from_table(pairs)
    for notice in named.notices:
        warn(notice)
    names = node_order({*named.source, *named.target})
    number = {name: position for position, name in enumerate(names)}
    edges = np.array([[number[end] for end in ends] for ends in (named.source, named.target)], dtype=np.int64)
    return _links({"edge_index": edges} | _node_names(names))


def _links(arrays: _Arrays, *, is_directed: bool = False) -> GivenData:
    """Links as arrays; their split is drawn when the file is read, by `--data.split_index`."""

    def write(path: Path) -> None:
        write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    return GivenData("links", write, is_directed, arrays)


def _try_split(arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]], *, is_directed: bool) -> None:
    """Refuse links that cannot be split for training."""
    x = arrays.get("x")
    with warnings.catch_warnings():
        # Errors are wanted now, before a file is written. Its warnings come when the file is read.
        warnings.simplefilter("ignore", GraphzooDataWarning)
        link_graph_from_edges(
            torch.from_numpy(np.ascontiguousarray(arrays["edge_index"])),
            None if x is None else torch.from_numpy(x),
            num_nodes=int(arrays["num_nodes"]) if "num_nodes" in arrays else None,
            name="data",
            directed=is_directed,
        )


def _learns_labels(encoder: str, found: bool, names: str, attributes: Iterable[Any]) -> bool:
    """Whether labels are learnt; warns if a node encoder learns links for lack of labels."""
    if encoder == "node" and not found:
        there_are = ", ".join(sorted(map(str, attributes))) or "none"
        warn(f"data has no labels (attribute {names}), so links are learnt; its attributes are {there_are}")
    return found and encoder in ("node", "")


def _pyg(data: Any, encoder: str) -> GivenData:
    if not hasattr(data, "to_dict") or hasattr(data, "node_types"):
        raise UsageError(
            f"data is a {type(data).__name__}; graphzoo trains on a Data object with one kind of node\n"
            + (
                "Give its links as triples: (source, kind, target)"
                if encoder == "query"
                else "Convert it: data.to_homogeneous(); the kinds of nodes and links are then not used"
            )
        )
    refuse_batch(data, "data")
    if data.get("edge_index") is None:
        convert = "data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t.t())[0]"
        remedy = f"\nConvert it: {convert}" if data.get("adj_t") is not None else ""
        raise UsageError(f"data has no edge_index; it holds {', '.join(sorted(data.keys()))}{remedy}")
    if _learns_labels(encoder, data.get("y") is not None, "y", data.keys()):
        return GivenData("nodes", node_graph_from_data(data, name="nodes").save)
    for notice in notices_of_links(data.to_dict()):
        warn(f"data: {notice}")
    arrays = {"edge_index": data.edge_index.cpu().numpy(), "num_nodes": np.array(data.num_nodes)}
    if data.get("x") is not None:
        x = data.x.to_torch_sparse_coo_tensor() if hasattr(data.x, "to_torch_sparse_coo_tensor") else data.x
        arrays["x"] = checked_features(x, "data").to_dense().numpy()
    return _links(arrays)


def _networkx(graph: Any, encoder: str) -> GivenData:
    """Read node attributes: labels "y" or "label", features "x" (else all other numbers), and "split"."""
    about = dict(graph.nodes(data=True))
    if not about:
        raise UsageError("the networkx graph has no nodes")
    key = _attribute(about, *_LABELS)
    attributes = {name for each in about.values() for name in each}
    learns_labels = _learns_labels(encoder, key is not None, "y or label", attributes)
    named = _names(about)
    # The order is that of a table of nodes, or of a file of links.
    names = list(named) if learns_labels else node_order(named)
    about = {named[name]: about[named[name]] for name in names}
    number = {node: position for position, node in enumerate(about)}
    edges = np.array([[number[u], number[v]] for u, v in graph.edges()], dtype=np.int64).reshape(-1, 2).T
    _refuse_relations(graph, encoder)
    if unused := sorted({str(name) for _, _, each in graph.edges(data=True) for name in each}):
        warn(f"networkx graph: attributes of edges are not used: {', '.join(unused[:6])}")
    arrays: _Arrays = {"edge_index": edges, "num_nodes": np.array(len(names))} | _node_names(names)
    if (x := _features(about)) is not None:
        arrays["x"] = x
    if not learns_labels:
        return _links(arrays, is_directed=graph.is_directed())
    if "x" not in arrays:
        raise UsageError(
            "the nodes of the networkx graph have labels but no features\n"
            'Give each node a number or a list of numbers, such as its degree: graph.nodes[node]["x"] = ...'
        )
    arrays["y"] = np.array(_classes(about, key))
    parts = _split(about)
    if any(parts):
        arrays |= {mask: np.array([part == mask for part in parts]) for mask in set(_PARTS.values())}
    if graph.is_directed():
        warn("networkx graph: edges are taken in both directions, because labels are learnt")
    return GivenData("nodes", node_graph_from_data(arrays, name="nodes").save)


def _refuse_relations(graph: Any, encoder: str) -> None:
    """Refuse a networkx graph with relations for a model that would learn them; others are told of keys."""
    keys = {key for *_, key in graph.edges(keys=True)} if graph.is_multigraph() else set()
    kinds = {key for key in keys if isinstance(key, str)}
    edges = [each for _, _, each in graph.edges(data=True)]
    attribute = next((name for name in _RELATIONS if edges and all(name in each for each in edges)), None)
    if encoder == "query" and kinds:
        simple = "DiGraph" if graph.is_directed() else "Graph"
        raise UsageError(
            f"edges of the networkx graph have keys, such as {min(kinds)!r}, which links do not keep\n"
            "If these are relations, give triples: [(u, key, v) for u, v, key in graph.edges(keys=True)]; "
            f"else give networkx.{simple}(graph)"
        )
    if encoder == "query" and attribute:
        raise UsageError(
            f"edges of the networkx graph have an attribute {attribute!r}, which links do not keep\n"
            f'Give triples: [(u, each["{attribute}"], v) for u, v, each in graph.edges(data=True)]; to learn '
            f"links alone, remove the attribute first"
        )
    if kinds:
        warn("networkx graph: keys of edges are not used")


def _node_names(names: Sequence[str]) -> _Arrays:
    """The array of node names; nothing if the names are just the numbers 0..N-1."""
    return {"node_names": np.array(names)} if proper_names(names) else {}


def _names(nodes: Iterable[Any]) -> dict[str, Any]:
    """The nodes of a networkx graph by their names; two nodes of one name are refused."""
    named: dict[str, Any] = {}
    for node in nodes:
        if (name := str(node)) in named:
            raise UsageError(
                f"nodes {named[name]!r} and {node!r} of the networkx graph have the same name {name!r}\n"
                "Rename one of them: networkx.relabel_nodes(graph, {...})"
            )
        named[name] = node
    return named


def _attribute(about: _Attributes, *wanted: str) -> str | None:
    """The first wanted attribute that any node has, in the graph's spelling; None if there is none."""
    written = {name.lower(): name for each in about.values() for name in each if isinstance(name, str)}
    return next((written[name] for name in wanted if name in written), None)


def _split(about: _Attributes) -> list[str | None]:
    """Name of the mask that each node belongs to; None for a node without a split."""
    key, masks = _attribute(about, "split"), []
    for node, attributes in about.items():
        part = attributes.get(key)
        mask = _PARTS.get(str(part).lower())
        if mask is None and part is not None and part == part and part != "":
            raise UsageError(
                f"node {node!r} of the networkx graph: {key} is {part!r}; give train, valid, test or None"
            )
        masks.append(mask)
    return masks


def _classes(about: _Attributes, key: str | None) -> list[str]:
    """Name of the class of each node; "" for a node without a label."""
    labels: list[Any] = []
    for node, attributes in about.items():
        label: Any = attributes.get(key)
        if isinstance(label, list | tuple) and len(label) == 1:
            (label,) = label  # PyG's `to_networkx` makes lists of [N, 1]
        if np.iterable(label) and not isinstance(label, str | bytes):
            raise UsageError(
                f"node {node!r} of the networkx graph: {key} is {reprlib.repr(label)}; give one class\n"
                "If nodes have several yes-no labels, give torch_geometric.utils.from_networkx(graph); "
                "its nodes need x and y"
            )
        labels.append(label.item() if hasattr(label, "item") else label)  # a scalar of NumPy or torch
    known = iter(names_of([label for label in labels if not is_missing(label)]))
    return ["" if is_missing(label) else next(known) for label in labels]


def _features(about: _Attributes) -> np.ndarray[Any, Any] | None:
    """Features of the nodes, [N, F], float32; None if there are none."""
    key = _attribute(about, "x")
    names = _numbers(about) if key is None else [key]
    if not names:
        return None
    rows = []
    for node, attributes in about.items():
        if missing := [name for name in names if name not in attributes]:
            raise UsageError(f"node {node!r} has no {missing[0]!r}, others have it; give it to every node")
        rows.append(np.concatenate([_vector(node, name, attributes[name]) for name in names]))
    if len({len(row) for row in rows}) > 1:
        raise UsageError(f'"{key}" differs in length between nodes; give all nodes equally many features')
    return np.stack(rows)


def _vector(node: Any, name: str, value: Any) -> np.ndarray[Any, Any]:
    """The number or numbers of an attribute of a node, [n], float32."""
    try:
        return np.ravel(np.asarray(value, dtype=np.float32))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"node {node!r} of the networkx graph: {name} is {reprlib.repr(value)}\n"
            "Give a number, or a list of numbers of the same length at every node"
        ) from error


def _numbers(about: _Attributes) -> list[str]:
    """Names of the attributes that are a number at every node.

    An attribute that is a number at more than half of the nodes, but not at all, is refused. Other attributes
    are left out with a warning.
    """
    features, others = [], []
    for name in dict.fromkeys(name for each in about.values() for name in each):
        if str(name).lower() in (*_LABELS, "split"):
            continue
        wrong = [node for node, each in about.items() if not isinstance(each.get(name), Real)]
        if not wrong:
            features.append(name)
        elif 2 * len(wrong) < len(about):
            value = about[wrong[0]].get(name)
            raise UsageError(
                f"node {wrong[0]!r} of the networkx graph: {name} is {value!r}, but a number at most nodes\n"
                f"Give every node a number, or remove {name} from all nodes"
            )
        else:
            others.append(str(name))
    if others:
        warn(f"networkx graph: attributes that are not numbers are left out: {', '.join(others)}")
    return features
