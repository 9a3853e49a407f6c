"""Logs curves of optimisation and speed; they cost little and change no result."""

from __future__ import annotations

import logging
import math
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import PassThroughProfiler

from graphzoo.system.memory import is_out_of_memory

log = logging.getLogger(__name__)

_GIB = 2**30
# From this many steps on, an epoch takes much longer than the entropy of a few samples.
_MANY_BATCHES = 50


def is_milestone(epoch: int) -> bool:
    """Whether an epoch, counted from 0, is the first, second, fifth, tenth, twentieth, fiftieth, and so on.

    >>> [epoch + 1 for epoch in range(300) if is_milestone(epoch)]
    [1, 2, 5, 10, 20, 50, 100, 200]
    """
    return str(epoch + 1).rstrip("0") in ("1", "2", "5")


def peak_memory_gib(device: torch.device) -> float:
    """Peak memory so far: of torch on a GPU, otherwise the resident memory of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    try:
        import resource
    except ImportError:  # not on Windows
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB


class FetchTimer(PassThroughProfiler):
    """Sums the seconds in which training waits for batches; Lightning reports them only to profilers."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._began = 0.0

    def start(self, action_name: str) -> None:
        """Note the time."""
        if action_name.endswith(".train_dataloader_next"):
            self._began = time.perf_counter()

    def stop(self, action_name: str) -> None:
        """Add what went by."""
        if action_name.endswith(".train_dataloader_next"):
            self.seconds += time.perf_counter() - self._began


class Diagnostics(Callback):
    """Logs the learning rate, the norm of the gradient, seconds per step and per fetch, and peak memory.

    The names are `train/lr`, `train/grad_norm`, `train/step_seconds`, `train/data_seconds` and
    `train/peak_memory_gib`. They are logged every `log_every_n_steps` steps, like Lightning's loss, and at
    the end of milestone epochs: 1, 2, 5, 10, 20, 50, and so on. Times are means over the steps since the last
    of these rows. `train/attention_entropy` is measured in the validations of milestone epochs, and of all
    epochs with at least 50 batches. No random number is drawn, and no result changes.

    With a profiler of the user, `train/data_seconds` is left out.
    """

    def __init__(self) -> None:
        self._timer: FetchTimer | None = None
        self._seconds, self._steps = 0.0, 0
        self._began, self._stepped = 0.0, False
        self._grad_norm = self._rate = math.nan
        self._entropy: float | None = None
        self._measures = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Replace Lightning's default profiler, which does nothing, by a `FetchTimer`."""
        profiler = trainer.profiler  # type: ignore[attr-defined]
        if stage == "fit" and type(profiler) is PassThroughProfiler:
            self._timer = trainer.profiler = FetchTimer()  # type: ignore[attr-defined]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reset()
        self._measures = True

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._began = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Note the learning rate, and for logged steps the norm of the gradient before it is clipped."""
        self._stepped = True
        # at the end of an epoch it may be the next one's
        self._rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        is_last = trainer.is_last_batch and is_milestone(trainer.current_epoch)
        if not (is_last or self._is_row(trainer, trainer.global_step + 1)):
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if gradients:
            norms = torch.stack(torch._foreach_norm(gradients))
            self._grad_norm = float(torch.linalg.vector_norm(norms.float()))

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._seconds += time.perf_counter() - self._began
        if not self._stepped:  # a micro-batch
            return
        self._stepped = False
        self._steps += 1
        if self._is_row(trainer, trainer.global_step):
            self._log(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_milestone(trainer.current_epoch) and not self._is_row(trainer, trainer.global_step):
            self._log(trainer, pl_module)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        training = trainer.state.fn == "fit" and not trainer.sanity_checking
        due = is_milestone(trainer.current_epoch) or trainer.num_training_batches >= _MANY_BATCHES
        if training and due and not batch_idx:
            self._entropy = self._measure(pl_module, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        entropy, self._entropy = self._entropy, None
        if entropy is not None:
            pl_module.log("train/attention_entropy", entropy, sync_dist=False)

    def state_dict(self) -> dict[str, Any]:
        """The last norm: a run may be resumed between a step and its row."""
        return {"grad_norm": self._grad_norm}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._grad_norm = state_dict["grad_norm"]

    def _measure(self, pl_module: LightningModule, batch: Any) -> float | None:
        ask = getattr(pl_module, "attention_entropy", None)
        if ask is None or not self._measures:
            return None
        try:
            with torch.no_grad():
                measured = ask(batch)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self._measures = False
            log.warning("not enough memory for train/attention_entropy: it is left out from now on")
            return None
        return None if measured is None else float(measured.mean())

    def _log(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = {"train/peak_memory_gib": peak_memory_gib(pl_module.device)}
        if not math.isnan(self._rate):
            values["train/lr"] = self._rate
        if not math.isnan(self._grad_norm):
            values["train/grad_norm"] = self._grad_norm
        if self._steps:
            values["train/step_seconds"] = self._seconds / self._steps
            if self._timer is not None:
                values["train/data_seconds"] = self._timer.seconds / self._steps
        self._reset()
        # As tensors: Lightning keeps plain numbers in single precision.
        exact = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        pl_module.log_dict(exact, batch_size=1, sync_dist=False)

    def _reset(self) -> None:
        self._seconds, self._steps = 0.0, 0
        if self._timer is not None:
            self._timer.seconds = 0.0

    def _is_row(self, trainer: Trainer, step: int) -> bool:
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        return bool(every) and step % every == 0
