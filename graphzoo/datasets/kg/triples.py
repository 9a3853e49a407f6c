"""Text files of triples: read at once, checked strictly, errors that name file and line.

The separators of a file are counted with numpy, its fields are split and numbered by Arrow, so that a million
lines take about a second, and no name is ever reinterpreted: an entity called `NA`, `null` or `1.0` keeps its
name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.datasets.files.tables import Column, clean, header_order, parse_columns, read_bytes
from graphzoo.errors import DataError

__all__ = ["Columns", "parse_triples", "read_triples", "triples_from_table"]

_HEADER = ("head", "relation", "tail")
_HEADERS = (_HEADER, ("subject", "predicate", "object"))


@dataclass(frozen=True)
class Columns:
    """String triples with their origin, for messages: a file or table, and the line of the first triple."""

    head: Column
    relation: Column
    tail: Column
    source: str = "triples"
    first_line: int = 1
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.head)

    def where(self, position: int) -> str:
        """`file, line 7` of the triple at `position`."""
        return f"{self.source}, {self.unit} {position + self.first_line}"

    @classmethod
    def empty(cls, source: str) -> Columns:
        """No triples."""
        return cls(Column.encode([]), Column.encode([]), Column.encode([]), source)

    def renumber(
        self, entities: Mapping[str, int], relations: Mapping[str, int]
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The triples as numbers, [n, 3], int64."""
        parts = ((self.head, entities), (self.relation, relations), (self.tail, entities))
        return np.stack([column.renumber(numbers) for column, numbers in parts], axis=1)


def read_triples(path: str | Path) -> Columns:
    """Triples of a TSV, CSV or plain text file, gzip or not.

    Tab-separated unless the name says `.csv`. A first line of the words head, relation, tail (or subject,
    predicate, object), in any order, is a header. A byte order mark and CRLF line ends are accepted; quotes
    have a meaning in CSV only.

    Raises:
        DataError: not readable, not UTF-8, empty, a line without exactly three columns, or an empty name.
    """
    path = Path(path)
    is_csv = ".csv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    return parse_triples(read_bytes(path), str(path), is_csv=is_csv)


def parse_triples(data: bytes, source: str, *, is_csv: bool = False) -> Columns:
    """The triples in the bytes of a file; see `read_triples`."""
    data = clean(data, source)
    if not data.strip():
        raise DataError(f"{source}: empty; expected one triple per line: head, relation, tail")
    columns = _read_csv(data, source) if is_csv else _read_tsv(data, source)
    if not len(columns):
        raise DataError(f"{source}: holds a header but no triple")
    _check_names(columns)
    return columns


def triples_from_table(table: Any, source: str = "triples") -> Columns:
    """String triples from a DataFrame, an array [n, 3] or a sequence of (head, relation, tail).

    A DataFrame with columns head, relation, tail is read by their names, any other by position. Values become
    strings by `str`; missing ones are refused.

    Raises:
        DataError: not three columns, a missing value, an empty name.
    """
    if isinstance(table, Columns):
        return table
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        names = [str(name) for name in table.columns]
        order = header_order(names, _HEADERS) if len(names) >= 3 else None
        if order is None:
            if len(names) != 3:
                raise DataError(f"{source}: expected the columns head, relation, tail; got {names}")
            order = [0, 1, 2]
        raw = [table.iloc[:, i].tolist() for i in order]
    else:
        # a name is no row, though one of three letters has three parts
        listed = table.tolist() if hasattr(table, "tolist") else table
        rows = [row if isinstance(row, str | int | float) else tuple(row) for row in listed]
        for position, row in enumerate(rows):
            if not isinstance(row, list | tuple) or len(row) != 3:
                hint = "" if isinstance(row, list | tuple) else "\nGive a list of triples, also of one"
                raise DataError(
                    f"{source}, row {position + 1}: expected (head, relation, tail), got {row!r}{hint}"
                )
        raw = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    for name, column in zip(_HEADER, raw, strict=True):
        for position, value in enumerate(column):
            if value is None or value != value:
                raise DataError(
                    f"{source}, row {position + 1}: the {name} is missing ({value!r}); drop such rows"
                )
    head, relation, tail = (Column.encode(list(map(str, column))) for column in raw)
    columns = Columns(head, relation, tail, source, unit="row")
    _check_names(columns)
    return columns


def _read_tsv(data: bytes, source: str) -> Columns:
    data = data.rstrip(b"\n")
    codes = np.frombuffer(data, dtype=np.uint8)
    # the number of tabs before each line end; a good file has two more with every line
    breaks = np.flatnonzero(codes == ord("\n"))
    tabs = np.flatnonzero(codes == ord("\t"))
    per_line = np.diff(np.searchsorted(tabs, np.append(breaks, codes.size)), prepend=0)
    bad = np.flatnonzero(per_line != 2)
    if bad.size:
        line = int(bad[0])
        content = data.split(b"\n", line + 1)[line].decode()
        raise DataError(_wrong_columns(source, line + 1, content, int(per_line[line]) + 1, bad.size, "tabs"))
    order = header_order(data.split(b"\n", 1)[0].decode().split("\t"), _HEADERS)
    skipped = 0 if order is None else 1
    if order is not None and not breaks.size:
        return Columns.empty(source)
    table = parse_columns(data, source, "012", skipped=skipped, delimiter="\t", is_checked=True)
    head, relation, tail = (Column.from_arrow(table[str(position)]) for position in order or (0, 1, 2))
    return Columns(head, relation, tail, source, 1 + skipped)


def _read_csv(data: bytes, source: str) -> Columns:
    text = data.decode().rstrip("\n")
    reader = csv.reader(io.StringIO(text + "\n", newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{source}, line {reader.line_num}: {error}; check the quotes") from error
    if reader.line_num != len(rows):
        raise DataError(f"{source}: a quoted name holds a line break; remove it")
    bad = [line for line, row in enumerate(rows) if len(row) != 3]
    if bad:
        line = bad[0]
        content = text.split("\n", line + 1)[line]
        raise DataError(_wrong_columns(source, line + 1, content, len(rows[line]), len(bad), "commas"))
    order = header_order(rows[0], _HEADERS)
    skipped = 0 if order is None else 1
    head, relation, tail = (
        Column.encode([row[position] for row in rows[skipped:]]) for position in order or (0, 1, 2)
    )
    return Columns(head, relation, tail, source, 1 + skipped)


def _wrong_columns(source: str, line: int, content: str, found: int, bad_lines: int, separator: str) -> str:
    if not content.strip():
        found_text = "a blank line"
    else:
        shown = content if len(content) <= 80 else content[:77] + "..."
        found_text = f"{found} column{'s' * (found != 1)} ({shown!r})"
    more = f" ({bad_lines:,} such lines)" if bad_lines > 1 else ""
    hint = ""
    if found == 1 and separator == "tabs":
        hint = "; name a comma-separated file .csv" if "," in content else "; replace the blanks by tabs"
    return f"{source}, line {line}: expected 3 columns separated by {separator}, got {found_text}{more}{hint}"


def _check_names(columns: Columns) -> None:
    for title, column in zip(_HEADER, (columns.head, columns.relation, columns.tail), strict=True):
        for name in column.names:
            if name.strip() and not any(character in name for character in "\t\n\r"):
                continue
            problem = (
                f"{name!r} holds a tab or line break; remove it" if name.strip() else "is empty; name it"
            )
            raise DataError(f"{columns.where(column.first({name}))}: the {title} {problem}")
