"""Read a graph from named arrays or tensors, such as those of `.pt` and `.npz` files, and check them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.text import is_missing, names_of
from graphzoo.datasets.node.build import Parsed, from_masks, number_names
from graphzoo.datasets.node.feature_arrays import csr_tensor
from graphzoo.datasets.node.splits import NodeSplit
from graphzoo.errors import DataError
from graphzoo.ops.sparse import without_beta_warning

_ALIASES = {"node_features": "x", "node_labels": "y"}
_MASKS = ("train_mask", "val_mask", "test_mask")
LABELS_AND_SPLITS = frozenset({"y", *_MASKS, *(f"{name}s" for name in _MASKS)})
# More classes than this, and more than nodes, are probably ids and not classes.
_MOST_CLASSES = 10_000
# PyG's names of attributes of edges.
_ON_EDGES = {"edge_attr", "edge_weight", "edge_type"}
# Names that are read, or may be ignored without a notice.
_USED = {
    "x", "edge_index", "edges", "node_names", "class_names", "num_nodes", "name", "batch", "ptr",
    "num_classes", "num_features", "num_node_features", "pos", *LABELS_AND_SPLITS,
}  # fmt: skip
_INDICES = {f"{part}_{kind}" for part in ("train", "val", "valid", "test") for kind in ("idx", "index")}
_INDICES |= {"valid_mask", "valid_masks"}
# Attributes that PyG's loaders add to a Data object, and PyG's names for links of a split.
_OF_LOADERS = {"n_id", "e_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges"}
_OWN_SPLIT = re.compile(r"(pos_|neg_)?edge_label|(train|val|valid|test)_.*edge")
_Array = np.ndarray[Any, np.dtype[Any]]
_EXACT = 1 << 24  # whole numbers up to this one are exact in float32


def graph_parts(content: Mapping[str, Any], source: str, class_names: tuple[str, ...] | None) -> Parsed:
    """Read features, edges, labels and splits by their usual names (see `node_graph_from_files`).

    Args:
        content: Arrays or tensors by name.
        source: The file, for messages.
        class_names: Names of the classes; None takes `class_names` of the file, or else the classes that
            occur.

    Raises:
        DataError: if something is missing or cannot be used.
    """
    parts = {_ALIASES.get(name, name): value for name, value in content.items() if value is not None}
    for needed, remedy in (
        ("x", "if nodes have no features, give each a constant or its degree"),
        ("edge_index", "an undirected graph may list each edge once; a graph without edges has shape [2, 0]"),
    ):
        if needed not in parts and not (needed == "edge_index" and "edges" in parts):
            raise DataError(f"{source}: no {needed}; it has {', '.join(sorted(map(str, parts)))}\n  {remedy}")
    x = checked_features(parts["x"], source)
    num_nodes = x.size(0)
    named = _strings(class_names or parts.get("class_names"), source)
    y, names = _labels(parts.get("y"), num_nodes, named, source)
    return Parsed(
        x=x,
        edge_index=_edges(parts, source),
        y=y,
        class_names=names,
        splits=_splits(parts, num_nodes, source),
        node_names=_strings(parts.get("node_names"), source),
        notices=_notices(parts, y),
    )


def _notices(parts: Mapping[str, Any], y: Tensor) -> list[str]:
    """Notices about parts of an own graph that are not used, or may be meant differently."""
    notices = notices_of_edges(parts) + notices_of_features(parts.get("x"))
    others = sorted(str(name) for name in parts.keys() - _USED - _ON_EDGES - _INDICES)
    if others:
        notices.append(f"{', '.join(others[:6])}{', ...' if len(others) > 6 else ''} ignored")
    notices += [
        f"{name} ignored; give the split as {', '.join(_MASKS)}, true or false for each node"
        for name in sorted(_INDICES.intersection(parts))
    ]
    if y.dim() == 2 and y.shape[1] > 1 and bool(((y == 1).sum(1) == 1).all() & ((y == 0) | (y == 1)).all()):
        notices.append("y has one 1 in every row and is read as several labels; for classes give y.argmax(1)")
    return notices


def notices_of_edges(parts: Mapping[str, Any]) -> list[str]:
    """Notices about attributes of edges, which are not used."""
    return [
        f"{name} ignored: weights and types of edges are not used"
        for name in sorted(_ON_EDGES.intersection(parts))
    ]


def notices_of_rounding(columns: Iterable[tuple[str, _Array]]) -> list[str]:
    """A notice if different values of some columns, given with their names, are the same in float32."""
    rounded = [name for name, values in columns if values.dtype.kind in "fiu" and _is_rounded(values)]
    if not rounded:
        return []
    several = f"features {', '.join(map(repr, rounded[:5]))}{', ...' if len(rounded) > 5 else ''}"
    return [
        f"{several if len(rounded) > 1 else f'feature {rounded[0]!r}'}: different values become equal, as "
        "float32 has 7 digits; subtract the smallest value of the column first"
    ]


def _is_rounded(values: _Array) -> bool:
    # Smaller whole numbers are exact in float32.
    if not values.size or max(values.max(), -float(values.min())) <= _EXACT:
        return False
    with np.errstate(over="ignore"):
        return np.unique(values).size > np.unique(values.astype(np.float32)).size


def notices_of_features(x: Any) -> list[str]:
    """A notice if different values of features in memory, dense [N, F], are the same in float32."""
    if x is None or hasattr(x, "tocsr") or (isinstance(x, Tensor) and x.layout != torch.strided):
        return []
    values = _array(x)
    if values.ndim != 2 or values.dtype in (np.float32, np.float16):
        return []
    return notices_of_rounding((str(number), column) for number, column in enumerate(values.T))


def notices_of_links(parts: Mapping[str, Any]) -> list[str]:
    """Notices about unused parts of an own graph of links; labels and masks of nodes need no notice."""
    others = sorted(str(name) for name in parts.keys() - _USED - _ON_EDGES - _INDICES - _OF_LOADERS)
    splits = [name for name in others if _OWN_SPLIT.match(name)]
    notices = notices_of_edges(parts) + notices_of_features(parts.get("x"))
    if splits:
        notices.append(
            f"{', '.join(splits[:6])} ignored, because the split is drawn; give a split of your own as files "
            "train, valid and test"
        )
    if rest := [name for name in others if name not in splits]:
        notices.append(f"{', '.join(rest[:6])}{', ...' if len(rest) > 6 else ''} ignored")
    return notices


def link_parts(content: Mapping[str, Any], source: str) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Read the links and features of a graph from arrays by their usual names.

    Returns:
        Edges [2, E], int64; features [N, F], or None; and names of the nodes, empty if there are none.

    Raises:
        DataError: if something is missing or cannot be used.
    """
    if "edge_index" not in content:
        raise DataError(f"{source}: no edge_index; it has {', '.join(sorted(map(str, content)))}")
    x = content.get("x")
    features = None if x is None else checked_features(x, source)
    return _edges(content, source), features, _strings(content.get("node_names"), source)


