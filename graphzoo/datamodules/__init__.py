"""Splits, batches and loaders. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datamodules.kg import KGDataModule as KGDataModule
    from graphzoo.datamodules.links import LinkDataModule as LinkDataModule
    from graphzoo.datamodules.mixture import MixtureDataModule as MixtureDataModule
    from graphzoo.datamodules.nodes import NodeDataModule as NodeDataModule

__getattr__, __dir__, __all__ = attach(__name__)
