"""What can be wrong with data: errors that end a run, and a warning that does not."""

from __future__ import annotations

from graphzoo.errors import UsageError

__all__ = ["DataError", "DownloadError", "GraphzooDataWarning"]


class DataError(UsageError):
    """A file or table cannot be used; the message names file, line, value and remedy."""


class DownloadError(DataError):
    """A file could not be fetched; the message names the address and where to put the file by hand."""


class GraphzooDataWarning(UserWarning):
    """The data can be used, but something was counted that the user should know of."""
