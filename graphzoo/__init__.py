"""graphzoo: graph transformers that simply work. Importing it is free; names load on first use (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphzoo.inference import load as load
    from graphzoo.types import GraphSpec as GraphSpec

__version__ = "0.1.0"

_LAZY = {"load": "graphzoo.inference", "GraphSpec": "graphzoo.types"}
_SUBPACKAGES = {"datamodules", "datasets", "decoders", "encoders", "metrics", "ops", "sampling", "tasks"}

__all__ = ["GraphSpec", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"graphzoo.{name}")
    raise AttributeError(f"module 'graphzoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBPACKAGES})
