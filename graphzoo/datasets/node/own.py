"""Load the user's own graph from a file of a PyG `Data`, an `.npz` file, or tables of nodes and edges."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphzoo.datasets.files.cache import TABLES, find_split, remember
from graphzoo.datasets.files.npz import read_npz
from graphzoo.datasets.files.text import listing, names_of, paths_of, warn
from graphzoo.datasets.node.arrays import graph_parts
from graphzoo.datasets.node.build import Parsed, number_names
from graphzoo.datasets.node.graph import NodeGraph
from graphzoo.datasets.node.own_csv import may_be_labels, read_tables
from graphzoo.datasets.node.splits import PARTS, is_labelled
from graphzoo.errors import DataError
from graphzoo.system.files import check_growth
from graphzoo.system.memory import reading
from graphzoo.system.regular_files import require_regular

# Texts that tables use for a missing value.
_UNKNOWN = {"-1", "na", "n/a", "nan", "null", "none", "?", "unknown", "missing"}
_FORMS = "a PyG Data file (.pt), an .npz file, or a folder with nodes.csv and edges.csv"


def node_graph_from_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    directed: bool = False,
    require_labels: bool = True,
    class_names: Sequence[str] | None = None,
) -> NodeGraph:
    """The user's own graph.

    Args:
        path: One of

            - a `.pt` file: `torch.save` of a PyG `Data` object or of its `to_dict()`, with `x`, `edge_index`,
              `y` and, for fixed splits, `train_mask`, `val_mask`, `test_mask` ([N], or [N, S] for S splits).
              No code in the file is run; a file that cannot be read without running code is refused.
            - an `.npz` file with arrays of the same names, and optionally `class_names` and `node_names`. The
              names of the heterophilous benchmarks are accepted, too: `node_features`, `node_labels`,
              `edges` [E, 2], `train_masks` [S, N], ...
            - an `.npz` file that `NodeGraph.save` wrote
            - a folder with `nodes.csv` and `edges.csv` (or .tsv, .txt, or these with .gz), or a list of the
              two files. Columns are separated by tabs, commas, semicolons or bars. In the table of nodes, the
              first column is the node's name; `label` is its class (empty if unknown), or several columns
              `label_NAME` are 0 or 1; `split` may be train, valid or test; every other column is a numeric
              feature. The table of edges has the names of nodes in `source` and `target`. Other columns of it
              are ignored, and a warning names them.
        directed: Whether edges stay as they are; if False, both directions of each are stored.
        require_labels: Whether a graph is refused if it has no labels, a single class, or an empty part of a
            split; False for a graph to predict on.
        class_names: Names of the classes in order, such as those of a trained model; None takes those that
            occur, in numeric order if all are numbers.

    Returns:
        The graph; splits of the files are named "given".

    Raises:
        DataError: if the path does not exist or its content cannot be used; names file, place and remedy.
    """
    files, name = _find(path)
    names = None if class_names is None else tuple(names_of(list(class_names)))

    def parse() -> tuple[NodeGraph, list[str]]:
        return _parse(files, name, directed=directed, require_labels=require_labels, class_names=names)

    listed = [str(file.parent.resolve() / file.name) for file in files]
    purpose = f"own nodes 10\n{name}\n{directed} {require_labels}\n{names}\n{listed}"
    return remember(files, purpose, NodeGraph, parse)


def node_graph_from_data(
    data: Any,
    *,
    name: str = "nodes",
    directed: bool = False,
    require_labels: bool = True,
    class_names: Sequence[str] | None = None,
) -> NodeGraph:
    """A graph from data in memory.

    Args:
        data: A PyG `Data` object, or a mapping with the same names; see `node_graph_from_files`.
        name: Name for logs and results.
        directed: As in `node_graph_from_files`.
        require_labels: As in `node_graph_from_files`.
        class_names: As in `node_graph_from_files`.

    Returns:
        The graph. A `GraphzooDataWarning` says what was dropped or ignored.

    Raises:
        DataError: if something is missing or does not fit together.
    """
    content = data if isinstance(data, Mapping) else getattr(data, "to_dict", dict)()
    if hasattr(data, "node_types"):
        raise DataError(f"{name}: a HeteroData has several kinds of nodes\nGive data.to_homogeneous()")
    if not content:
        is_networkx = type(data).__module__.startswith("networkx")
        remedy = (
            "\nGive torch_geometric.utils.from_networkx(graph); its nodes need x and y" if is_networkx else ""
        )
        raise DataError(f"{name}: expected a PyG Data object or a mapping, got {type(data).__name__}{remedy}")
    parsed = graph_parts(content, name, None if class_names is None else tuple(class_names))
    graph, notices = parsed.to_graph(name, undirected=not directed)
    if require_labels:
        _check_labels(name, parsed)
        notices += _doubts(parsed)
    for notice in notices:
        warn(f"{name}: {notice}")
    return graph


def _find(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[list[Path], str]:
    """The files to read, and a name for the graph."""
    paths = paths_of(path, _FORMS)
    if len(paths) == 1 and paths[0].is_dir():
        return [_table(paths[0], "nodes"), _table(paths[0], "edges")], paths[0].resolve().name
    if len(paths) == 2 and all(part.name.endswith(TABLES) for part in paths):
        return paths, paths[0].resolve().parent.name
    if len(paths) != 1 or paths[0].suffix not in (".pt", ".pth", ".npz"):
        given = ", ".join(map(str, paths)) or "nothing"
        raise DataError(f"expected {_FORMS}, or a list of the two tables; got {given}")
    return paths, paths[0].stem


def _table(folder: Path, stem: str) -> Path:
    if (path := find_split(folder, stem, (".csv", ".csv.gz")) or find_split(folder, stem)) is None:
        raise DataError(
            f"{folder}: no {stem}.csv (.tsv, .txt and .gz allowed); the folder has {listing(folder)}\n"
            "Give tables called nodes and edges; for a graph without edges, edges has only the first line"
        )
    return path


def _parse(
    files: Sequence[Path],
    name: str,
    *,
    directed: bool,
    require_labels: bool,
    class_names: tuple[str, ...] | None,
) -> tuple[NodeGraph, list[str]]:
    source = str(files[0])
    if len(files) == 2:
        parsed = read_tables(files[0], files[1], class_names)
    else:
        content = read_npz(files[0], NodeGraph) if source.endswith(".npz") else _read_torch(files[0])
        if isinstance(content, NodeGraph):
            return content, []
        parsed = graph_parts(content, source, class_names)
    try:
        graph, notices = parsed.to_graph(name, undirected=not directed)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    edges = str(files[-1])
    own = len(parsed.notices)  # later notices are about edges
    sourced = [notice if notice.startswith(edges) else f"{source}: {notice}" for notice in notices[:own]]
    sourced += [f"{edges}: {notice}" for notice in notices[own:]]
    if require_labels:
        _check_labels(source, parsed)
        sourced += [f"{source}: {doubt}" for doubt in _doubts(parsed)]
    return graph, sourced


def _check_labels(source: str, parsed: Parsed) -> None:
    """Refuse labels and splits that cannot be trained on."""
    y = parsed.y
    if not bool(is_labelled(y).any()):
        raise DataError(
            f"{source}: no node has a label; "
            + (
                may_be_labels(parsed.feature_names)
                or "fill y (or the column label) for the nodes to learn from"
            )
            + "\n  To predict labels with a trained model, use graphzoo predict"
        )
    if y.ndim == 1 and torch.unique(y[y >= 0]).numel() == 1:
        label = parsed.class_names[int(y[y >= 0][0])]
        raise DataError(
            f"{source}: every labelled node is of class {label!r}; training needs nodes of two classes"
        )
    if y.ndim == 2:
        known = ~y.isnan()
        constant = (y.nan_to_num(1).min(0).values == 1) | (y.nan_to_num(0).max(0).values == 0)
        if bool((constant | ~known.any(0)).all()):
            raise DataError(
                f"{source}: no label has both values 0 and 1; training needs nodes of both values"
            )
    for split, part in product(chain.from_iterable(parsed.splits.values()), PARTS):
        if not split.nodes(part).numel():
            raise DataError(
                f"{source}: split {split.index} has no {part} nodes; mark some, or leave out all marks, and "
                "random splits are drawn"
            )


def _doubts(parsed: Parsed) -> list[str]:
    """Notices about suspicious classes: numbers, texts for unknown, two spellings of one, and absent ones."""
    alike: dict[str, list[str]] = {}
    for name in parsed.class_names if parsed.y.ndim == 1 else ():
        alike.setdefault(re.sub(r"^(-?\d+)\.0+$", r"\1", name.lower()), []).append(name)
    several = [", ".join(map(repr, names)) for names in alike.values() if len(names) > 1]
    measured = [name for name in parsed.class_names if re.fullmatch(r"-?\d*\.\d*[1-9]\d*", name)]
    return (
        _absent(parsed)
        + [
            f"labels such as {name} are taken as classes; there is no regression"
            for name in measured[: parsed.y.ndim == 1]
        ]
        + [f"labels {names} are taken as different classes" for names in several[:1]]
        + [
            f"label {name!r} is taken as a class; leave the label empty if it is unknown"
            for number, name in enumerate(parsed.class_names)
            if set(parsed.class_names) != {"-1", "1"}
            and name.lower() in _UNKNOWN
            and parsed.y.ndim == 1
            and bool((parsed.y == number).any())
        ]
    )


def _absent(parsed: Parsed) -> list[str]:
    """A notice if classes are numbered without names, and some numbers do not occur."""
    present = torch.unique(parsed.y[parsed.y >= 0]) if parsed.y.ndim == 1 else parsed.y.new_empty(0)
    count = len(parsed.class_names)
    if present.numel() in (0, count) or parsed.class_names != number_names(count):
        return []
    byte = " (-1 means unknown, 255 does not)" if count == 256 else ""
    return [
        f"y has {present.numel()} of the classes 0..{count - 1}{byte}; if there are no other classes, give "
        "np.unique(y, return_inverse=True)[1]"
    ]


def _read_torch(path: Path) -> Mapping[str, Any]:
    """The dictionary of tensors in a file of torch.save; no code in the file is run."""
    with reading(path, "a readable torch file", "save it again"):
        require_regular(path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
            check_growth(path, path.stat().st_size, unpacked)
        try:
            content = _load(path)
        except pickle.UnpicklingError as error:
            wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise DataError(
                f"{path}: refused, because reading it would run code of the file "
                f"({wanted[1] if wanted else 'not plain tensors'})\n"
                "  save the graph as plain tensors: torch.save(data.to_dict(), PATH)"
            ) from error
    if isinstance(content, tuple) and content:
        # Files below processed/ of PyG's in-memory data sets are tuples.
        content = content[0]
    if hasattr(content, "to_dict"):
        content = content.to_dict()
    if isinstance(content, Tensor) or not isinstance(content, Mapping):
        raise DataError(
            f"{path}: contains a {type(content).__name__}, expected a PyG Data object or its to_dict(); save "
            "one graph"
        )
    return content


def _load(path: Path) -> Any:
    """Load tensors, or a `Data` object of PyG."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "torch_geometric" not in str(error):
            raise
    # imported here: plain tensors need no PyG
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # The context would also remove, at its end, classes that were allowed before it.
    known = torch.serialization.get_safe_globals()
    needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
    with torch.serialization.safe_globals(needed):
        return torch.load(path, map_location="cpu", weights_only=True)
