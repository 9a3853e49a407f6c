"""Which versions of Python and packages there are, for checkpoints and results."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_version = cache(version)


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    versions_of = {"python": platform.python_version()}
    for name in ("graphzoo", "torch", "lightning", "torch-geometric", "numba", "numpy"):
        try:
            versions_of[name] = _version(name)
        except PackageNotFoundError:
            continue
    return versions_of
