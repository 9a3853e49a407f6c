"""Reads files of queries, facts and names; error messages name the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import torch
from torch import Tensor

from graphzoo.datasets.files.tables import clean, csv_delimiter, read_bytes
from graphzoo.datasets.files.text import ignored_columns, warn
from graphzoo.datasets.kg.triples import Columns, heed_first_lines, query_columns, read_triples
from graphzoo.datasets.node.own_csv import ID_COLUMNS
from graphzoo.errors import DataError, UsageError
from graphzoo.inference.names import NodeNames, Vocabulary
from graphzoo.inference.scoring import Queries
from graphzoo.system.units import counted

_UNKNOWN = "?"
_COLUMNS = ("head", "relation", "tail")
_NAME_HEADERS = {"entity", "source", *ID_COLUMNS}
_NAMED = "name the columns head, relation, tail"
_SHOWN = 5
_Names = Vocabulary | NodeNames


@dataclass
class QueryFile:
    """Queries of a file, by name; each list has one entry per query. Source and lines serve messages."""

    source: str
    entity: list[str] = field(default_factory=list)
    relation: list[str] = field(default_factory=list)
    asks_tail: list[bool] = field(default_factory=list)  # False: asks for the head
    line: list[int] = field(default_factory=list)


def read_queries(path: Path) -> QueryFile:
    """Read queries from a text file, which may be compressed by gzip.

    A line is `head relation ?`, `? relation tail` or `head relation`. Columns are separated as in
    `read_triples`. An empty field counts as "?", and blank lines are skipped. The first line may be a header
    with two or three of the words head, relation and tail, in any order; the other headers that
    `read_triples` knows are accepted, too. Above the queries, lines that begin with "# " or "% " are comments
    or a header, and so are lines of one column that begin with # or %.

    Raises:
        UsageError: with file and line, if a line is not a query.
    """
    is_csv = _is_csv(path)
    queries = QueryFile(str(path))
    columns: Sequence[str] | None = None
    for line, fields in _rows(path, is_csv=is_csv, has_columns=True):
        if columns is None:
            is_marked = fields[0].startswith(("# ", "% ") if len(fields) > 1 else ("#", "%"))
            header = [fields[0].lstrip("#% "), *fields[1:]] if is_marked else fields
            try:
                columns = query_columns(header)
            except DataError as error:
                raise UsageError(f"{path}, line {line}: {error}") from error
            if columns is not None:
                unused = [name for name, column in zip(header, columns, strict=True) if not column]
                for notice in ignored_columns(str(path), unused):
                    warn(notice)
            if columns is not None or is_marked:
                continue
            columns = _COLUMNS
        has_header = columns is not _COLUMNS
        if len(fields) not in ((len(columns),) if has_header else (2, 3)):
            wanted = str(len(columns)) if has_header else "2 or 3"
            hint = _separator_hint(fields, is_csv=is_csv) if len(fields) == 1 else ""
            if len(fields) > len(columns):
                remedies = ["put a name that contains the separator in quotes"] if is_csv else []
                remedies += [] if has_header else [f"{_NAMED}, ... in line 1"]
                hint = f"; {', or '.join(remedies)}" if remedies else ""
            raise UsageError(
                f"{path}, line {line}: expected {wanted} columns (head, relation, tail; ? for the answer), "
                f"got {len(fields)}{hint}"
            )
        row = dict(zip(columns, fields, strict=False))
        # Blanks at the ends are kept: `encode_queries` decides whether they belong to a name.
        given = [row.get(name, _UNKNOWN) for name in _COLUMNS]
        head, relation, tail = (_UNKNOWN if part.strip() in ("", _UNKNOWN) else part for part in given)
        if relation == _UNKNOWN:
            raise UsageError(
                f"{path}, line {line}: the relation is missing; a query can ask only for a head or a tail"
            )
        if head == tail == _UNKNOWN:
            raise UsageError(f"{path}, line {line}: both head and tail are missing; give one of them")
        if _UNKNOWN not in (head, tail):
            hint = f"\n  if it is a header, {_NAMED}" if not (has_header or queries.line) else ""
            raise UsageError(
                f"{path}, line {line}: neither head nor tail is '?'; to score given facts use --score {path}"
                + hint
            )
        queries.entity.append(tail if head == _UNKNOWN else head)
        queries.relation.append(relation)
        queries.asks_tail.append(tail == _UNKNOWN)
        queries.line.append(line)
    if not queries.line:
        raise UsageError(f"{path}: no query found; write one per line: head, relation, ?")
    return queries


def read_facts(path: Path, entities: Vocabulary, relations: Vocabulary) -> Columns:
    """Read triples; a first line such as h, r, t is a header unless these are names of the graph."""
    facts = read_triples(path)
    first = ((entities, facts.head[0]), (relations, facts.relation[0]), (entities, facts.tail[0]))
    if all(vocabulary.get(name) is None for vocabulary, name in first):
        facts = heed_first_lines({"facts": facts})[0]["facts"]
    for notice in facts.notices:
        warn(notice)
    return facts


def read_names(path: Path, known: _Names | None = None, *, skips: bool = False) -> list[str]:
    """Read the names in the first column of a file, such as a table of predictions.

    If the first line has no known name at its beginning, and calls another column node, id or the like, the
    names are in that column. Blank lines and a header are skipped. With `known`, unknown names are refused
    with a `UsageError`, or left out if `skips`, and a first line that is a known name is not taken for a
    header.
    """
    is_csv = _is_csv(path)
    table = list(_rows(path, is_csv=is_csv))
    if table and (column := _column_of_names(table[0][1], known)):
        rows = _names_in(table, column, known, path)
    else:
        rows = _first_names(table, known, is_csv=is_csv)
    if not rows:
        raise UsageError(f"{path}: no name found; write one per line")
    lines, names = map(list, zip(*rows, strict=True))
    if known is not None:
        # With an empty name at its top, the first column of a table is not that of the names.
        problems = UnknownNames(str(path), skips=skips and names[0] != "")
        problems.encode(known, names, lines)
        # The first column of a table of nodes may have any name.
        hint = problems.header_hint("call the column node")
        if not names[0] and names[1:2] and names[1].isdecimal():
            hint = (
                "\n  the first column has no name, as an index of pandas; drop it: to_csv(..., index=False)"
            )
        elif "" in names:
            line = lines[names.index("")]
            hint = f"\n  line {line} has no name in its first column; write it, or drop the line"
        names = [names[row] for row in problems.check(hint).tolist()]
    return names


def _column_of_names(fields: Sequence[str], known: _Names | None) -> int:
    """The position of a column of names after the first one in a header; 0 if there is none."""
    titles = [title.strip().lower() for title in fields]
    if not titles[0] or titles[0] in _NAME_HEADERS:  # without a name, the first one may be an index
        return 0
    names = (fields[0], fields[0].strip(), ",".join(fields).strip())
    if known is not None and any(known.get(name) is not None for name in names):
        return 0
    return next((position for position, title in enumerate(titles) if title in _NAME_HEADERS), 0)


def _first_names(
    table: Sequence[tuple[int, list[str]]], known: _Names | None, *, is_csv: bool
) -> list[tuple[int, str]]:
    """Lines and names of the first column, without a header."""
    rows = []
    for line, fields in table:
        whole = ",".join(fields).strip()  # a file with one name per line may have commas in names
        is_name = is_csv and known is not None and known.get(whole) is not None
        rows.append((line, whole if is_name else _name(fields[0], known)))
    header = _first_of(rows[0][1]) if rows and is_csv else ""
    if header.lower() in _NAME_HEADERS and header != rows[0][1]:
        rows = [(line, _first_of(name)) for line, name in rows]  # the separator is the semicolon
    if rows and rows[0][1].lower() in _NAME_HEADERS and (known is None or known.get(rows[0][1]) is None):
        rows = rows[1:]
    return rows


def _name(field: str, known: _Names | None) -> str:
    """A name with its blanks at the ends if it is known with them, else without."""
    return field if known is not None and known.get(field) is not None else field.strip()


def _names_in(
    table: Sequence[tuple[int, list[str]]], column: int, known: _Names | None, path: Path
) -> list[tuple[int, str]]:
    """Lines and names of a column that the first line names."""
    title = table[0][1][column].strip()
    rows = []
    for line, fields in table[1:]:
        if not "".join(fields[column : column + 1]).strip():
            raise UsageError(f"{path}, line {line}: no name in column {title!r}; write it, or drop the line")
        rows.append((line, _name(fields[column], known)))
    return rows


def _first_of(fields: str) -> str:
    return fields.partition(";")[0].strip()


def encode_queries(
    queries: QueryFile, entities: Vocabulary, relations: Vocabulary, *, skips: bool = False
) -> Queries:
    """Ids of all queries; a `UsageError` lists unknown names with their lines and the nearest names.

    With `skips`, queries with unknown names are left out with a warning, unless none would be left.
    """
    problems = UnknownNames(queries.source, skips=skips)
    entity = problems.encode(entities, _known_or_stripped(queries.entity, entities), queries.line)
    relation = problems.encode(relations, _known_or_stripped(queries.relation, relations), queries.line)
    kept = problems.check(problems.header_hint())
    asks_head = ~torch.tensor(queries.asks_tail, dtype=torch.bool)
    return Queries(entity[kept], (relation + asks_head * len(relations))[kept])


def _known_or_stripped(names: Sequence[str], known: Vocabulary) -> list[str]:
    """Names without blanks at their ends, unless the graph knows the name with its blanks."""
    return [name if known.get(name) is not None else name.strip() for name in names]


def encode_facts(
    facts: Columns, entities: Vocabulary, relations: Vocabulary, *, skips: bool = False
) -> Tensor:
    """Ids [3, n], int64, of triples; unknown names are refused or left out as in `encode_queries`."""
    problems = UnknownNames(facts.source, facts.unit, skips=skips)
    lines = range(facts.first_line, facts.first_line + len(facts))
    ids = [
        problems.encode(vocabulary, list(names), lines)
        for vocabulary, names in ((entities, facts.head), (relations, facts.relation), (entities, facts.tail))
    ]
    asks = (entities, _UNKNOWN) in problems.first
    hint = "\n  to ask for an entity, use predict, on the command line --queries" if asks else ""
    problems.skips &= not asks
    return torch.stack(ids)[:, problems.check(hint or problems.header_hint())]


class UnknownNames:
    """Collects the unknown names of a file or table; `unit` is the word for a line in messages.

    With `skips`, rows that have some are left out, and not refused, as long as others remain.
    """

    def __init__(self, source: str, unit: str = "line", *, skips: bool = False) -> None:
        self.source, self.unit, self.skips = source, unit, skips
        self.first: dict[tuple[_Names, str], int] = {}
        self._columns: list[Tensor] = []  # of each column, which of its names are known

    def encode(self, vocabulary: _Names, names: Sequence[str], lines: Sequence[int]) -> Tensor:
        """Ids [n], int64, of names; an unknown name gets 0 and is collected with its first line."""
        known: dict[str, int | None] = {name: vocabulary.get(name) for name in set(names)}
        self._columns.append(torch.tensor([known[name] is not None for name in names], dtype=torch.bool))
        if None in known.values():
            for name, line in zip(names, lines, strict=True):
                if known[name] is None:
                    key = (vocabulary, name)
                    self.first[key] = min(self.first.get(key, line), line)
        return torch.tensor([known[name] or 0 for name in names], dtype=torch.int64)

    def header_hint(self, remedy: str = _NAMED) -> str:
        """A hint if all names of the first line are unknown, and none of the second."""
        is_header = self.unit == "line" and all(
            known[:2].tolist() == [False, True] for known in self._columns
        )
        return f"\n  if the first line is a header, {remedy}" if is_header else ""

    def check(self, hint: str = "") -> Tensor:
        """Positions [m] of the rows to compute: all of them, or with `skips` those without unknown names.

        Raises:
            UsageError: for unknown names, with five of them, their lines and the nearest names.
        """
        is_known = torch.stack(self._columns).all(0)
        rows = is_known.nonzero().squeeze(1)
        if not self.first:
            return rows
        count, unknown = len(self.first), sorted(self.first.items(), key=itemgetter(1))[:_SHOWN]
        if self.skips and len(rows):
            shown = ", ".join(repr(name) for (_, name), _ in unknown) + ", ..." * (count > _SHOWN)
            skipped = counted(len(is_known) - len(rows), self.unit)
            warn(f"{self.source}: {skipped} of {len(is_known):,} left out for unknown names: {shown}")
            return rows
        lines = [f"  {self.unit} {line}: {vocabulary.explain(name)}" for (vocabulary, name), line in unknown]
        more = f" (the first {_SHOWN} follow)" if count > _SHOWN else ""
        names = f"{count} names are" if count > 1 else "one name is"
        is_some = self.unit == "line" and len(rows) and not hint
        remedy = "; on the command line, --skip-unknown leaves out such lines" if is_some else ""
        first = f"{self.source}: {names} unknown, nothing was computed{remedy}{more}"
        raise UsageError("\n".join([first, *lines]) + hint)


def _is_csv(path: Path) -> bool:
    return ".csv" in [suffix.lower() for suffix in path.suffixes[-2:]]


def _rows(path: Path, *, is_csv: bool, has_columns: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every line that is not blank; with `has_columns`, semicolons may separate."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give a file with one entry per line")
    text = clean(read_bytes(path), str(path)).decode()
    if is_csv:
        delimiter = csv_delimiter(text, least=2) if has_columns else ","
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if any(value.strip() for value in fields):
                    yield reader.line_num, fields
        except csv.Error as error:
            raise UsageError(f"{path}, line {reader.line_num}: {error}; check the quotes") from error
        return
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            yield line, content.split("\t")


def _separator_hint(fields: list[str], *, is_csv: bool) -> str:
    if is_csv:
        return "; in a .csv file, separate the columns by commas or semicolons"
    for mark, name in ((",", "commas"), (";", "semicolons")):
        if mark in fields[0]:
            return f"; if {name} separate the columns, the file name must end in .csv"
    return "; separate the columns by tabs"
