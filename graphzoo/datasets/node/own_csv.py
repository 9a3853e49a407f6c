"""Read tables of nodes and edges; errors name the file, line, column and value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.tables import clean, fields_of, parse_columns, read_bytes, table_delimiter
from graphzoo.datasets.files.text import ignored_columns, lookalikes, same_number
from graphzoo.datasets.node.arrays import notices_of_rounding, number_classes
from graphzoo.datasets.node.build import Parsed, proper_names
from graphzoo.datasets.node.splits import NodeSplit, is_labelled
from graphzoo.errors import DataError, suggestion

_LABEL = "label"
_SPLIT = "split"
_PART_OF = {"": None, "train": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1, "test": 2}
_ENDS = ("source", "target")
# Other common names of the column of classes.
_CLASSES = ("class", "classes", "y", "target", "labels", "category")
_QUOTED = ",;\t|"  # with all delimiters, quotes enclose a field: R writes such tables
# Common names of the columns of nodes, and of splits.
ID_COLUMNS = {"id", "name", "node", "node_id", "nodeid", "node_name"}
_MASKS = {"train_mask", "val_mask", "valid_mask", "test_mask"}
# Names of a column that pandas makes of an index.
_UNNAMED = re.compile(r"Unnamed: \d+")
_INDEX = re.compile(rf"|index|{_UNNAMED.pattern}")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE | re.ASCII)

_Columns = dict[str, Any]


def read_tables(nodes: Path, edges: Path, class_names: tuple[str, ...] | None) -> Parsed:
    """Read a graph from a table of nodes and a table of edges (see `node_graph_from_files`).

    Raises:
        DataError: if something is missing or cannot be used.
    """
    table, names, labels, features = _read_nodes(nodes)
    if not features:
        raise DataError(
            f"{nodes}: no column of features, only {', '.join(table)}; if nodes have no features, give each "
            "a constant"
        )
    x, rounding = _features(table, features, nodes)
    y, classes = _labels(table, labels, nodes, len(names), class_names)
    splits = _splits(table[_SPLIT].to_pylist(), y, nodes) if _SPLIT in table else {}
    edge_index, ignored = _edges(edges, names, nodes)
    notices = [*lookalikes(names, "nodes"), *rounding, *ignored_columns(str(edges), ignored)]
    if masks := [name for name in features if name.lower() in _MASKS]:
        notices.append(
            f"{', '.join(masks)}: read as features; give a split as a column {_SPLIT} of train, valid or test"
        )
    if odd := [name for name in features if _NUMBER.fullmatch(name) and not name.isdecimal()][:1]:
        notices.append(f"line 1 is read as names of columns, one of them {odd[0]!r}; is line 1 a node?")
    return Parsed(
        x=x,
        edge_index=edge_index,
        notices=notices,
        y=y,
        class_names=classes,
        splits=splits,
        feature_names=tuple(features),
        node_names=proper_names(names),
    )


class NodeTable(NamedTuple):
    """Names and features of nodes, from a table of nodes."""

    names: list[str]
    x: Tensor | None  # [N, F], float32; None if there are no features
    feature_names: tuple[str, ...]
    left_out: list[str]  # the columns of labels and splits
    notices: list[str]


def read_features(path: Path) -> NodeTable:
    """Read names and features from a table of nodes, without its labels and splits.

    Raises:
        DataError: if the table cannot be used.
    """
    table, names, labels, features = _read_nodes(path)
    left_out = [*labels, *([_SPLIT] if _SPLIT in table else [])]
    x, rounding = _features(table, features, path) if features else (None, [])
    return NodeTable(names, x, tuple(features), left_out, [f"{path}: {notice}" for notice in rounding])


def _read_nodes(path: Path) -> tuple[_Columns, list[str], list[str], list[str]]:
    """The table, the names of the nodes, the columns of labels, and the columns of features."""
    read, first = _read(_text(path), path)
    for number, name in enumerate(first[1:], start=2):
        if not name:
            raise DataError(
                f"{path}, line 1: column {number} has no name; name it, or delete it if it is empty"
            )
        if _UNNAMED.fullmatch(name):  # as a feature, the rows' numbers may tell the labels
            problem = f"column {number} is called {name!r}, as pandas calls an index without a name"
            raise DataError(f"{path}, line 1: {problem}; rename it, or delete it: df.drop(columns={name!r})")
    table = dict(zip(map(_plain, read, range(len(read))), read.values(), strict=True))
    if len(table) < len(read):
        raise DataError(f"{path}, line 1: the names of two columns differ only by case; rename one")
    columns = list(table)
    other = next((name for name in columns if name.lower() in ID_COLUMNS), "")
    if other and _INDEX.fullmatch(columns[0]):
        # If edges use the names of one column, looking them up in the other could find other nodes.
        problem, name, drop = "has no name", "Name", "to_csv(..., index=False)"
        if columns[0]:
            problem, name, drop = f"is called {columns[0]!r}", "Rename", f"df.drop(columns={columns[0]!r})"
        raise DataError(
            f"{path}, line 1: the first column should name the nodes but {problem}, and there is a column "
            f"{other!r}\n{name} the first column if edges use it; else drop it: {drop}"
        )
    names = [name.strip() for name in table[columns[0]].to_pylist()]
    if not names:
        raise DataError(f"{path}: no nodes below the names of the columns; write one node per line")
    _check_names(names, path, columns[0])
    labels = [column for column in columns[1:] if _is_label(column)]
    features = [column for column in columns[1:] if not _is_label(column) and column != _SPLIT]
    return table, names, labels, features


def _plain(column: str, number: int) -> str:
    """The name of a column, with `label` and `split` in lower case, except for the first column."""
    lower = column.lower()
    if number and lower in (_LABEL, _SPLIT):
        return lower
    return f"{_LABEL}_{column[len(_LABEL) + 1 :]}" if number and lower.startswith(f"{_LABEL}_") else column


def may_be_labels(features: Sequence[str]) -> str:
    """A remedy if a column of features has a usual name of the column of classes; else ""."""
    named = [name for name in features if name.lower() in _CLASSES][:1]
    return (
        f"column {named[0]!r} is read as a feature; call it {_LABEL} if it holds the classes" if named else ""
    )


def _is_label(column: str) -> bool:
    return column == _LABEL or column.startswith(f"{_LABEL}_")


def _features(table: _Columns, columns: Sequence[str], path: Path) -> tuple[Tensor, list[str]]:
    """Features [N, F], float32, and notices about them."""
    numbers = [_numbers(table[column]) for column in columns]
    bad = {column: row for column, (_, row) in zip(columns, numbers, strict=True) if row is not None}
    if bad:
        column, row = next(iter(bad.items()))
        text = table[column][row].as_py()
        words = [name for name, row in bad.items() if not _is_number(table[name][row].as_py().strip() or "0")]
        problem = f"feature {column!r} is {repr(text) if text.strip() else 'empty'}"
        if column not in words:
            raise DataError(
                f"{path}, line {row + 2}: {problem}; replace or drop values that are not finite numbers"
            )
        more = (
            f" ({', '.join(map(repr, words[1:6]))} also {'has' if len(words) == 2 else 'have'} words)"
            if len(words) > 1
            else ""
        )
        remedy = _as_number(text.strip()) or may_be_labels(words)
        remedy = remedy or "fill in missing values; make a column of 0 and 1 for each word"
        if any(map(_NUMBER.fullmatch, columns)) and not any(map(_is_label, table)):
            remedy += "\n  if line 1 is a node, put a line with names above it, such as name,label,age"
        raise DataError(f"{path}, line {row + 2}: {problem}{more}, but features are numbers\n  {remedy}")
    # In double precision, as the next step to float32 must not hide that values become equal.
    rounding = notices_of_rounding(zip(columns, (values for values, _ in numbers), strict=True))
    x = np.stack([values.astype(np.float32) for values, _ in numbers], axis=1)
    return torch.from_numpy(x), rounding


def _as_number(text: str) -> str:
    """How to write a number, a date of a spreadsheet or a list as numbers; "" for any other text."""
    if re.match(r"\[\s*-?\.?\d", text):
        return "make a column for each number of the list"
    if re.fullmatch(r"-?\d*,\d+", text):
        or_thousands = f", or {text.replace(',', '')} if the comma marks thousands"
        is_unclear = re.fullmatch(r"-?\d{1,3},\d{3}", text)
        return f"write {text.replace(',', '.')} with a decimal point" + or_thousands * bool(is_unclear)
    if re.match(r"\d{4}[-/]\d\d?[-/]\d|\d\d?[./-]\d\d?[./-]\d\d", text):
        return "write dates as numbers, such as the days since a first date"
    if re.fullmatch(r"[-+]?[$€£]? ?\d[\d.,' \u00a0\u202f]*(e[-+]?\d+)? ?[%$€£]?", text, re.IGNORECASE):
        return "write numbers with a decimal point, and without units or marks of thousands"
    return ""


def _text(path: Path) -> bytes:
    return clean(read_bytes(path), str(path)).rstrip(b"\n")


def _read(data: bytes, path: Path, *, header: bool = True) -> tuple[_Columns, list[str]]:
    """Columns of strings by name, and the fields of the first line."""
    first = data.split(b"\n", 1)[0].decode()
    if not first.strip():
        raise DataError(f"{path}, line 1: expected the names of the columns, got a blank line")
    delimiter = table_delimiter(path, data) or ","
    names = [name.strip() for name in fields_of(first, path, delimiter=delimiter, quoted=_QUOTED)]
    if header and _is_row(names[1:]):
        raise DataError(
            f"{path}, line 1: expected the names of the columns, got {first[:80]!r}\n"
            "Put a line with names above it, such as name,label,age"
        )
    if header and (repeated := [name for name, count in Counter(names).items() if name and count > 1]):
        raise DataError(f"{path}, line 1: column {repeated[0]!r} occurs twice; rename one")
    keys = [name if header else "" for name in names]
    keys = [key or str(number) * bool(number or not header) for number, key in enumerate(keys)]
    return parse_columns(data, path, keys, skipped=int(header), delimiter=delimiter, quoted=_QUOTED), names


def _is_row(names: Sequence[str]) -> bool:
    """Whether names of columns look like the features of a node.

    Whole numbers, and ascending or descending ones such as 400.5, 401.0, 401.5, may be names of columns.
    """
    numbers = [float(name) for name in names if _NUMBER.fullmatch(name)]
    steps = [other - one for one, other in pairwise(numbers)]
    ordered = min(steps, default=1) > 0 or max(steps) < 0
    whole = all(number.is_integer() for number in numbers)
    return len(set(numbers)) < len(numbers) or not (whole or ordered)


def _check_names(names: Sequence[str], path: Path, column: str) -> None:
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if not name.strip():
            raise DataError(
                f"{path}, line {position + 2}: no name in column {column!r}, or a blank line; name every node"
            )
        if name in first:
            raise DataError(
                f"{path}, line {position + 2}: node {name!r} is also in line {first[name] + 2}; "
                "keep one of them"
            )
        first[name] = position


def _numbers(column: Any) -> tuple[np.ndarray[Any, np.dtype[np.float64]], int | None]:
    """A column as numbers, and the first row that is not a finite number; a row with a word goes first."""
    import pyarrow
    from pyarrow import compute

    column = compute.utf8_trim_whitespace(column)
    try:
        values: np.ndarray[Any, np.dtype[np.float64]] = compute.cast(column, pyarrow.float64()).to_numpy()
    except pyarrow.ArrowException:
        words = compute.utf8_lower(column)
        if compute.all(compute.is_in(words, value_set=pyarrow.array(["true", "false"]))).as_py():
            # pandas writes booleans in this way.
            return compute.equal(words, "true").to_numpy().astype(np.float64), None
        wrong = [row for row, text in enumerate(column.to_pylist()) if not _is_number(text)]
        return np.empty(0), next((row for row in wrong if column[row].as_py().strip()), wrong[0])
    # Values that are too large for float32 become infinite.
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
    return values, int(bad[0]) if bad.size else None


def _is_number(text: str) -> bool:
    import pyarrow
    from pyarrow import compute

    try:
        compute.cast(pyarrow.scalar(text), pyarrow.float64())
    except pyarrow.ArrowException:
        return False
    return True


def _labels(
    table: _Columns, columns: Sequence[str], path: Path, num_nodes: int, class_names: tuple[str, ...] | None
) -> tuple[Tensor, tuple[str, ...]]:
    if not columns:
        return torch.full((num_nodes,), -1), class_names or ()
    if _LABEL in columns:
        if others := [column for column in columns if column != _LABEL]:
            raise DataError(
                f"{path}: has both {_LABEL} (one class) and {others[0]} (yes or no); keep one kind of label"
            )
        labels = [label.strip() for label in table[_LABEL].to_pylist()]
        try:
            return number_classes(labels, class_names)
        except KeyError as error:
            position = int(error.args[0])
            raise DataError(
                f"{path}, line {position + 2}: label {labels[position]!r} is not one of "
                f"{', '.join((class_names or ())[:10])}"
            ) from error
    names = tuple(column.removeprefix(f"{_LABEL}_") for column in columns)
    if class_names is not None and class_names != names:
        raise DataError(
            f"{path}: the labels are {', '.join(names[:5])}..., expected {', '.join(class_names[:5])}..."
        )
    value = {"": np.nan, "0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}
    y = np.empty((num_nodes, len(columns)), dtype=np.float32)
    for number, column in enumerate(columns):
        for position, text in enumerate(table[column].to_pylist()):
            if text.strip() not in value:
                raise DataError(
                    f"{path}, line {position + 2}: {column} is {text!r}; yes-no labels are 0, 1 or empty"
                )
            y[position, number] = value[text.strip()]
    return torch.from_numpy(y), names


def _splits(marks: Sequence[str], y: Tensor, path: Path) -> dict[str, tuple[NodeSplit, ...]]:
    nodes: list[list[int]] = [[], [], []]
    labelled = is_labelled(y).tolist()
    for position, mark in enumerate(marks):
        key = mark.strip().lower()
        if key not in _PART_OF:
            raise DataError(
                f"{path}, line {position + 2}: split is {mark!r}; write train, valid, test or nothing"
            )
        part = _PART_OF[key]
        if part is None:
            continue
        if not labelled[position]:
            raise DataError(
                f"{path}, line {position + 2}: a node of split {key} has no label; leave its split empty"
            )
        nodes[part].append(position)
    if not any(nodes):
        return {}
    train, valid, test = (torch.tensor(part, dtype=torch.int64) for part in nodes)
    return {"given": (NodeSplit("given", 0, train, valid, test),)}


def _edges(path: Path, names: Sequence[str], nodes: Path) -> tuple[Tensor, list[str]]:
    """The edges [2, E], int64, and the columns that are ignored."""
    import pyarrow
    from pyarrow import compute

    data = _text(path)
    line = data.split(b"\n", 1)[0].decode()
    if not line.strip():
        raise DataError(f"{path}, line 1: blank; the first line has to be source,target")
    delimiter = table_delimiter(path, data)
    first = [name.strip() for name in fields_of(line, path, delimiter=delimiter or ",", quoted=_QUOTED)]
    header = [name.lower() for name in first]
    has_header = all(end in header for end in _ENDS)
    if not has_header and not (len(first) == 2 and set(first) <= set(names)):
        raise DataError(
            f"{path}, line 1: expected the columns source and target, got {', '.join(first)[:80]}"
            + ("" if delimiter else "\nSeparate the columns by commas or tabs")
        )
    ignored = [name for name in first if name.lower() not in _ENDS] if has_header else []
    if has_header and b"\n" not in data:
        return torch.empty(2, 0, dtype=torch.int64), ignored
    table, _ = _read(data, path, header=has_header)
    keys = list(table)
    ends = [keys[header.index(end)] for end in _ENDS] if has_header else keys[:2]
    known = pyarrow.array(names, pyarrow.string())
    given = [compute.utf8_trim_whitespace(table[end]) for end in ends]
    numbers = [compute.index_in(names_here, value_set=known).combine_chunks() for names_here in given]
    unknown = np.stack([row.is_null().to_numpy(zero_copy_only=False) for row in numbers])  # [2, E]
    if unknown.any():
        position = int(unknown.any(0).argmax())
        row = int(unknown[:, position].argmax())
        value = table[ends[row]][position].as_py()
        lines = int(unknown.any(0).sum())
        several = f" ({lines:,} lines have such nodes)" if lines > 1 else ""
        problem = f"node {value!r} is not in the first column of {nodes}{several}"
        remedy = same_number(value.strip(), names) or suggestion(value, names)
        remedy = remedy or "Add it to that table or drop the edge."
        if not value.strip():
            problem, remedy = f"the {ends[row]} is empty", "Name a node or drop the line."
        raise DataError(f"{path}, line {position + 1 + has_header}: {problem}. {remedy}")
    edges = [torch.from_numpy(row.to_numpy().astype(np.int64)) for row in numbers]
    return torch.stack(edges), ignored
