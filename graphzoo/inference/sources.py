"""The graph of a node or link model at prediction time: that of its run, or another one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphzoo.datasets import (
    KnowledgeGraph,
    LinkGraph,
    LinkSplit,
    NodeGraph,
    link_graph_from_files,
    load_link_graph,
    load_node_graph,
    node_graph_from_data,
    node_graph_from_files,
)
from graphzoo.datasets.files.cache import find_split
from graphzoo.datasets.files.npz import read_npz
from graphzoo.datasets.files.text import lookalikes, warn
from graphzoo.datasets.in_memory import is_from, links_in_memory, refuse_data_module
from graphzoo.datasets.link.edge_list import headers_read_as_links, number_nodes, read_edge_list
from graphzoo.datasets.link.own import whole_number
from graphzoo.datasets.link.pairs import distinct_links
from graphzoo.datasets.node.arrays import LABELS_AND_SPLITS, link_parts, notices_of_edges, notices_of_features
from graphzoo.datasets.node.build import number_names, proper_names
from graphzoo.datasets.node.own_csv import read_features
from graphzoo.errors import UsageError
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file

_logger = logging.getLogger(__name__)

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
NodeGraphSource = NodeGraph | Paths | Any
"""A graph, a `Data` of PyG, files as for `--data nodes --data.path`, or the name of a data set."""
LinkGraphSource = LinkGraph | Paths | Any
"""A graph, links as for `graphzoo.fit`, files as for `--data links --data.path`, or a data set's name."""

_Graph = TypeVar("_Graph", KnowledgeGraph, LinkGraph, NodeGraph)


def stored_node_graph(run: Path) -> NodeGraph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from."""
    return _stored(
        run,
        NodeGraph.load,
        lambda meta: node_graph_from_files(meta["path"]),
        lambda meta, root: load_node_graph(
            meta["name"],
            root=root,
            num_neighbors=meta["num_neighbors"],
            neighbor_metric=meta.get("neighbor_metric", "euclidean"),  # older runs do not store it
        ),
    )


def load_node_source(source: NodeGraphSource, *, directed: bool = False) -> NodeGraph:
    """The graph of a source; see `from_source`. `directed` applies to files and `Data` objects only."""
    if isinstance(source, NodeGraph):
        return source
    settings: dict[str, Any] = {"directed": directed, "require_labels": False}
    if _is_pyg(source):
        data: Any = source
        if not hasattr(data, "node_types"):  # labels are not needed, so bad ones are no error
            data = {name: part for name, part in data.to_dict().items() if name not in LABELS_AND_SPLITS}
        return node_graph_from_data(data, name="data", **settings)
    return from_source(
        source,
        load_node_graph,
        lambda paths: node_graph_from_files(paths[0] if len(paths) == 1 else paths, **settings),
    )


def stored_link_graph(run: Path) -> LinkGraph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from."""
    return _stored(
        run,
        LinkGraph.load,
        lambda meta: link_graph_from_files(
            meta["path"], split_index=meta["split"]["index"], directed=meta.get("directed", False)
        ),
        lambda meta, root: load_link_graph(
            meta["name"], protocol=meta["split"]["name"], split_index=meta["split"]["index"], root=root
        ),
    )


def load_link_source(source: LinkGraphSource, *, directed: bool = False) -> LinkGraph:
    """The graph of a source; see `from_source`.

    Message passing uses all links of a single list or `Data`; no split is drawn from them. Of train, valid
    and test files, and of data sets, it uses the training links, as in evaluation. `directed` applies to
    files and links in memory only.
    """
    if isinstance(source, LinkGraph):
        return source
    if _is_pyg(source):
        data: Any = source
        return _from_parts({**data.to_dict(), "num_nodes": data.num_nodes}, "data", directed)
    if not _is_named(source):
        given = links_in_memory(source)
        return _from_parts(given.links or {}, "data", directed or given.is_directed)

    def from_files(paths: list[str | PathLike[str]]) -> LinkGraph:
        first = Path(paths[0]) if paths else None
        if first is None or len(paths) > 1 or (first.is_dir() and find_split(first, "edges") is None):
            return link_graph_from_files(paths, directed=directed)
        if first.suffix == ".npz":
            content = read_npz(first, LinkGraph)
            return content if isinstance(content, LinkGraph) else _from_parts(content, str(first), directed)
        return _from_one_list(first, directed=directed)

    return from_source(source, load_link_graph, from_files)


