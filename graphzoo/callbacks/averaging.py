"""Moving averages of the weights that are of use from the first epochs on."""

from __future__ import annotations

import functools

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.plugins import DoublePrecision
from torch import Tensor

from graphzoo.errors import check_range


class WarmupEMAWeightAveraging(WeightAveraging):
    r"""Lightning's `EMAWeightAveraging` with a decay that rises to its value.

    The average begins as the weights after the first step. After n more it becomes
    :math:`d_n \bar\theta + (1 - d_n)\theta` with :math:`d_n = \min(d, \frac{n}{n + 1})`: the mean of all
    weights up to step :math:`1 / (1 - d)`, exponential from then on. With a constant :math:`d` the first
    weights would keep the share :math:`d^n`, two thirds after 400 steps of :math:`d = 0.999`.

    Args:
        decay: d, at least 0 and below 1.
    """

    def __init__(self, decay: float = 0.999) -> None:
        check_range(at_least=0, below=1, decay=decay)
        super().__init__(avg_fn=functools.partial(_average, decay=decay))
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Make the average, in double precision under `64-true`: Lightning converts only the model."""
        if stage == "fit":  # counted from here, or as a checkpoint says, not as the fit before
            self._latest_update_step, self._latest_update_epoch = 0, -1
        precision = trainer.precision_plugin
        if not isinstance(precision, DoublePrecision):
            super().setup(trainer, pl_module, stage)
            return
        # before weights are restored: loaded into single precision, they would lose their last bits
        with precision.module_init_context():
            super().setup(trainer, pl_module, stage)
        precision.convert_module(pl_module)
        if self._average_model is not None:
            precision.convert_module(self._average_model)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the average to the device of the weights, which is known only now."""
        if self._average_model is not None:
            self._average_model.to(pl_module.device)


def _average(average: Tensor, latest: Tensor, updates: Tensor | int, *, decay: float) -> Tensor:
    """The new average; integers (counters among the buffers) are copied."""
    if not average.is_floating_point():
        return latest
    count = torch.as_tensor(updates, dtype=torch.float64, device=average.device)
    share = (1 / (1 + count)).clamp(min=1 - decay)
    return torch.lerp(average, latest.to(average.dtype), share.to(average.dtype))
