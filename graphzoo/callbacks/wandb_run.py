"""Adds to a run at Weights & Biases: best values, facts, the paper's scores, tables and files."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from graphzoo.analysis.evaluation import Table
from graphzoo.callbacks.diagnostics import is_milestone
from graphzoo.callbacks.evaluation_files import EvaluationFiles
from graphzoo.errors import UsageError
from graphzoo.runs.results_file import BEST_VALIDATION
from graphzoo.system.json_file import read_json
from graphzoo.system.paths import relative, typed
from graphzoo.system.shown import tell

if TYPE_CHECKING:
    from wandb import Run


STEP = "trainer/global_step"
# Metric -> whether its summary is the largest or the smallest value.
BEST = {
    **{f"val/{name}": "max" for name in ("mrr", "acc", "auroc", "ap")},
    **{f"val/hits@{k}": "max" for k in (1, 3, 10, 20, 50, 100)},
    **{f"val/{name}": "min" for name in ("mr", "loss", "rmse")},
    "train/loss": "min",
    "train/peak_memory_gib": "max",
}
_CHECKOUT = Path(__file__).resolve().parents[2]
_ID_FILE = "id.json"
_CONFUSION = "wandb/confusion_matrix/v1"  # a chart that Weights & Biases ships


def remembered_id(run: Path, project: str, entity: str | None) -> str | None:
    """The id at Weights & Biases of the run in a run directory, if it was of this project."""
    try:
        known = read_json(run / "wandb" / _ID_FILE)
        same = (known["project"], known["entity"]) == (project, entity)
        return str(known["id"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


class WandbRun(Callback):
    """Fills the runs of all `WandbLogger`s of a trainer, in the first process.

    Args:
        directory: Run directory, in which the run's id is remembered: a resumed run continues it.
        names: Model, data, recipe and task, for the configuration.
        paper: Published test scores by name, `test/mrr`: logged as the constant `paper/mrr`.
        quiet: Whether the line with the run's address is left out.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        names: Mapping[str, str] | None = None,
        paper: Mapping[str, float] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.names = dict(names or {})
        self._best: float | None = None
        self._told = quiet
        self.paper = {f"paper/{name.removeprefix('test/')}": value for name, value in (paper or {}).items()}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for logger, run in self._runs(trainer):
            monitor = getattr(pl_module, "monitor", None)
            watched = {monitor: getattr(pl_module, "mode", "max")} if monitor else {}
            for name, best in {**BEST, **watched}.items():
                run.define_metric(name, step_metric=STEP, summary=best)
            folder = self.directory / "wandb"
            folder.mkdir(parents=True, exist_ok=True)
            known = {"id": run.id, "project": logger._project, "entity": logger._wandb_init.get("entity")}
            (folder / _ID_FILE).write_text(json.dumps(known) + "\n", encoding="utf-8")
            settings = dict(run.config).get("config")
            if settings is not None:
                run.config.update(  # type: ignore[no-untyped-call]
                    {"config": without_folders(settings)}, allow_val_change=True
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._describe(trainer, pl_module)
        self._draw_paper(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if is_milestone(trainer.current_epoch):
            self._draw_paper(trainer)
        value = trainer.callback_metrics.get(getattr(pl_module, "monitor", ""))
        if value is not None and math.isfinite(value):
            choose = min if getattr(pl_module, "mode", "max") == "min" else max
            self._best = float(value) if self._best is None else choose(self._best, float(value))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the line of the paper's score, and log the best score for a sweep."""
        self._draw_paper(trainer)
        if self._best is not None:
            for _, run in self._runs(trainer):
                run.log({BEST_VALIDATION: self._best, STEP: trainer.global_step})

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        best = state_dict["best"]
        self._best = best if best is not None and math.isfinite(best) else None

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._describe(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        evaluation = next((c.evaluation for c in callbacks if isinstance(c, EvaluationFiles)), None)
        if evaluation is None:
            return
        for _, run in self._runs(trainer):
            values = {key: value for table in evaluation.tables for key, value in wandb_values(table).items()}
            run.log({**values, STEP: trainer.global_step})
            run.summary.update(dict(evaluation.figures))

    def keep_artifact(self, trainer: Trainer, checkpoint: Path | None) -> None:
        """Log one artifact of a tested run: its report, the report's pictures, and the tested checkpoint.

        The files lie beside those of W&B's run, so that an offline run can be sent later. As in other
        libraries, `WANDB_LOG_MODEL=false` turns this off.
        """
        if os.environ.get("WANDB_LOG_MODEL", "").lower() in ("false", "0", "no", "off"):
            return
        import wandb

        for _, run in self._runs(trainer):
            folder = Path(run.dir).parent / "artifact"
            shutil.rmtree(folder, ignore_errors=True)  # of a run that is tested twice in one process
            try:
                if checkpoint is not None:
                    _link(checkpoint, folder / "checkpoints" / checkpoint.name)
                _write_report(self.directory, folder)
            except (OSError, UsageError) as error:  # the results are written; a picture is not worth them
                tell(f"the report for Weights & Biases is incomplete: {error}\n")
            if not folder.is_dir():
                continue
            try:
                artifact = wandb.Artifact(f"run-{run.id}", "model", metadata=dict(self.names))
                artifact.add_dir(str(folder), skip_cache=True, policy="immutable")
                run.log_artifact(artifact)
            except (OSError, wandb.Error) as error:
                tell(f"no files were sent to Weights & Biases: {error}\n")

    def _tell(self, run: Run) -> None:
        if self._told:
            return
        self._told = True
        if not (run.offline or run.url):
            tell("Weights & Biases is disabled: nothing is sent\n")
            return
        where = f"`wandb sync {typed(Path(run.dir).parent)}` sends the run" if run.offline else run.url
        names = {"project": run.project, "entity": run.entity}
        command = " ".join(f"--{name} {quote(value)}" for name, value in names.items() if value)
        tell(f"Weights & Biases: {where}; its panels: `graphzoo dashboard {command}`\n")

    def _describe(self, trainer: Trainer, pl_module: LightningModule) -> None:
        from graphzoo.system.versions import versions

        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        facts = _data_facts(datamodule)
        encoder = getattr(pl_module, "encoder", None)
        for _, run in self._runs(trainer):
            self._tell(run)
            run.config.update(  # type: ignore[no-untyped-call]
                {
                    **self.names,
                    "group": run.group or "-".join(self.names.get(name, "") for name in ("model", "data")),
                    "task": type(pl_module).__name__,
                    "encoder": _plain(getattr(encoder, "init_args", {})),
                    "versions": versions(),
                    "commit": checkout_commit(_CHECKOUT),
                    "data_fingerprint": getattr(datamodule, "fingerprint", None),
                },
                allow_val_change=True,
            )
            parameters = sum(part.numel() for part in pl_module.parameters() if part.requires_grad)
            run.summary.update({**facts, "model/parameters": parameters})

    def _draw_paper(self, trainer: Trainer) -> None:
        for _, run in self._runs(trainer) if self.paper else ():
            run.log({**self.paper, STEP: trainer.global_step})

    def _runs(self, trainer: Trainer) -> list[tuple[WandbLogger, Run]]:
        if not trainer.is_global_zero:
            return []
        loggers = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        return [(logger, logger.experiment) for logger in loggers]


def _write_report(run: Path, folder: Path) -> None:
    """The report of a run directory as a page, and its pictures as files."""
    # Named, not imported: the report lies above.
    report = import_module("graphzoo.report")
    made = report.build_report(report.group_records(report.find_records([relative(run)])))
    report.save_pictures(made, folder / "pictures", "png")
    (folder / "report.html").write_text(report.to_html(made), encoding="utf-8")


def _link(file: Path, place: Path) -> None:
    """A hard link to a file, which takes no space; a copy if the disk does not support links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


def wandb_values(table: Table) -> dict[str, Any]:
    """A table and its picture, as `run.log` takes them, under `evaluation/<name>` and names that begin so."""
    import wandb

    key = f"evaluation/{table.name}"
    values: dict[str, Any] = {key: wandb.Table(dataframe=table.data)}
    data = table.shown()
    if table.kind == "bars":
        if table.label and (data[table.label] == "both").any():
            data = data[data[table.label] == "both"]
        for name in table.y:
            rows = wandb.Table(dataframe=data[[table.x, name]])
            values[f"{key}_{name}"] = wandb.plot.bar(rows, table.x, name, title=f"{table.title}: {name}")
    elif table.kind == "histogram":
        edges = np.array([*data["from"], data["to"].iloc[-1]])
        for name in table.y:
            values[f"{key}_{name}"] = wandb.Histogram(np_histogram=(data[name].to_numpy(), edges))
    elif table.kind == "matrix":
        columns = {table.x: "Actual", table.y[0]: "Predicted", table.label: "nPredictions"}
        rows = wandb.Table(dataframe=data.rename(columns=columns)[list(columns.values())])
        fields = {name: name for name in columns.values()}
        values[f"{key}_plot"] = wandb.plot_table(_CONFUSION, rows, fields, {"title": table.title})
    elif table.kind in ("curve", "scatter"):
        draw = wandb.plot.line if table.kind == "curve" else wandb.plot.scatter
        rows = wandb.Table(dataframe=data[[table.x, table.y[0]]])
        values[f"{key}_plot"] = draw(rows, table.x, table.y[0], title=table.title)
    return values


def _data_facts(datamodule: Any) -> dict[str, int]:
    """Sizes of the graph and its split; of a DataModule that is not ours, what it says of them."""
    if (spec := getattr(datamodule, "spec", None)) is None:
        return {}
    facts = {"data/nodes": int(spec.num_nodes)}
    if hasattr(datamodule, "describe_split"):
        sizes = datamodule.describe_split()
    elif hasattr(datamodule, "triples"):
        sizes = {part: len(datamodule.triples(part)) for part in ("train", "valid", "test")}
    else:
        sizes = {}
    if hasattr(datamodule, "triples"):
        facts["data/relations"] = int(spec.num_relations)
    return facts | {f"data/{part}": int(sizes[part]) for part in ("train", "valid", "test") if part in sizes}


def without_folders(settings: Any) -> Any:
    """A resolved configuration whose loggers write to ".", as it was typed, not to this machine's folder."""
    if isinstance(settings, Mapping):
        cleaned = {name: without_folders(value) for name, value in settings.items()}
        folder = cleaned.get("save_dir")
        if isinstance(folder, str | os.PathLike) and Path(folder).is_absolute():
            cleaned["save_dir"] = "."
        return cleaned
    return [without_folders(value) for value in settings] if isinstance(settings, list | tuple) else settings


def checkout_commit(root: Path) -> str | None:
    """The commit of a checkout, with "-dirty" if its files differ from it; None if there is none."""
    if not (root / ".git").exists():
        return None
    try:
        describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        command = ["git", "--no-optional-locks", "-C", str(root), *describe]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (str, int, float, bool, type(None), list, tuple)
    return {name: value if isinstance(value, kinds) else str(value) for name, value in settings.items()}
