"""Read text files into columns of strings; errors name the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.errors import DataError, reason
from graphzoo.system.files import check_growth
from graphzoo.system.regular_files import read_regular

# Delimiters with which double quotes enclose a field.
QUOTED = ",;"
# A field in double quotes. Quotes inside a field, as in 5" of 6", enclose nothing.
_QUOTED_FIELD = re.compile(r'(?:^|(?<=[,;|\t])) *"(?:[^"]|"")*" *(?=[,;|\t]|$)')
_MARK = b"\xef\xbb\xbf"
_PEEKED, _PEEKED_LINES = 1 << 16, 100  # characters: below the limit of the csv module for a field
_PEEKED_BYTES = 4 * _PEEKED  # enough for as many characters
_GROUP = re.compile(r"(?<=_id)\((.*)\)$", re.IGNORECASE)  # the `(Person)` of `:START_ID(Person)`
_EXCEL = re.compile(rb'"?sep=.?"?(\n|$)')  # a first line for Excel
# The first bytes of files that are not text, with the kind of file.
_BINARY = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive, as .xlsx, .pt and .npz are"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file"),
    (b"SQLite format", "an SQLite database"),
)
_PACKED = (
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x1f\x8b", "gzip twice, or its name does not end in .gz"),
    (257, b"ustar\x00", "tar"),
    (257, b"ustar ", "tar"),
)


@dataclass(frozen=True)
class Column:
    """A column of names, which stores each distinct name once."""

    codes: np.ndarray[Any, Any]  # positions in `names`, [n], integer
    names: list[str]  # distinct

    @classmethod
    def encode(cls, values: Sequence[str]) -> Column:
        """Make a column from one name per row."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(values))}
        codes = np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values))
        return cls(codes, list(numbers))

    @classmethod
    def from_arrow(cls, column: Any) -> Column:
        """Make a column from a column of strings of `parse_columns`."""
        encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
        return cls(encoded.indices.to_numpy(), encoded.dictionary.to_pylist())

    def __len__(self) -> int:
        return int(self.codes.size)

    def __getitem__(self, position: int) -> str:
        return self.names[int(self.codes[position])]

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, self.codes.tolist())

    def renumber(self, numbers: Mapping[str, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number that `numbers` gives to each row's name, [n], int64."""
        table = np.fromiter(map(numbers.__getitem__, self.names), dtype=np.int64, count=len(self.names))
        numbered: np.ndarray[Any, np.dtype[np.int64]] = table[self.codes]
        return numbered

    def first(self, names: Collection[str]) -> int:
        """Position of the first row whose name is one of `names`."""
        wanted = np.fromiter((name in names for name in self.names), dtype=bool, count=len(self.names))
        return int(np.flatnonzero(wanted[self.codes])[0])


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file; gzip is recognised by the first bytes.

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
            raise DataError(f"{path}: named .gz, but is not gzip{hint}; rename it or fetch it again")
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


def clean(data: bytes, source: str) -> bytes:
    """Return the text as UTF-8 with LF line ends and without a byte order mark.

    Raises:
        DataError: if the data are not UTF-8 text, have a stray byte order mark or carriage return, or begin
            with a line such as `sep=;`.
    """

    def where(place: int) -> str:
        line = data.count(b"\n", 0, place) + 1
        return f"{source}, line {line}"

    # A text may begin with such letters too: a gene may be called PAR1. Control characters are not text.
    is_binary = any(byte < 9 for byte in data[:64])
    if is_binary and (kind := next((kind for start, kind in _BINARY if data.startswith(start)), "")):
        raise DataError(
            f"{source}: {kind}, which cannot be read; write it as .csv, or give a DataFrame in Python"
        )
    for offset, start, packer in _PACKED:
        if data.startswith(start, offset) and (packer != "bzip2" or data[4:10] == b"1AY&SY"):
            raise DataError(f"{source}: packed with {packer}; unpack it, or pack the text with gzip (.gz)")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in data[:2]:
        raise DataError(f"{source}: encoded as UTF-16; save it as UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where(error.start)}: not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start}); "
            "convert the file to UTF-8"
        ) from error
    data = data.removeprefix(_MARK).replace(b"\r\n", b"\n")
    if _MARK in data:
        # Concatenated files have one each. It is invisible, and would become part of the name after it.
        raise DataError(
            f"{where(data.index(_MARK))}: has a byte order mark (U+FEFF), which may only be at the "
            "beginning of a file; remove it"
        )
    if b"\r" in data:
        place = where(data.index(b"\r"))
        raise DataError(f"{place}: has a carriage return without a line feed; end lines with LF or CRLF")
    if line := _EXCEL.match(data):
        shown = line[0].decode().strip()
        raise DataError(f"{source}, line 1: {shown!r} is a note for Excel, not a row; delete this line")
    return data


def is_csv(path: Path) -> bool:
    """Whether the name of a file ends in .csv, also if it is compressed."""
    return ".csv" in [suffix.lower() for suffix in path.suffixes[-2:]]


def unquoted(line: str) -> str:
    """A line without its fields in double quotes."""
    return _QUOTED_FIELD.sub("", line)


def delimiter_of(line: str) -> str:
    r"""The delimiter of a line: a tab, else the most frequent of comma, semicolon and bar, else "".

    Marks in double quotes do not count.

    >>> delimiter_of("a;b;c, d"), delimiter_of("a, b\tc"), delimiter_of("ann bob"), delimiter_of('"a;b;c",d')
    (';', '\t', '', ',')
    """
    line = unquoted(line)
    mark = "\t" if "\t" in line else max(",;|", key=line.count)
    return mark if mark in line else ""


def table_delimiter(path: Path, data: bytes) -> str:
    """The delimiter of a table whose first row begins `data`, or "": `delimiter_of` the first line.

    If the name has `.csv`, a bar counts only if there is no comma and no semicolon, and all lines tell which
    of these it is (see `csv_delimiter`).

    >>> table_delimiter(Path("links.csv"), b"sp|P1|A,sp|P2|B"), table_delimiter(Path("links.csv"), b"a|b")
    (',', '|')
    """
    first = data.split(b"\n", 1)[0].decode()
    mark = delimiter_of(first)
    marks = [mark for mark in ",;" if mark in unquoted(first)]
    if mark in ("", "\t") or not is_csv(path) or not marks:
        return mark
    best = csv_delimiter(data[:_PEEKED_BYTES].decode(errors="ignore"), least=2)
    return best if best in marks else marks[0]


def csv_delimiter(text: str, *, least: int) -> str:
    r"""The delimiter of a CSV text, a comma or a semicolon: the one that gives all lines as many fields.

    If both do, it is the semicolon only if every comma is followed by a blank; if neither does, the semicolon
    only if the comma gives the first line fewer than `least` fields. Lines that begin with # or % may be
    comments, so they count only if there are no others.

    >>> [csv_delimiter(text, least=3) for text in ("# of a, b\na;r, s;b", "a;b,r,c", "a, b;r;c, d")]
    [';', ',', ';']
    """
    every = text[:_PEEKED].split("\n")
    if len(text) > _PEEKED and len(every) > 1:
        every.pop()  # it is cut off
    every = every[:_PEEKED_LINES]
    lines = [line for line in every if line.strip() and line[0] not in "#%"] or every
    comma, semicolon = (_widths(lines, delimiter) for delimiter in ",;")
    is_comma, is_semicolon = (min(each) >= least and len({*each}) == 1 for each in (comma, semicolon))
    if is_comma == is_semicolon:
        has_blanks = re.search(r",(?! )", "\n".join(lines)) is None
        return ";" if semicolon[0] >= least and (has_blanks if is_comma else comma[0] < least) else ","
    return ";" if is_semicolon else ","


def _widths(lines: Sequence[str], delimiter: str) -> list[int]:
    """Numbers of fields of the rows in these lines; a single 0 if their quotes do not fit."""
    try:
        return [len(row) for row in csv.reader(lines, delimiter=delimiter, strict=True)] or [0]
    except csv.Error:
        return [0]


def fields_of(
    line: str, source: Path | str, number: int = 1, *, delimiter: str, quoted: str = QUOTED
) -> list[str]:
    """The fields of one line; with a delimiter of `quoted`, double quotes enclose a field."""
    if delimiter not in quoted:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(f"{source}, line {number}: {error}; check the quotes") from error


def column_name(field: str) -> str:
    """A field of a header as `header_order` compares it: without the group of an id of Neo4j."""
    return _GROUP.sub("", field.strip().lower())


def header_order(
    fields: Sequence[str], headers: Iterable[Sequence[str]], source: Path | str = "header"
) -> list[int] | None:
    """Positions among the fields of the first header whose names all occur; None if no header fits.

    Raises:
        DataError: if a name of that header occurs twice, so that its column is unclear; begins with `source`.

    >>> header_order(["time", "Target", "source"], [("source", "target")])
    [2, 1]
    >>> header_order([":START_ID(Person)", ":END_ID"], [(":start_id", ":end_id")])
    [0, 1]
    """
    names = list(map(column_name, fields))
    header = next((header for header in headers if all(name in names for name in header)), None)
    if header is None:
        return None
    if repeated := [name for name in header if names.count(name) > 1]:
        raise DataError(f"{source}: column {repeated[0]!r} occurs twice; rename one")
    return [names.index(name) for name in header]


def check_groups(titles: Sequence[str], ends: Sequence[Column], source: Path | str, first_line: int) -> None:
    """Refuse an id in two groups of Neo4j, such as 1 in `:START_ID(User)` and in `:END_ID(Movie)`.

    Neo4j numbers each group by itself, so these are different nodes, which would become one.

    Args:
        titles: The names of the columns of the two ends.
        ends: The ids in these columns.
        source: File name for messages.
        first_line: The line of the first id.

    Raises:
        DataError: if the two groups differ and share an id.
    """
    one, other = (found[1] if (found := _GROUP.search(title.strip())) else "" for title in titles)
    if not one or not other or one == other:
        return
    if shared := set(ends[0].names).intersection(ends[1].names):
        line = first_line + ends[0].first(shared)
        name = ends[0][line - first_line]
        raise DataError(
            f"{source}, line {line}: {name!r} is an id of {one} and an id of {other}; ids of {one} and of "
            f"{other} are separate\nWrite the ids as {one}{name} and {other}{name}, and the header without "
            "groups: :START_ID, :END_ID"
        )


def parse_columns(
    data: bytes,
    source: Path | str,
    keys: Sequence[str],
    *,
    skipped: int = 0,
    delimiter: str = ",",
    quoted: str = QUOTED,
    is_checked: bool = False,
) -> dict[str, Any]:
    """Parse a table into Arrow columns of strings; no value is special, so that `NA` stays a name.

    Args:
        data: UTF-8 with LF line ends.
        source: File name for messages.
        keys: Names of the columns.
        skipped: Lines before the first row.
        delimiter: Character between fields.
        quoted: Delimiters with which double quotes enclose a field.
        is_checked: Whether every line is known to have one field for each key.

    Returns:
        The columns by their names in `keys`.

    Raises:
        DataError: if a line has another number of fields, quotes do not match, or a value has a line break.
    """
    # imported here: only reading needs it
    import pyarrow
    from pyarrow import csv as arrow_csv

    wrong: list[Any] = []

    def reject(row: Any) -> str:
        wrong.append(row)
        return "skip"

    try:
        table = arrow_csv.read_csv(
            pyarrow.BufferReader(data + b"\n"),
            # With several threads, Arrow does not know the line of a bad row.
            read_options=arrow_csv.ReadOptions(
                column_names=list(keys), skip_rows=skipped, use_threads=is_checked, block_size=1 << 26
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if delimiter in quoted else False,
                ignore_empty_lines=False,
                invalid_row_handler=None if is_checked else reject,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pyarrow.string()), strings_can_be_null=False
            ),
        )
    except pyarrow.ArrowException as error:
        raise DataError(f"{source}: not a readable table ({reason(error)}); check the quotes") from error
    if delimiter in quoted and b'"' in data:
        _check_line_breaks(table, source, skipped + 1, wrong)
    if wrong:
        row = wrong[0]
        more = f"; {len(wrong):,} such lines" if len(wrong) > 1 else ""
        if not row.text.strip():
            raise DataError(f"{source}, line {row.number}: a blank line; remove it{more}")
        remedy = "fill in the missing fields"
        if row.actual_columns > row.expected_columns:
            remedy = f"delete the further fields, or name their columns in line {max(1, skipped)}"
            if delimiter in quoted:
                remedy += f"; if a value has {delimiter!r}, enclose it in double quotes"
        if row.text.startswith(("#", "%")):
            remedy = f"delete the line if it is a comment; else {remedy}"
        raise DataError(
            f"{source}, line {row.number}: expected {row.expected_columns} columns, got {row.actual_columns} "
            f"({row.text[:80]!r}){more}\n  {remedy}"
        )
    return {key: table.column(position) for position, key in enumerate(keys)}


def _check_line_breaks(table: Any, source: Path | str, first_line: int, wrong: Sequence[Any]) -> None:
    """Refuse a value with a line break: two stray quotes in lines apart would swallow the lines between.

    All columns are checked, also those that are not used. `wrong` has the rows that Arrow left out.
    """
    from pyarrow import compute

    found = []
    for column in table.columns:
        has_break = compute.match_substring(column, "\n")
        if (row := compute.index(has_break, value=True).as_py()) >= 0:
            found.append((row, column[row].as_py()))
    # Up to the first line break, Arrow's number of a row is that of its line.
    end = wrong[0].number - first_line if wrong else len(table)
    if found and min(found)[0] < end:
        row, value = min(found)
        line = first_line + row
    elif wrong and "\n" in wrong[0].text:
        line, value = wrong[0].number, wrong[0].text
    else:
        return
    shown = repr(value if len(value) <= 80 else value[:77] + "...")
    raise DataError(f"{source}, line {line}: {shown} has a line break; remove it, and check the quotes")
