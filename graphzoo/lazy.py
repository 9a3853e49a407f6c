"""Names of a package that load on first use (PEP 562): importing it is free. Standard library only."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

_LISTED = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def attach(
    package: str, subpackages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """What a package needs whose names load on first use.

    The names are listed once, one to a line under `TYPE_CHECKING`, where type checkers read them too:

        if TYPE_CHECKING:
            from graphzoo.encoders.knowformer import KnowFormer as KnowFormer

        __getattr__, __dir__, __all__ = attach(__name__)

    `subpackages` are modules below the package that are names themselves.
    """
    spec = sys.modules[package].__spec__
    loader: Any = spec.loader if spec else None
    source = loader.get_source(package)
    if source is None:
        raise ImportError(f"{package} lists its names in __init__.py: install it with its source")
    homes = {name: module for module, name in _LISTED.findall(source)}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in subpackages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_in_order() -> list[str]:
        return sorted({*sys.modules[package].__all__, *subpackages})

    return get, names_in_order, sorted(homes)
