"""Text files of triples: read at once, checked strictly, errors that name file and line.

The separators of a file are counted with numpy, its fields are split and numbered by Arrow, so that a million
lines take about a second, and no name is ever reinterpreted: an entity called `NA`, `null` or `1.0` keeps its
name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.datasets.files.tables import Column, clean, header_order, parse_columns, read_bytes
from graphzoo.datasets.files.text import ignored_columns, is_missing, names_of
from graphzoo.errors import DataError
from graphzoo.system.units import counted

_HEADER = ("head", "relation", "tail")
_HEADERS = (
    _HEADER,
    ("subject", "predicate", "object"),
    ("subject", "relation", "object"),
    ("source", "relation", "target"),
    ("source", "type", "target"),
    ("from", "relation", "to"),
    ("head", "rel", "tail"),
)
# a header too, unless these are names of the graph
_LETTERS = ("h", "r", "t")
_COLUMN_WORD = re.compile(r"[#%:]? *[^\W\d][\w -]{0,29}")


@dataclass(frozen=True)
class Columns:
    """String triples with their origin, for messages: a file or table, and the line of the first triple."""

    head: Column
    relation: Column
    tail: Column
    source: str = "triples"
    first_line: int = 1
    unit: str = "line"
    notices: tuple[str, ...] = ()

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
    predicate or relation, object; source, relation or type, target; from, relation, to; head, rel, tail), in
    any order, is a header; columns beside those are ignored, and `notices` names them. Lines at the top that
    begin with # or % and have not three columns are comments. A byte order mark and CRLF line ends are
    accepted; quotes have a meaning in CSV only.

    Raises:
        DataError: not readable, not UTF-8, empty, a line without as many columns as there have to be, or an
            empty name.
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
        raise DataError(f"{source}: holds no triple; write one per line: head, relation, tail")
    _check_names(columns)
    return columns


def _by_name(names: list[str]) -> list[int]:
    """Positions of head, relation and tail among three columns.

    Where one is named as a relation, by name as far as headers have them: ends alone may mean something else,
    as the "source" of a fact.
    """
    headers = (*_HEADERS, _LETTERS)
    fields, order = [name.strip().lower() for name in names], [-1, -1, -1]
    for role in range(3):
        found = [i for i, field in enumerate(fields) if field in {header[role] for header in headers}]
        order[role] = found[0] if len(found) == 1 else -1
    if order[1] < 0:
        return [0, 1, 2]
    rest = [i for i in range(3) if i not in order]
    return [rest.pop(0) if position < 0 else position for position in order]


def triples_from_table(table: Any, source: str = "triples") -> Columns:
    """String triples from a DataFrame, an array [n, 3] or a sequence of (head, relation, tail).

    A DataFrame with columns head, relation, tail, or other names of a header, is read by these, any other of
    three columns by the name of its relation, if it has one, else by position, and `notices` says so. Values
    become strings by `str`, whole floats as integers; missing ones are refused.

    Raises:
        DataError: not three columns, a missing value, an empty name.
    """
    if isinstance(table, Columns):
        return table
    notices: tuple[str, ...] = ()
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        names = [str(name) for name in table.columns]
        order = header_order(names, (*_HEADERS, _LETTERS))
        if order is None:
            if len(names) != 3:
                raise DataError(f"{source}: expected the columns head, relation, tail; got {names}")
            order = _by_name(names)
            if pair := header_order(names, [(head, tail) for head, _, tail in _HEADERS]):
                order = [pair[0], 3 - sum(pair), pair[1]]  # the third one is the relation
                column, kind = names[order[1]], table.iloc[:, order[1]].dtype.kind
                if kind == "f":
                    raise DataError(
                        f"{source}: column {column!r} holds numbers with decimals, which are no relations\n"
                        "Give a column of relations; links with weights are for LinkDataModule"
                    )
                if kind in "iu":
                    notices = (f"{source}: numbers of column {column!r} are read as relations",)
            elif names != ["0", "1", "2"]:
                read = ", ".join(names[position] for position in order)
                notices = (f"{source}: columns {read} are read as head, relation, tail",)
        notices += ignored_columns(source, [name for i, name in enumerate(names) if i not in order])
        raw = [table.iloc[:, i].tolist() for i in order]
    else:
        # a name is no row, though one of three letters has three parts
        try:
            listed = iter(table.tolist() if hasattr(table, "tolist") else table)
        except (TypeError, RuntimeError) as error:  # a number; HeteroData, a sparse tensor
            kind = type(table).__name__
            raise DataError(f"{source}: expected triples (head, relation, tail), got {kind}") from error
        if isinstance(table, set | frozenset) and len(table) > 1:
            raise DataError(f"{source}: a set has another order in each process\nGive sorted(triples)")
        unfit = (str, set, frozenset, Mapping)  # of these the order of three values means nothing
        rows = [
            tuple(row) if isinstance(row, Iterable) and not isinstance(row, unfit) else row for row in listed
        ]
        for position, row in enumerate(rows):
            if not isinstance(row, tuple) or len(row) != 3:
                hint = "" if isinstance(row, tuple) else "\nGive a list of triples, also of one"
                shown = repr(row)
                if isinstance(row, tuple) and len(shown) > 80:
                    shown = f"{len(row)} values; is the table [n, 3]?"
                raise DataError(
                    f"{source}, row {position + 1}: expected (head, relation, tail), got {shown}{hint}"
                )
        raw = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    for name, column in zip(_HEADER, raw, strict=True):
        for position, value in enumerate(column):
            if is_missing(value):
                raise DataError(
                    f"{source}, row {position + 1}: the {name} is missing ({value!r}); drop such rows"
                )
    ends = names_of([*raw[0], *raw[2]])  # of both ends at once: an entity may be either
    parts = (ends[: len(raw[0])], names_of(raw[1]), ends[len(raw[0]) :])
    head, relation, tail = map(Column.encode, parts)
    columns = Columns(head, relation, tail, source, unit="row", notices=notices)
    _check_names(columns)
    return columns


def query_columns(fields: Sequence[str]) -> list[str] | None:
    """What a first line of queries calls its two or three columns, as head, relation, tail; else None.

    >>> query_columns(["Predicate", "subject"]), query_columns(["h", "?", "t"])
    (['relation', 'head'], None)
    """
    names = [field.strip().lower() for field in fields]
    # h and r may be a query, h, r and t are none: nothing is asked
    for header in (*_HEADERS, *([_LETTERS] if len(names) == 3 else [])):
        if header[1] in names and len(names) > 1 and set(names) <= set(header):
            return [_HEADER[header.index(name)] for name in names]
    return None


def heed_first_lines(columns: Mapping[str, Columns]) -> tuple[dict[str, Columns], list[str]]:
    """Files of one graph without headers h, r, t (in any order), and a warning for each line 1 like a header.

    Such a line has words, as columns are called, that are names in no other line.
    """
    heeded, notices = dict(columns), list[str]()
    for key, part in columns.items():
        first = (part.head[0], part.relation[0], part.tail[0]) if len(part) > 1 else ()
        if first and all(len(name) > 1 and name[0] == name[-1] == '"' for name in first):
            notices.append(
                f"{part.where(0)}: quotation marks are part of the names ({', '.join(first)}), as they mean "
                "something in .csv only: write the file without them, or as .csv"
            )
        if not first or not all(map(_COLUMN_WORD.fullmatch, first)) or _recurs(first, columns):
            continue
        if order := header_order(first, [_LETTERS]):
            given = (part.head, part.relation, part.tail)
            # each is the first name of its column, and has no other row there
            head, relation, tail = (Column(given[i].codes[1:] - 1, given[i].names[1:]) for i in order)
            heeded[key] = Columns(
                head, relation, tail, part.source, part.first_line + 1, notices=part.notices
            )
        else:
            notices.append(
                f"{part.where(0)} looks like a header and was read as a fact ({', '.join(first)}); if it is "
                "one, name the columns head, relation, tail"
            )
    return heeded, notices


def _recurs(first: tuple[str, ...], columns: Mapping[str, Columns]) -> bool:
    """Whether names of a first line are names of a line that is not the first of its file."""
    head, relation, tail = first

    def has(column: Column, names: set[str]) -> bool:
        codes = [code for code, name in enumerate(column.names) if name in names]
        return bool(codes) and bool(np.isin(column.codes[1:], codes).any())

    return any(has(part.relation, {relation}) for part in columns.values()) or any(
        has(column, {head, tail}) for part in columns.values() for column in (part.head, part.tail)
    )


def _read_tsv(data: bytes, source: str) -> Columns:
    data = data.rstrip(b"\n")
    form = _Form.of((line.decode() for line in io.BytesIO(data)), "\t")
    codes = np.frombuffer(data, dtype=np.uint8)
    # the number of tabs before each line end; a good file has two more with every line
    breaks = np.flatnonzero(codes == ord("\n"))
    tabs = np.flatnonzero(codes == ord("\t"))
    per_line = np.diff(np.searchsorted(tabs, np.append(breaks, codes.size)), prepend=0)
    bad = form.comments + np.flatnonzero(per_line[form.comments :] != form.width - 1)
    if bad.size:
        line = int(bad[0])
        content = data.split(b"\n", line + 1)[line].decode()
        raise DataError(_wrong_columns(source, line + 1, content, int(per_line[line]) + 1, bad.size, form))
    if breaks.size < form.skipped:
        return Columns.empty(source)
    keys = [str(position) for position in range(form.width)]
    table = parse_columns(data, source, keys, skipped=form.skipped, delimiter="\t", is_checked=True)
    head, relation, tail = (Column.from_arrow(table[str(position)]) for position in form.order)
    return Columns(head, relation, tail, source, 1 + form.skipped, notices=form.notices(source))


def _read_csv(data: bytes, source: str) -> Columns:
    text = data.decode().rstrip("\n")
    form = _Form.of(io.StringIO(text), ",")
    lines = text.split("\n", form.comments)
    reader = csv.reader(io.StringIO((lines[form.comments :] or [""])[0] + "\n", newline=""), strict=True)
    try:
        rows = list(reader) if len(lines) > form.comments else []
    except csv.Error as error:
        line = form.comments + reader.line_num
        raise DataError(f"{source}, line {line}: {error}; check the quotes") from error
    if reader.line_num != len(rows):
        raise DataError(f"{source}: a quoted name holds a line break; remove it")
    bad = [position for position, row in enumerate(rows) if len(row) != form.width]
    if bad:
        line = form.comments + bad[0]
        content = text.split("\n", line + 1)[line]
        raise DataError(_wrong_columns(source, line + 1, content, len(rows[bad[0]]), len(bad), form))
    rows = rows[form.skipped - form.comments :]
    head, relation, tail = (Column.encode([row[position] for row in rows]) for position in form.order)
    return Columns(head, relation, tail, source, 1 + form.skipped, notices=form.notices(source))


@dataclass(frozen=True)
class _Form:
    """What the lines at the top say of the others."""

    delimiter: str
    comments: int  # lines
    header: tuple[str, ...] = ()
    order: tuple[int, ...] = (0, 1, 2)
    doubtful: int = 0  # comments that could be triples

    @classmethod
    def of(cls, lines: Iterator[str], delimiter: str) -> _Form:
        """From the lines of a file."""
        comments = doubtful = 0
        for line in lines:
            fields = _fields(line.rstrip("\n").lstrip("#% "), delimiter)
            if order := header_order(fields, _HEADERS):
                names = tuple(name.strip() for name in fields)
                return cls(delimiter, comments, names, tuple(order), doubtful)
            # a name may begin with # too
            if not line.startswith(("# ", "% ")) and (not line.startswith(("#", "%")) or len(fields) == 3):
                break
            comments += 1
            doubtful += len(fields) == 3
        return cls(delimiter, comments, doubtful=doubtful)

    @property
    def width(self) -> int:
        return len(self.header) or 3

    @property
    def skipped(self) -> int:
        """Lines before the first triple."""
        return self.comments + bool(self.header)

    def notices(self, source: str) -> tuple[str, ...]:
        ignored = ignored_columns(source, [name for i, name in enumerate(self.header) if i not in self.order])
        if not self.doubtful:
            return ignored
        lines = counted(self.doubtful, "line")
        message = f"{source}: {lines} of three columns at the top read as comments, by their '#' or '%'"
        return (*ignored, message)


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line])) if delimiter == "," and line else line.split(delimiter)
    except csv.Error:  # told of when the line is read as a triple
        return [line]


def _wrong_columns(source: str, line: int, content: str, found: int, bad_lines: int, form: _Form) -> str:
    if not content.strip():
        found_text = "a blank line"
    else:
        shown = content if len(content) <= 80 else content[:77] + "..."
        found_text = f"{found} column{'s' * (found != 1)} ({shown!r})"
    if bad_lines > 1:
        found_text += f" ({bad_lines:,} wrong lines)"
    separator = "tabs" if form.delimiter == "\t" else "commas"
    return (
        f"{source}, line {line}: expected {form.width} columns separated by {separator}, got {found_text}"
        + _remedy(content, found, form)
    )


def _remedy(content: str, found: int, form: _Form) -> str:
    """What to do about a line with the wrong columns; "" where it says all itself."""
    ours = "write head<TAB>relation<TAB>tail in a .tsv file"
    if re.match(r"<[^>]*>\s|_:\S+\s+<|@(prefix|base)\b", content):
        return f"; N-Triples and Turtle are not read: {ours}"
    if content.lstrip()[:1] in ("{", "["):
        return f"; JSON is not read: {ours}"
    if content.startswith(("#", "%")):
        return "; drop the line: comments stand at the top of a file only"
    if found > form.width == 3:
        return "; drop the further columns, or name head, relation and tail in line 1 to have others ignored"
    if not content.strip():
        return "; remove it"
    if found != 1:
        return ""
    if ";" in content:
        return f"; separate the columns by {'commas' if form.delimiter == ',' else 'tabs'}"
    if form.delimiter == ",":
        return "; name a tab-separated file .tsv" if "\t" in content else ""
    if "," in content:
        return "; name a comma-separated file .csv"
    return "; replace the blanks by tabs" if " " in content else "; separate the columns by tabs"


def _check_names(columns: Columns) -> None:
    for title, column in zip(_HEADER, (columns.head, columns.relation, columns.tail), strict=True):
        for name in column.names:
            if name.strip() and not any(character in name for character in "\t\n\r"):
                continue
            problem = (
                f"{name!r} holds a tab or line break; remove it" if name.strip() else "is empty; name it"
            )
            raise DataError(f"{columns.where(column.first({name}))}: the {title} {problem}")
