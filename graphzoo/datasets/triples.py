"""Text files of triples: read at once, checked strictly, errors that name file and line.

A file is decoded as a whole, its separators are counted with numpy and its fields come out of one
`str.split`, so that a million lines take about a second and no name is ever reinterpreted: an entity called
`NA`, `null` or `1.0` keeps its name.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.datasets.errors import DataError

__all__ = ["Columns", "parse_triples", "read_bytes", "read_triples", "triples_from_table"]

_HEADER = ("head", "relation", "tail")
_HEADERS = (_HEADER, ("subject", "predicate", "object"))


@dataclass(frozen=True)
class Columns:
    """String triples with their origin.

    Args:
        head: Head names, n strings.
        relation: Relation names, n strings.
        tail: Tail names, n strings.
        source: File or table they came from, for messages.
        first_line: Line of the first triple (2 behind a header).
        unit: What a line is called in messages.
    """

    head: list[str]
    relation: list[str]
    tail: list[str]
    source: str = "triples"
    first_line: int = 1
    unit: str = field(default="line")

    def __len__(self) -> int:
        return len(self.head)

    def where(self, position: int) -> str:
        """`file, line 7` of the triple at `position`."""
        return f"{self.source}, {self.unit} {position + self.first_line}"


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file (told by its first bytes).

    Raises:
        DataError: if the file cannot be read, or is a truncated or corrupt gzip file.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    if raw[:2] != b"\x1f\x8b":
        if path.suffix == ".gz" and raw:
            hint = " (an HTML page: a failed download?)" if raw.lstrip()[:1] == b"<" else ""
            raise DataError(f"{path}: named .gz but is not gzip{hint}; rename it or fetch it again")
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: truncated or corrupt gzip file of {len(raw):,} bytes ({error}); delete it and fetch it "
            "again"
        ) from error


def read_triples(path: str | Path) -> Columns:
    """Triples of a TSV, CSV or plain text file, gzip or not.

    Tab-separated unless the name says `.csv`. A first line of the words head, relation, tail (or subject,
    predicate, object), in any order, is a header. A byte order mark and CRLF line ends are accepted; quotes
    have a meaning in CSV only.

    Args:
        path: The file.

    Returns:
        The triples in file order.

    Raises:
        DataError: not readable, not UTF-8, empty, a line without exactly three columns, or an empty name.
    """
    path = Path(path)
    is_csv = ".csv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    return parse_triples(read_bytes(path), str(path), is_csv=is_csv)


def parse_triples(data: bytes, source: str, *, is_csv: bool = False) -> Columns:
    """The triples in the bytes of a file; see `read_triples`."""
    text = _decode(data, source)
    if not text.strip():
        raise DataError(f"{source}: empty; expected one triple per line: head, relation, tail")
    rows = _split_csv(text, source) if is_csv else _split_tsv(text, source)
    first_line = 1
    order = _header_order([column[0] for column in rows])
    if order is not None:
        rows = [rows[i][1:] for i in order]
        first_line = 2
    columns = Columns(rows[0], rows[1], rows[2], source, first_line)
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
        order = _header_order(names) if len(names) >= 3 else None
        if order is None:
            if len(names) != 3:
                raise DataError(f"{source}: expected the columns head, relation, tail; got {names}")
            order = [0, 1, 2]
        raw = [table.iloc[:, i].tolist() for i in order]
    else:
        rows = table.tolist() if hasattr(table, "tolist") else [tuple(row) for row in table]
        for position, row in enumerate(rows):
            if not isinstance(row, list | tuple) or len(row) != 3:
                raise DataError(f"{source}, row {position + 1}: expected (head, relation, tail), got {row!r}")
        raw = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    for name, column in zip(_HEADER, raw, strict=True):
        for position, value in enumerate(column):
            if value is None or value != value:
                raise DataError(
                    f"{source}, row {position + 1}: the {name} is missing ({value!r}); drop such rows"
                )
    head, relation, tail = ([str(value) for value in column] for column in raw)
    columns = Columns(head, relation, tail, source, unit="row")
    _check_names(columns)
    return columns


def _decode(data: bytes, source: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{source}: encoded as UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # with a byte order mark the decoder counts from behind it
        start = error.start + (3 if data[:3] == b"\xef\xbb\xbf" else 0)
        line = data.count(b"\n", 0, start) + 1
        raise DataError(
            f"{source}, line {line}: not UTF-8 (byte 0x{data[start]:02x} at offset {start}); convert "
            "the file to UTF-8"
        ) from error
    return text.replace("\r\n", "\n") if "\r\n" in text else text


def _split_tsv(text: str, source: str) -> list[list[str]]:
    text = text.rstrip("\n")
    codes = np.frombuffer(text.encode(), dtype=np.uint8)
    # the number of tabs before each line end; a good file has two more with every line
    breaks = np.flatnonzero(codes == ord("\n"))
    tabs = np.flatnonzero(codes == ord("\t"))
    per_line = np.diff(np.searchsorted(tabs, np.append(breaks, codes.size)), prepend=0)
    bad = np.flatnonzero(per_line != 2)
    if bad.size:
        line = int(bad[0])
        content = text.split("\n", line + 1)[line]
        raise DataError(_wrong_columns(source, line + 1, content, int(per_line[line]) + 1, bad.size, "tabs"))
    fields = text.replace("\n", "\t").split("\t")
    return [fields[0::3], fields[1::3], fields[2::3]]


def _split_csv(text: str, source: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text.rstrip("\n") + "\n", newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        rows.extend(reader)
    except csv.Error as error:
        raise DataError(f"{source}, line {reader.line_num}: {error}; check the quotes") from error
    if reader.line_num != len(rows):
        raise DataError(f"{source}: a quoted name holds a line break; remove it")
    bad = [line for line, row in enumerate(rows) if len(row) != 3]
    if bad:
        line = bad[0]
        content = text.split("\n", line + 1)[line]
        raise DataError(_wrong_columns(source, line + 1, content, len(rows[line]), len(bad), "commas"))
    return [list(column) for column in zip(*rows, strict=True)]


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


def _header_order(first: list[str]) -> list[int] | None:
    """Positions of head, relation, tail when `first` is a header, else None."""
    found = [name.strip().lower() for name in first]
    for header in _HEADERS:
        if all(name in found for name in header):
            return [found.index(name) for name in header]
    return None


def _check_names(columns: Columns) -> None:
    for name, values in zip(_HEADER, (columns.head, columns.relation, columns.tail), strict=True):
        # the set is small beside the column, so the scan for bad names costs little
        for value in set(values):
            if value.strip() and not any(character in value for character in "\t\n\r"):
                continue
            problem = (
                f"{value!r} holds a tab or line break; remove it" if value.strip() else "is empty; name it"
            )
            raise DataError(f"{columns.where(values.index(value))}: the {name} {problem}")
