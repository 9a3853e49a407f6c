"""The versions of Python and packages, for checkpoints and results."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_version = cache(version)


def versions() -> dict[str, str]:
    """The versions of Python and of installed packages that results depend on, by name."""
    versions_of = {"python": platform.python_version()}
    for name in ("graphzoo", "torch", "lightning", "torch-geometric", "numba", "numpy"):
        try:
            versions_of[name] = _version(name)
        except PackageNotFoundError:
            continue
    return versions_of
