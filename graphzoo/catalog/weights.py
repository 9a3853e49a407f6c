"""Weights that ship with the package, and the file formats of `graphzoo export`.

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
"""The file name of each kind of exported program."""
FORMATS = ("safetensors", *PROGRAMS)


def shipped_weights(name: str) -> Path | None:
    """The folder of weights that ship with graphzoo, after checking its file.

    Returns:
        The folder; None for other names, and if the current folder has a file or folder of this name.

    Raises:
        UsageError: if the file is missing or was changed.
    """
    if name not in WEIGHTS or Path(name).exists():
        return None
    _check(name)
    return _FOLDER / name


def refuse_program(folder: Path) -> None:
    """Refuse to load a model from a folder that has an exported program.

    Raises:
        UsageError: if there is one.
    """
    if any((folder / file).is_file() for file in PROGRAMS.values()):
        raise UsageError(
            f"{folder} has an exported program, which runs without graphzoo and cannot be loaded by it\n"
            "Give a folder that graphzoo export --to safetensors wrote"
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
        raise UsageError(f"{file} is not the file that ships with graphzoo\nInstall graphzoo again")
