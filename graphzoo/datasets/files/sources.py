"""What a table of data sets says of the files of one. Standard library only."""

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
    alternatives: tuple[str, ...] = ()  # suffixes that a file put by hand may have instead of the path's own
    optional: bool = False  # the data set can be read without it; it is never fetched for its own sake


def with_bases(bases: Sequence[str], names: Sequence[str], folder: str = "") -> tuple[DataFile, ...]:
    """Files that lie below each of some addresses, and below a folder of the data set."""
    return tuple(DataFile(f"{folder}{name}", tuple(f"{base}/{name}" for base in bases)) for name in names)


@dataclass(frozen=True)
class Archive:
    """A zip archive at `url` whose members' paths begin with `prefix`; about `num_bytes` large."""

    url: str
    prefix: str
    num_bytes: int


@dataclass(frozen=True)
class Row:
    """What every row of a table has."""

    name: str  # on the command line
    folder: str  # below the data root
    licence: str  # as stated by the repositories named in the addresses
    citation: str  # where the data set or its split was published
    note: str = field(default="", kw_only=True)  # for a user, such as where to get files without an address


@dataclass(frozen=True)
class FileSource(Row):
    """A row whose files are fetched as they are."""

    # package and name of the JSON file with sha256 and size of each file, by path below the data root
    _facts: ClassVar[tuple[str, str]]

    files: tuple[DataFile, ...]  # empty for data that a dependency brings along
    archive: Archive | None = field(default=None, kw_only=True)  # None if each file has its own address

    def facts(self, file: DataFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""
        values = read_facts(*self._facts).get(f"{self.folder}/{file.path}", {})
        return values.get("sha256"), int(values.get("bytes", 0))


_Row = TypeVar("_Row", bound=Row)


def find_row(rows: Sequence[_Row], name: str, *, kind: str, own: str, folders: bool = False) -> _Row:
    """The row of a data set by its name, with `folders` also that of its folder; case and `-_` do not matter.

    Messages call the rows `kind`, and the preset for files of the user's own `own`.
    """
    # a row's name goes before the folder of another
    known = {normalise(row.folder): row for row in rows} if folders else {}
    known |= {normalise(row.name): row for row in rows}
    if normalise(name) in known:
        return known[normalise(name)]
    names = [row.name for row in rows]
    hint = suggestion(name, names) or f"Known: {', '.join(names)}, or {own} with a path of your own."
    raise UsageError(f"unknown {kind} {name!r}. {hint}")


def refuse_counts(folder: str, name: str, counts: Mapping[str, tuple[int, int]], *, own: str) -> None:
    """Refuse data whose counts, by what is counted, are found to be others than expected; 0 expects any."""
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
    """Check sums and sizes of files, from a JSON file beside a table."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return dict(json.loads(text))
