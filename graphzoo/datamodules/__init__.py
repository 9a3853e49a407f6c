"""Splits, batches and loaders. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datamodules.kg import KGDataModule as KGDataModule
    from graphzoo.datamodules.links import LinkDataModule as LinkDataModule
    from graphzoo.datamodules.nodes import NodeDataModule as NodeDataModule

_LAZY = {"KGDataModule": "kg", "LinkDataModule": "links", "NodeDataModule": "nodes"}

__all__ = ["KGDataModule", "LinkDataModule", "NodeDataModule"]

__getattr__, __dir__ = attach(__name__, _LAZY)
