"""Read triples from text files and tables, with strict checks; errors name the file and the line.

numpy counts the separators of a file, and Arrow splits its fields, so that a million lines take about a
second. Names are never reinterpreted: an entity called `NA`, `null` or `1.0` keeps its name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.datasets.files.tables import (
    Column,
    check_groups,
    clean,
    column_name,
    csv_delimiter,
    header_order,
    parse_columns,
    read_bytes,
)
from graphzoo.datasets.files.text import as_row, ignored_columns, is_missing, names_of
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
    (":start_id", ":type", ":end_id"),  # Neo4j
)
# These letters are a header too, unless they are names of the graph.
_LETTERS = (("h", "r", "t"), ("s", "p", "o"))
_OURS = "write head<TAB>relation<TAB>tail in a .tsv file"
_NOT_READ = f"; N-Triples and Turtle are not read: {_OURS}"
_PEEKED = 1 << 18  # bytes; enough characters for `csv_delimiter`
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
# Such as `:START_ID(Person)`, and `n.name` and `type(r)` of Cypher.
_COLUMN_WORD = re.compile(r"[#%:?]? *[^\W\d][\w .:()-]{0,29}")


@dataclass(frozen=True)
class Columns:
    """String triples, with their file or table and the line of the first triple for messages."""

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
        """The place of the triple at `position`, such as `file, line 7`."""
        return f"{self.source}, {self.unit} {position + self.first_line}"

    @classmethod
    def empty(cls, source: str) -> Columns:
        """Columns without triples."""
        return cls(Column.encode([]), Column.encode([]), Column.encode([]), source)

    def renumber(
        self, entities: Mapping[str, int], relations: Mapping[str, int]
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The triples as numbers, [n, 3], int64."""
        parts = ((self.head, entities), (self.relation, relations), (self.tail, entities))
        return np.stack([column.renumber(numbers) for column, numbers in parts], axis=1)


def read_triples(path: str | Path) -> Columns:
    """Read the triples of a TSV, CSV or plain text file, which may be gzipped.

    Columns are separated by tabs; if the name has `.csv`, by commas or semicolons, whichever fits the first
    lines. The first line is a header if it has the words head, relation, tail in any order. Other
    accepted headers are subject, predicate or relation, object; source, relation or type, target; from,
    relation, to; head, rel, tail; and :START_ID, :TYPE, :END_ID of Neo4j, also with groups. A word may begin
    with a question mark, as in results of SPARQL. Further columns of a header are ignored, and `notices`
    names them. Lines at the top are comments if they begin with # or % followed by a space, or begin with #
    or % and do not have three columns. A byte order mark and CRLF line ends are accepted. Quotes enclose a
    name in CSV only.

    Raises:
        DataError: if the file cannot be read, is not UTF-8 or has no triples, a line has the wrong number of
            columns, or a name is empty.
    """
    path = Path(path)
    is_csv = ".csv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    return parse_triples(read_bytes(path), str(path), is_csv=is_csv)


def parse_triples(data: bytes, source: str, *, is_csv: bool = False) -> Columns:
    """The triples in the bytes of a file; see `read_triples`."""
    data = clean(data, source)
    if not data.strip():
        raise DataError(f"{source}: empty; expected one triple per line: head, relation, tail")
    # Without quotes, a comma is a separator wherever it stands, as a tab is.
    separator = csv_delimiter(data[:_PEEKED].decode(errors="ignore"), least=3) if is_csv else "\t"
    has_quotes = is_csv and b'"' in data
    columns = (_read_quoted if has_quotes else _read_plain)(data, source, separator)
    if not len(columns):
        raise DataError(f"{source}: no triples; write one per line: head, relation, tail")
    # With tabs between its terms, a line of N-Triples has three columns, and its full stop is in the tail.
    for row in range(min(2, len(columns))):  # the first may be a header
        if _is_n_triple(columns.head[row], columns.relation[row], columns.tail[row]):
            raise DataError(f"{columns.where(row)}: the tail ends with a full stop{_NOT_READ}")
    _check_names(columns)
    return columns


def _is_n_triple(head: str, relation: str, tail: str) -> bool:
    return head.startswith(("<", "_:")) and relation.startswith("<") and tail.endswith((" .", ">.", '".'))


