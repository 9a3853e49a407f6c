"""Weights by name that are part of the package, and what `graphzoo export` makes of others.

Importing this needs the standard library only.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from graphzoo.errors import UsageError
from graphzoo.system.regular_files import open_regular

_FOLDER = Path(__file__).parents[1] / "weights"
WEIGHTS = {"knowformer-any": "9b9998ad3353d99552716ab49850ebbaf092f95d408e1559804bac8dd01755bb"}
"""sha256 of `model.safetensors` in the folder of each name."""
PROGRAMS = {"torch.export": "model.pt2", "onnx": "model.onnx"}
"""The file that each kind of program is written to."""
FORMATS = ("safetensors", *PROGRAMS)


def brought_along(name: str) -> Path | None:
    """The exported folder of a name, whose file is checked.

    None for other names, and where the current folder has such a path.
    """
    if name not in WEIGHTS or Path(name).exists():
        return None
    _check(name)
    return _FOLDER / name


def refuse_program(folder: Path) -> None:
    """Say that an exported program is no model to load, if there is one in the folder."""
    if any((folder / file).is_file() for file in PROGRAMS.values()):
        raise UsageError(
            f"{folder} holds a program, which runs without graphzoo\n"
            "graphzoo reads what graphzoo export --to safetensors writes"
        )


@cache
def _check(name: str) -> None:
    file = _FOLDER / name / "model.safetensors"
    try:
        with open_regular(file) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}\nInstall graphzoo again") from error
    if digest != WEIGHTS[name]:
        raise UsageError(f"{file} is not the file that graphzoo came with\nInstall graphzoo again")
