"""Read pairs of node names from a file or a table; errors name the line or row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from graphzoo.datasets.files.tables import header_order
from graphzoo.datasets.files.text import as_row, ignored_columns, is_missing, names_of
from graphzoo.datasets.link.edge_list import HEADERS, read_edge_list
from graphzoo.errors import UsageError

_COLUMNS = ("source", "target")


@dataclass(frozen=True)
class NamedPairs:
    """Names of the first and second nodes, with the file or table and the first line for messages."""

    source: Sequence[str]
    target: Sequence[str]
    origin: str = "pairs"
    first_line: int = 1
    unit: str = "row"
    notices: tuple[str, ...] = ()


def read_pairs(path: Path) -> NamedPairs:
    """Pairs of a text file with two columns, with or without a header.

    The format is that of `graphzoo.datasets.link_graph_from_files`.

    Raises:
        UsageError: if the path is a folder; a `DataError` if the file cannot be read.
    """
    if path.is_dir():
        raise UsageError(f"{path}: a folder; give a file with one pair per line")
    pairs = read_edge_list(path)
    source, target = list(pairs.source), list(pairs.target)
    return NamedPairs(source, target, str(path), pairs.first_line, "line", pairs.notices)


def link_columns(names: Sequence[str], source: str) -> list[int] | None:
    """Positions of the two columns of a table that have names of ends of links; None if there are none.

    Raises:
        DataError: if one of these names occurs twice; begins with `source`.
    """
    return header_order(names, HEADERS, source)


def pairs_from_table(pairs: Any) -> NamedPairs:
    """Pairs from the path of a file, a DataFrame, an array or tensor [n, 2], or a sequence of (u, v).

    Raises:
        UsageError: if a row does not have two nodes, or a value is missing.
    """
    if isinstance(pairs, str | PathLike):
        return read_pairs(Path(pairs))
    notices: tuple[str, ...] = ()
    if hasattr(pairs, "columns") and hasattr(pairs, "iloc"):
        names = [str(name) for name in pairs.columns]
        ends = link_columns(names, "pairs") or ([0, 1] if len(names) == 2 else None)
        if ends is None:
            raise UsageError(f"pairs: expected the columns source, target; got {', '.join(names)}")
        notices = ignored_columns("pairs", [name for i, name in enumerate(names) if i not in ends])
        # Column by column: a row of two types would be converted to one type.
        rows: Any = list(zip(*(pairs.iloc[:, i].tolist() for i in ends), strict=True))
    else:
        try:
            given = list(pairs.tolist() if hasattr(pairs, "tolist") else pairs)
        except TypeError as error:  # a number
            raise UsageError(f"pairs: expected pairs of nodes, got {type(pairs).__name__}") from error
        rows = [as_row(row) for row in given]
    source, target = [], []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, tuple) or len(row) != len(_COLUMNS):
            hint = "" if isinstance(row, tuple) else "\nGive a list of pairs, even for a single one"
            raise UsageError(f"pairs, row {number}: expected two nodes, got {row!r}{hint}")
        for column, value in zip(_COLUMNS, row, strict=True):
            if is_missing(value):
                raise UsageError(f"pairs, row {number}: the {column} is missing ({value!r}); drop such rows")
        source.append(row[0])
        target.append(row[1])
    both = names_of([*source, *target])  # both at once: the same node may be a source and a target
    return NamedPairs(both[: len(source)], both[len(source) :], notices=notices)
