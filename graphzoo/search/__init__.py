"""`graphzoo search`: settings chosen by validation, resumable. Loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.search.space import Space as Space
    from graphzoo.search.space import read_space as read_space

__getattr__, __dir__, __all__ = attach(__name__)
