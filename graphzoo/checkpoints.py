"""Finding checkpoints and run directories by what a user types. Standard library only."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from graphzoo.errors import UsageError, suggestion

__all__ = ["RUNS", "find_runs", "is_whole", "locate"]

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
    elif Path(value).is_dir():
        run = Path(value).parent if Path(value).name == "checkpoints" else Path(value)
    elif Path(value).is_file():
        return Path(value), _run_of(Path(value))
    else:
        raise UsageError(_not_there(Path(value)))
    for name in names:
        if (path := run / "checkpoints" / f"{name}.ckpt").is_file():
            return path, _run_of(path)
    raise UsageError(f"{run} holds no checkpoint: there is no {run / 'checkpoints' / names[0]}.ckpt")


def is_whole(path: Path) -> bool:
    """Whether a checkpoint file can be opened as the archive that it should be. Reads no pickles."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False


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
