"""Splits, batches and loaders. Names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphzoo.datamodules.kg import KGDataModule as KGDataModule
    from graphzoo.datamodules.links import LinkDataModule as LinkDataModule
    from graphzoo.datamodules.nodes import NodeDataModule as NodeDataModule

_LAZY = {"KGDataModule": "kg", "LinkDataModule": "links", "NodeDataModule": "nodes"}

__all__ = ["KGDataModule", "LinkDataModule", "NodeDataModule"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'graphzoo.datamodules' has no attribute {name!r}")
    return getattr(import_module(f"graphzoo.datamodules.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_LAZY)
