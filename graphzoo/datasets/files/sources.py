"""The rows of the tables of data sets, and the files of a row. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, ClassVar, TypeVar

from graphzoo.errors import DataError, UsageError, normalise, suggestion


@dataclass(frozen=True)
class DataFile:
    """A file of a data set."""

    path: str  # below the folder of the data set, with `/`
    urls: tuple[str, ...] = ()  # tried in order; none for a member of the data set's archive
    alternatives: tuple[str, ...] = ()  # other suffixes that a file may have which the user put there
    optional: bool = False  # the data set can be read without this file; it alone is never fetched


def with_bases(bases: Sequence[str], names: Sequence[str], folder: str = "") -> tuple[DataFile, ...]:
    """Files that can be fetched from below each address of `bases`, and are kept below a folder."""
    return tuple(DataFile(f"{folder}{name}", tuple(f"{base}/{name}" for base in bases)) for name in names)


@dataclass(frozen=True)
class Archive:
    """A zip archive at `url` of about `num_bytes` bytes; the paths of its members begin with `prefix`."""

    url: str
    prefix: str
    num_bytes: int


@dataclass(frozen=True)
class Row:
    """The fields that rows of every table have."""

    name: str  # on the command line
    folder: str  # below the data root
    licence: str  # as stated by the repositories named in the addresses
    citation: str  # where the data set or its split was published
    note: str = field(default="", kw_only=True)  # for a user, such as where to get files without an address


@dataclass(frozen=True)
class FileSource(Row):
    """A row whose files are listed one by one."""

    # package and name of the JSON file with sha256 and size of each file, by path below the data root
    _facts: ClassVar[tuple[str, str]]

    files: tuple[DataFile, ...]  # empty for data that ship with a dependency
    archive: Archive | None = field(default=None, kw_only=True)  # None if each file has its own address

    def facts(self, file: DataFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""
        values = read_facts(*self._facts).get(f"{self.folder}/{file.path}", {})
        return values.get("sha256"), int(values.get("bytes", 0))


_Row = TypeVar("_Row", bound=Row)


def find_row(rows: Sequence[_Row], name: str, *, kind: str, own: str, folders: bool = False) -> _Row:
    """Find the row of a data set; case, `-` and `_` do not matter.

    Args:
        rows: Rows of the table.
        name: Name of the data set.
        kind: What messages call a row, such as "knowledge graph".
        own: Name of the preset for the user's own files, for messages.
        folders: Whether `name` may also be the folder of a row.

    Raises:
        UsageError: if there is no such row; the message names the nearest one, or all.
    """
    # A name of one row may be the folder of another: names come first.
    known = {normalise(row.folder): row for row in rows} if folders else {}
    known |= {normalise(row.name): row for row in rows}
    if normalise(name) in known:
        return known[normalise(name)]
    names = [row.name for row in rows]
    hint = suggestion(name, names) or f"Known: {', '.join(names)}; or {own} with the path of your own files."
    raise UsageError(f"unknown {kind} {name!r}. {hint}")


def refuse_counts(folder: str, name: str, counts: Mapping[str, tuple[int, int]], *, own: str) -> None:
    """Refuse data whose counts differ from the expected ones.

    Args:
        folder: Folder of the data, for the message.
        name: Name of the data set.
        counts: Found and expected number by what is counted; an expected number of 0 is not checked.
        own: Name of the preset for the user's own files, for the message.

    Raises:
        DataError: if a count differs.
    """
    wrong = [
        f"{what} {number:,}, not {expected:,}"
        for what, (number, expected) in counts.items()
        if expected and number != expected
    ]
    if wrong:
        raise DataError(
            f"{folder}: not {name}: {'; '.join(wrong)}\n"
            "  delete the files to fetch them again; another version is loaded as your own data (name "
            f"{own}, with a path)"
        )


@cache
def read_facts(package: str, file: str) -> dict[str, dict[str, Any]]:
    """Checksums and sizes of files, from a JSON file beside a table."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return dict(json.loads(text))
