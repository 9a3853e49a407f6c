"""Runs a planned command line, and answers whatever goes wrong in a few lines."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jsonargparse
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf.errors import OmegaConfBaseException

from graphzoo.callbacks import Interrupted
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import NonFiniteError, OutOfMemoryError, UsageError, of_system, shorten
from graphzoo.runs.directory import relative
from graphzoo.system.memory import is_out_of_memory, keep_freed_memory
from graphzoo.system.processes import lost_a_process, rank
from graphzoo.system.progress import set_quiet
from graphzoo.system.shown import tell, visible
from graphzoo.system.streams import refuses_output
from graphzoo.training import resume
from graphzoo.training.dry_run import limited_memory
from graphzoo.training.lightning_cli import GraphzooCLI
from graphzoo.training.own_code import own_code
from graphzoo.training.parser import innermost
from graphzoo.training.plan import Plan
from graphzoo.training.trust import check_class, plain_settings

__all__ = ["run_plan", "show_class_help", "show_help"]


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Where all processes fail alike, the first one tells it and ends the others before they do.
_PATIENCE = 3.0


def run_plan(plan: Plan) -> int:
    """Run a planned command line.

    Args:
        plan: From the pre-pass.

    Returns:
        The exit status.
    """
    _quieten()
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
        return _tell(f"stopped by SIGTERM. {_go_on(plan)}", 143)
    except SystemExit as finished:
        # Lightning makes one of Ctrl-C, and then listens to no other.
        if isinstance(finished.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return _tell(f"stopped at once. {_go_on(plan)}", 130)
        return int(finished.code or 0)  # --print_config and class help
    except Interrupted as stopped:
        run = stopped.path.parent.parent
        if not rank():
            _tell(f"{stopped}\nGo on with: graphzoo fit --ckpt_path {relative(run)}{_needs_trust(run)}")
        return 128 + stopped.signum
    except KeyboardInterrupt:
        return _tell(f"stopped at once. {_go_on(plan)}", 130)
    except BrokenPipeError:
        raise  # of standard output, whose reader has left: the command's end deals with it
    except Exception as error:
        if plan.lock is not None:
            plan.lock.release()  # before the folder that was made for it is taken back
        _forget_unstarted(plan)
        if plan.debug and not isinstance(innermost(error), UsageError):
            raise
        return _tell_error(innermost(error), plan)
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


def _tell_error(error: BaseException, plan: Plan) -> int:
    """Six lines for any error; 2 when the command line, a file or a setting is wrong, 1 for a failed run."""
    text = "\n".join(map(visible, shorten(str(error), lines=4).splitlines())) or type(error).__name__
    more = "\n--debug shows the traceback"
    if lost_a_process(error):
        return _tell("another process of the run has ended; it said why, or was killed", 1)
    if is_out_of_memory(error):
        return _tell(_no_memory(error, plan), 1)
    if isinstance(error, NonFiniteError):
        return _tell(f"{'training stopped' if plan.command == 'fit' else 'stopped'}: {text}", 1)
    if isinstance(error, OSError) and error.filename is None and refuses_output():
        return _tell(f"{of_system(error)[0]}\n{_go_on(plan)}", 1)
    if isinstance(error, OSError) and error.errno in _NO_ROOM and plan.began:
        return _tell(_no_room(error, plan), 1)
    if isinstance(error, UsageError):
        # Tasks refuse a checkpoint for other data only when judging begins.
        return _tell(text, 1 if plan.began and plan.command == "fit" else 2)
    if type(error).__module__.startswith("wandb."):
        remedy = "Without an account or a network: WANDB_MODE=offline keeps the run on this machine"
        return _tell(f"Weights & Biases: {text}\n{remedy}", 1 if plan.began else 2)
    if plan.began:
        return _tell(f"{type(error).__name__}: {text}{more}", 1)
    if isinstance(error, OSError) and error.filename is not None:
        told, status = of_system(error)
        return _tell(told + more, status)
    if isinstance(error, OmegaConfBaseException):
        line = text.splitlines()[0]
        return _tell(f"{line}\nCheck the ${{...}} in the configuration files and options", 2)
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        return _tell(f"{text}\nInstall it: pip install {name.partition('.')[0]}{more}", 2)
    if isinstance(
        error, ValueError | MisconfigurationException | FileNotFoundError | PermissionError | TypeError
    ):
        return _tell(text + more, 2)
    return _tell(f"{type(error).__name__}: {text}{more}", 1)


def _no_room(error: OSError, plan: Plan) -> str:
    """A disk or quota is full: what could not be written, what is left, and how to go on."""
    text = f"cannot write {error.filename or 'a file of the run'}: {error.strerror}"
    return f"{text}\nMake room. {_go_on(plan)}"


def _no_memory(error: BaseException, plan: Plan) -> str:
    """What ran out of memory, what takes less, what is left, and how to go on."""
    lines = str(error).splitlines()
    if not isinstance(error, OutOfMemoryError):
        cause = lines[0] if lines else type(error).__name__
        remedy = getattr(error, "__notes__", ["Take a smaller batch or model, or a device with more memory"])
        lines = [f"out of memory: {cause}", *remedy]
    lost = plan.began and plan.command == "fit" and not plan.dry_run
    return "\n".join([*lines, _go_on(plan)] if lost else lines)


def _go_on(plan: Plan) -> str:
    """How a run that ended early is gone on with, or begun anew when it left no checkpoint."""
    run = plan.run_dir or (Path(found) if (found := os.environ.get("GRAPHZOO_RUN_DIR")) else None)
    if plan.command != "fit" or plan.dry_run or run is None or not (run / "config.yaml").is_file():
        return "Then give the same command again"
    good = [str(relative(path)) for path in sorted(run.glob("checkpoints/*.ckpt"))]
    if not good:
        same = f"{relative(run)}/config.yaml" + ("" if plan.tests else " --no-test")
        return f"There is no checkpoint yet. Begin anew: graphzoo fit --config {same}"
    again = f"graphzoo fit --ckpt_path {relative(run)}{_needs_trust(run)}"
    return f"Checkpoints: {', '.join(good)}\nGo on with: {again}"


def _tell(text: str, status: int = 2) -> int:
    if number := rank():
        time.sleep(_PATIENCE)
        text = f"process {number}: {text}"
    # One line of the six may have told already where the run writes.
    tell(shorten(f"graphzoo: {text}", lines=5) + "\n")
    return status


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


def _needs_trust(run: Path) -> str:
    """` --trust` when a run's own config.yaml holds classes of the user, which going on has to allow."""
    path = run / "config.yaml"
    try:
        dropped = plain_settings(read_settings(path), str(path), fit=True)[1]
    except UsageError:
        return " --trust"
    return " --trust" if dropped else ""


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


