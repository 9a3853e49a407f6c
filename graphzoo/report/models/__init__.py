"""Pictures of what a trained model attends to, made from its checkpoint and graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.report.models.choose import model_blocks as model_blocks

__getattr__, __dir__, __all__ = attach(__name__)
