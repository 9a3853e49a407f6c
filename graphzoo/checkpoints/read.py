"""Reading a checkpoint without running code in it."""

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
    """Load a checkpoint's plain values and tensors; code in it is never run.

    Its size bounds what it may hold: nothing is made of a file that speaks of more. A `UsageError` refuses
    that, a file that holds code, and a damaged one, of which it names a whole one beside it.
    """
    # here, not above: names are looked up before anything heavy is imported
    from graphzoo.checkpoints.values import RefusedError, check_numbers, check_values

    try:
        with open_regular(path) as file:
            checkpoint = _load(file, path)
            num_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UsageError(f"checkpoint {path} cannot be read: {error.strerror}") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise UsageError(f"{path} is not a checkpoint of a training run: it holds no weights (no state_dict)")
    for name in checkpoint["state_dict"]:
        if not isinstance(name, str):
            raise UsageError(_refused(path, f"a weight is called {str(name)[:100]}, which is not text"))
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

    # torch itself compares no check sums: a changed byte would be a changed weight.
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
            f"checkpoint {path} is refused: it holds objects other than tensors and plain values{what}, so "
            "loading it could run code\nNothing was run"
        ) from error
    except Exception as error:  # a pickle that makes no sense can raise anything
        raise_if_not_the_file(error, path)
        raise UsageError(_damaged(path)) from error


def _refused(path: Path, why: object) -> str:
    return f"checkpoint {path} is refused: {why}\nNo training run writes such a file"


def _damaged(path: Path) -> str:
    others = [str(other) for other in sorted(path.parent.glob("*.ckpt")) if other != path and is_whole(other)]
    beside = f"Whole ones beside it: {', '.join(others[:4])}"
    good = beside if others else "There is no whole checkpoint beside it"
    size = path.stat().st_size
    return f"checkpoint {path} is damaged, cut off or no checkpoint at all ({size:,} bytes)\n{good}"