class _Advertisement(logging.Filter):
    """Drops Lightning's tips for paid add-ons and its lines about hardware that is not there."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        dull = (
            "💡",
            "TPU available: False",
            "HPU available: False",
            "GPU available: False",
            "`Trainer.fit` stopped",
        )
        told = (
            "litlogger",
            "litmodels",
            "Restoring states from",
            "Loaded model weights",
            "Restored all states",
            "Found current_model_state in the checkpoint",
        )
        return not text.startswith(dull) and not any(words in text for words in told)


_FILTER = _Advertisement()


def _quieten() -> None:
    """Leave out what tells a user of the command nothing."""
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).addFilter(_FILTER)
    logging.getLogger("lightning.fabric.utilities.seed").setLevel(logging.WARNING)
    for pattern in (
        ".*isinstance\\(treespec, LeafSpec\\).*",
        ".*does not have many workers.*",
        ".*Checkpoint directory .* exists and is not empty.*",
        ".*The number of training batches .* is smaller than the logging interval.*",
        ".*srun.*",
        ".*Sparse CSR tensor support is in beta state.*",
        # Every process computes the same figures from gathered ranks: their mean would be no other.
        ".*sync_dist=True.*",
        ".*Be aware that when using `ckpt_path`.*",
        # Weights are made once the data are known; none of our strategies shards them. A checkpoint's
        # `state_dict` holds the averages, which are what a test is to judge.
        ".*WeightAveraging callback with a model that overrides the configure_model.*",
        ".*WeightAveraging callback, but loading a checkpoint outside the 'fit' stage.*",
    ):
        warnings.filterwarnings("ignore", message=pattern)
