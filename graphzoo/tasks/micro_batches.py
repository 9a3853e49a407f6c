"""Chooses how many samples of a batch go through the model at once, unless the user does."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.random import fork_rng

from graphzoo.errors import UsageError
from graphzoo.system.memory import available_bytes
from graphzoo.system.units import counted
from graphzoo.tasks.unfit_callbacks import refuse_scheduled_steps

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from graphzoo.tasks.base import Task


log = logging.getLogger(__name__)

PROBED = 8
"""Samples of the forward pass that measures the memory; batches of this size are never cut."""
_NEVER = 2**62  # batches until Lightning validates
_WHOLE = 2**62  # samples: more than any batch has
# Bytes that a step may keep for its gradients; the peak of the process was up to four times that. On a CPU
# the bound is fixed, however much is free: a micro-batch of pairs draws its own dropout, so that results
# would depend on the memory.
_BUDGET = 2**30
# Attribute of trainer and DataModule that holds the values of settings from before a fit changed them.
_LENT = "_graphzoo_lent"


class _Lent(NamedTuple):
    own: Any  # what the user has set
    lent: int  # what this fit has set instead


def kept_bytes(module: nn.Module, run: Callable[[], Tensor]) -> int:
    """Bytes that `run` keeps for the backward pass, without the weights. The module stays unchanged."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    devices = {parameter.device for parameter in module.parameters() if parameter.is_cuda}
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    modes = {part: part.training for part in module.modules()}  # a user may have frozen some
    module.train()
    try:
        with fork_rng([*devices]), torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
            result = run()
        needed = sum(size for place, size in kept.items() if place not in weights)
        del result  # only now: memory that is freed earlier could be counted under the same address
        return needed
    finally:
        for part, mode in modes.items():
            part.training = mode
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])


def _probes(datamodule: Any) -> Iterator[Any]:
    """A part of a batch of each training graph, from the epoch with the largest neighbourhoods."""
    datamodule.micro_batch_size = PROBED
    try:
        loader = datamodule._training_loader(getattr(datamodule, "largest_epoch", 0))
        graphs, items = len(getattr(datamodule, "parts", [datamodule])), {}
        for count, item in enumerate(iter(loader.sampler), start=1):
            # subgraphs are sorted by size: the last part of a batch has the largest
            items[getattr(item, "source", 0)] = item
            if count >= datamodule.num_micro_batches and len(items) == graphs:
                break
        yield from map(loader.dataset.__getitem__, items.values())
    finally:
        datamodule.micro_batch_size = None


