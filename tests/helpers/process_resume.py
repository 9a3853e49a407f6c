"""Runs that go on with another number of processes, and what stops all of them: `process_resume.py FOLDER`.

Started as torchrun starts its processes, see tests/tasks/test_process_resume.py; the single process calls
`go_on` itself.
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

# what is trained -> items that one process accumulates, while W of them accumulate a W-th
CASES = {"kg-bce": 1, "links-galit": 1, "nodes-parts": 6}
EPOCHS = 2
STOPS = ("inside", "end")
BROKEN = ("loss", "scores")


class Keep(Callback):
    """Copies the checkpoint with which the second step of the second epoch, and that epoch, begin."""

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
    """Turns a weight into NaN in the last process alone."""

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
    """The losses of the steps, and which samples each of them had in this process."""
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
        # in single precision Adam enlarges the last bits of sums that are cut at other places
        max_epochs=EPOCHS, precision="64-true", accelerator="cpu", devices=world_size,
        strategy="ddp" if world_size > 1 else "auto",
        accumulate_grad_batches=max(1, CASES[name] // world_size),
        callbacks=[NanGuard(), *more, *([] if ckpt else [LastCheckpoint(run, minutes=0, seconds=0)])],
        # Lightning's own would land in the current folder
        enable_checkpointing=not ckpt, logger=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(task, datamodule=datamodule, ckpt_path=ckpt)
    return {"losses": losses, "seen": seen}


def whole(folder: Path, world_size: int) -> dict[str, Any]:
    """The runs that nothing stops."""
    found = {}
    for name in CASES:
        run = folder / f"run-{world_size}-{name}"
        found[name] = train(name, folder, world_size, run, more=[Keep(run)])
    return found


def go_on(folder: Path, world_size: int, before: int) -> dict[str, Any]:
    """The runs of `before` processes gone on with by others; a refusal is its text."""
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
    """What every process says where one of them finds a bad number."""
    found = {}
    for kind in BROKEN:
        try:
            train("kg-bce", folder, world_size, folder / f"broken-{kind}", more=[BreakOne(kind)])
        except NonFiniteError as error:
            found[kind] = str(error)
    return found


def main(folder: Path) -> None:
    """What one of several processes does; the files of the single process are there already."""
    warnings.filterwarnings("ignore")
    world_size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    found = {
        "whole": whole(folder, world_size),
        "on": go_on(folder, world_size, 1),
        "broken": break_one(folder, world_size),
    }
    Path(folder / f"found-{rank}.json").write_text(json.dumps(found))


def prepare(folder: Path) -> None:
    """The data that all of them read."""
    write_data(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