def _from_parts(content: Mapping[str, Any], origin: str, directed: bool) -> LinkGraph:
    """The graph of arrays (edges, features, names) in memory or of an `.npz` file."""
    edge_index, x, names = link_parts(content, origin)
    for notice in [*notices_of_edges(content), *notices_of_features(content.get("x"))]:
        warn(f"{origin}: {notice}")
    if not names:
        count = whole_number(content.get("num_nodes"), f"{origin}: num_nodes")
        least = int(edge_index.max()) + 1 if edge_index.numel() else 0
        names = number_names(max(least, 0 if x is None else x.shape[0], count or 0))
    return _message_graph(origin, names, edge_index.t(), x, directed=directed)


def _from_one_list(path: Path, *, directed: bool) -> LinkGraph:
    """The graph of a file of links, or of a folder with a file `edges` and optionally a file `nodes`."""
    edges, nodes = path, None
    if path.is_dir():
        edges, nodes = find_split(path, "edges") or path, find_split(path, "nodes")
    table = None if nodes is None else read_features(nodes)
    listed = read_edge_list(edges)
    node_names, pairs = number_nodes({"edges": listed}, table and table.names, nodes)
    alike = [f"{edges}: {notice}" for notice in lookalikes(node_names, "nodes")]
    rounding = table.notices if table is not None else []
    for notice in [*listed.notices, *rounding, *headers_read_as_links([listed]), *alike]:
        warn(notice)
    x, features = (None, ()) if table is None else (table.x, table.feature_names)
    return _message_graph(str(edges), node_names, pairs["edges"], x, features, directed=directed)


def _message_graph(
    origin: str,
    names: Sequence[str],
    pairs: Tensor,
    x: Tensor | None,
    feature_names: tuple[str, ...] = (),
    *,
    directed: bool,
) -> LinkGraph:
    """A graph with all links in its training split; `origin` is the source, for messages."""
    links, repeated, loops = distinct_links(pairs, len(names), is_directed=directed)
    _logger.info("%s: %d repeated links and %d of a node with itself dropped", origin, repeated, loops)
    if not links.shape[0]:
        raise UsageError(f"{origin}: no link between two different nodes found")
    none = LinkSplit(links[:0], links[:0])
    return LinkGraph(
        Path(origin).resolve().name,
        len(names),
        links,
        none,
        none,
        x=x,
        is_directed=directed,
        node_names=proper_names(names),
        feature_names=feature_names,
    )


def _stored(
    run: Path,
    load: Callable[[Path], _Graph],
    from_files: Callable[[dict[str, Any]], _Graph],
    by_name: Callable[[dict[str, Any], str | None], _Graph],
) -> _Graph:
    """The graph of a run: its copy, or for a large graph the data set or files that meta.json names.

    Raises:
        UsageError: if the data are missing, or are not those that the run was trained on.
    """
    folder = run / "graph"
    meta = _read_meta(folder / "meta.json")
    if meta["graph"] is not None:
        return load(folder / meta["graph"])
    if meta["path"] is not None:  # the run directory holds data that were in memory
        meta["path"] = [str(own) if (own := _in_run(run, path)) else path for path in meta["path"]]
    place = ", ".join(meta["path"]) if meta["path"] is not None else f"data set {meta['name']}"
    try:
        if meta["path"] is not None:
            graph = from_files(meta)
        else:
            # A data root that does not exist (any more) must not be created.
            root = meta.get("root")
            graph = by_name(meta, root if root is not None and Path(root).is_dir() else None)
    except (KeyError, TypeError) as error:
        raise _damaged(folder / "meta.json", f"no usable {error}") from error
    except UsageError as error:
        raise UsageError(
            f"{run}: its graph is large and was not copied; reading it again from {place} failed:\n{error}\n"
            "Restore it, or give the graph with data= or --data.path"
        ) from error
    if graph.fingerprint != meta["graph_fingerprint"]:
        raise UsageError(
            f"{run}: {place} is not the graph that the run was trained on (fingerprint "
            f"{graph.fingerprint[:12]}, then {meta['graph_fingerprint'][:12]})\n"
            "To predict on it anyway, give it with data= or --data.path"
        )
    return graph


