"""LightningCLI with graphzoo's defaults: run directories, checkpoints, results, and errors of a few lines."""

from __future__ import annotations

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import MethodType
from typing import Any

import jsonargparse
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import (
    Checkpoint,
    DeviceStatsMonitor,
    EarlyStopping,
    LearningRateMonitor,
    ProgressBar,
    WeightAveraging,
)
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from graphzoo import __version__
from graphzoo import callbacks as own
from graphzoo.callbacks.averaging import WarmupEMAWeightAveraging  # noqa: F401  named by --trainer.callbacks
from graphzoo.callbacks.summary import RunSummary
from graphzoo.callbacks.wandb_run import without_folders
from graphzoo.catalog.settings import read_settings
from graphzoo.checkpoints.checks import check_lightning_version, check_resumable
from graphzoo.errors import UsageError
from graphzoo.runs.directory import choose_run_directory, is_child, missing_folders, own_rank, write_config
from graphzoo.runs.lock import RunLock
from graphzoo.runs.published import published_values
from graphzoo.system.paths import relative
from graphzoo.system.shown import tell
from graphzoo.tasks.base import Task
from graphzoo.training import resume
from graphzoo.training.callbacks import Artifacts, Began, GoesOn, Monitor
from graphzoo.training.dry_run import DRY_SETTINGS, DryRun
from graphzoo.training.parser import GraphzooParser
from graphzoo.training.plan import Plan, draw_seed
from graphzoo.training.results import Judged, report_results
from graphzoo.training.trust import refuse_nulls

__all__ = ["GraphzooCLI"]

COMMANDS = ("fit", "validate", "test")
TRAINER_DEFAULTS = {
    # The DataModule deals the batches to the ranks itself, without repeats.
    "use_distributed_sampler": False,
    "enable_model_summary": False,
    "log_every_n_steps": 10,
}