def class_order(labels: Sequence[str]) -> tuple[str, ...]:
    """Distinct names of classes, sorted by value if all are whole numbers, else by code points.

    >>> class_order(["10", "9", "9"]), class_order(["b", "10", "a"])
    (('9', '10'), ('10', 'a', 'b'))
    """
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=int))
    except ValueError:
        return tuple(distinct)


def number_classes(
    labels: Sequence[str], class_names: tuple[str, ...] | None
) -> tuple[Tensor, tuple[str, ...]]:
    """Number the classes of labels.

    Args:
        labels: Names of the nodes' classes; "" if unknown.
        class_names: Names in the order of their numbers; None takes the `class_order` of the labels.

    Returns:
        The number of each label, [n], int64, -1 if unknown; and the names.

    Raises:
        KeyError: if a label is not among `class_names`; its argument is the position of the label.
    """
    names = class_order([label for label in labels if label]) if class_names is None else class_names
    number = {name: position for position, name in enumerate(names)} | {"": -1}
    for position, label in enumerate(labels):
        if label not in number:
            raise KeyError(position)
    return torch.tensor([number[label] for label in labels], dtype=torch.int64), names


def _array(value: Any) -> _Array:
    if not isinstance(value, Tensor):
        return np.asarray(value)
    # numpy has no bfloat16
    value = value.float() if value.dtype == torch.bfloat16 else value
    array: _Array = value.detach().cpu().numpy()
    return array


