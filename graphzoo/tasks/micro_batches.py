"""How many samples of a batch go through a model at once, where nobody says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.random import fork_rng

from graphzoo.system.memory import available_bytes

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from graphzoo.tasks.base import Task


PROBED = 8
"""Samples that go forward to see what a batch takes; no smaller batch is ever cut."""
# For what a step keeps for its gradients; at its peak the process had up to four times as much. On a CPU
# never more, however much is free: dropout, which a micro-batch of pairs draws for itself, would be another.
_BUDGET = 2**30


def kept_bytes(module: nn.Module, run: Callable[[], Tensor]) -> int:
    """Bytes that `run` keeps for the backward pass, without the weights. Nothing is changed by it."""
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
        del result  # alive until here, so that no address was given twice
        return needed
    finally:
        for part, mode in modes.items():
            part.training = mode
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])


def _probes(datamodule: Any) -> Iterator[Any]:
    """A part of a batch of each graph that is trained on, from the epoch with the largest neighbourhoods."""
    datamodule.micro_batch_size = PROBED
    try:
        loader = datamodule.train_dataloader(getattr(datamodule, "largest_epoch", 0))
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
    """The largest power of two whose step keeps no more than the budget; the whole share if that fits.

    The task is built and on its device; its `sample_losses` are computed once. `share` is the most samples
    that this process gets of a batch.
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