def _in_run(run: Path, path: str) -> Path | None:
    """The run's copy of data that were in memory, which is found even if the run was moved; else None."""
    own = run / Path(path).name
    return own if own.name == "data.npz" and own.is_file() else None


def _read_meta(path: Path) -> dict[str, Any]:
    """Read the description of a run's graph; its values are checked, as the file may be untrusted."""
    try:
        meta = read_json(path)
    except (OSError, ValueError) as error:
        raise_if_not_the_file(error, path)
        raise _damaged(path, str(error)) from error
    if not isinstance(meta, dict):
        raise _damaged(path, "it holds no settings")
    paths = meta.get("path")
    checks = {
        # only a copy in the same folder
        "graph": meta.get("graph", "") in (None, "node_graph.npz", "link_graph.npz"),
        "path": paths is None or (isinstance(paths, list) and all(isinstance(part, str) for part in paths)),
        "root": isinstance(meta.get("root"), str | None),
        "name": isinstance(meta.get("name"), str | None),
        "graph_fingerprint": isinstance(meta.get("graph_fingerprint"), str),
    }
    for name, good in checks.items():
        if not good:
            raise _damaged(path, f"no usable {name!r}")
    return meta


def _damaged(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path} is damaged ({problem[:200]})\n"
        "Give the graph with data= or --data.path, or copy the run again"
    )


def refuse_others(data: object, wanted: type, what: str) -> None:
    """Refuse a graph of another kind than `wanted`; `what` describes the model in the message."""
    kinds = {
        KnowledgeGraph: "a knowledge graph",
        LinkGraph: "a graph of links",
        NodeGraph: "a graph of nodes with features",
    }
    kind = kinds.get(type(data))
    if kind is not None and not isinstance(data, wanted):
        raise UsageError(f"{what}, but data= is {kind}")


def _is_pyg(data: object) -> bool:
    """Whether something is a `Data` object of PyG; found without importing PyG."""
    return is_from("torch_geometric", data) and hasattr(data, "edge_stores")


def _is_named(source: Any) -> bool:
    """Whether something is a path, or several of them."""
    parts = source if isinstance(source, list | tuple) else [source]
    return any(isinstance(part, str | PathLike) for part in parts)


def from_source(
    source: Paths, by_name: Callable[[str], _Graph], from_files: Callable[[list[str | PathLike[str]]], _Graph]
) -> _Graph:
    """The graph of the files at `source`, or of the data set of that name if there is no such path."""
    parts = source if isinstance(source, Sequence) else [source]
    if wrong := [part for part in parts if not isinstance(part, str | PathLike)]:
        refuse_data_module(wrong[0])
        place = "holds" if wrong[0] is not source else "is"
        raise UsageError(
            f"data= {place} a {type(wrong[0]).__name__}, from which graphzoo cannot read this kind of graph\n"
            "Give files, the name of a data set, a graph of graphzoo or a Data object of PyG"
        )
    paths = [source] if isinstance(source, str | PathLike) else list(source)
    if len(paths) == 1 and not Path(paths[0]).exists():
        try:
            return by_name(str(paths[0]))
        except ValueError as error:
            raise UsageError(
                f"{paths[0]}: there is no such path, and no data set of this name can be loaded ({error})"
            ) from error
    return from_files(paths)
