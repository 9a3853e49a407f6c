"""Runs a planned command line, and reports any error in a few lines."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import jsonargparse
import torch
import yaml
from lightning.pytorch.utilities.exceptions import SIGTERMException

from graphzoo.callbacks import Interrupted
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import NonFiniteError, OutOfMemoryError, UsageError
from graphzoo.ops.eager import float32_precision
from graphzoo.system.files import write_text_atomically
from graphzoo.system.memory import is_out_of_memory, keep_freed_memory
from graphzoo.system.paths import typed
from graphzoo.system.processes import rank
from graphzoo.system.progress import set_quiet
from graphzoo.system.shown import tell
from graphzoo.training.dry_run import limited_memory
from graphzoo.training.failures import explain_error, how_to_resume, needs_trust, tell_error, tell_lines
from graphzoo.training.lightning_cli import GraphzooCLI
from graphzoo.training.own_code import own_code
from graphzoo.training.parser_errors import innermost
from graphzoo.training.plan import Plan, RunState
from graphzoo.training.quiet import quiet
from graphzoo.training.settings_of_weights import take_settings_of_weights
from graphzoo.training.trust import plain_settings
from graphzoo.training.unchanged import unchanged_process


def run_plan(plan: Plan) -> int:
    """Run a planned command line; its exit status."""
    keep_freed_memory()  # this process exists for the run alone
    if "LOCAL_RANK" not in os.environ:
        os.environ.pop("GRAPHZOO_RUN_DIR", None)
    jsonargparse.set_parsing_settings(omegaconf_absolute_to_relative_paths=True)
    state = RunState.of(plan)
    try:
        _carry_out(state)
    except (SIGTERMException, SystemExit, Interrupted, KeyboardInterrupt) as stopped:
        return _stopped(stopped, state)
    except BrokenPipeError:
        raise  # of standard output, whose reader has left: the command's end deals with it
    except Exception as error:
        if plan.debug and not isinstance(innermost(error), UsageError):
            raise
        return tell_error(innermost(error), state)
    return 0


def run_for_caller(plan: Plan) -> RunState:
    """Run a plan for a caller in Python, leave the process unchanged, and return the state of the run.

    Raises:
        UsageError: for wrong settings.
        OutOfMemoryError: if memory runs out; its text has the remedy.
        KeyboardInterrupt: after Ctrl-C; its text says how to resume.
    """
    state = RunState.of(plan)
    signum = 0
    with unchanged_process():
        jsonargparse.set_parsing_settings(omegaconf_absolute_to_relative_paths=True)
        try:
            _carry_out(state)
        except (SIGTERMException, SystemExit, Interrupted, KeyboardInterrupt) as stopped:
            hint = how_to_resume(state)
            if isinstance(stopped, SIGTERMException) or getattr(stopped, "signum", 0) == signal.SIGTERM:
                signum = signal.SIGTERM
            interrupt = KeyboardInterrupt(f"stopped. {hint}")
            interrupt.__cause__ = stopped
        except Exception as error:
            raise _for_caller(innermost(error), state) from error
        else:
            return state
    if signum:  # whose handlers are the caller's again, and decide what it means
        signal.raise_signal(signum)
    raise interrupt


def _for_caller(error: BaseException, state: RunState) -> BaseException:
    """An error as a caller in Python gets it: wrong settings are a `UsageError`, whoever found them."""
    if isinstance(error, UsageError | NonFiniteError):
        return error
    text, status = explain_error(error, state)
    text = text.removesuffix("\n--debug shows the traceback")
    if is_out_of_memory(error):
        return OutOfMemoryError(text)
    return UsageError(text) if status == 2 else error


def _carry_out(state: RunState) -> None:
    """Run a plan. If it fails before anything is computed, remove the files that it has written."""
    opened = getattr(sys.modules.get("wandb"), "run", None)  # by the caller
    try:
        with quiet(with_limits=not state.plan.quiet), contextlib.ExitStack() as scratch:
            _run(state, scratch)
    except (Interrupted, BrokenPipeError):
        raise
    except Exception:
        if state.lock is not None:
            state.lock.release()  # before the folder that was made for it is taken back
        _forget_unstarted(state)
        raise
    finally:
        # Lightning leaves the W&B run open; the next run of this process would write into it.
        wandb = sys.modules.get("wandb")
        if (run := getattr(wandb, "run", None)) is not None and run is not opened:
            wandb.finish()  # type: ignore[union-attr]
        if state.lock is not None:
            state.lock.release()


def _run(state: RunState, scratch: contextlib.ExitStack) -> None:
    """Read the files that the plan needs, and hand over to Lightning."""
    plan = state.plan
    if plan.quiet:
        scratch.callback(set_quiet, set_quiet(True))
        if "WANDB_SILENT" not in os.environ:
            os.environ["WANDB_SILENT"] = "true"
            scratch.callback(os.environ.pop, "WANDB_SILENT", None)
    without: list[Path] = []
    if plan.run_config is not None and not plan.trust:
        folder = Path(scratch.enter_context(tempfile.TemporaryDirectory()))
        without.append(_keep_plain_settings(state, plan.run_config, folder))
    take_settings_of_weights(state)
    scratch.enter_context(own_code(state.arguments, without=without))
    # set for the run by `set_matmul_precision`, and put back for what this process does next
    scratch.callback(torch.set_float32_matmul_precision, float32_precision())
    if plan.dry_run:
        scratch.enter_context(limited_memory())
    try:
        GraphzooCLI(state)
    except UsageError as error:
        if not without or str(without[0]) not in str(error):
            raise
        # name the run's own file, not the copy that was read
        raise UsageError(str(error).replace(str(without[0]), str(plan.run_config))) from error


def _stopped(stopped: BaseException, state: RunState) -> int:
    """Say how to resume a run that was stopped; its exit status."""
    if isinstance(stopped, SIGTERMException):
        return tell_lines(f"stopped by SIGTERM. {how_to_resume(state)}", 143)
    if isinstance(stopped, Interrupted):
        run = stopped.path.parent.parent
        if not rank():
            tell_lines(f"{stopped}\nResume with: graphzoo fit --ckpt_path {typed(run)}{needs_trust(run)}")
        return 128 + stopped.signum
    if isinstance(stopped, SystemExit):
        # Lightning makes one of Ctrl-C, and then listens to no other.
        if not isinstance(stopped.__context__, KeyboardInterrupt):
            code = stopped.code
            return code if isinstance(code, int) else int(code is not None)  # --print_config and class help
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return tell_lines(f"stopped at once. {how_to_resume(state)}", 130)


def _forget_unstarted(state: RunState) -> None:
    """Remove files and folders that this process has made, if nothing was computed."""
    if rank():
        return  # of several processes the first one writes
    if state.plan.resume:
        if state.plan.run_dir is not None and state.events is not None and not state.began:
            for path in _own_events(state.plan.run_dir) - state.events:
                path.unlink()  # Lightning makes them before it compares
        return
    empty = state.missing
    if state.wrote is not None:
        run = state.wrote.parent
        if any((run / name).exists() for name in ("checkpoints", "metrics.csv", "results.json", "graph")):
            return
        state.wrote.unlink(missing_ok=True)
        for path in _own_events(run):
            path.unlink()
        if run in state.missing:  # in a folder of ours, this one is ours too
            (run / "tensorboard" / "hparams.yaml").unlink(missing_ok=True)
        empty = [run / "tensorboard", run, *empty]
    for folder in empty:
        with contextlib.suppress(OSError):  # a folder with other files stays
            folder.rmdir()


def _own_events(run: Path) -> set[Path]:
    """TensorBoard's files of a run that carry the number of this process."""
    return set((run / "tensorboard").glob(f"events.out.tfevents.*.{os.getpid()}.*"))


