"""Read text files with one link per line; errors name the file, the line and the value."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphzoo.datasets.files.tables import (
    QUOTED,
    Column,
    check_groups,
    clean,
    fields_of,
    header_order,
    is_csv,
    parse_columns,
    read_bytes,
    table_delimiter,
    unquoted,
)
from graphzoo.datasets.files.text import ignored_columns, same_number
from graphzoo.errors import DataError, suggestion
from graphzoo.system.units import counted

_COMMENTS = (b"#", b"%")
_PEEKED = 1 << 18  # bytes
_MARKED_LINK = re.compile(rb"[#%][^\s#%,;|]+[\t,;|][^\s,;|]+")  # two names, the first begins with # or %
# Two nodes and a dict of attributes, as NetworkX writes; the commas belong to the dict.
_ATTRIBUTED = re.compile(r" *[^\s{]+ +[^\s{]+ +\{[^\t]*\} *")
# Names of the two ends in a header.
HEADERS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("head", "tail"),
    ("node1", "node2"),
    (":start_id", ":end_id"),  # Neo4j
)
# A word that may be the name of a column. Most names of nodes are not such words, as they have numbers.
_WORD = re.compile(r"[A-Za-z]+([_ -][A-Za-z]+)*[_ -]?[12]?")
# What Cypher calls its columns: `n.name` and `m.name`, `id(n)` and `id(m)`.
_CYPHER = re.compile(r"[A-Za-z]\d?(\.[A-Za-z]\w*) [A-Za-z]\d?\1|((?:element)?[Ii]d)\(\w+\) \2\(\w+\)")


@dataclass(frozen=True)
class EdgeList:
    """The links of a file by the names of their ends, the line of the first link, and notices."""

    path: Path
    source: Column
    target: Column
    first_line: int
    notices: tuple[str, ...] = ()
    has_header: bool = False

    @property
    def ends(self) -> tuple[Column, Column]:
        """The columns of sources and of targets."""
        return self.source, self.target

    def where(self, position: int) -> str:
        """The place of the link at `position`, such as `file, line 7`."""
        return f"{self.path}, line {position + self.first_line}"


def read_edge_list(path: Path) -> EdgeList:
    """Read a file of links (see `link_graph_from_files`).

    Raises:
        DataError: if the file cannot be read; the message names file, line and value.
    """
    data = clean(read_bytes(path), str(path)).rstrip(b"\n")
    comments = [*takewhile(lambda line: line.startswith(_COMMENTS), io.BytesIO(data))]
    skipped = len(comments)
    if is_matrix := data[:14].lower() == b"%%matrixmarket":
        # Below its comments, and perhaps blank lines, stand the sizes of the matrix.
        rest = islice(io.BytesIO(data), skipped, None)
        skipped += 1 + sum(1 for _ in takewhile(lambda line: not line.strip(), rest))
        _check_square(data.split(b"\n", skipped)[:skipped][-1], f"{path}, line {skipped}")
    lines = data.split(b"\n", skipped + 1)
    first = lines[skipped].decode() if len(lines) > skipped else ""
    if not first.strip():
        problem = "no links" if len(lines) <= skipped + 1 else f"line {skipped + 1} is blank"
        raise DataError(f"{path}: {problem}; write one link per line: two nodes, separated by a tab")
    # The second part is all other lines, of which the first ones tell the delimiter.
    body = b"\n".join([lines[skipped], *(rest[:_PEEKED] for rest in lines[skipped + 1 :])])
    if _ATTRIBUTED.fullmatch(first):
        # The dicts of two links may have different numbers of words.
        data, body = (re.sub(rb"(?m) \{.*\} *$", b" {}", each) for each in (data, body))
        first = re.sub(r" \{.*", " {}", first)
    delimiter = table_delimiter(path, body) or " "
    if delimiter == " " and first.startswith('"') and first.count('"') == 1:
        raise DataError(
            f"{path}, line {skipped + 1}: the quote of {first[:80]} is not closed in this line; a name "
            "cannot have a line break"
        )
    if delimiter == " ":
        # Several spaces are one separator, and spaces at the ends of a line are none.
        data = re.sub(rb"(?m)^ | $", b"", re.sub(rb" +", b" ", data))
        first = " ".join(first.split())
    fields = (
        first.split(" ") if delimiter == " " else fields_of(first, path, skipped + 1, delimiter=delimiter)
    )
    if len(fields) < 2:
        raise DataError(
            f"{path}, line {skipped + 1}: expected two nodes, got {first[:80]!r}; separate them by a tab, "
            "comma, semicolon, bar or space"
        )
    ends = header_order(fields, HEADERS, f"{path}, line {skipped + 1}")
    first_line = skipped + 1 + (ends is not None)
    if ends is None and comments and not is_matrix:
        last = _fields_of_comment(comments[-1].decode(), delimiter)
        # Words of a sentence could be names of columns, too.
        if len(last) == len(fields) and (ends := header_order(last, HEADERS, f"{path}, line {skipped}")):
            fields = last
            comments.pop()
    if ends is None:
        _check_separator(first, delimiter, path, skipped + 1)
    if ends is None and delimiter == " " and not _is_weighted(fields):
        raise DataError(
            f"{path}, line {skipped + 1}: {first[:80]!r} has {len(fields)} columns separated by spaces, but "
            "a link has two nodes\nSeparate names that have spaces by tabs, or name the columns in a header: "
            "source target ..."
        )
    keys = [str(number) for number in range(len(fields))]
    table = parse_columns(data, path, keys, skipped=first_line - 1, delimiter=delimiter)
    columns = []
    for position in ends or (0, 1):
        column = Column.from_arrow(table[keys[position]])
        columns.append(Column(column.codes, [name.strip() for name in column.names]))
    if ends is not None:
        check_groups([fields[position] for position in ends], columns, path, first_line)
    others = [field.strip() for i, field in enumerate(fields) if i not in (ends or (0, 1))]
    notices = list(ignored_columns(str(path), others)) if ends else []
    if others and not ends:
        further = f"{counted(len(others), 'further column')} ignored"
        notices.append(f"{path}: columns 1 and 2 are read as source and target, {further}")
    doubtful = sum(1 for comment in comments if _MARKED_LINK.fullmatch(comment.rstrip()))
    if doubtful > 1:  # a single such line is taken for a header
        counts = counted(doubtful, "line")
        notices.append(
            f"{path}: {counts} of two columns at the top read as comments, because of '#' or '%'; if they "
            "are links, begin the file with a header: source, target"
        )
    # In a table with commas or semicolons, quotes enclose a field; those that are left belong to a name.
    plain = delimiter not in QUOTED
    if plain and any(name[:1] == name[1:][-1:] == '"' for column in columns for name in column.names):
        notices.append(f"{path}: quotes are read as part of the names; write the file without quotes")
    links = EdgeList(path, columns[0], columns[1], first_line, tuple(notices), ends is not None)
    for column in columns:
        if "" in column.names:
            position = column.first({""})
            hint = "" if position or ends else "; if it is a header, name the columns source, target"
            raise DataError(f"{links.where(position)}: a node without a name; name it or drop the line{hint}")
    return links


def _fields_of_comment(comment: str, delimiter: str) -> list[str]:
    line = comment.rstrip("\n").lstrip("#% ")
    try:
        return line.split() if delimiter == " " else fields_of(line, "", delimiter=delimiter)
    except DataError:  # a quote in a sentence
        return []


def _check_separator(line: str, delimiter: str, path: Path, number: int) -> None:
    """Refuse a first link of two words that both have the delimiter: does it separate, or the blank?"""
    words = unquoted(line).split()
    if delimiter in "\t " or is_csv(path) or len(words) != 2:
        return
    if all(delimiter in word.strip(delimiter) for word in words):
        raise DataError(
            f"{path}, line {number}: {line[:80]!r} may be two nodes separated by a blank, or columns "
            f"separated by {delimiter!r}\nSeparate the nodes by a tab; or, if {delimiter!r} separates them, "
            "give the file a name that ends in .csv"
        )


def _check_square(sizes: bytes, where: str) -> None:
    """Refuse a matrix of two kinds of nodes: row 1 and column 1 are not the same node, but have one name."""
    counts = sizes.decode().split()
    # a matrix that is not sparse has no third number
    if len(counts) == 3 and all(map(str.isdecimal, counts)) and counts[0] != counts[1]:
        side = max(map(int, counts[:2]))
        raise DataError(
            f"{where}: a matrix of {counts[0]} rows and {counts[1]} columns; are they the same nodes?\n"
            f"If so, write {side} {side} {counts[2]} in this line; if not, one link per line, such as r7,c9"
        )


def headers_read_as_links(lists: Iterable[EdgeList]) -> list[str]:
    """Notices about files whose first link looks like a header: two words that occur in no other link."""
    parts, notices = list(lists), list[str]()
    for part in parts:
        if part.has_header or len(part.source) < 2:
            continue
        first = {column[0] for column in part.ends}
        names = [column[0].strip('"') for column in part.ends]
        looks = len(first) == 2 and (all(map(_WORD.fullmatch, names)) or _CYPHER.fullmatch(" ".join(names)))
        if looks and not any(_recurs(column, first) for each in parts for column in each.ends):
            notices.append(
                f"{part.where(0)} looks like a header and was read as a link ({part.source[0]}, "
                f"{part.target[0]}); if it is a header, name the columns source, target"
            )
    return notices


def _recurs(column: Column, names: set[str]) -> bool:
    """Whether one of the names occurs in a row after the first."""
    codes = [code for code, name in enumerate(column.names) if name in names]
    return bool(codes) and bool(np.isin(column.codes[1:], codes).any())


def _is_weighted(fields: Sequence[str]) -> bool:
    """Whether a line is a pair of nodes, alone or followed by a weight or attributes.

    A pair of numbers may be followed by anything.
    """
    weight = len(fields) == 3 and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", fields[2], re.IGNORECASE)
    numbered = all(field.isdecimal() for field in fields[:2])
    return len(fields) == 2 or bool(weight) or numbered or fields[2].startswith("{")


def number_nodes(
    lists: Mapping[str, EdgeList], names: Sequence[str] | None, nodes: Path | None
) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """Number the nodes of the links.

    Args:
        lists: Links by part.
        names: Names of all nodes in the order of their numbers; None takes the nodes of the links, in their
            `node_order`.
        nodes: The table that has `names`, for messages.

    Returns:
        Names of the nodes in the order of their numbers, and the pairs of every part [n, 2], int64.

    Raises:
        DataError: if a node of a link is not among `names`.
    """
    mentioned = set().union(
        *(column.names for part in lists.values() for column in (part.source, part.target))
    )
    if names is None:
        names = node_order(mentioned)
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := mentioned.difference(numbers):
        raise _unknown(lists, unknown, names, nodes)
    pairs = {}
    for part, links in lists.items():
        ends = [column.renumber(numbers) for column in (links.source, links.target)]
        pairs[part] = torch.from_numpy(np.stack(ends, axis=1).astype(np.int64, copy=False))
    return tuple(names), pairs


def node_order(names: Collection[str]) -> list[str]:
    """Sort distinct names of nodes: by value if all are whole numbers, else by code points.

    >>> node_order({"10", "9"}), node_order({"b", "10", "9"})
    (['9', '10'], ['10', '9', 'b'])
    """
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
                remedy = same_number(name, names) or suggestion(name, names)
                remedy = remedy or "Add it to that table or drop the link."
                return DataError(
                    f"{links.where(position)}: node {name!r} is not in {nodes} "
                    f"({len(unknown):,} such nodes). {remedy}"
                )
    raise AssertionError("every unknown name comes from a list")
