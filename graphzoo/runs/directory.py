"""Chooses where a run is written: `runs/<model>-<data>/<time>-<id>/`, never over an earlier run."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.lock import LOCK
from graphzoo.system.files import write_atomically, write_text_atomically
from graphzoo.system.paths import typed
from graphzoo.system.regular_files import MOST_TEXT, read_regular, read_regular_text

_VARIABLE = "GRAPHZOO_RUN_DIR"
GIVEN_DATA = "data.npz"
"""Copy of data in memory that were given to `graphzoo.fit`, so that the run can be repeated."""
_ENDINGS = (".gz", ".csv", ".npz", ".pt", ".pth", ".tsv", ".txt")  # of files with data
# Files that may exist before a run begins: loggers write earlier, and a killed run leaves its lock.
_EARLY = ("tensorboard", "wandb", "lightning_logs", LOCK, GIVEN_DATA)


def choose_run_directory(model: str, data: str, *, wanted: Path | None = None, resume: bool = False) -> Path:
    """The directory of a new run, or the one `wanted`; nothing is made yet."""
    # Processes that Lightning starts for DDP inherit the choice of the first.
    if is_child():
        return Path(os.environ[_VARIABLE])
    if wanted is None and several_processes():
        raise UsageError(
            "several processes were started by torchrun or srun, and each would choose its own run "
            "directory\nAdd --run_dir DIR: one new folder for all of them"
        )
    if wanted is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        wanted = RUNS / f"{_plain(model)}-{_plain(data)}" / f"{stamp}-{secrets.token_hex(2)}"
    elif not resume and "${" in str(wanted):  # config.yaml would take it for a variable
        raise UsageError(f"--run_dir {wanted} has ${{, which stands for a variable; give another name")
    elif wanted.exists() and not wanted.is_dir():
        raise UsageError(f"--run_dir {wanted} is a file; give a folder that does not exist yet")
    elif not resume and own_rank() == 0:  # the other processes see what the first has begun to write
        _check_free(wanted)
    os.environ[_VARIABLE] = str(wanted.absolute())
    return wanted


def is_child() -> bool:
    """Whether Lightning started this process for a run that another one began."""
    return "LOCAL_RANK" in os.environ and _VARIABLE in os.environ


def several_processes() -> bool:
    """Whether a launcher such as torchrun or srun started several processes, each on its own."""
    if is_child():
        return False
    counts = [os.environ.get("WORLD_SIZE", "")]
    if "SLURM_PROCID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        counts.append(os.environ.get("SLURM_NTASKS", ""))
    return any(count.isdecimal() and int(count) > 1 for count in counts)


def missing_folders(run: Path) -> list[Path]:
    """The run directory and the folders above it that do not exist yet, the innermost first."""
    run = run.absolute()
    return [folder for folder in (run, *run.parents) if not folder.exists()]


def name_of_data(preset: str, path: object) -> str:
    """The name of data: that of their preset; for own data that of their folder or file, or of both folders.

    Several files are named after their folder. Only paths are used, so that the data need not exist here.

    >>> name_of_data("umls", None), name_of_data("kg", "mine/v1.2"), name_of_data("kg", ["mine/a.tsv", "b"])
    ('umls', 'v1.2', 'mine')
    >>> name_of_data("kg", ["mine/first", "mine/second"])
    'first-second'
    >>> name_of_data("links", "friends.csv.gz")
    'friends'
    """
    several = path if isinstance(path, list) else [path]
    paths = [one for one in several if isinstance(one, str | os.PathLike)]
    if not paths:
        return preset
    first = Path(os.path.abspath(paths[0]))
    if first.name == GIVEN_DATA:
        return preset
    if len(paths) > 1:
        names = [Path(os.path.abspath(path)).name for path in paths]
        if len(names) == 2 and not any(name.endswith(_ENDINGS) for name in names):
            return "-".join(names)  # an inductive pair
        return first.parent.name or preset
    name = first.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or first.name or preset


def write_config(run: Path, text: str) -> Path | None:
    """Write config.yaml and return its absolute path, or None when it was there already.

    An earlier one that differs is kept as config.1.yaml, config.2.yaml, ...
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / "config.yaml"
    if path.is_file():
        if read_regular_text(path, errors="replace") == text:
            return None
        number = 1
        while (kept := run / f"config.{number}.yaml").exists():
            number += 1
        before = read_regular(path, most=MOST_TEXT)
        write_atomically(kept, lambda file: file.write(before))  # a copy: without room, `path` stays as it is
        try:
            write_text_atomically(path, text)
        except OSError:
            kept.unlink()
            raise
    else:
        write_text_atomically(path, text)
    return path.absolute()


def _check_free(wanted: Path) -> None:
    names = sorted(entry.name for entry in wanted.iterdir()) if wanted.is_dir() else []
    if any(name in names for name in ("checkpoints", "results.json")) or _is_run_config(wanted):
        other = "move this one away if nothing writes it any more"  # stopped before, or an evaluation
        last, best = (wanted / "checkpoints" / name for name in ("last.ckpt", "best.ckpt"))
        if last.is_file():
            other = f"resume it: graphzoo fit --ckpt_path {typed(wanted)}"
        elif best.is_file():
            other = f"go on from its best epoch, in a new folder: graphzoo fit --ckpt_path {typed(best)}"
        raise UsageError(
            f"--run_dir {wanted} holds a run already, and runs are never overwritten\n"
            f"Choose another folder, or {other}"
        )
    if others := [name for name in names if name not in _EARLY]:
        raise UsageError(
            f"--run_dir {wanted} is not a run directory and not empty: it holds {', '.join(others[:3])}\n"
            "Give a folder that does not exist yet"
        )


def _is_run_config(folder: Path) -> bool:
    path = folder / "config.yaml"
    return path.is_file() and "graphzoo" in read_regular_text(path, errors="replace")[:100]


def own_rank() -> int:
    """The number of this process among those that a launcher such as torchrun or SLURM has started."""
    number = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
    return int(number) if number.isdecimal() else 0


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name) or "run"
