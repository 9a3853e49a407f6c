"""Messages for failed runs, and how to resume them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf.errors import OmegaConfBaseException

from graphzoo.catalog.settings import read_settings
from graphzoo.errors import NonFiniteError, OutOfMemoryError, UsageError, of_system, shorten
from graphzoo.system.files import NO_ROOM
from graphzoo.system.memory import is_out_of_memory
from graphzoo.system.paths import relative, typed
from graphzoo.system.processes import lost_a_process, rank
from graphzoo.system.shown import tell, visible
from graphzoo.system.streams import refuses_output
from graphzoo.training.plan import RunState
from graphzoo.training.trust import plain_settings

# Seconds that other processes wait: if all fail alike, the first one says so and ends them before they do.
_PATIENCE = 3.0


def tell_error(error: BaseException, state: RunState) -> int:
    """Six lines for any error; the exit status of `explain_error`."""
    return tell_lines(*explain_error(error, state))


def explain_error(error: BaseException, state: RunState) -> tuple[str, int]:
    """Message and exit status of any error: 2 for a wrong command line, file or setting, else 1."""
    text = "\n".join(map(visible, shorten(str(error), lines=4).splitlines())) or type(error).__name__
    more = "\n--debug shows the traceback"
    if lost_a_process(error):
        return "another process of the run has ended: see its message, unless it was killed", 1
    if is_out_of_memory(error):
        return _no_memory(error, state), 1
    if isinstance(error, NonFiniteError):
        return f"{'training stopped' if state.plan.command == 'fit' else 'stopped'}: {text}", 1
    if isinstance(error, OSError) and error.filename is None and refuses_output():
        return f"{of_system(error)[0]}\n{how_to_resume(state)}", 1
    if isinstance(error, OSError) and error.errno in NO_ROOM and state.began:
        message = f"cannot write {error.filename or 'a file of the run'}: {error.strerror}"
        return f"{message}\nFree disk space. {how_to_resume(state)}", 1
    if isinstance(error, UsageError):
        # Tasks refuse a checkpoint for other data only when the evaluation begins.
        return text, 1 if state.began and state.plan.command == "fit" else 2
    if type(error).__module__.startswith("wandb."):
        remedy = "Without an account or a network: WANDB_MODE=offline keeps the run on this machine"
        if "project name" in text:
            remedy = "Give another with --trainer.logger.project NAME"
        return f"Weights & Biases: {text}\n{remedy}", 1 if state.began else 2
    if state.began:
        return f"{type(error).__name__}: {text}{more}", 1
    if isinstance(error, OSError) and error.filename is not None:
        message, status = of_system(error)
        return message + more, status
    if isinstance(error, OmegaConfBaseException):
        line = text.splitlines()[0]
        return f"{line}\nCheck the ${{...}} in the configuration files and options", 2
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        return f"{text}\nInstall it: pip install {name.partition('.')[0]}{more}", 2
    settings = ValueError | MisconfigurationException | FileNotFoundError | PermissionError | TypeError
    if isinstance(error, settings):
        return text + more, 2
    return f"{type(error).__name__}: {text}{more}", 1


def _no_memory(error: BaseException, state: RunState) -> str:
    """What ran out of memory, what takes less, what is left, and how to resume."""
    lines = str(error).splitlines()
    if not isinstance(error, OutOfMemoryError):
        cause = lines[0] if lines else type(error).__name__
        remedy = getattr(error, "__notes__", ["Take a smaller batch or model, or a device with more memory"])
        lines = [f"out of memory: {cause}", *remedy]
    lost = state.began and state.plan.command == "fit" and not state.plan.dry_run
    return "\n".join([*lines, how_to_resume(state)] if lost else lines)


def how_to_resume(state: RunState) -> str:
    """How to resume a run that ended early, or begin it anew when it left no checkpoint."""
    run = state.plan.run_dir or (Path(named) if (named := os.environ.get("GRAPHZOO_RUN_DIR")) else None)
    trains = state.plan.command == "fit" and not state.plan.dry_run
    if not trains or run is None or not (run / "config.yaml").is_file():
        return "Then give the same command again"
    good = [str(relative(path)) for path in sorted(run.glob("checkpoints/*.ckpt"))]
    if not good:
        same = typed(run / "config.yaml") + ("" if state.plan.tests else " --no-test")
        return f"There is no checkpoint yet. Start again: graphzoo fit --config {same}"
    again = f"graphzoo fit --ckpt_path {typed(run)}{needs_trust(run)}"
    return f"Checkpoints: {', '.join(good)}\nResume with: {again}"


def tell_lines(text: str, status: int = 2) -> int:
    """Write an error to standard error, once for all processes; its exit status."""
    if number := rank():
        time.sleep(_PATIENCE)
        text = f"process {number}: {text}"
    # five lines: the sixth may say already where the run writes
    tell(shorten(f"graphzoo: {text}", lines=5) + "\n")
    return status


def needs_trust(run: Path) -> str:
    """` --trust` when a run's own config.yaml holds classes of the user, which resuming it has to allow."""
    path = run / "config.yaml"
    try:
        dropped = plain_settings(read_settings(path), str(path), fit=True)[1]
    except UsageError:
        return " --trust"
    return " --trust" if dropped else ""