def _by_name(names: list[str]) -> list[int]:
    """Positions of head, relation and tail among three columns.

    If one column is called as a relation, columns are taken by name as far as headers have their names. Else
    they are taken by position: the name of an end alone may mean another thing, such as the source of a fact.
    """
    headers = (*_HEADERS, *_LETTERS)
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

    Columns of a DataFrame that are called head, relation, tail, or as in another header of `read_triples`,
    are taken by name. Three columns of other names are taken by the name of the relation's column, or else by
    position; `notices` says so. Values become strings by `str`, and floats become integers if all names of a
    kind are whole numbers.

    Args:
        table: The triples.
        source: What messages call the table.

    Raises:
        DataError: if there are not three columns, a value is missing, or a name is empty.
    """
    if isinstance(table, Columns):
        return table
    notices: tuple[str, ...] = ()
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        names = [str(name) for name in table.columns]
        order = header_order(names, (*_HEADERS, *_LETTERS), source)
        if order is None:
            if len(names) != 3:
                raise DataError(f"{source}: expected the columns head, relation, tail; got {names}")
            order = _by_name(names)
            if pair := header_order(names, [(head, tail) for head, _, tail in _HEADERS], source):
                order = [pair[0], 3 - sum(pair), pair[1]]  # the third one is the relation
                column, kind = names[order[1]], table.iloc[:, order[1]].dtype.kind
                if kind == "f":
                    raise DataError(
                        f"{source}: column {column!r} has numbers with decimals, which cannot be relations\n"
                        "Give a column of relations; for links with weights, use LinkDataModule"
                    )
                if kind in "iu":
                    notices = (f"{source}: numbers of column {column!r} are read as relations",)
            elif names != ["0", "1", "2"]:
                read = ", ".join(names[position] for position in order)
                notices = (f"{source}: columns {read} are read as head, relation, tail",)
        notices += ignored_columns(source, [name for i, name in enumerate(names) if i not in order])
        raw = [table.iloc[:, i].tolist() for i in order]
    else:
        # A name is not a row: a str of three letters could be unpacked into three parts.
        try:
            listed = iter(table.tolist() if hasattr(table, "tolist") else table)
        except (TypeError, RuntimeError) as error:  # a number; HeteroData, a sparse tensor
            kind = type(table).__name__
            raise DataError(f"{source}: expected triples (head, relation, tail), got {kind}") from error
        if isinstance(table, set | frozenset) and len(table) > 1:
            raise DataError(f"{source}: the order of a set differs between processes\nGive sorted(triples)")
        rows = [as_row(row) for row in listed]
        for position, row in enumerate(rows):
            if not isinstance(row, tuple) or len(row) != 3:
                hint = "" if isinstance(row, tuple) else "\nGive a list of triples, even for a single one"
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
    ends = names_of([*raw[0], *raw[2]])  # both at once: the same entity may be a head and a tail
    parts = (ends[: len(raw[0])], names_of(raw[1]), ends[len(raw[0]) :])
    head, relation, tail = map(Column.encode, parts)
    columns = Columns(head, relation, tail, source, unit="row", notices=notices)
    _check_names(columns)
    return columns


def _without_marks(fields: Sequence[str]) -> list[str]:
    """Names of columns without the question mark with which SPARQL begins the name of a variable."""
    return [field.strip().removeprefix("?") for field in fields]


def query_columns(fields: Sequence[str]) -> list[str] | None:
    """The columns of a header of queries, "" for further ones; None if it is not a header.

    Raises:
        DataError: if a column that is needed occurs twice.

    >>> query_columns(["Predicate", "subject"]), query_columns(["h", "?", "t"])
    (['relation', 'head'], None)
    >>> query_columns(["", "head", "relation", "tail"])
    ['', 'head', 'relation', 'tail']
    """
    names = [column_name(field) for field in _without_marks(fields)]
    # "h r" may be a query, but "h r t" cannot: a query has only two of the three.
    for header in (*_HEADERS, *(_LETTERS if len(names) == 3 else ())):
        if header[1] not in names or len(names) < 2:
            continue
        # A line of up to three columns could be a query; a longer one, or one with an unnamed index, cannot.
        known = [name for name in names if name in header]
        if len(known) < 2 or not (len(known) == len(names) or len(names) > 3 or not names[0]):
            continue
        if repeated := [name for name in known if known.count(name) > 1]:
            raise DataError(f"column {repeated[0]!r} occurs twice; rename one")
        return [_HEADER[header.index(name)] if name in header else "" for name in names]
    return None


def heed_first_lines(columns: Mapping[str, Columns]) -> tuple[dict[str, Columns], list[str]]:
    """Drop headers h, r, t and s, p, o of the files of one graph; notices for first lines like a header.

    Such a line has words that could be names of columns, and are names in no other line.
    """
    heeded, notices = dict(columns), list[str]()
    for key, part in columns.items():
        first = (part.head[0], part.relation[0], part.tail[0]) if len(part) > 1 else ()
        if first and all(len(name) > 1 and name[0] == name[-1] == '"' for name in first):
            notices.append(
                f"{part.where(0)}: quotation marks are part of the names ({', '.join(first)}); only .csv "
                "files are read without them: write the file without quotation marks, or as .csv"
            )
        if not first or not all(map(_COLUMN_WORD.fullmatch, first)) or _recurs(first, columns):
            continue
        if order := header_order(_without_marks(first), _LETTERS):
            given = (part.head, part.relation, part.tail)
            # Each letter is the first name of its column and occurs in no other row.
            head, relation, tail = (Column(given[i].codes[1:] - 1, given[i].names[1:]) for i in order)
            heeded[key] = Columns(
                head, relation, tail, part.source, part.first_line + 1, notices=part.notices
            )
        else:
            notices.append(
                f"{part.where(0)} looks like a header and was read as a fact ({', '.join(first)}); if it is "
                "a header, name the columns head, relation, tail"
            )
    return heeded, notices


def _recurs(first: tuple[str, ...], columns: Mapping[str, Columns]) -> bool:
    """Whether a name of a first line also occurs in a line that is not the first of its file."""
    head, relation, tail = first

    def has(column: Column, names: set[str]) -> bool:
        codes = [code for code, name in enumerate(column.names) if name in names]
        return bool(codes) and bool(np.isin(column.codes[1:], codes).any())

    return any(has(part.relation, {relation}) for part in columns.values()) or any(
        has(column, {head, tail}) for part in columns.values() for column in (part.head, part.tail)
    )


def _read_plain(data: bytes, source: str, separator: str) -> Columns:
    """Read fields between which a tab, or a comma or semicolon in a text without quotes, is the separator."""
    data = data.rstrip(b"\n")
    form = _Form.of((line.decode() for line in io.BytesIO(data)), separator, source)
    codes = np.frombuffer(data, dtype=np.uint8)
    # The number of separators before each line end: in a good file it grows by two with every line.
    breaks = np.flatnonzero(codes == ord("\n"))
    places = np.flatnonzero(codes == ord(separator))
    per_line = np.diff(np.searchsorted(places, np.append(breaks, codes.size)), prepend=0)
    bad = form.comments + np.flatnonzero(per_line[form.comments :] != form.width - 1)
    if bad.size:
        line = int(bad[0])
        content = data.split(b"\n", line + 1)[line].decode()
        are_all = bad.size == per_line.size - form.skipped
        found = int(per_line[line]) + 1
        raise DataError(_wrong_columns(source, line + 1, content, found, bad.size, form, are_all=are_all))
    keys = [str(position) for position in range(form.width)]
    table = parse_columns(data, source, keys, skipped=form.skipped, delimiter=separator, is_checked=True)
    return form.columns([Column.from_arrow(table[str(position)]) for position in form.order], source)


def _read_quoted(data: bytes, source: str, separator: str) -> Columns:
    """Read fields separated by commas or semicolons, of which some are in quotes."""
    text = data.decode().rstrip("\n")
    form = _Form.of(io.StringIO(text), separator, source)
    lines = text.split("\n", form.comments)
    body = io.StringIO((lines[form.comments :] or [""])[0] + "\n", newline="")
    reader = csv.reader(body, delimiter=separator, strict=True)
    rows = list[list[str]]()
    try:
        for row in reader if len(lines) > form.comments else ():
            rows.append(row)
            if reader.line_num != len(rows):
                broken = next(position for position, field in enumerate(row) if "\n" in field)
                remedy = "remove it"
                if broken < len(form.header) and broken not in form.order and form.header[broken]:
                    remedy += f", or the column {form.header[broken]}, which is not used"
                raise DataError(
                    f"{source}, line {form.comments + len(rows)}: {_shortened(row[broken])} has a line "
                    f"break; {remedy}"
                )
    except csv.Error as error:
        line = form.comments + reader.line_num
        raise DataError(f"{source}, line {line}: {error}; check the quotes") from error
    bad = [position for position, row in enumerate(rows) if len(row) != form.width]
    if bad:
        line = form.comments + bad[0]
        content = text.split("\n", line + 1)[line]
        found, are_all = len(rows[bad[0]]), len(bad) == len(rows) - bool(form.header)
        raise DataError(_wrong_columns(source, line + 1, content, found, len(bad), form, are_all=are_all))
    rows = rows[form.skipped - form.comments :]
    return form.columns([Column.encode([row[position] for row in rows]) for position in form.order], source)


@dataclass(frozen=True)
class _Form:
    """The form of a file, from the lines at its top: comments and a header."""

    delimiter: str
    comments: int  # lines
    header: tuple[str, ...] = ()
    order: tuple[int, ...] = (0, 1, 2)
    doubtful: int = 0  # comments that could be triples

    @classmethod
    def of(cls, lines: Iterator[str], delimiter: str, source: str) -> _Form:
        """Read the form from the lines of a file; messages begin with `source`."""
        comments = doubtful = 0
        for line in lines:
            fields = _fields(line.rstrip("\n").lstrip("#% "), delimiter)
            if order := header_order(_without_marks(fields), _HEADERS, f"{source}, line {comments + 1}"):
                names = tuple(name.strip() for name in fields)
                return cls(delimiter, comments, names, tuple(order), doubtful)
            # A name may begin with #, so that a line of three columns is a triple unless a space follows.
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

    def columns(self, parts: Sequence[Column], source: str) -> Columns:
        """The triples, from heads, relations and tails."""
        head, relation, tail = parts
        if self.header:
            titles = [self.header[self.order[0]], self.header[self.order[2]]]
            check_groups(titles, (head, tail), source, 1 + self.skipped)
        return Columns(head, relation, tail, source, 1 + self.skipped, notices=self.notices(source))

    def notices(self, source: str) -> tuple[str, ...]:
        ignored = ignored_columns(source, [name for i, name in enumerate(self.header) if i not in self.order])
        if not self.doubtful:
            return ignored
        lines = counted(self.doubtful, "line")
        message = f"{source}: {lines} of three columns at the top read as comments, because of '#' or '%'"
        return (*ignored, message)


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        is_csv = line and delimiter != "\t"
        return next(csv.reader([line], delimiter=delimiter)) if is_csv else line.split(delimiter)
    except csv.Error:  # the error comes when the line is read as a triple
        return [line]


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _wrong_columns(
    source: str, line: int, content: str, found: int, bad_lines: int, form: _Form, *, are_all: bool
) -> str:
    if not content.strip():
        found_text = "a blank line"
    else:
        found_text = f"{counted(found, 'column')} ({_shortened(content)})"
    if bad_lines > 1:
        found_text += f" ({bad_lines:,} wrong lines)"
    separators = _SEPARATORS[form.delimiter]
    return (
        f"{source}, line {line}: expected {form.width} columns separated by {separators}, got {found_text}"
        + _remedy(content, found, form, are_all=are_all)
    )


def _remedy(content: str, found: int, form: _Form, *, are_all: bool) -> str:
    """The remedy for a line with the wrong number of columns; "" if the message is clear without one."""
    if re.match(r"<[^>]*>\s|_:\S+\s+<|@(prefix|base)\b|(?i:prefix|base)\s+\S*\s*<", content):
        return _NOT_READ
    if found == 1 and re.match(r"\s*<[?!\w]", content):
        return f"; XML and HTML are not read: {_OURS}"
    if content.lstrip()[:1] in ("{", "["):
        return f"; JSON is not read: {_OURS}"
    if content.startswith(("#", "%")):
        return "; drop the line: comments are allowed only at the top of a file"
    if found > form.width and form.delimiter != "\t" and not are_all:
        return f"; put a name with {_SEPARATORS[form.delimiter]} in quotes"
    if found > form.width == 3:
        return "; drop the other columns, or name all columns in line 1: head, relation, tail, ..."
    if not content.strip():
        return "; remove it"
    if found != 1:
        return ""
    if content.strip().isdecimal() and not are_all:
        return "; drop the line if it is a count"
    if ";" in content and form.delimiter == "\t":
        return "; name a semicolon-separated file .csv"
    if form.delimiter != "\t":
        if "\t" in content:
            return "; name a tab-separated file .tsv"
        other = "," if form.delimiter == ";" else ";"
        return "; separate the columns by the same character in all lines" if other in content else ""
    if "," in content:
        return "; name a comma-separated file .csv"
    return "; replace the spaces by tabs" if " " in content else "; separate the columns by tabs"


def _check_names(columns: Columns) -> None:
    for title, column in zip(_HEADER, (columns.head, columns.relation, columns.tail), strict=True):
        for name in column.names:
            if name.strip() and not any(character in name for character in "\t\n\r"):
                continue
            problem = f"is empty; name it or drop the {columns.unit}"
            if name.strip():
                problem = f"{name!r} has a tab or line break; remove it"
            raise DataError(f"{columns.where(column.first({name}))}: the {title} {problem}")