def checked_features(value: Any, source: str) -> Tensor:
    """Features as a new float32 tensor [N, F], dense or sparse CSR.

    Raises:
        DataError: if the shape is wrong, or a value is not a finite number.
    """
    if hasattr(value, "tocsr"):  # a sparse matrix of scipy
        sparse = value.tocsr(copy=True)
        sparse.sum_duplicates()
        start, column = (torch.from_numpy(part.astype(np.int64)) for part in (sparse.indptr, sparse.indices))
        return csr_tensor(start, column, _finite(sparse.data, source, "x"), sparse.shape)
    if isinstance(value, Tensor) and value.layout != torch.strided:
        matrix = value.coalesce() if value.layout == torch.sparse_coo else value
        with without_beta_warning():
            matrix = matrix.to_sparse_csr()
        values = _finite(_array(matrix.values()), source, "x")
        start, column = matrix.crow_indices().clone(), matrix.col_indices().clone()
        return csr_tensor(start, column, values, tuple(matrix.shape))
    x = _array(value)
    if x.ndim != 2 or x.dtype.kind not in "fiub" or not x.shape[1]:
        raise DataError(
            f"{source}: x must be numbers of shape [nodes, features], got {x.dtype} {list(x.shape)}"
        )
    return _finite(x, source, "x")


def _finite(values: _Array, source: str, what: str) -> Tensor:
    if values.dtype.kind not in "fiub":
        raise DataError(f"{source}: {what} must be numbers, got {values.dtype}")
    # Values that are too large for float32 become infinite.
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, dtype=np.float32)
    if np.may_share_memory(numbers, values):
        numbers = numbers.copy()  # the caller may change its array later
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        place = ", ".join(map(str, bad[0].tolist()))
        more = f" ({len(bad):,} such values)" if len(bad) > 1 else ""
        raise DataError(
            f"{source}: {what}[{place}] is {values[tuple(bad[0])]}{more}; replace missing values by numbers"
        )
    return torch.from_numpy(numbers)


def refuse_batch(parts: Any, source: str) -> None:
    """Refuse a PyG `Batch` of several graphs, by its `batch`, the graph of each node.

    Raises:
        DataError: if there is more than one graph.
    """
    graphs = np.unique(_array(parts["batch"])).size if parts.get("batch") is not None else 1
    if graphs > 1:
        raise DataError(f"{source}: a batch of {graphs:,} graphs; give one graph alone: data[0]")


def _edges(parts: Mapping[str, Any], source: str) -> Tensor:
    refuse_batch(parts, source)
    name = "edge_index" if "edge_index" in parts else "edges"
    edges = _array(parts[name])
    rows = edges.T if name == "edges" else edges
    if rows.ndim != 2 or rows.shape[0] != 2 or rows.dtype.kind not in "iu":
        form = "[2, edges]" if name == "edge_index" else "[edges, 2]"
        transposed = "; transpose it" if rows.ndim == 2 and rows.shape[1] == 2 else ""
        raise DataError(
            f"{source}: {name} must be whole numbers of shape {form}, got {edges.dtype} {list(edges.shape)}"
            + transposed
        )
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))


def _labels(
    value: Any, num_nodes: int, class_names: tuple[str, ...], source: str
) -> tuple[Tensor, tuple[str, ...]]:
    if value is None:
        return torch.full((num_nodes,), -1), class_names
    y = _array(value)
    if y.dtype.kind in "OS" and y.ndim == 1:  # texts of pandas, or of h5py
        y = _words(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or len(y) != num_nodes or y.dtype.kind not in "fiubU":
        raise DataError(
            f"{source}: y must be [{num_nodes}] classes or [{num_nodes}, labels] of 0 and 1, got {y.dtype} "
            f"{list(y.shape)}"
        )
    if y.ndim == 2:
        return _multi_label(y, class_names, source)
    if y.dtype.kind == "U":
        try:
            return number_classes(y.tolist(), class_names or None)
        except KeyError as error:
            position = int(error.args[0])
            raise DataError(
                f"{source}: y[{position}] is {str(y[position])!r}, which is not one of the classes "
                f"{', '.join(class_names)}"
            ) from error
    numbers = np.where(np.isnan(y), -1, y) if y.dtype.kind == "f" else y.astype(np.int64)
    # int64 makes another number of an infinite or larger one, such as -1 of 2**64 - 1.
    is_too_large = y.astype(np.float64) >= 2**63
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < -1) | is_too_large)
    if bad.size:
        raise DataError(
            f"{source}: y[{bad[0]}] is {y[bad[0]]}; number the classes 0, 1, 2, ..., and write -1 if unknown"
        )
    classes = torch.from_numpy(numbers.astype(np.int64))
    count = int(classes.max()) + 1 if num_nodes else 0
    if class_names and count > len(class_names):
        raise DataError(
            f"{source}: y has class {count - 1}, but there are {len(class_names)} class names; name every "
            "class"
        )
    if not class_names and count > max(_MOST_CLASSES, num_nodes):
        position = int(classes.argmax())
        raise DataError(
            f"{source}: y[{position}] is {count - 1}: {count:,} classes for {num_nodes:,} nodes\n"
            "  number the classes from 0: y = np.unique(y, return_inverse=True)[1]"
        )
    return classes, class_names or number_names(count)


