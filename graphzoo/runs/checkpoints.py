"""Finds checkpoints and run directories that a user names, and checks files without unpickling them.

This module imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from graphzoo.catalog.presets import read_header
from graphzoo.catalog.weights import refuse_program, shipped_weights
from graphzoo.errors import UsageError, suggestion
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.paths import typed
from graphzoo.system.regular_files import open_regular

RUNS = Path("runs")
"""Where runs are written, below the current folder."""

# Most folders that a search for a hint looks into, and most entries of each: a home directory or a network
# drive may hold millions.
_MOST = 200


def find_runs(pattern: str = "*") -> list[Path]:
    """Run directories that hold a checkpoint, the newest last; `pattern` has to match `<model>-<data>`."""
    runs = {path.parent.parent for path in RUNS.glob(f"{pattern}/*/checkpoints/*.ckpt")}

    def written(run: Path) -> tuple[float, str]:
        return max(path.stat().st_mtime for path in run.glob("checkpoints/*.ckpt")), run.name

    return sorted(runs, key=written)


def locate(
    command: str, value: str, *, run_dir: Path | None = None, pattern: str = "*"
) -> tuple[Path, Path | None]:
    """The checkpoint file that a user names, and the run it belongs to, or None.

    Args:
        command: The command; fit takes the last checkpoint of a run, others take the best.
        value: A run directory, `best`, `last`, a file, an exported folder, or a name of `WEIGHTS`.
        run_dir: The run that `best` and `last` refer to. None for the newest run that matches `pattern`.
        pattern: `<model>-<data>`, with `*` for unknown names.

    Raises:
        UsageError: if there is no such checkpoint.
    """
    shown = value if command == "export" else f"--ckpt_path {value}"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        raise UsageError(
            f"{shown}: checkpoints are read from local files only\nDownload it first and give the file"
        )
    names = ["last", "best"] if command == "fit" else ["best", "last"]
    if value in ("best", "last"):
        names = [value]
        run = run_dir if run_dir is not None else _newest(command, shown, value, pattern)
    elif (shared := _exported(shipped_weights(value) or Path(value))) is not None:
        return shared, None
    elif Path(value).is_dir():
        run = _above(Path(value)) if Path(value).absolute().name == "checkpoints" else Path(value)
    elif Path(value).is_file():
        return Path(value), run_of(Path(value))
    else:
        raise UsageError(_not_there(shown, Path(value)))
    refuse_program(run)
    for name in names:
        if (path := run / "checkpoints" / f"{name}.ckpt").is_file():
            return path, run_of(path)
    text = f"{run} holds no checkpoint: there is no {run / 'checkpoints' / names[0]}.ckpt"
    if (run / "config.yaml").is_file():
        header = read_header(run / "config.yaml")
        if header.get("model", "").startswith("heuristic."):
            raise UsageError(f"{text}\nA heuristic has none; graphzoo.heuristics scores pairs in Python")
        # killed in its first epoch
        untested = " --no-test" if header.get("test") == "no" else ""
        again = f"graphzoo fit --config {typed(run / 'config.yaml')}{untested}"
        raise UsageError(f"{text}\nStart again with its settings: {again}")
    raise UsageError(text + held_below(run))


def held_below(folder: Path) -> str:
    """A line that names up to three checkpoints below a folder; "" if a short search finds none.

    The search looks into a limited number of folders, upper ones first, and follows no links.
    """
    folders, found = [folder], list[str]()
    for place in islice(folders, _MOST):  # the list grows meanwhile
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in sorted(islice(entries, _MOST), key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry))
                elif entry.name.endswith(".ckpt"):
                    found.append(entry.path)
        if len(found) >= 3:
            break
    return f"\nIt holds {', '.join(found[:3])}: give one of these" if found else ""


def _exported(path: Path) -> Path | None:
    """The weights of a folder that `graphzoo export` wrote."""
    file = path / "model.safetensors" if path.is_dir() else path
    return file if file.suffix == ".safetensors" and file.is_file() else None


def is_whole(path: Path) -> bool:
    """Whether a checkpoint file is a complete archive as torch writes it. Reads no pickles.

    torch compresses nothing. A compressed file is not its own, and might fill the memory when unpacked.
    """
    try:
        with open_regular(path) as file:
            return is_whole_archive(file, path)
    except OSError:
        return False


def is_whole_archive(file: BinaryIO, path: Path) -> bool:
    """The same for an open file; errors of memory or of the device are raised as such."""
    try:
        with zipfile.ZipFile(file) as archive:
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
            return stored and archive.testzip() is None
    except Exception as error:  # zipfile raises anything over a damaged directory
        raise_if_not_the_file(error, path)
        return False


def _newest(command: str, shown: str, name: str, pattern: str) -> Path:
    runs = [run for run in find_runs(pattern) if (run / "checkpoints" / f"{name}.ckpt").is_file()]
    if not runs:
        more = ", or add --run_dir DIR" if command in ("fit", "validate", "test") else ""
        raise UsageError(
            f"{shown}: no run below {RUNS / pattern} has such a checkpoint\n"
            f"Give the run directory or the file{more}"
        )
    return runs[-1]


def run_of(path: Path) -> Path | None:
    """The run directory that a checkpoint file lies in; None where it lies in none."""
    run = path.absolute().parent.parent
    if path.absolute().parent.name != "checkpoints" or not (run / "config.yaml").is_file():
        return None
    return _above(path.parent)


def _above(folder: Path) -> Path:
    """The parent folder in the form that the user typed; that of `.` is `./..`."""
    return folder / ".." if folder.name in ("", "..") else folder.parent


def _not_there(shown: str, path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{shown}: there is no such file or folder"
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".ckpt" or entry.is_dir())
    hint = suggestion(path.name, names) or (f"In {folder}: {', '.join(names[:6])}" if names else "")
    return "\n".join(filter(None, [f"{shown}: there is no such file", hint]))
