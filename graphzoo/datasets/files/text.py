"""Warnings about data, and counts in words."""

from __future__ import annotations

import warnings

from graphzoo.errors import GraphzooDataWarning
from graphzoo.system.shown import visible

__all__ = ["times", "warn"]


def warn(notice: str, *, stacklevel: int = 2) -> None:
    """One line as a `GraphzooDataWarning`."""
    warnings.warn(visible(notice), GraphzooDataWarning, stacklevel=stacklevel + 1)


def times(count: int, one: str, many: str | None = None) -> str:
    """A count and what is counted, in the singular or plural.

    >>> times(1, "link"), times(1_200, "entity", "entities")
    ('1 link', '1,200 entities')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
