"""Names of a package whose modules are imported at first use (PEP 562). Standard library only."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

LISTED = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)
"""A line in the source of a package that lists a name: its module and the name."""


def attach(
    package: str, subpackages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package whose names are imported at first use.

    The package lists its names once, one per line, under `TYPE_CHECKING`, where type checkers find them too:

        if TYPE_CHECKING:
            from graphzoo.encoders.knowformer import KnowFormer as KnowFormer

        __getattr__, __dir__, __all__ = attach(__name__)

    Args:
        package: Name of the package, its `__name__`.
        subpackages: Modules of the package that are public names themselves.

    Raises:
        ImportError: if the source of `__init__.py`, from which the names are read, is not installed.
    """
    spec = sys.modules[package].__spec__
    loader: Any = spec.loader if spec else None
    source = loader.get_source(package)
    if source is None:
        raise ImportError(
            f"{package} lists its names in __init__.py, whose source is not installed: install the package "
            "with its source files"
        )
    homes = {name: module for module, name in LISTED.findall(source)}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in subpackages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_in_order() -> list[str]:
        return sorted({*sys.modules[package].__all__, *subpackages})

    return get, names_in_order, sorted(homes)
