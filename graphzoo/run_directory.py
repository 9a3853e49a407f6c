"""Where a run is written: `runs/<model>-<data>/<time>-<id>/`, never over an earlier one."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from graphzoo.checkpoints import RUNS
from graphzoo.errors import UsageError

__all__ = ["choose_run_directory", "relative", "write_config"]

_VARIABLE = "GRAPHZOO_RUN_DIR"


def choose_run_directory(model: str, data: str, *, wanted: Path | None = None, resume: bool = False) -> Path:
    """The directory of a new run; nothing is made yet.

    Args:
        model: Name for the path.
        data: Name for the path.
        wanted: Directory asked for.
        resume: Whether the run goes on in `wanted`.

    Raises:
        UsageError: when `wanted` holds another run, or is a file.
    """
    # Processes that Lightning starts for DDP inherit the choice of the first.
    if "LOCAL_RANK" in os.environ and _VARIABLE in os.environ:
        return Path(os.environ[_VARIABLE])
    if wanted is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        wanted = RUNS / f"{_plain(model)}-{_plain(data)}" / f"{stamp}-{secrets.token_hex(2)}"
    elif wanted.exists() and not wanted.is_dir():
        raise UsageError(f"--run_dir {wanted} is a file; give a folder that does not exist yet")
    elif not resume and any(
        (wanted / name).exists() for name in ("config.yaml", "checkpoints", "results.json")
    ):
        raise UsageError(
            f"--run_dir {wanted} holds a run already, and runs are never overwritten\n"
            f"Choose another folder, or go on with it: graphzoo fit --ckpt_path {wanted}"
        )
    os.environ[_VARIABLE] = str(wanted.absolute())
    return wanted


def write_config(run: Path, text: str) -> None:
    """Write config.yaml; an earlier one that differs is kept as config.1.yaml, config.2.yaml, ...

    Args:
        run: The run directory.
        text: The configuration.
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / "config.yaml"
    if path.is_file():
        if path.read_text(encoding="utf-8") == text:
            return
        number = 1
        while (kept := run / f"config.{number}.yaml").exists():
            number += 1
        path.rename(kept)
    path.write_text(text, encoding="utf-8")


def relative(path: Path) -> Path:
    """The path as seen from the current folder, for messages; unchanged when it lies elsewhere."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path


def _plain(name: str) -> str:
    return (
        "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
        or "run"
    )
