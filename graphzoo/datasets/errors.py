"""What can be wrong with data: errors that end a run, and a warning that does not."""

from __future__ import annotations

from graphzoo.errors import UsageError

__all__ = ["DataError", "DownloadError", "GraphzooDataWarning", "reason"]

_LONGEST_REASON = 200


class DataError(UsageError):
    """A file or table cannot be used; the message names file, line, value and remedy."""


class DownloadError(DataError):
    """A file could not be fetched; the message names the address and where to put the file by hand."""


class GraphzooDataWarning(UserWarning):
    """The data can be used, but something was counted that the user should know of."""


def reason(error: BaseException) -> str:
    r"""What an error of another library says, as part of a message: one line, and not the file's content.

    >>> reason(ValueError("bad header\nat line 1"))
    'bad header'
    """
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
