"""Describes a run in a few lines before it starts: device, graph, split, model, batches."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from graphzoo.callbacks.run_length import RunClock, seconds_allowed
from graphzoo.ops.eager import float32_precision
from graphzoo.system.shown import cell, console
from graphzoo.system.units import counted, duration

_WORTH_TELLING = 60.0  # seconds


class RunSummary(RunClock):
    """Prints `describe_run` before the first step, and soon after it how long the run will take.

    Args:
        tests: Whether the run ends with the test split.
        shorter: Function from the seconds of training and of the test, its cost as a multiple of that under
            one protocol, and the type of device to the name and the text of a line of advice, or None.
    """

    def __init__(
        self,
        tests: bool = False,
        shorter: Callable[[float, float, float, str], tuple[str, str] | None] | None = None,
    ) -> None:
        super().__init__()
        self._tests, self._shorter, self._told = tests, shorter, False

    @rank_zero_only
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._told = False
        for name, value in describe_run(trainer, pl_module):
            _say(name, value)

    @rank_zero_only
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print the time of the whole run once, when steps have been timed for some seconds."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if self._told or not self.is_sure:
            return
        self._told = True
        if text := self._remaining(trainer):
            _say("still to go", text)
            cost = getattr(trainer.datamodule, "test_cost", 1.0)  # type: ignore[attr-defined]
            device = trainer.strategy.root_device.type
            if self._shorter and (line := self._shorter(self.left, self.tested, cost, device)):
                _say(*line)

    def _remaining(self, trainer: Trainer) -> str:
        """What is left in words, and what is counted; empty where it is short or unknown."""
        test = self.whole_test(trainer) if self._tests else None
        self.tested = test[0] if test else 0.0
        if not _WORTH_TELLING <= self.left + self.tested < math.inf:
            return ""
        needed, steps, validates = self.seconds_left(trainer)
        after = f", then {duration(self.tested)} of test" if self.tested else ""
        if self.left < needed:
            return f"about {duration(self.left)}, when --trainer.max_time ends it{after}"
        counts = f"validation {'' if validates else 'not '}counted"
        return f"about {duration(self.left)} for {counted(steps or 0, 'step')}, {counts}{after}"


def _say(name: str, value: str) -> None:
    console().print(cell(f"{name:<12}{value}"), highlight=False, soft_wrap=True)


def time_left(clock: RunClock) -> str:
    """The time until the end of training, and that of a long test, in words; empty if short or unknown."""
    if not _WORTH_TELLING <= max(clock.left, clock.tested) < math.inf:
        return ""
    if clock.tested < _WORTH_TELLING:
        return f"about {duration(clock.left)}"
    training = f"{duration(clock.left)} of training and " if clock.left >= 1 else ""
    return f"about {training}{duration(clock.tested)} of test"


def _amount(number: int, what: str) -> str:
    """A number with its noun, given in the plural: entities, classes, train nodes, triples of a graph.

    >>> _amount(1, "entities"), _amount(1, "classes"), _amount(1, "valid triples of the second graph")
    ('1 entity', '1 class', '1 valid triple of the second graph')
    """
    noun, of, rest = what.partition(" of ")
    one = (
        f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("es" if noun.endswith("sses") else "s")
    )
    return counted(number, one + of + rest, what)


def describe_run(trainer: Trainer, pl_module: LightningModule) -> Iterator[tuple[str, str]]:
    """Names and values for a reader, once the loaders and modules are built."""
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    processes = f", {trainer.world_size} processes" if trainer.world_size > 1 else ""
    products = float32_precision()
    faster = "" if products == "highest" else f", float32 products {products}"
    yield "device", f"{trainer.strategy.root_device}{processes}, precision {trainer.precision}{faster}"
    if hasattr(datamodule, "describe_graph"):
        yield "graph", ", ".join(_amount(count, what) for what, count in datamodule.describe_graph().items())
    if words := getattr(datamodule, "features_in_words", ""):
        yield "features", words
    if getattr(datamodule, "asks_near", False):
        yield "queries", datamodule.describe_queries()
    encoder = type(getattr(pl_module, "encoder", pl_module)).__name__
    trained = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
    yield "model", f"{encoder}, {trained:,} parameters"
    yield "training", _training(trainer, datamodule)


def _training(trainer: Trainer, datamodule: Any) -> str:
    """Steps and epochs, of how many samples, and what else ends the run."""
    batches = trainer.num_training_batches
    parts = trainer.accumulate_grad_batches
    steps = "" if batches == math.inf else f"{counted(math.ceil(batches / parts), 'step')} an epoch"
    cut = f"each step in {parts} parts" if not steps else f"each in {parts} parts"
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(counted(trainer.max_epochs, "epoch"))
    if trainer.max_steps > 0:
        limits.append(counted(trainer.max_steps, "step"))
    most = f"at most {' or '.join(limits)}" if limits else ""
    if not limits and seconds_allowed(trainer) == math.inf and not trainer.early_stopping_callbacks:
        most = "without an end: set --trainer.max_epochs or --trainer.max_time"
    size = getattr(datamodule, "batch_size", None)
    batch = f"batches of {size:,} {datamodule.kind.trained}" if size and hasattr(datamodule, "kind") else ""
    loader: Any = getattr(trainer, "train_dataloader", None)
    whole = len(loader) if batches != math.inf and hasattr(loader, "__len__") else 0
    part = f"an epoch has {100 * batches / whole:.3g} % of the training data" if batches < whole else ""
    ends = [
        f"ends after {counted(one.patience, 'validation')} without a better {one.monitor}"
        for one in trainer.early_stopping_callbacks
        if one.patience < sys.maxsize
    ]
    lengths = [steps or "epochs of unknown length", cut if parts > 1 else "", batch, part, most, *ends]
    return ", ".join(words for words in lengths if words)
