"""Runs a planned command line, and answers whatever goes wrong in a few lines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import jsonargparse
import yaml
from lightning.pytorch.utilities.exceptions import SIGTERMException

from graphzoo.callbacks import Interrupted
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import UsageError
from graphzoo.system.memory import keep_freed_memory
from graphzoo.system.paths import relative
from graphzoo.system.processes import rank
from graphzoo.system.progress import set_quiet
from graphzoo.system.shown import tell
from graphzoo.training import resume
from graphzoo.training.dry_run import limited_memory
from graphzoo.training.failures import how_to_resume, needs_trust, tell_error, tell_lines
from graphzoo.training.lightning_cli import GraphzooCLI
from graphzoo.training.own_code import own_code
from graphzoo.training.parser import innermost
from graphzoo.training.plan import Plan
from graphzoo.training.quiet import quieten
from graphzoo.training.trust import check_class, plain_settings

__all__ = ["run_plan", "show_class_help", "show_help"]


def run_plan(plan: Plan) -> int:
    """Run a planned command line.

    Args:
        plan: From the pre-pass.

    Returns:
        The exit status.
    """
    quieten()
    keep_freed_memory()  # this process exists for the run alone
    if "LOCAL_RANK" not in os.environ:
        os.environ.pop("GRAPHZOO_RUN_DIR", None)
    jsonargparse.set_parsing_settings(omegaconf_absolute_to_relative_paths=True)
    scratch = contextlib.ExitStack()
    if plan.quiet:
        scratch.callback(set_quiet, set_quiet(True))
        if "WANDB_SILENT" not in os.environ:
            os.environ["WANDB_SILENT"] = "true"
            scratch.callback(os.environ.pop, "WANDB_SILENT", None)
    try:
        without: list[Path] = []
        if plan.run_config is not None and not plan.trust:
            folder = Path(scratch.enter_context(tempfile.TemporaryDirectory()))
            without.append(_keep_plain_settings(plan, folder))
        if plan.encoder_from_checkpoint:
            _take_encoder(plan)
        scratch.enter_context(own_code(plan.arguments, without=without))
        if plan.dry_run:
            scratch.enter_context(limited_memory())
        GraphzooCLI(plan)
    except SIGTERMException:
        return tell_lines(f"stopped by SIGTERM. {how_to_resume(plan)}", 143)
    except SystemExit as finished:
        # Lightning makes one of Ctrl-C, and then listens to no other.
        if isinstance(finished.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return tell_lines(f"stopped at once. {how_to_resume(plan)}", 130)
        return int(finished.code or 0)  # --print_config and class help
    except Interrupted as stopped:
        run = stopped.path.parent.parent
        if not rank():
            tell_lines(f"{stopped}\nGo on with: graphzoo fit --ckpt_path {relative(run)}{needs_trust(run)}")
        return 128 + stopped.signum
    except KeyboardInterrupt:
        return tell_lines(f"stopped at once. {how_to_resume(plan)}", 130)
    except BrokenPipeError:
        raise  # of standard output, whose reader has left: the command's end deals with it
    except Exception as error:
        if plan.lock is not None:
            plan.lock.release()  # before the folder that was made for it is taken back
        _forget_unstarted(plan)
        if plan.debug and not isinstance(innermost(error), UsageError):
            raise
        return tell_error(innermost(error), plan)
    finally:
        # Lightning leaves the W&B run open; the next run of this process would write into it.
        if (wandb := sys.modules.get("wandb")) and getattr(wandb, "run", None) is not None:
            wandb.finish()
        if plan.lock is not None:
            plan.lock.release()
        scratch.close()
    return 0


def _forget_unstarted(plan: Plan) -> None:
    """Take back the files and folders that this process itself made when nothing was computed."""
    if "LOCAL_RANK" in os.environ:
        return
    if plan.resume:
        if plan.run_dir is not None and plan.events is not None and not plan.began:
            for path in _own_events(plan.run_dir) - plan.events:  # Lightning makes them before it compares
                path.unlink()
        return
    empty = plan.missing
    if plan.wrote is not None:
        run = plan.wrote.parent
        if any((run / name).exists() for name in ("checkpoints", "metrics.csv", "results.json", "graph")):
            return
        plan.wrote.unlink(missing_ok=True)
        for path in _own_events(run):
            path.unlink()
        if run in plan.missing:  # in a folder of ours, this one is ours too
            (run / "tensorboard" / "hparams.yaml").unlink(missing_ok=True)
        empty = [run / "tensorboard", run, *empty]
    for folder in empty:
        with contextlib.suppress(OSError):  # not empty: what else lies there stays
            folder.rmdir()


def _own_events(run: Path) -> set[Path]:
    """TensorBoard's files of a run that carry the number of this process."""
    return set((run / "tensorboard").glob(f"events.out.tfevents.*.{os.getpid()}.*"))


def _keep_plain_settings(plan: Plan, scratch: Path) -> Path:
    """Let the parser read a run's config.yaml without what could import code; the file that it reads then."""
    assert plan.run_config is not None
    found = read_settings(plan.run_config)
    kept, dropped = plain_settings(found, str(plan.run_config), fit=plan.command == "fit")
    if dropped:
        names = ", ".join(dropped)
        tell(f"graphzoo: without --trust {plan.run_config} does not set {names}\n")
    path = scratch / "config.yaml"
    path.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    plan.arguments[plan.arguments.index(str(plan.run_config))] = str(path)
    return path


def _take_encoder(plan: Plan) -> None:
    """Let a lone checkpoint say which encoder it holds and with which settings."""
    assert plan.checkpoint is not None
    described = resume.read_checkpoint(plan.checkpoint).get("graphzoo")
    if described is None:
        raise UsageError(f"{plan.checkpoint} does not say which encoder it holds: add --model NAME")
    encoder = described["encoder"]
    if not plan.trust:
        check_class(encoder, "the encoder", str(plan.checkpoint))
    plan.model = plan.model or encoder["class_path"].rpartition(".")[2].lower()
    plan.arguments.append(f"--model.init_args.encoder={json.dumps(encoder)}")


def show_help(command: str) -> int:
    """Print every option of a command.

    Args:
        command: fit, validate or test.
    """
    return run_plan(Plan(command, ["--help"]))


def show_class_help(command: str, rest: list[str]) -> int:
    """Print the arguments of a class: `--model.help PATH`, `--data.help PATH`, `--trainer.logger.help PATH`.

    Args:
        command: fit, validate or test.
        rest: Arguments as typed.
    """
    return run_plan(Plan(command, [token for token in rest if token != "--debug"], debug="--debug" in rest))