def size_that_fits(task: Task, trainer: Trainer, datamodule: Any, share: int) -> int:
    """Samples of a micro-batch whose step stays within the memory budget: `share`, or a power of two.

    The task is built and on its device; its `sample_losses` are computed once for each training graph.
    `share` is the largest number of samples that this process gets of a batch.
    """
    needed = 0.0
    for batch in _probes(datamodule):
        moved = trainer.strategy.batch_to_device(batch)
        with trainer.precision_plugin.forward_context():
            needed = max(needed, kept_bytes(task, partial(task.sample_losses, moved)) / PROBED)
    budget: float = _BUDGET if task.device.type == "cpu" else math.inf  # small parts leave a GPU idle
    if (available := available_bytes(task.device)) is not None:
        here = trainer.num_devices if task.device.type == "cpu" else 1
        budget = min(budget, available // (4 * here))
    fits = share
    if share * needed > budget:
        fits = min(share, 2 ** max(0, int(budget / needed).bit_length() - 1))
    return int(trainer.strategy.reduce(torch.tensor(float(fits), device=task.device), reduce_op="min"))


class MicroBatches:
    """Cuts a task's batches into micro-batches, and sets Lightning's accumulation accordingly.

    Args:
        task: On its device by the time of `choose`.

    Attributes:
        count: Micro-batches of a batch; Lightning takes a step after that many.
        chosen: Samples of a micro-batch, if `choose` decided it. Checkpoints store it.
        validates_every: Steps between validations, if no number of loader items is as many, as the last step
            of an epoch has fewer; else None. `begin_item` counts them.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.count = 1
        self.chosen: int | None = None
        self._is_over = False  # the fit that has chosen it
        self.validates_every: int | None = None
        self._over_epochs = False  # whether those steps are counted over epochs

    @property
    def _datamodule(self) -> Any:
        return self._task.trainer.datamodule  # type: ignore[attr-defined]

    @property
    def _whole_share(self) -> int:
        size: int = self._datamodule.batch_size
        return math.ceil(size / self._task.trainer.world_size)

    @property
    def share(self) -> int:
        """Largest number of samples in a loader item of this process."""
        whole = self._whole_share
        most: int = self._datamodule.micro_batch_size or whole
        return min(most, whole)

    def least_at_once(self, share: int) -> int:
        """The smallest number of samples at once into which a batch of `share` may be cut."""
        if self._may_cut:
            return min(PROBED, share)
        most: int = self._datamodule.micro_batch_size or share
        return min(most, share)

    @property
    def _may_cut(self) -> bool:
        """Whether the user has neither set a micro-batch size nor accumulates batches."""
        is_whole: bool = self._task.trainer.accumulate_grad_batches == 1
        return is_whole and self._datamodule.micro_batch_size is None

    def choose(self) -> None:
        """Cut batches that take too much memory, unless the user has set a micro-batch size."""
        task, datamodule, share = self._task, self._datamodule, self._whole_share
        if not self._may_cut or share <= PROBED:
            return
        if self.chosen is None or self._is_over:
            self.chosen = size_that_fits(task, task.trainer, datamodule, share)
        if self.chosen >= share:
            return
        self._lend(datamodule, "micro_batch_size", self.chosen)
        log.info("batches of %d go through the encoder in parts of %d, to save memory", share, self.chosen)

    def accumulate(self) -> None:
        """Let Lightning take a step after all micro-batches of a batch."""
        parts, trainer = self._datamodule.num_micro_batches, self._task.trainer
        self.count = parts
        if parts == 1:
            return
        refuse_scheduled_steps(trainer, f"would count the {parts} parts that each batch is computed in")
        if trainer.accumulate_grad_batches not in (1, parts):
            raise UsageError(
                f"each batch is computed in {parts} micro-batches, so accumulate_grad_batches is {parts}; "
                f"got {trainer.accumulate_grad_batches}: leave it out"
            )
        if trainer.accumulate_grad_batches == 1:
            self._lend(trainer, "accumulate_grad_batches", parts)
        self._limit_epochs()
        self._set_validation()

    def _limit_epochs(self) -> None:
        """Let `limit_train_batches` count whole batches, so that an epoch ends with one."""
        trainer = self._task.trainer
        limit = trainer.limit_train_batches
        if isinstance(limit, float):
            if limit >= 1:
                return
            whole = math.ceil(self._items_per_epoch / self.count)
            share, limit = limit, int(whole * limit)
            if share and not limit:
                raise UsageError(
                    f"limit_train_batches {share} of {counted(whole, 'batch', 'batches')} is less than one\n"
                    f"Give at least {1 / whole:.3g}, or a whole number"
                )
        if isinstance(limit, int):
            self._lend(trainer, "limit_train_batches", self._in_items(limit))

    def _set_validation(self) -> None:
        """Let `val_check_interval` count whole batches, unless it is a share of an epoch or a time."""
        trainer = self._task.trainer
        interval = trainer.val_check_interval
        if not isinstance(interval, int):
            return
        self._over_epochs = getattr(trainer, "check_val_every_n_epoch", 1) is None
        if self._items_per_epoch % self.count:
            self.validates_every = interval
        if not (self.validates_every and self._over_epochs):  # Lightning compares it with the epoch
            self._lend(trainer, "val_check_interval", self._in_items(interval))

    @property
    def _items_per_epoch(self) -> int:
        return len(self._datamodule._training_sampler())

    def _in_items(self, batches: int) -> int:
        """Loader items of so many batches of an epoch, whose last one may have fewer than the others."""
        items = self._items_per_epoch
        return items if batches == math.ceil(items / self.count) else batches * self.count

    def begin_item(self, number: int) -> None:
        """Let Lightning validate after whole steps, though it counts items and epochs may end with fewer.

        To be called before each item of the training loader, with its number in the epoch: callbacks ask
        after it what follows.
        """
        if self.validates_every is None:
            return
        trainer = self._task.trainer
        step = trainer.global_step if self._over_epochs else number // self.count
        is_due = (step + 1) % self.validates_every == 0
        trainer.val_check_batch = 1 if is_due and not trainer.fit_loop._should_accumulate() else _NEVER

    def resume(self, chosen: object) -> None:
        """Continue with the size that a checkpoint stores, or with whole batches if it stores none."""
        self.chosen = chosen if isinstance(chosen, int) and chosen > 0 else _WHOLE
        self._is_over = False

    def end_fit(self) -> None:
        """Restore the settings of trainer and data; another fit chooses its own size."""
        trainer = self._task._trainer
        for owner in (trainer, getattr(trainer, "datamodule", None)):
            for name, (own, lent) in getattr(owner, "__dict__", {}).pop(_LENT, {}).items():
                if getattr(owner, name) == lent:  # a value that was set meanwhile stays
                    setattr(owner, name, own)
        self.validates_every = None
        self._is_over = True  # a checkpoint that is saved now still has the size

    def _lend(self, owner: Any, name: str, value: int) -> None:
        # Stored in the owner: after a failed fit another task may have to restore it.
        owner.__dict__.setdefault(_LENT, {})[name] = _Lent(getattr(owner, name), value)
        setattr(owner, name, value)
