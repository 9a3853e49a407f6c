"""Finding checkpoints and run directories by what a user types, and reading them without trusting them.

Importing this needs the standard library only.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from graphzoo.catalog.presets import read_header
from graphzoo.errors import UsageError, suggestion
from graphzoo.system.regular_files import open_regular

__all__ = ["RUNS", "find_runs", "is_whole", "locate", "read_checkpoint"]

RUNS = Path("runs")
"""Where runs are written, below the current folder."""


def find_runs(pattern: str = "*", root: Path = RUNS) -> list[Path]:
    """Run directories that hold a checkpoint, the newest last.

    Args:
        pattern: What `<model>-<data>` has to match.
        root: Folder of the runs.
    """
    found = {path.parent.parent for path in root.glob(f"{pattern}/*/checkpoints/*.ckpt")}
    return sorted(
        found,
        key=lambda run: (max(path.stat().st_mtime for path in run.glob("checkpoints/*.ckpt")), run.name),
    )


def locate(
    command: str, value: str, *, run_dir: Path | None = None, pattern: str = "*"
) -> tuple[Path, Path | None]:
    """The checkpoint file that `--ckpt_path` means, and the run it belongs to.

    Args:
        command: fit takes a run's last checkpoint, the other commands its best.
        value: A run directory, `best`, `last` or a file.
        run_dir: The run that `best` and `last` speak of; without it the newest run that matches `pattern`.
        pattern: `<model>-<data>`, parts that are unknown as `*`.

    Raises:
        UsageError: when there is none, and for addresses on the network.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        raise UsageError(
            f"--ckpt_path {value}: checkpoints are read from local files only\n"
            "Download it first and give the file"
        )
    names = ["last", "best"] if command == "fit" else ["best", "last"]
    if value in ("best", "last"):
        names = [value]
        run = run_dir if run_dir is not None else _newest(value, pattern)
    elif (shared := _exported(Path(value))) is not None:
        if command != "predict":
            raise UsageError(
                f"{value} is an exported model, without the state that {command} needs\n"
                "Use it with graphzoo predict or graphzoo.load, or give the run it came from"
            )
        return shared, None
    elif Path(value).is_dir():
        run = Path(value).parent if Path(value).name == "checkpoints" else Path(value)
    elif Path(value).is_file():
        return Path(value), _run_of(Path(value))
    else:
        raise UsageError(_not_there(Path(value)))
    if (run / "model.pt2").is_file():
        raise UsageError(
            f"{run} holds a program, for torch.export.load\n"
            "graphzoo reads what graphzoo export --to safetensors writes"
        )
    for name in names:
        if (path := run / "checkpoints" / f"{name}.ckpt").is_file():
            return path, _run_of(path)
    text = f"{run} holds no checkpoint: there is no {run / 'checkpoints' / names[0]}.ckpt"
    if (run / "config.yaml").is_file():  # killed in its first epoch
        untested = " --no-test" if read_header(run / "config.yaml").get("test") == "no" else ""
        text += f"\nBegin anew with its settings: graphzoo fit --config {run / 'config.yaml'}{untested}"
    raise UsageError(text)


def _exported(path: Path) -> Path | None:
    """The weights of a folder that `graphzoo export` wrote."""
    file = path / "model.safetensors" if path.is_dir() else path
    return file if file.suffix == ".safetensors" and file.is_file() else None


def is_whole(path: Path) -> bool:
    """Whether a checkpoint file can be opened as the archive that it should be. Reads no pickles.

    torch packs nothing, so what is packed is none of its files, and unpacked it might fill the memory.
    """
    try:
        with open_regular(path) as file:
            return _is_whole(file)
    except OSError:
        return False


def _is_whole(file: BinaryIO) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
            return stored and archive.testzip() is None
    except Exception:  # zipfile raises anything over a damaged directory
        return False


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint's plain values and tensors; code in it is never run.

    Its size bounds what it may hold: nothing is made of a file that speaks of more.

    Args:
        path: The file.

    Raises:
        UsageError: for a damaged file, naming a whole one beside it, and for one that holds code, or more
            than its bytes.
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
        raise UsageError(f"{path} is no checkpoint of a training run: it holds no weights (no state_dict)")
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
    if not _is_whole(file):
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
        raise UsageError(_damaged(path)) from error


def _refused(path: Path, error: Exception) -> str:
    return f"checkpoint {path} is refused: {error}\nNo training run writes such a file"


def _damaged(path: Path) -> str:
    others = [other for other in sorted(path.parent.glob("*.ckpt")) if other != path and is_whole(other)]
    good = (
        f"Whole ones beside it: {', '.join(map(str, others[:4]))}"
        if others
        else "There is no whole checkpoint beside it"
    )
    size = path.stat().st_size
    return f"checkpoint {path} is damaged, cut off or no checkpoint at all ({size:,} bytes)\n{good}"


def _newest(name: str, pattern: str) -> Path:
    runs = [run for run in find_runs(pattern) if (run / "checkpoints" / f"{name}.ckpt").is_file()]
    if not runs:
        raise UsageError(
            f"--ckpt_path {name}: no run below {RUNS / pattern} has such a checkpoint\n"
            "Give the run directory or the file, or add --run_dir DIR"
        )
    return runs[-1]


def _run_of(path: Path) -> Path | None:
    run = path.absolute().parent.parent
    if path.absolute().parent.name != "checkpoints" or not (run / "config.yaml").is_file():
        return None
    return path.parent.parent


def _not_there(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"--ckpt_path {path}: there is no such file or folder"
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".ckpt" or entry.is_dir())
    hint = suggestion(path.name, names) or (f"In {folder}: {', '.join(names[:6])}" if names else "")
    return "\n".join(filter(None, [f"--ckpt_path {path}: there is no such file", hint]))
