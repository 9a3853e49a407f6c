"""Names of a package that load on first use (PEP 562): importing it is free. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

__all__ = ["attach"]


def attach(
    package: str, names: Mapping[str, str], subpackages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Both functions of a package whose names load on first use.

    To be written as `__getattr__, __dir__ = attach(__name__, {"KnowFormer": "knowformer"})`.

    Type checkers see none of it; the package imports the same names under `TYPE_CHECKING`.

    Args:
        package: `__name__` of the package, which has an `__all__`.
        names: Name -> the module that defines it, below the package, or beside it after a further dot.
        subpackages: Modules below the package that are names themselves.

    Returns:
        Its `__getattr__` and its `__dir__`.
    """

    def get(name: str) -> Any:
        if name in names:
            return getattr(import_module(f".{names[name]}", package), name)
        if name in subpackages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_in_order() -> list[str]:
        return sorted({*sys.modules[package].__all__, *subpackages})

    return get, names_in_order
