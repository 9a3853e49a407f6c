"""Weights that are part of the package, by name. Importing this needs the standard library only."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from graphzoo.errors import UsageError
from graphzoo.system.regular_files import open_regular

__all__ = ["WEIGHTS", "brought_along"]

_FOLDER = Path(__file__).parents[1] / "weights"
WEIGHTS = {
    "knowformer-any": "9b9998ad3353d99552716ab49850ebbaf092f95d408e1559804bac8dd01755bb",
}
"""sha256 of `model.safetensors` in the folder of each name."""


def brought_along(name: str) -> Path | None:
    """The exported folder of a name; None for other names, and where the current folder has such a path.

    Raises:
        UsageError: if the file is not what was published.
    """
    if name not in WEIGHTS or Path(name).exists():
        return None
    _check(name)
    return _FOLDER / name


@cache
def _check(name: str) -> None:
    file = _FOLDER / name / "model.safetensors"
    try:
        with open_regular(file) as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}\nInstall graphzoo again") from error
    if found != WEIGHTS[name]:
        raise UsageError(f"{file} is not the file that graphzoo came with\nInstall graphzoo again")
