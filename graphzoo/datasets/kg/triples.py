"""Text files of triples: read at once, checked strictly, errors that name file and line.

The separators of a file are counted with numpy, its fields are split and numbered by Arrow, so that a million
lines take about a second, and no name is ever reinterpreted: an entity called `NA`, `null` or `1.0` keeps its
name.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.errors import DataError, reason
from graphzoo.system.files import check_growth
from graphzoo.system.regular_files import read_regular

__all__ = ["Column", "Columns", "clean", "parse_triples", "read_bytes", "read_triples", "triples_from_table"]

_MARK = b"\xef\xbb\xbf"
_HEADER = ("head", "relation", "tail")
_HEADERS = (_HEADER, ("subject", "predicate", "object"))


@dataclass(frozen=True)
class Column:
    """A column of names, each distinct one stored once.

    Args:
        codes: Positions in `names`, [n], integer.
        names: Distinct names.
    """

    codes: np.ndarray[Any, Any]
    names: list[str]

    @classmethod
    def encode(cls, values: Sequence[str]) -> Column:
        """From one name per row."""
        known = dict.fromkeys(values)
        numbers = dict(zip(known, range(len(known)), strict=True))
        codes = np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values))
        return cls(codes, list(known))

    def __len__(self) -> int:
        return int(self.codes.size)

    def __getitem__(self, position: int) -> str:
        return self.names[int(self.codes[position])]

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, self.codes.tolist())

    def renumber(self, numbers: Mapping[str, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of each row's name, [n], int64."""
        table = np.fromiter(map(numbers.__getitem__, self.names), dtype=np.int64, count=len(self.names))
        numbered: np.ndarray[Any, np.dtype[np.int64]] = table[self.codes]
        return numbered

    def first(self, names: Collection[str]) -> int:
        """Position of the first row whose name is one of `names`."""
        wanted = np.fromiter((name in names for name in self.names), dtype=bool, count=len(self.names))
        return int(np.flatnonzero(wanted[self.codes])[0])


@dataclass(frozen=True)
class Columns:
    """String triples with their origin.

    Args:
        head: Heads, n rows.
        relation: Relations, n rows.
        tail: Tails, n rows.
        source: File or table they came from, for messages.
        first_line: Line of the first triple (2 behind a header).
        unit: What a line is called in messages.
    """

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


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file (told by its first bytes).

    Raises:
        DataError: if the file cannot be read, or is a truncated or corrupt gzip file.
    """
    try:
        raw = read_regular(path)
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
        with gzip.open(io.BytesIO(raw)) as stream:
            parts: list[bytes] = []
            size = 0
            for part in iter(partial(stream.read, 1 << 20), b""):
                parts.append(part)
                size += len(part)
                check_growth(path, len(raw), size)
        return b"".join(parts)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: truncated or corrupt gzip file of {len(raw):,} bytes ({reason(error)}); delete it "
            "and fetch it again"
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
    encoded = [Column.encode(column) for column in (head, relation, tail)]
    columns = Columns(encoded[0], encoded[1], encoded[2], source, unit="row")
    _check_names(columns)
    return columns


def clean(data: bytes, source: str) -> bytes:
    """UTF-8 with LF ends, without a byte order mark."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{source}: encoded as UTF-16; save it as UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{source}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start}); "
            "convert the file to UTF-8"
        ) from error
    data = data.removeprefix(_MARK).replace(b"\r\n", b"\n")
    if _MARK in data:
        # files put together have one each; nobody sees it, and the name behind it would be another one
        line = data.count(b"\n", 0, data.index(_MARK)) + 1
        raise DataError(
            f"{source}, line {line}: holds a byte order mark (U+FEFF), which belongs at the begin of a file; "
            "remove it there"
        )
    if b"\r" in data:
        line = data.count(b"\n", 0, data.index(b"\r")) + 1
        raise DataError(f"{source}, line {line}: holds a lone carriage return; end lines with LF or CRLF")
    return data


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
    order = _header_order(data.split(b"\n", 1)[0].decode().split("\t"))
    skipped = 0 if order is None else 1
    if order is not None and not breaks.size:
        return Columns.empty(source)
    head, relation, tail = _split_fields(data, skipped, order or [0, 1, 2])
    return Columns(head, relation, tail, source, 1 + skipped)


def _split_fields(data: bytes, skipped: int, order: Sequence[int]) -> list[Column]:
    """Three columns of checked tab-separated lines; no value is special, so `NA` and quotes stay."""
    # imported here: only reading needs it
    import pyarrow
    from pyarrow import csv as arrow_csv

    names = ["0", "1", "2"]
    table = arrow_csv.read_csv(
        pyarrow.BufferReader(data),
        read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=1 << 26),
        parse_options=arrow_csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
        ),
    )
    columns = []
    for position in order:
        encoded = table.column(position).dictionary_encode().unify_dictionaries().combine_chunks()
        columns.append(Column(encoded.indices.to_numpy(), encoded.dictionary.to_pylist()))
    return columns


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
    order = _header_order(rows[0])
    skipped = 0 if order is None else 1
    head, relation, tail = (
        Column.encode([row[position] for row in rows[skipped:]]) for position in order or [0, 1, 2]
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


def _header_order(first: list[str]) -> list[int] | None:
    """Positions of head, relation, tail when `first` is a header, else None."""
    columns = [name.strip().lower() for name in first]
    for header in _HEADERS:
        if all(name in columns for name in header):
            return [columns.index(name) for name in header]
    return None


def _check_names(columns: Columns) -> None:
    for title, column in zip(_HEADER, (columns.head, columns.relation, columns.tail), strict=True):
        for name in column.names:
            if name.strip() and not any(character in name for character in "\t\n\r"):
                continue
            problem = (
                f"{name!r} holds a tab or line break; remove it" if name.strip() else "is empty; name it"
            )
            raise DataError(f"{columns.where(column.first({name}))}: the {title} {problem}")
