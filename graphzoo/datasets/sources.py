"""What a table of data sets says of the files of one. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Archive", "DataFile", "FileSource"]


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    Args:
        path: Below the folder of the data set.
        urls: Addresses, tried in order; none for a member of the data set's archive.
        alternatives: Suffixes that may stand in place of the path's own in a file put by hand.
        optional: Whether the data set can be read without it; it is never fetched for its own sake.
    """

    path: str
    urls: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Archive:
    """A zip archive that holds all files of a data set.

    Args:
        url: Its address.
        prefix: What the files' paths begin with inside.
        num_bytes: About its size.
    """

    url: str
    prefix: str
    num_bytes: int


class FileSource(Protocol):
    """What a row of a table says of its files."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def folder(self) -> str:
        """Folder below the data root."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """What is read."""

    @property
    def archive(self) -> Archive | None:
        """What the files are fetched in, None if each has its own address."""

    @property
    def note(self) -> str:
        """What a user should know."""

    def facts(self, file: DataFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""