def _keep_plain_settings(state: RunState, config: Path, scratch: Path) -> Path:
    """Let the parser read a copy of a run's config.yaml without settings that could import code."""
    settings = read_settings(config)
    kept, dropped = plain_settings(settings, str(config), fit=state.plan.command == "fit")
    has_logger = any(used.startswith("logger ") for used in state.plan.used)  # on the command line
    if unset := [name for name in dropped if not (has_logger and name == "trainer.logger")]:
        tell(f"graphzoo: without --trust {config} does not set {', '.join(unset)}\n")
    names = [name.removeprefix("trainer.") for name in dropped]
    state.left_out = {name: settings["trainer"][name] for name in names}
    path = scratch / "config.yaml"
    write_text_atomically(path, yaml.safe_dump(kept, sort_keys=False))
    state.arguments[state.arguments.index(str(config))] = str(path)
    return path


def show_help(command: str) -> int:
    """Print every option of a command."""
    return run_plan(Plan(command, ("--help",)))


def show_class_help(command: str, rest: list[str]) -> int:
    """Print the arguments of a class: `--model.help PATH`, or `--data.help`, `--trainer.logger.help`."""
    words = tuple(token for token in rest if token != "--debug")
    return run_plan(Plan(command, words, words, debug="--debug" in rest))
