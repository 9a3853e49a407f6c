"""Runs that are resumed with another number of processes, and errors in one process.

tests/tasks/test_process_resume.py starts `process_resume.py FOLDER` with the environment variables of
torchrun, and calls `go_on` for the single process.
"""

import json
import math
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from graphzoo.callbacks import LastCheckpoint, NanGuard
from graphzoo.errors import NonFiniteError, UsageError
from helpers.process_jobs import _MAKE as MAKE
from helpers.process_jobs import write_data

# Job: batches that a single process accumulates; each of W processes accumulates 1/W of them.
CASES = {"kg-bce": 1, "links-galit": 1, "nodes-parts": 6}
EPOCHS = 2
STOPS = ("inside", "end")
BROKEN = ("loss", "scores")


class Keep(Callback):
    """Copies the checkpoints from the start of the second epoch and of its second step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _copy(self, trainer: Trainer, name: str) -> None:
        if trainer.is_global_zero and not (self.folder / f"{name}.ckpt").exists():
            shutil.copy(self.folder / "last.ckpt", self.folder / f"{name}.ckpt")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx == trainer.accumulate_grad_batches:
            self._copy(trainer, "inside")

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            self._copy(trainer, "end")


class BreakOne(Callback):
    """Sets all weights to NaN in the last process only."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def _break(self, trainer, pl_module):
        if trainer.global_rank == trainer.world_size - 1:
            for parameter in pl_module.parameters():
                parameter.data.fill_(math.nan)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.kind == "loss" and trainer.global_step == 2:
            self._break(trainer, pl_module)

    def on_validation_start(self, trainer, pl_module):
        if self.kind == "scores":
            self._break(trainer, pl_module)


def train(
    name: str, folder: Path, world_size: int, run: Path, *, ckpt: Path | None = None, more: Any = ()
) -> dict[str, Any]:
    """The losses of all steps, and the samples of each step in this process."""
    task, datamodule = MAKE[name](folder, world_size)
    losses: list[float] = []
    seen: list[list[Any]] = []
    log, step = task.log_training, task.training_step

    def note(name: str, value: torch.Tensor) -> None:
        if name == "train/loss":
            losses.append(float(value))
        log(name, value)

    def note_samples(batch: Any, batch_idx: int) -> torch.Tensor:
        index = batch.target if name.startswith("nodes") else batch.index
        if getattr(batch, "index", None) is not None and name.startswith("nodes"):
            index = batch.index[batch.target]
        seen.append([task.trainer.global_step, sorted(index.tolist())])
        return step(batch, batch_idx)

    task.log_training, task.training_step = note, note_samples
    seed_everything(0, verbose=False)
    trainer = Trainer(
        # in float32, Adam amplifies rounding differences of sums in another order
        max_epochs=EPOCHS, precision="64-true", accelerator="cpu", devices=world_size,
        strategy="ddp" if world_size > 1 else "auto",
        accumulate_grad_batches=max(1, CASES[name] // world_size),
        callbacks=[NanGuard(), *more, *([] if ckpt else [LastCheckpoint(run, minutes=0, seconds=0)])],
        # Lightning's checkpoints would be in the current folder
        enable_checkpointing=not ckpt, logger=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(task, datamodule=datamodule, ckpt_path=ckpt)
    return {"losses": losses, "seen": seen}


def whole(folder: Path, world_size: int) -> dict[str, Any]:
    """Uninterrupted runs."""
    found = {}
    for name in CASES:
        run = folder / f"run-{world_size}-{name}"
        found[name] = train(name, folder, world_size, run, more=[Keep(run)])
    return found


def go_on(folder: Path, world_size: int, before: int) -> dict[str, Any]:
    """Resume the runs of `before` processes with `world_size` processes; a refusal is returned as text."""
    found: dict[str, Any] = {}
    for name in CASES:
        for stop in STOPS:
            ckpt = folder / f"run-{before}-{name}" / f"{stop}.ckpt"
            if not ckpt.exists():
                continue
            run = folder / f"on-{world_size}-{name}-{stop}"
            try:
                found[f"{name} {stop}"] = train(name, folder, world_size, run, ckpt=ckpt)
            except UsageError as error:
                found[f"{name} {stop}"] = {"refused": str(error)}
    return found


def break_one(folder: Path, world_size: int) -> dict[str, str]:
    """The errors in this process if one process finds a number that is not finite."""
    found = {}
    for kind in BROKEN:
        try:
            train("kg-bce", folder, world_size, folder / f"broken-{kind}", more=[BreakOne(kind)])
        except NonFiniteError as error:
            found[kind] = str(error)
    return found


def main(folder: Path) -> None:
    """Run one of several processes; the files of the single process must exist."""
    warnings.filterwarnings("ignore")
    world_size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    found = {
        "whole": whole(folder, world_size),
        "on": go_on(folder, world_size, 1),
        "broken": break_one(folder, world_size),
    }
    Path(folder / f"found-{rank}.json").write_text(json.dumps(found))


def prepare(folder: Path) -> None:
    """Write the data of all jobs."""
    write_data(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
