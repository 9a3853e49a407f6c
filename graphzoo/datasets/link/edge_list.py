"""Text files with one link per line; what is wrong is named by file, line and value."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.kg.triples import Column, clean, read_bytes
from graphzoo.datasets.node.own_csv import parse_columns
from graphzoo.errors import DataError, suggestion

__all__ = ["EdgeList", "number_nodes", "read_edge_list"]

_COMMENTS = (b"#", b"%")
_DELIMITERS = "\t,;"
# what a header may call the two ends
_HEADERS = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("node1", "node2"))
# a longer list of names is not searched for the nearest
_MOST_NAMES = 20_000


@dataclass(frozen=True)
class EdgeList:
    """The links of a file.

    Args:
        path: The file.
        source: Name of one end of each link.
        target: Name of the other.
        first_line: Line of the first link.
        notices: What was left out.
    """

    path: Path
    source: Column
    target: Column
    first_line: int
    notices: tuple[str, ...] = ()

    def where(self, position: int) -> str:
        """`file, line 7` of the link at `position`."""
        return f"{self.path}, line {position + self.first_line}"


def read_edge_list(path: Path) -> EdgeList:
    """Read a file of links (see `link_graph_from_files`).

    Raises:
        DataError: naming file, line and value of what cannot be read.
    """
    data = clean(read_bytes(path), str(path)).rstrip(b"\n")
    skipped = _num_comments(data)
    lines = data.split(b"\n", skipped + 1)
    first = lines[skipped].decode() if len(lines) > skipped else ""
    if not first.strip():
        problem = "no links" if len(lines) <= skipped + 1 else f"line {skipped + 1} is blank"
        raise DataError(f"{path}: {problem}; write one link per line: two nodes, separated by a tab")
    delimiter = next((mark for mark in _DELIMITERS if mark in first), " ")
    if delimiter == " ":
        # runs of blanks, also at the ends of a line, are one separator
        data = re.sub(rb"(?m)^ | $", b"", re.sub(rb" +", b" ", data))
        first = " ".join(first.split())
    fields = _fields(first, delimiter, path, skipped + 1)
    if len(fields) < 2:
        raise DataError(
            f"{path}, line {skipped + 1}: expected two nodes, got {first[:80]!r}; separate them by a tab, "
            "comma, semicolon or blank"
        )
    ends = _header(fields)
    keys = [str(number) for number in range(len(fields))]
    first_line = skipped + 1 + (ends is not None)
    table = parse_columns(data, path, keys, skipped=first_line - 1, delimiter=delimiter)
    columns = []
    for position in ends or (0, 1):
        encoded = table[keys[position]].dictionary_encode().unify_dictionaries().combine_chunks()
        names = [name.strip() for name in encoded.dictionary.to_pylist()]
        columns.append(Column(encoded.indices.to_numpy(), names))
    others = len(fields) - 2
    notices = (f"{path}: {others} further column{'s' * (others > 1)} ignored",) if others else ()
    links = EdgeList(path, columns[0], columns[1], first_line, notices)
    for column in columns:
        if "" in column.names:
            raise DataError(
                f"{links.where(column.first({''}))}: a node without a name; name it or drop the line"
            )
    return links


def _num_comments(data: bytes) -> int:
    count = start = 0
    while data.startswith(_COMMENTS, start):
        count += 1
        end = data.find(b"\n", start)
        if end < 0:
            return count
        start = end + 1
    return count


def _fields(line: str, delimiter: str, path: Path, number: int) -> list[str]:
    if delimiter != ",":
        return line.split(delimiter)
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line {number}: {error}; check the quotes") from error


def _header(fields: Sequence[str]) -> tuple[int, int] | None:
    """Columns of the two ends if a line names them, else None."""
    names = [field.strip().lower() for field in fields]
    for source, target in _HEADERS:
        if source in names and target in names:
            return names.index(source), names.index(target)
    return None


def number_nodes(
    lists: Mapping[str, EdgeList], names: Sequence[str] | None, nodes: Path | None
) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """Number the nodes: in the order of the table of nodes, else whole numbers by value, else by code points.

    Args:
        lists: Links by the part they belong to.
        names: Names in a table of nodes; None: the nodes are those that have a link.
        nodes: That table, for messages.

    Returns:
        The names in the order of their numbers, and the pairs [n, 2] of every part.

    Raises:
        DataError: if a link names a node that the table does not hold.
    """
    found = set().union(*(column.names for part in lists.values() for column in (part.source, part.target)))
    if names is None:
        names = _ordered(found)
    numbers = dict(zip(names, range(len(names)), strict=True))
    if unknown := found.difference(numbers):
        raise _unknown(lists, unknown, names, nodes)
    pairs = {}
    for part, links in lists.items():
        ends = [column.renumber(numbers) for column in (links.source, links.target)]
        pairs[part] = torch.from_numpy(np.stack(ends, axis=1).astype(np.int64, copy=False))
    return tuple(names), pairs


def _ordered(names: set[str]) -> list[str]:
    if all(name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") for name in names):
        return sorted(names, key=int)
    return sorted(names)


def _unknown(
    lists: Mapping[str, EdgeList], unknown: set[str], names: Sequence[str], nodes: Path | None
) -> DataError:
    for links in lists.values():
        for column in (links.source, links.target):
            if held := unknown.intersection(column.names):
                position = column.first(held)
                name = column[position]
                near = suggestion(name, names) if len(names) <= _MOST_NAMES else ""
                return DataError(
                    f"{links.where(position)}: node {name!r} is not in {nodes} "
                    f"({len(unknown):,} such nodes). {near or 'Add it there or drop the link.'}"
                )
    raise AssertionError("every unknown name comes from a list")
