"""Read a checkpoint without running code in it."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any, BinaryIO

from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import is_whole, is_whole_archive
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import open_regular


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load the plain values and tensors of a checkpoint; code in it is never run.

    A file that describes more data than its size allows is refused before anything is allocated.

    Raises:
        UsageError: if the file cannot be read, has objects that need code, or is damaged; the message about a
            damaged file names intact ones in its folder.
    """
    # imported here: names are looked up before large imports
    from graphzoo.checkpoints.values import RefusedError, check_numbers, check_values

    try:
        with open_regular(path) as file:
            checkpoint = _load(file, path)
            num_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UsageError(f"checkpoint {path} cannot be read: {error.strerror}") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise UsageError(f"{path} is not a checkpoint of a training run: it has no weights (no state_dict)")
    for name in checkpoint["state_dict"]:
        if not isinstance(name, str):
            raise UsageError(_refused(path, f"the name of a weight is {str(name)[:100]}, which is not text"))
    try:
        check_values(checkpoint, num_bytes)
        described = checkpoint.get("graphzoo")
        written = described.get("format") if isinstance(described, dict) else None
        check_numbers({name: checkpoint.get(name) for name in ("epoch", "global_step")} | {"format": written})
    except RefusedError as error:
        raise UsageError(_refused(path, error)) from error
    return {str(name): value for name, value in checkpoint.items()}


def _load(file: BinaryIO, path: Path) -> Any:
    import torch

    from graphzoo.checkpoints.values import RefusedError, check_archive

    # torch does not check checksums: a changed byte would silently change a weight.
    if not is_whole_archive(file, path):
        raise UsageError(_damaged(path))
    try:
        check_archive(file)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    except RefusedError as error:
        raise UsageError(_refused(path, error)) from error
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f" ({named[1][:100]})" if named else ""
        raise UsageError(
            f"checkpoint {path} is refused: it has objects other than tensors and plain values{what}, so "
            "loading it could run code\nNo code was run"
        ) from error
    except Exception as error:  # a damaged pickle can raise anything
        raise_if_not_the_file(error, path)
        raise UsageError(_damaged(path)) from error


def _refused(path: Path, why: object) -> str:
    return f"checkpoint {path} is refused: {why}\nNo training run writes such a file"


def _damaged(path: Path) -> str:
    others = [str(other) for other in sorted(path.parent.glob("*.ckpt")) if other != path and is_whole(other)]
    beside = f"Intact checkpoints in its folder: {', '.join(others[:4])}"
    good = beside if others else "There is no intact checkpoint in its folder"
    size = path.stat().st_size
    return f"checkpoint {path} is damaged, cut off or not a checkpoint ({size:,} bytes)\n{good}"
