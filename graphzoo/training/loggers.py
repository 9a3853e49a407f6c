"""Where a run is logged: its own CSV file, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonargparse

from graphzoo.callbacks import MetricsFile
from graphzoo.callbacks.wandb_run import remembered_id
from graphzoo.catalog.presets import list_presets
from graphzoo.errors import UsageError
from graphzoo.runs.series import is_run_folder
from graphzoo.training.plan import RunState

# What Weights & Biases takes at most, in letters.
_LONGEST_TAG = 64
_LONGEST_NAME = 128


def loggers_of(given: Any, run_dir: Path) -> Any:
    """The Trainer's loggers: graphzoo's own, then the user's, or TensorBoard where it is installed."""
    if given is False:
        return False
    metrics = MetricsFile(run_dir)
    if given is not None and given is not True:
        return [metrics, *(given if isinstance(given, list | tuple) else [given])]
    if find_spec("tensorboard") is None:
        return [metrics]
    from lightning.pytorch.loggers import TensorBoardLogger

    return [metrics, TensorBoardLogger(run_dir, name="tensorboard", version="", default_hp_metric=False)]


def without_repeated(loggers: Any, names: Sequence[str], *, newest: bool) -> Any:
    """The loggers of a resumed run, one for each of the `names` that `--logger` names again.

    The run's own stays: a second one would log every value twice. The newest stays where the command line
    sets arguments (`newest`) that are its own, those of the last logger.
    """
    if not isinstance(loggers, list):
        return loggers
    spare: list[int] = []
    for name in names:
        same = [one for one in loggers if name in one["class_path"].rpartition(".")[2].lower()]
        is_set = newest and same[-1:] == loggers[-1:]
        spare += map(id, same[:-1] if is_set else same[1:][-1:])
    return [one for one in loggers if id(one) not in spare]


def place_loggers(loggers: Any, run_dir: Path, state: RunState, names: Mapping[str, str]) -> None:
    """Let the loggers of a configuration write into the run directory, unless they say where."""
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        arguments = logger.get("init_args") if isinstance(logger, jsonargparse.Namespace) else None
        if arguments is None:
            continue
        if "save_dir" in arguments and arguments["save_dir"] in (None, "."):
            run_dir.mkdir(parents=True, exist_ok=True)
            arguments["save_dir"] = str(run_dir)
        if "WandbLogger" in str(logger.get("class_path")):
            _place_wandb(arguments, run_dir, state, names)
        if "MLFlowLogger" in str(logger.get("class_path")):
            _place_mlflow(arguments, run_dir, state, names)


def _place_mlflow(
    arguments: jsonargparse.Namespace, run_dir: Path, state: RunState, names: Mapping[str, str]
) -> None:
    """Name and tags of the run at MLflow, and where that is."""
    if find_spec("mlflow") is None:
        raise UsageError("MLflow is not installed\npip install mlflow-skinny")
    if arguments.get("tracking_uri") is None:
        # Lightning's own default is a folder, which MLflow no longer writes.
        file = Path.cwd() / "mlflow.db"
        arguments["tracking_uri"] = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{file}"
        if arguments["tracking_uri"] == f"sqlite:///{file}" and not _can_write(file):
            raise UsageError(  # MLflow would try for minutes
                f"{file} cannot be written\n"
                "Start in another folder, or name a place of MLflow: MLFLOW_TRACKING_URI=sqlite:///PATH.db"
            )
    if arguments.get("run_name") is None:
        arguments["run_name"] = f"{state.model}-{state.data_name}-{run_dir.name}"
    if arguments.get("tags") is None:
        named = {key: name for key, name in names.items() if name}
        arguments["tags"] = {**named, "run_dir": str(run_dir.absolute())}


def _can_write(file: Path) -> bool:
    return os.access(file if file.exists() else file.parent, os.W_OK)


def _place_wandb(
    arguments: jsonargparse.Namespace, run_dir: Path, state: RunState, names: Mapping[str, str]
) -> None:
    """Name, group and tags of the run at Weights & Biases; a resumed run continues its own."""
    named = f"{state.model}-{state.data_name}"
    ours = {
        "group": _group(state, run_dir)[:_LONGEST_NAME],
        "tags": [f"{key}:{name}"[:_LONGEST_TAG] for key, name in names.items() if name],
        "job_type": state.plan.command,
    }
    for name, value in ours.items():
        if name in arguments and arguments[name] is None:  # arguments of wandb.init
            arguments[name] = value
    if arguments.get("save_dir") is not None:
        # W&B's own process may have begun in another folder.
        arguments["save_dir"] = str(Path(arguments["save_dir"]).absolute())
    if arguments.get("name") is None:
        own = run_dir.name
        if trial := _trial(run_dir):
            own = f"{trial}-{run_dir.absolute().parent.name}"
        end = f"-{own}"[-_LONGEST_NAME:]
        arguments["name"] = named[: _LONGEST_NAME - len(end)] + end
    if state.plan.resume and arguments.get("id") is None and arguments.get("version") is None:
        arguments["id"] = remembered_id(run_dir, arguments.get("project"), arguments.get("entity"))


def _group(state: RunState, run_dir: Path) -> str:
    """Model and data, and what tells other settings apart: the recipe, the row of an ablation, the trial."""
    usual, recipe = f"{state.model}/{state.data}", state.plan.recipe
    also = []
    if recipe and recipe != usual:
        also.append(recipe.rpartition("/")[2])
    elif not recipe and any(preset.name == usual for preset in list_presets("recipe", state.model)):
        also.append("none")
    named = "-".join([state.model, state.data_name, *also])
    folder = run_dir.absolute()
    if trial := _trial(run_dir):
        also.append(trial)
    elif is_run_folder(folder.name) and folder.parent.name != named:
        also.append(folder.parent.name)
    end = "".join(f"-{one}" for one in also)
    return f"{state.model}-{state.data_name}"[: _LONGEST_NAME - len(end)] + end


def _trial(run_dir: Path) -> str:
    """Search and number of the trial whose run this is, as no other search has them; empty for other runs."""
    folder = run_dir.absolute()
    trial = folder.parent.parent
    if folder.name != "run" or not is_run_folder(folder.parent.name) or not trial.name:
        return ""
    search = trial.parent.parent if trial.parent.name == "trials" else trial.parent
    place = hashlib.sha256(os.fsencode(search)).hexdigest()[:4]  # folders elsewhere may have the same name
    return f"{search.name[:40]}-{place}-trial-{trial.name}"