class GraphzooCLI(LightningCLI):
    """A command line that has been planned by the pre-pass.

    Args:
        plan: What the command line asks for.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.run_dir = Path()
        self.checkpoint: dict[str, Any] | None = None
        self._guard: resume.ResumeGuard | None = None
        self._config_text = ""
        self._began = time.perf_counter()
        self._wrote = False
        header = [f"graphzoo {__version__}", *_names_header(plan)]
        settings = {"parser_mode": "omegaconf+", "allow_abbrev": False, "dump_header": header}
        super().__init__(
            parser_class=_parser_class(plan),
            # The parsers of the subcommands do not inherit the main one's settings.
            parser_kwargs={**settings, **{command: dict(settings) for command in COMMANDS}},
            trainer_defaults=dict(TRAINER_DEFAULTS),
            save_config_callback=None,
            seed_everything_default=0,
            # Plain hyperparameters: the same checkpoint as from Python, naming no class that loading imports.
            load_from_checkpoint_support=False,
            args=[plan.command, *plan.arguments],
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Commands and the Trainer arguments they do not offer: checkpoints are read as plain values."""
        skipped = {"model", "datamodule", "weights_only", "verbose"}
        return {
            "fit": skipped | {"train_dataloaders", "val_dataloaders"},
            "validate": skipped | {"dataloaders"},
            "test": skipped | {"dataloaders"},
        }

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what the pre-pass made, whatever `sys.argv` says; then everything follows the one seed."""
        options = self._subcommand_parsers[self.plan.command]._option_string_actions
        assert isinstance(parser, GraphzooParser)
        type(parser).options = [name for name in options if name.startswith("--")]
        self.config = parser.parse_args(args)
        config = self.config[self.plan.command]
        if config.seed_everything is True:
            config.seed_everything = draw_seed()
        seed = int(config.seed_everything)
        # A printed configuration holds its own seed for data and task, which a new --seed has to replace.
        for section in ("data", "model"):
            arguments = (config.get(section) or {}).get("init_args") or {}
            if self.plan.seed is not None and "seed" in arguments and not self.plan.names(f"{section}.seed"):
                arguments["seed"] = seed

    def _parse_ckpt_path(self) -> None:
        """Compare with the checkpoint instead of letting its settings win without a word."""
        if self.plan.checkpoint is None:
            return
        self.checkpoint = resume.read_checkpoint(self.plan.checkpoint)
        check_lightning_version(self.checkpoint, self.plan.checkpoint)
        trained = None
        if self.plan.source_run is not None:
            trained = read_settings(self.plan.source_run / "config.yaml")
            if not isinstance(trained, dict):
                raise UsageError(f"{self.plan.source_run / 'config.yaml'} holds no settings")
        found = resume.differences(self.checkpoint, self.plain_config(), trained)
        if self.plan.command != "fit":
            resume.check_shape(found, self.plan.checkpoint)
            return
        check_resumable(self.checkpoint, self.plan.checkpoint)
        resume.check_resume(found, self.plan.checkpoint, override=self.plan.override)
        self._guard = resume.make_guard(self.checkpoint, found, override=self.plan.override)

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Make the optimiser of `--optimizer` when the Trainer asks: a task has no weights before."""
        if not subcommand or not self._get(self.config_init, "optimizer"):
            if subcommand and self._get(self.config_init, "lr_scheduler"):
                raise UsageError(
                    "--lr_scheduler is for an --optimizer of your own; the task's has its milestones\n"
                    "Give --optimizer NAME --optimizer.lr RATE too, or --model.lr_milestones instead"
                )
            return
        add = super()._add_configure_optimizers_method_to_model

        def configure_optimizers(task: Any) -> Any:
            del task.configure_optimizers  # this one; Lightning then puts its own in place
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*will be overridden.*")  # as the user asked
                add(subcommand)
            return task.configure_optimizers()

        self.model.configure_optimizers = MethodType(configure_optimizers, self.model)

    def plain_config(self) -> dict[str, Any]:
        """The configuration of this command as plain values."""
        parser = self._parser(self.plan.command)
        text = parser.dump(self.config[self.plan.command], skip_unset=False, skip_link_targets=False)
        loaded: dict[str, Any] = yaml.safe_load(text)
        return loaded

    def before_instantiate_classes(self) -> None:
        """Choose the run directory and point loggers to it."""
        config = self.plain_config()
        refuse_nulls(config)
        self.plan.model = self.plan.model or _model_name(config)
        self.plan.data = self.plan.data or _data_name(config)
        # A configuration that is used again must neither resume nor claim the same directory.
        parser = self._parser(self.plan.command)
        parser.dump_header = [f"graphzoo {__version__}", *_names_header(self.plan)]
        saved = self.config[self.plan.command].clone()
        saved["ckpt_path"] = None
        self._config_text = parser.dump(saved, skip_unset=False)
        wanted = self.plan.run_dir
        if self.plan.command != "fit" and wanted is not None and wanted == self.plan.source_run:
            wanted = None  # it said where the checkpoint is
        self.run_dir = choose_run_directory(
            self.plan.model, self.plan.data, wanted=wanted, resume=self.plan.resume
        )
        self.plan.missing = missing_folders(self.run_dir)
        if self.plan.resume:
            self.plan.events = set((self.run_dir / "tensorboard").glob("events.*"))
        if not self.plan.dry_run:
            if self.run_dir.is_dir():
                self._lock()
            self._place_loggers()

    def _lock(self) -> None:
        """Become the one writer of the run directory; the first process does so for all of them."""
        if is_child() or own_rank():
            return
        if self.plan.lock is None:
            self.plan.lock = RunLock(self.run_dir)
        self.plan.lock.take()

    def _place_loggers(self) -> None:
        loggers = self.config[self.plan.command].trainer.get("logger")
        for logger in loggers if isinstance(loggers, list) else [loggers]:
            arguments = logger.get("init_args") if isinstance(logger, jsonargparse.Namespace) else None
            if arguments is None:
                continue
            if "save_dir" in arguments and arguments["save_dir"] in (None, "."):
                self.run_dir.mkdir(parents=True, exist_ok=True)
                arguments["save_dir"] = str(self.run_dir)
            if "WandbLogger" in str(logger.get("class_path")):
                self._place_wandb(arguments)

    def _place_wandb(self, arguments: jsonargparse.Namespace) -> None:
        """Name, group and tags of the run at Weights & Biases; a resumed run goes on in its own."""
        from graphzoo.callbacks.wandb_run import remembered_id

        plan = self.plan
        ours = {
            "group": f"{plan.model}-{plan.data}",
            "tags": [f"{key}:{name}" for key, name in self._names().items() if name],
            "job_type": plan.command,
        }
        for name, value in ours.items():
            if name in arguments and arguments[name] is None:  # arguments of wandb.init
                arguments[name] = value
        if arguments.get("save_dir") is not None:
            # W&B's own process may have begun in another folder.
            arguments["save_dir"] = str(Path(arguments["save_dir"]).absolute())
        if arguments.get("name") is None:
            arguments["name"] = f"{plan.model}-{plan.data}-{self.run_dir.name}"
        if plan.resume and arguments.get("id") is None and arguments.get("version") is None:
            arguments["id"] = remembered_id(self.run_dir, arguments.get("project"), arguments.get("entity"))

    def _published(self) -> dict[str, float]:
        """The paper's test figures, where the recipe names them."""
        plan = self.plan
        try:
            found = published_values(plan.model, plan.recipe, plan.data)
        except UsageError:  # the run names a recipe that is no longer there
            return {}
        return {name: published.value for name, published in found.items()}

    def _names(self) -> dict[str, str]:
        """Model, data, recipe and task, as far as they have names."""
        task = (self.plain_config().get("model") or {}).get("class_path") or ""
        return {
            "model": self.plan.model,
            "data": self.plan.data,
            "recipe": self.plan.recipe,
            "task": str(task).rpartition(".")[2],
        }

    def instantiate_classes(self) -> None:
        """Make model, data and trainer; the model no larger than the checkpoint that it is to get."""
        super().instantiate_classes()
        if self.checkpoint is not None and isinstance(self.model, Task):
            self.model.expect_weights(self.checkpoint["state_dict"])

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The Trainer with graphzoo's loggers and callbacks around the user's."""
        config = {**self._get(self.config_init, "trainer", default={}), **kwargs}
        for divisor in ("check_val_every_n_epoch", "accumulate_grad_batches"):
            if (number := config.get(divisor)) is not None and number < 1:
                raise UsageError(f"--trainer.{divisor} must be at least 1, got {number}")
        config["logger"] = self._loggers(config.get("logger"))
        if config.get("default_root_dir") is None:
            config["default_root_dir"] = str(self.run_dir)
        given = config.get("callbacks") or []
        given = list(given) if isinstance(given, list) else [given]
        if sum(isinstance(callback, WeightAveraging) for callback in given) > 1:
            raise UsageError(
                "the weights are averaged by two callbacks; the recipe may have one\n"
                "Change its options (--trainer.callbacks.decay=0.99) or begin with --trainer.callbacks=null"
            )
        if self.plan.dry_run:
            timer = DryRun(config, self.plan)
            extra = [Monitor(), own.Throughput(), own.NanGuard(), Began(self.plan), timer]
            # What would stop it, write, or need the logger or the bar that a dry run has not.
            unfit = EarlyStopping | Checkpoint | LearningRateMonitor | DeviceStatsMonitor | ProgressBar
            # The budget says how long the run is; it stops no dry run before its end.
            given = [c for c in given if isinstance(c, own.QueryBudget) or not isinstance(c, unfit)]
            return self._instantiate_trainer({**config, **DRY_SETTINGS, "callbacks": given}, extra)
        extra = self._callbacks(config, given)
        return self._instantiate_trainer({**config, "callbacks": given}, extra)

    def _loggers(self, given: Any) -> Any:
        if given is False:
            return False
        metrics = own.MetricsFile(self.run_dir)
        if given is None or given is True:
            if find_spec("tensorboard") is None:
                return [metrics]
            from lightning.pytorch.loggers import TensorBoardLogger

            return [
                metrics,
                TensorBoardLogger(self.run_dir, name="tensorboard", version="", default_hp_metric=False),
            ]
        return [metrics, *(given if isinstance(given, list | tuple) else [given])]

    def _callbacks(self, config: dict[str, Any], given: list[Callback]) -> list[Callback]:
        found: list[Callback] = [
            GoesOn(self._write),
            Monitor(),
            own.Throughput(),
            own.NanGuard(),
            Began(self.plan),
            *self.plan.callbacks,
        ]
        tests = self.plan.tests and not self.plan.dry_run
        if self.plan.leaves_graph and not self.plan.dry_run:
            found.append(Artifacts(self.run_dir / "graph"))
        if tests or self.plan.command == "test":
            found.append(own.EvaluationFiles(self.run_dir))
        if any(type(logger).__name__ == "WandbLogger" for logger in config["logger"] or []):
            if self.plan.quiet:
                import wandb

                wandb.setup()  # reads WANDB_SILENT; before it, wandb warns of what Lightning's logger passes
            found.append(own.WandbRun(self.run_dir, self._names(), self._published()))
        if config["logger"] is not False and self.plan.command == "fit":
            found += [LearningRateMonitor(logging_interval="epoch"), own.Diagnostics()]
        if self.plan.quiet:
            config["enable_progress_bar"] = False
        if config.get("enable_progress_bar") is not False and self.plan.command == "fit":
            found += [RunSummary(), own.EpochLines()]
        if config.get("enable_progress_bar") is None and not any(isinstance(c, ProgressBar) for c in given):
            if sys.stdout.isatty():
                found.append(own.ProgressBar())
            else:
                config["enable_progress_bar"] = False
        if self.plan.command != "fit":
            return found
        if config.get("enable_checkpointing") is not False and not config.get("fast_dev_run"):
            directory = self.run_dir.absolute() / "checkpoints"
            if hasattr(self.model, "monitor"):
                found.append(own.BestCheckpoint(directory, mode=getattr(self.model, "mode", "max")))
            found.append(own.LastCheckpoint(directory))
        if self._guard is not None:
            found.append(self._guard)
        return found

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        arguments = super()._prepare_subcommand_kwargs(subcommand)
        arguments["weights_only"] = True
        if subcommand != "fit":
            arguments["verbose"] = False
        return arguments

    def before_fit(self) -> None:
        """Begin the run directory."""
        self._begin()

    def before_validate(self) -> None:
        """Begin the run directory."""
        self._begin()
        self._warn_of_untrained()

    def before_test(self) -> None:
        """Begin the run directory."""
        self._begin()
        self._warn_of_untrained()

    def _warn_of_untrained(self) -> None:
        """Say so where nothing was trained that is judged; a heuristic has nothing to train."""
        heuristic = self.plan.model.startswith("heuristic.")
        if self.plan.checkpoint is None and not heuristic and self.trainer.is_global_zero:
            tell(f"graphzoo {self.plan.command}: no --ckpt_path, so these are untrained weights\n")

    def _begin(self) -> None:
        if self.plan.dry_run or not self.trainer.is_global_zero:
            return
        self._lock()
        if not self.plan.resume:
            self._write()
        used = ", ".join(self.plan.used) or "your configuration"
        if self.plan.quiet:
            return
        tell(f"graphzoo {self.plan.command}: {used}; writes {relative(self.run_dir)}\n")

    def _write(self) -> None:
        """Write the settings; of a run that goes on, drop the figures that it is about to log again.

        That one is left as it was until its checkpoint, data and optimiser have been found to fit.
        """
        if self._wrote or self.plan.dry_run or not self.trainer.is_global_zero:
            return
        self._wrote = True
        self.plan.wrote = write_config(self.run_dir, self._config_text)
        settings = {"model": self.plan.model, "data": self.plan.data, "recipe": self.plan.recipe}
        for logger in self.trainer.loggers:
            logger.log_hyperparams({**settings, "config": without_folders(self.plain_config())})
            if self.plan.resume and self.checkpoint is not None and isinstance(logger, own.MetricsFile):
                logger.forget_after(int(self.checkpoint.get("global_step", 0)) - 1)

    def after_fit(self) -> None:
        """Test the best checkpoint and write results.json."""
        self._write()  # a resumed run that had come to its end has not trained
        if getattr(self.trainer, "fast_dev_run", False) or not self.plan.tests or self.plan.dry_run:
            return
        validated = {k: float(v) for k, v in self.trainer.callback_metrics.items() if k.startswith("val/")}
        best = self.run_dir / "checkpoints" / "best.ckpt"
        last = self.run_dir / "checkpoints" / "last.ckpt"
        chosen = next((path for path in (best, last) if path.is_file()), None)
        # One process decides: on a shared disk the others may not see the file yet.
        chosen = self.trainer.strategy.broadcast(chosen)
        if chosen is None:
            self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)
        else:
            self.checkpoint = resume.read_checkpoint(chosen)
            self.trainer.test(
                self.model, datamodule=self.datamodule, ckpt_path=chosen, verbose=False, weights_only=True
            )
        self._report("test", chosen, validated)

    def after_validate(self) -> None:
        """Write results.json."""
        self._report("val", self.plan.checkpoint, {})

    def after_test(self) -> None:
        """Write results.json."""
        self._report("test", self.plan.checkpoint, {})

    def _report(self, split: str, chosen: Path | None, validated: dict[str, float]) -> None:
        """Write results.json and the table per relation, and print the figures."""
        if self.trainer.is_global_zero:
            # without a checkpoint of its own a training that went on still holds the one that it began with
            judged = Judged(chosen, self.checkpoint if chosen is not None else None, validated)
            config = self.plain_config()
            report_results(self.trainer, self.plan, self.run_dir, config, split, judged, began=self._began)


def _parser_class(plan: Plan) -> type[GraphzooParser]:
    """The parser with this command line's words, as a class of its own: two runs do not share them."""
    return type("GraphzooParser", (GraphzooParser,), {"command_line": plan.arguments, "options": []})


def _names_header(plan: Plan) -> list[str]:
    names = {"model": plan.model, "data": plan.data, "recipe": plan.recipe}
    untested = [] if plan.tests else ["test: no"]  # what a resumed run keeps to
    return [f"{key}: {name}" for key, name in names.items() if name] + untested


def _model_name(config: dict[str, Any]) -> str:
    model = config.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder")
    path = (
        (encoder.get("class_path") if isinstance(encoder, dict) else encoder)
        or model.get("class_path")
        or "model"
    )
    return str(path).rpartition(".")[2].lower()


def _data_name(config: dict[str, Any]) -> str:
    data = config.get("data") or {}
    return str(
        (data.get("init_args") or {}).get("name")
        or str(data.get("class_path") or "data").rpartition(".")[2].lower()
    )