def _words(values: _Array) -> _Array:
    """An array of objects as text if it has text, with "" for missing values; else as numbers with NaN."""
    known: list[Any] = [None if is_missing(value) else value for value in values.tolist()]
    if any(isinstance(value, str | bytes) for value in known):
        names = iter(names_of([value for value in known if value is not None]))
        return np.array(["" if value is None else next(names) for value in known])
    try:
        return np.array([np.nan if value is None else value for value in known])
    except ValueError:
        return values


def _multi_label(y: _Array, class_names: tuple[str, ...], source: str) -> tuple[Tensor, tuple[str, ...]]:
    if y.dtype.kind == "U":
        raise DataError(f"{source}: y of shape {list(y.shape)} must have values 0, 1 or NaN, got text")
    labels = y.astype(np.float32)
    bad = np.argwhere(~np.isnan(labels) & (labels != 0) & (labels != 1))
    if len(bad):
        row, column = bad[0].tolist()
        raise DataError(
            f"{source}: y[{row}, {column}] is {y[row, column]}; if nodes have several labels, each is 0 or "
            "1, or NaN if unknown"
        )
    if class_names and len(class_names) != y.shape[1]:
        raise DataError(f"{source}: y has {y.shape[1]} labels, but there are {len(class_names)} class names")
    return torch.from_numpy(labels), class_names or number_names(y.shape[1])


def _splits(parts: Mapping[str, Any], num_nodes: int, source: str) -> dict[str, tuple[NodeSplit, ...]]:
    present = [name for name in _MASKS if name in parts or f"{name}s" in parts]
    if not present:
        return {}
    if len(present) < len(_MASKS):
        missing = next(name for name in _MASKS if name not in present)
        raise DataError(f"{source}: {present[0]} without {missing}; give all of {', '.join(_MASKS)} or none")
    masks = []
    for name in _MASKS:
        # [N] or [N, S] as in PyG. A name with an s at the end is [S, N], as in the heterophilous benchmarks.
        mask = _array(parts[name]).T if name in parts else _array(parts[f"{name}s"])
        mask = mask.reshape(-1, mask.shape[-1]) if mask.ndim else mask
        if mask.ndim != 2 or mask.shape[1] != num_nodes or mask.dtype.kind not in "biu":
            raise DataError(
                f"{source}: {name} must be true or false for each of the {num_nodes} nodes, got {mask.dtype} "
                f"{list(mask.shape)}"
            )
        values = np.unique(mask[mask != 0])  # one, such as 255
        if len(values) > 1:
            some = ", ".join(map(str, values[:3]))
            raise DataError(
                f"{source}: {name} must be true or false for each node, got {some}\n"
                "  make a mask of each part of a numbered split, such as train_mask = split == 0"
            )
        masks.append(mask.astype(bool))
    if len(masks[2]) == 1:  # several splits may share one test mask
        masks[2] = masks[2].repeat(len(masks[0]), axis=0)
    if len({len(mask) for mask in masks}) > 1:
        raise DataError(
            f"{source}: {', '.join(_MASKS)} have {', '.join(str(len(mask)) for mask in masks)} splits; give "
            "the same number of each"
        )
    try:
        return {"given": from_masks("given", list(zip(*masks, strict=True)))}
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def _strings(value: Any, source: str) -> tuple[str, ...]:
    if value is None:
        return ()
    try:
        return tuple(names_of(list(value.tolist() if hasattr(value, "tolist") else value)))
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
