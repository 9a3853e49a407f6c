"""LightningCLI with graphzoo's defaults: run directories, checkpoints, results, and errors of a few lines."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import (
    Callback,
    Checkpoint,
    DeviceStatsMonitor,
    EarlyStopping,
    LambdaCallback,
    LearningRateMonitor,
    ProgressBar,
)
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from graphzoo import __version__
from graphzoo import callbacks as own
from graphzoo.callbacks.averaging import WarmupEMAWeightAveraging  # noqa: F401  named by --trainer.callbacks
from graphzoo.callbacks.wandb_run import without_folders
from graphzoo.catalog.presets import read_header
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import run_of
from graphzoo.runs.directory import (
    choose_run_directory,
    is_child,
    missing_folders,
    name_of_data,
    own_rank,
    write_config,
)
from graphzoo.runs.lock import RunLock
from graphzoo.system.paths import relative, typed
from graphzoo.system.shown import tell
from graphzoo.system.units import counted
from graphzoo.tasks.base import Task
from graphzoo.training import resume
from graphzoo.training.callbacks import Began, FitsMemory, Monitor, callbacks_of, checkpoints_of
from graphzoo.training.dry_run import DRY_SETTINGS, DryRun
from graphzoo.training.loggers import loggers_of, place_loggers, without_repeated
from graphzoo.training.parser_errors import GraphzooParser
from graphzoo.training.plan import RunState, draw_seed
from graphzoo.training.results import Evaluated, report_results
from graphzoo.training.settings import check_trainer, follow_seed, own_seeds, refuse_nulls, refuse_spawned

TRAINER_DEFAULTS = {
    # The DataModule deals the batches to the ranks itself, without repeats.
    "use_distributed_sampler": False,
    "enable_model_summary": False,
    "log_every_n_steps": 10,
}


class GraphzooCLI(LightningCLI):
    """A command line that has been planned by the pre-pass."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        plan = self.plan = state.plan
        self.run_dir = Path()
        self.checkpoint: dict[str, Any] | None = None
        self._guard: resume.ResumeGuard | None = None
        self._config_text = ""
        self._plain: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._began = time.perf_counter()
        self._wrote = False
        settings = {"parser_mode": "omegaconf+", "allow_abbrev": False, "dump_header": _header(state)}
        words = {"command_line": state.arguments, "options": [], "own_seeds": own_seeds(plan)}
        super().__init__(
            # With this command line's words: a class of its own, as two runs do not share them.
            parser_class=type("GraphzooParser", (GraphzooParser,), words),
            # The parser of the subcommand does not inherit the main one's settings.
            parser_kwargs={**settings, plan.command: dict(settings)},
            trainer_defaults=dict(TRAINER_DEFAULTS),
            save_config_callback=None,
            seed_everything_default=0,
            # Plain hyperparameters: the same checkpoint as from Python, naming no class that loading imports.
            load_from_checkpoint_support=False,
            args=[plan.command, *state.arguments],
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Only this command, since each parser takes time, with the Trainer arguments that it leaves out.

        `weights_only` is left out because checkpoints are always read as plain values.
        """
        loaders = {"dataloaders", "train_dataloaders", "val_dataloaders"}
        return {self.plan.command: {"model", "datamodule", "weights_only", "verbose"} | loaders}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what the pre-pass made, whatever `sys.argv` says; then everything follows the one seed."""
        options = self._subcommand_parsers[self.plan.command]._option_string_actions
        assert isinstance(parser, GraphzooParser)
        type(parser).options = [name for name in options if name.startswith("--")]
        self.config = parser.parse_args(args)
        config = self.config[self.plan.command]
        if config.seed_everything is True:
            config.seed_everything = draw_seed()
        follow_seed(config, parser.own_seeds)
        self._plain = self._plain_config()

    def _parse_ckpt_path(self) -> None:
        """Compare with the checkpoint instead of letting its settings win without a word."""
        if self.plan.checkpoint is None:
            return
        self.checkpoint, self._guard = resume.compare(self.plan, self.plan.checkpoint, self._plain)
        if self.plan.resume or self.plan.command != "fit":
            run = run_of(self.plan.checkpoint)
            self.state.resumed = (
                read_header(run / "config.yaml").get("resumed", "") if run is not None else ""
            )
        if self.plan.resume and self._guard is not None and self._guard.changed and not self.state.resumed:
            self.state.resumed = f"with other settings after epoch {resume.finished_epochs(self.checkpoint)}"

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

    def _plain_config(self) -> dict[str, Any]:
        """The configuration of this command as plain values; it was found valid when it was parsed."""
        parser, config = self._parser(self.plan.command), self.config[self.plan.command]
        text = parser.dump(config, skip_unset=False, skip_validation=True, skip_link_targets=False)
        loaded: dict[str, Any] = yaml.safe_load(text)
        return loaded

    def before_instantiate_classes(self) -> None:
        """Choose the run directory and point loggers to it."""
        config = self._plain
        refuse_nulls(config)
        task = str((config.get("model") or {}).get("class_path") or "").rpartition(".")[2]
        self.state.model = self.state.model or _model_name(config)
        self.state.data = self.state.data or _data_name(config)
        path = ((config.get("data") or {}).get("init_args") or {}).get("path")
        self.state.data_name = name_of_data(self.state.data, path)
        self._names = {**self.state.names, "data": self.state.data_name, "task": task}
        # A configuration that is used again must neither resume nor claim the same directory.
        parser = self._parser(self.plan.command)
        parser.dump_header = _header(self.state)
        trainer = self.config[self.plan.command].trainer
        if self.plan.resume:
            named = [used.removeprefix("logger ") for used in self.plan.used if used.startswith("logger ")]
            newest = any(word.startswith("--trainer.logger.") for word in self.plan.typed)
            trainer.logger = without_repeated(trainer.get("logger"), named, newest=newest)
        saved = self.config[self.plan.command].clone()
        saved["ckpt_path"] = None
        self._config_text = self._with_left_out(parser.dump(saved, skip_unset=False, skip_validation=True))
        wanted = self.plan.run_dir
        if self.plan.command != "fit" and wanted is not None and wanted == self.plan.source_run:
            wanted = None  # it said where the checkpoint is
        self.run_dir = choose_run_directory(
            self.state.model, self.state.data, wanted=wanted, resume=self.plan.resume
        )
        self.state.run_dir = self.run_dir
        self.state.missing = missing_folders(self.run_dir)
        if self.plan.resume:
            self.state.events = set((self.run_dir / "tensorboard").glob("events.*"))
        if self.plan.dry_run:
            trainer.logger = False  # some write when they are made, or need to know where
        else:
            if self.run_dir.is_dir():
                self._lock()
            loggers = trainer.get("logger")
            place_loggers(loggers, self.run_dir, self.state, self._names)
            self._plain = self._plain_config() if loggers else self._plain

    def _with_left_out(self, text: str) -> str:
        """A resumed run's config.yaml, with the old values of what was not read without `--trust`."""
        config = yaml.safe_load(text)
        kept = {
            name: value
            for name, value in self.state.left_out.items()
            if config["trainer"].get(name) in (None, "auto")  # not given anew
        }
        if not self.plan.resume or not kept:
            return text
        config["trainer"] |= kept
        header = self._header_text()
        return header + yaml.safe_dump(config, sort_keys=False)

    def _lock(self) -> None:
        """Become the one writer of the run directory; the first process does so for all of them."""
        if is_child() or own_rank():
            return
        if self.state.lock is None:
            self.state.lock = RunLock(self.run_dir)
        self.state.lock.take()

    def instantiate_classes(self) -> None:
        """Make model, data and trainer; the model no larger than the checkpoint that it is to get."""
        super().instantiate_classes()
        if self.checkpoint is not None and isinstance(self.model, Task):
            self.model.expect_weights(self.checkpoint["state_dict"])
            self.model.start_from = None  # those have gone into the checkpoint

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The Trainer with graphzoo's loggers and callbacks around the user's."""
        config = {**self._get(self.config_init, "trainer", default={}), **kwargs}
        check_trainer(config)
        config["logger"] = loggers_of(config.get("logger"), self.run_dir)
        if config.get("default_root_dir") is None:
            config["default_root_dir"] = str(self.run_dir)
        given = config.get("callbacks") or []
        given = list(given) if isinstance(given, list) else [given]
        if self.plan.dry_run:
            timer = DryRun(config, self.state)
            extra = [Monitor(), own.Throughput(), own.NanGuard(), Began(self.state), timer]
            # What would stop it, write, or need the logger or the bar that a dry run has not.
            unfit = EarlyStopping | Checkpoint | LearningRateMonitor | DeviceStatsMonitor | ProgressBar
            # The budget says how long the run is; it stops no dry run before its end.
            given = [c for c in given if isinstance(c, own.QueryBudget) or not isinstance(c, unfit)]
            config |= DRY_SETTINGS
        else:
            # By then weights, callbacks, data and optimiser have been compared; nothing is logged yet.
            write = LambdaCallback(on_train_start=lambda *_: self._write())
            extra = [write, *callbacks_of(self.state, self.run_dir, config, given, self._names)]
            if self.plan.command == "fit":
                extra += checkpoints_of(self.model, self.run_dir, config)
                # Where a run has ended is known once callbacks and data are set up.
                told = LambdaCallback(on_fit_start=lambda *_: self._tell_resumed())
                extra += [self._guard, told] if self._guard is not None else []
        trainer = self._instantiate_trainer({**config, "callbacks": [FitsMemory(), *given]}, extra)
        if not self.plan.dry_run:
            refuse_spawned(trainer)
            self.state.device = trainer.strategy.root_device.type
        set_matmul_precision(self.plan.matmul_precision, trainer.strategy.root_device)
        return trainer

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        arguments = super()._prepare_subcommand_kwargs(subcommand)
        arguments["weights_only"] = True
        if subcommand != "fit":
            arguments["verbose"] = False
        return arguments

    def before_fit(self) -> None:
        """Begin the run directory."""
        self._check_length()
        if self.plan.dry_run or not self.trainer.is_global_zero:
            return
        self._lock()
        if self._guard is None:  # else when it has compared the data
            self._write()
        if not self.plan.quiet:
            used = ", ".join(self.plan.used) or "your configuration"
            tell(f"graphzoo {self.plan.command}: {used}; writes {relative(self.run_dir)}\n")

    def _check_length(self) -> None:
        """In every process: refuse to end a run before where its checkpoint is, or to begin one there."""
        if self.plan.command != "fit" or self.checkpoint is None:
            return
        done, most = resume.finished_epochs(self.checkpoint), self.trainer.max_epochs
        if most is None or not 0 <= most <= done:
            return
        here, there = relative(self.run_dir), relative(Path(str(self.plan.checkpoint)))
        if getattr(self.trainer, "fast_dev_run", False):
            raise UsageError(
                f"--trainer.fast_dev_run runs one epoch, and {there} has had {counted(done, 'epoch')}\n"
                "Leave one of the two out"
            )
        if self.plan.resume and most < done:
            raise UsageError(
                f"{here}: training is past epoch {done}, and --trainer.max_epochs is {most}\n"
                f"Give more than {done}, or test it: graphzoo test {typed(self.run_dir)}"
            )
        if not self.plan.resume:
            raise UsageError(
                f"{here}: nothing is left to train, as {there} has had {counted(done, 'epoch')} "
                f"and --trainer.max_epochs is {most}\nGive {done + 1} or more"
            )

    def _tell_resumed(self) -> None:
        """From where a run goes on, or that it has come to its end."""
        if self.plan.quiet or self.checkpoint is None or not self.trainer.is_global_zero:
            return
        done, most = resume.finished_epochs(self.checkpoint), self.trainer.fit_loop.max_epochs
        ended = self._guard.ended_by if self._guard is not None else None
        run = relative(self.run_dir)
        if most is not None and 0 <= most <= done:
            tell(f"{run} has finished its {counted(done, 'epoch')}; --trainer.max_epochs N trains on\n")
        elif ended is not None and done >= (self.trainer.min_epochs or 0):
            remedy = "another threshold"
            if isinstance(ended, own.QueryBudget):
                remedy = "--trainer.max_epochs N"
            elif ended.wait_count >= ended.patience:
                remedy = (
                    f"a patience above {ended.wait_count} (--trainer.callbacks.patience, or in config.yaml)"
                )
            by = f"{type(ended).__name__} after {counted(done, 'epoch')}"
            tell(f"{run} was ended by {by}; {remedy} trains on\n")
        else:
            tell(f"resumes after epoch {done}\n" if done else "resumes in epoch 1\n")

    def before_validate(self) -> None:
        """Begin the run directory; say so where the evaluated weights are untrained."""
        self.before_fit()
        heuristic = self.state.model.startswith("heuristic.")  # has nothing to train
        has_weights = self.plan.checkpoint is not None or self.plan.weights
        if not has_weights and not heuristic and self.trainer.is_global_zero:
            tell(f"graphzoo {self.plan.command}: no --ckpt_path, so these are untrained weights\n")

    before_test = before_validate

    def _write(self) -> None:
        """Write the settings; of a resumed run, drop the values that it is about to log again.

        That one is left as it was until its checkpoint, data and optimiser have been found to fit.
        """
        if self._wrote or self.plan.dry_run or not self.trainer.is_global_zero:
            return
        self._wrote = True
        if self._guard is not None and self._guard.is_other_data:
            self._note_other_data()
        self.state.wrote = write_config(self.run_dir, self._config_text)
        for logger in self.trainer.loggers:
            logger.log_hyperparams({**self.state.names, "config": without_folders(self._plain)})
            if self.plan.resume and self.checkpoint is not None and isinstance(logger, own.MetricsFile):
                logger.forget_after(int(self.checkpoint.get("global_step", 0)) - 1)

    def _note_other_data(self) -> None:
        """In the first lines of config.yaml and in results.json."""
        before, known = self.state.resumed, self._header_text()
        if "other data" in before:
            return
        change = f"on other data after epoch {resume.finished_epochs(self.checkpoint or {})}"
        self.state.resumed = f"{before}, {change}" if before else change
        self._config_text = self._header_text() + self._config_text.removeprefix(known)

    def _header_text(self) -> str:
        return "".join(f"# {line}\n" for line in _header(self.state))

    def after_fit(self) -> None:
        """Test the best checkpoint and write results.json."""
        self._write()  # a resumed run that had come to its end has not trained
        if self._guard is not None and self._guard.ended_by is not None:
            epochs: Any = self.trainer.fit_loop.epoch_progress.current
            epochs.completed = epochs.processed  # as Lightning does where `max_epochs` ends the run
        if getattr(self.trainer, "fast_dev_run", False) or not self.plan.tests or self.plan.dry_run:
            return
        if not getattr(self.datamodule, "num_tested", True):
            if self.trainer.is_global_zero:
                tell("the data have no test samples, so the model was trained and not tested\n")
            return
        validated = {k: float(v) for k, v in self.trainer.callback_metrics.items() if k.startswith("val/")}
        files = [self.run_dir / "checkpoints" / name for name in ("best.ckpt", "last.ckpt")]
        if not self.trainer.checkpoint_callbacks:
            files = []  # existing files are older than this training
        if self._guard is not None and self._guard.is_other_data:
            kept = (one for one in self.trainer.checkpoint_callbacks if isinstance(one, own.BestCheckpoint))
            if all(one.best_model_score is None for one in kept):
                files = files[1:]  # the best one is of the data before
        chosen = next((path for path in files if path.is_file()), None)
        # One process decides: on a shared disk the others may not see the file yet.
        chosen = self.trainer.strategy.broadcast(chosen)
        if chosen is not None:
            self.checkpoint = read_checkpoint(chosen)
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
        """Write results.json and the table per relation, and print the metrics."""
        if self.trainer.is_global_zero:
            # without a checkpoint of its own a resumed training still holds the one that it began with
            evaluated = Evaluated(chosen, self.checkpoint if chosen is not None else None, validated)
            report_results(
                self.trainer, self.state, self.run_dir, self._plain, split, evaluated, began=self._began
            )
            callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
            for callback in callbacks if split == "test" else ():
                if isinstance(callback, own.WandbRun):
                    callback.keep_artifact(self.trainer, chosen)


def set_matmul_precision(wanted: str | None, device: torch.device) -> None:
    """Set torch's own switch: as asked, or "high" (TF32) for a run on CUDA; else it stays as it is.

    Tasks decode without TF32 all the same, see `Task.decode`.
    """
    if wanted is not None or device.type == "cuda":
        torch.set_float32_matmul_precision(wanted or "high")


def _header(state: RunState) -> list[str]:
    """The first lines of config.yaml."""
    names = [f"{key}: {name}" for key, name in state.names.items() if name]
    # what a resumed run keeps to
    kept = [] if state.plan.tests else ["test: no"]
    if state.resumed:
        kept.append(f"resumed: {state.resumed}")
    if state.plan.matmul_precision is not None:
        kept.append(f"matmul_precision: {state.plan.matmul_precision}")
    return [f"graphzoo {__version__}", *names, *kept]


def _model_name(config: dict[str, Any]) -> str:
    model = config.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder")
    path = encoder.get("class_path") if isinstance(encoder, dict) else encoder
    return str(path or model.get("class_path") or "model").rpartition(".")[2].lower()


def _data_name(config: dict[str, Any]) -> str:
    data = config.get("data") or {}
    usual = str(data.get("class_path") or "data").rpartition(".")[2].lower()
    return str((data.get("init_args") or {}).get("name") or usual)
