"""What all tasks share: a model built for the data, its checkpoints, and steps that fit the memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from lightning.pytorch.callbacks import Callback, WeightAveraging
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from graphzoo.catalog.classes import arguments_of, class_path, spec_problem
from graphzoo.catalog.tasks import models_with, task_of
from graphzoo.checkpoints.checks import (
    OPTIMIZER_ENTRIES,
    build_bounded,
    check_callback_states,
    check_loaded_weights,
    check_training_state,
    optimizer_entries,
    outlined,
)
from graphzoo.checkpoints.paths import forget_foreign_paths
from graphzoo.checkpoints.settings import check_settings
from graphzoo.encoders.base import Encoder
from graphzoo.errors import NonFiniteError, UsageError
from graphzoo.layers import LastResult
from graphzoo.ops.eager import full_float32
from graphzoo.system.memory import refuse_what_cannot_fit
from graphzoo.system.processes import part_at_exit
from graphzoo.system.versions import versions
from graphzoo.tasks.finite import describe_weights, stopped, texts_of_processes
from graphzoo.tasks.halved_steps import HalvedSteps
from graphzoo.tasks.losses import LogsLosses
from graphzoo.tasks.micro_batches import MicroBatches
from graphzoo.tasks.own_encoders import check_interface
from graphzoo.tasks.start_weights import StartWeights
from graphzoo.tasks.training_data import ChecksData, data_described
from graphzoo.tasks.unfit_callbacks import refuse_callbacks_of_weights, refuse_unfit_callbacks
from graphzoo.types import GraphSpec, PlainSettings

if TYPE_CHECKING:
    from graphzoo.analysis import Table


CHECKPOINT_FORMAT = 1
# The remedy when memory runs out even for one sample at a time.
SMALLER = "Take a smaller --model.encoder.hidden_channels, or a device with more memory"
# Samples on which the entropy of the attention is measured; for nodes there is also a bound on the weights.
FEW_QUERIES, FEW_PAIRS, FEW_NODES, FEW_WEIGHTS = 4, 8, 16, 2**24


class Task(ChecksData, LogsLosses, metaclass=PlainSettings):
    """A LightningModule around one encoder.

    The task takes a factory of the encoder, because the data decide the encoder's sizes. `configure_model`
    calls it with the `GraphSpec` of the DataModule. A task that is loaded without a trainer calls it with the
    `GraphSpec` of the checkpoint. `ChecksData` says what a task does about its data, `LogsLosses` how it logs
    losses.

    Args:
        encoder: `GraphSpec -> Encoder`; None only for a task that is about to be loaded from a checkpoint.

    Attributes:
        accepts: Kinds of encoder the task can use.
        described: Entries of `describe_data` that a checkpoint must have to be loaded, and their types; a dot
            leads into an entry.
        mode: Whether the largest ("max") or smallest ("min") value of the monitored metric is best.
        unit: What a batch consists of, for rates such as "queries/s".
        num_evaluated: Samples of the last evaluation, over all processes; None if the task counts none.
        ranked_among: Negatives that each link was ranked among in the last evaluation; None for other tasks.
        questions_asked: Questions asked so far in an evaluation, by tasks with their own `num_questions`.
        test_tables: Tables of the last test beside its metrics, in the first process only; see
            `graphzoo.analysis`.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]]
    described: ClassVar[Mapping[str, Any]] = {}
    mode: ClassVar[str] = "max"
    unit: ClassVar[str] = "queries"
    num_evaluated: int | None = None
    ranked_among: int | None = None
    questions_asked: int = 0

    def __init__(
        self, encoder: Callable[[GraphSpec], Encoder] | None = None, start_from: str | None = None
    ) -> None:
        super().__init__()
        if isinstance(encoder, nn.Module):
            name = type(encoder).__name__
            raise UsageError(
                f"encoder is a {name}, but the data decide its sizes\n"
                f"Give a function that builds it: lambda spec: {name}(spec)"
            )
        self._factory, self.start_from = encoder, start_from
        self._start_weights = StartWeights(self)
        self._in_precision: LastResult[Tensor] = LastResult()
        self.micro_batches = MicroBatches(self)
        self._halved: HalvedSteps | None = None
        self._resumed: dict[str, Any] | None = None  # checkpoint, until the fit starts
        self._bad_scores = ""
        self.test_tables: tuple[Table, ...] = ()
        self.spec: GraphSpec | None = None
        self.encoder: Encoder | None = None

    @property
    def monitor(self) -> str:
        """Validation metric by which runs are compared; by default it also selects the checkpoint."""
        raise AttributeError(f"{type(self).__name__} must define monitor")

    @property
    def checkpoint_by(self) -> tuple[str, str]:
        """The metric that selects the checkpoint, and whether its "max" or "min" is best."""
        return self.monitor, self.mode

    def num_questions(self, batches: Iterable[Any]) -> int | None:
        """Number of questions that evaluating `batches` asks; None if it is proportional to the batches."""
        return None

    # The model

    def build_decoder(self, encoder: Encoder) -> nn.Module:
        """The decoder that fits the encoder's states."""
        raise TypeError(f"{type(self).__name__} must define build_decoder")

    def build(self, spec: GraphSpec) -> None:
        """Build encoder and decoder for a training graph of these sizes.

        Raises:
            UsageError: if there is no factory, or the encoder is of a kind that the task cannot use, or does
                not keep to the interface of its kind.
        """
        if self._factory is None:
            raise UsageError(
                f"{type(self).__name__} was made without an encoder\n"
                "Give encoder=lambda spec: KnowFormer(spec); graphzoo.load(checkpoint).task finds it itself"
            )
        encoder = self._factory(spec)
        if not isinstance(encoder, self.accepts):
            kinds = " or ".join(kind.__name__ for kind in self.accepts)
            message = f"{type(self).__name__} needs a {kinds}; {type(encoder).__name__} is not one"
            row = task_of(self)
            raise UsageError(
                f"{message}\nModels with one: {', '.join(models_with(row.accepts))}" if row else message
            )
        check_interface(encoder)
        self.spec, self.encoder = spec, encoder
        self.decoder = self.build_decoder(encoder)

    def outline(self) -> Encoder | None:
        """The encoder for the trainer's data without memory for its weights, in order to count them.

        None if the encoder is built already, or cannot be built without memory.
        """
        factory = self._factory
        if factory is None or self.encoder is not None or not self._has_data():
            return None
        return outlined(lambda: factory(self._datamodule().spec), num_weights=sys.maxsize)

    def expect_weights(self, weights: dict[str, Any]) -> None:
        """Refuse to build an encoder far larger than these weights; to be called before a fit."""
        factory = self._factory
        if factory is not None:
            own = {name: value for name, value in weights.items() if str(name).startswith("encoder.")}
            self._factory = lambda spec: build_bounded(lambda: factory(spec), own)

    def decode(self, *states: Tensor, **more: Any) -> Tensor:
        """Decode states to logits in at least single precision, whatever their own precision.

        bfloat16 has only a few hundred values in the range of the scores. Most of fourteen thousand answers
        would tie, and the rule for ties would decide the ranks and the choice of the checkpoint. TF32 rounds
        the factors of a product to eleven bits, so that states that differ by less would tie. Therefore it is
        switched off here. The encoder may use bfloat16 or TF32, and so may the gradients: their errors make
        no ties.
        """
        weights = dict(self.decoder.named_parameters())
        dtype = torch.float32
        for value in (*states, *weights.values()):
            dtype = torch.promote_types(dtype, value.dtype)
        states = tuple(state.to(dtype) for state in states)
        with torch.autocast(self.device.type, enabled=False), full_float32(self.device.type):
            if all(value.dtype == dtype for value in weights.values()):
                logits: Tensor = self.decoder(*states, **more)
            else:  # "bf16-true"
                wide = {name: value.to(dtype) for name, value in weights.items()}
                logits = functional_call(self.decoder, wide, states, more)
        return logits

    @property
    def weight_dtype(self) -> torch.dtype:
        """The dtype for features that are not part of a batch; Lightning converts only those in a batch."""
        return next(self.parameters()).dtype

    def in_precision(self, x: Tensor) -> Tensor:
        """Features in the precision of the weights; the same object for the same `x`, as caches require."""
        with torch.inference_mode(False):  # for training too, though a validation may come first
            dtype = self.weight_dtype  # another Trainer may convert the weights
            return self._in_precision.get((x,), lambda: x.to(dtype), dtype)

    def to_device_once(self, name: str, value: Any) -> Any:
        """A graph or table of the DataModule on this module's device, moved once, not part of the state."""
        cache: dict[str, tuple[Any, torch.device, Any]] = self.__dict__.setdefault("_device_cache", {})
        known = cache.get(name)
        if known is None or known[0] is not value or known[1] != self.device:
            # one graph may serve several splits
            same = (each for each in list(cache.values()) if each[0] is value and each[1] == self.device)
            with torch.inference_mode(False):  # for training too, though a validation may come first
                known = next(same, None) or (value, self.device, value.to(self.device))
            cache[name] = known
        return known[2]

    def __getstate__(self) -> dict[str, Any]:
        """Copies (such as that of averaged weights) and pickles leave out the graphs kept on the device."""
        return {**super().__getstate__(), "_device_cache": {}, "_prepared": None}

    # Begin of a run

    def setup(self, stage: str) -> None:
        """Evaluate a checkpoint with its averaged weights, and with features treated as in its training.

        After a fit, Lightning's `WeightAveraging` would replace these weights by those of the last step. The
        test would then use other weights than the validation that chose the checkpoint.
        """
        self._check_kind_of_data()
        self.num_evaluated = None  # an empty split would leave the count of an earlier evaluation
        if stage == "test":
            self.test_tables = ()  # of an earlier test: that of a mixture has none
        if stage == "fit":
            self._resumed, self._has_begun = None, False  # an earlier fit may have failed
            self.micro_batches.end_fit()
            refuse_unfit_callbacks(self._trainer)
        if stage == "fit" or self._trainer is None:
            return
        if self._has_data():
            self._take_features({"features": self._treatment})
        for callback in self._trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, WeightAveraging):
                callback._average_model = None  # the next fit makes another

    def configure_callbacks(self) -> Sequence[Callback] | Callback:
        """Refuse callbacks that look for weights when they are set up, which is before these are built."""
        if self.encoder is None:
            refuse_callbacks_of_weights(self.trainer)
        return super().configure_callbacks()

    def configure_model(self) -> None:
        """Build the modules once the data is known; Lightning also calls this before that.

        They start with the weights of `start_from`, if it is given. Those of a checkpoint replace them later.
        """
        super().configure_model()
        if self._trainer is not None and self._trainer.world_size > 1:
            part_at_exit()
        if self.encoder is not None:
            if self._has_data():
                self._start_weights.check_again()
                if not self._loaded_data:  # those of a training are compared by name
                    self._check_sizes()
            return
        if self._trainer is not None:  # Lightning's own attribute: `self.trainer` raises where there is none
            # On a GPU, where Lightning builds modules, the same seed draws other weights.
            with torch.device("cpu"):
                self.build(self._datamodule().spec)
            if self.start_from:
                try:
                    self._earlier = self._start_weights.load(self.start_from)
                except BaseException:
                    self.encoder = None  # or the next fit would go on with random weights
                    raise

    def sizes_of_weights(self) -> dict[str, str]:
        """The fields of `GraphSpec` on which shapes of weights depend, each with its name in messages."""
        return {"in_channels": "features per node"} if getattr(self.encoder, "use_features", True) else {}

    def _check_sizes(self) -> None:
        """Refuse data of other sizes than the task was built for."""
        built, here = self.spec, getattr(self._datamodule(), "spec", None)
        for name, words in self.sizes_of_weights().items() if built and here else ():
            wanted, found = getattr(built, name), getattr(here, name)
            if found != wanted:
                raise UsageError(
                    f"the task was built for {wanted:,} {words}, but the data have {found:,}\n"
                    "Give a task that is not built yet: the Trainer builds it for its data"
                )

    def on_fit_start(self) -> None:
        """Check optimiser, schedule and progress of a resumed checkpoint, before Lightning restores them.

        If no checkpoint is resumed but the model was trained before, its data are checked, as for exported
        weights.
        """
        resumed, self._resumed = self._resumed, None
        self._check_begin(resumes=resumed is not None)
        if self.encoder is not None and getattr(self.trainer, "checkpoint_callbacks", None):
            if problem := spec_problem(type(self.encoder)):
                raise UsageError(problem)
            check_settings(type(self.encoder).__name__, self.encoder.init_args)
        if resumed is not None:
            check_training_state(self.trainer, resumed)

    # Checkpoints

    def describe(self) -> dict[str, Any]:
        """Description of the model and its training data for checkpoints, as plain values."""
        if self.encoder is None or self.spec is None:
            raise UsageError("the model is not built yet, so there is nothing to describe")
        return {
            "format": CHECKPOINT_FORMAT,
            "task": class_path(self),
            **self.encoder.describe(),
            "spec": self.spec.to_dict(),
            "versions": versions(),
            **self._described_data(),
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the description (see `describe`) and the sums of losses of an unfinished epoch."""
        checkpoint["graphzoo"] = self.describe()
        if "optimizer_states" in checkpoint:
            checkpoint[OPTIMIZER_ENTRIES] = optimizer_entries(checkpoint)
        if self.micro_batches.chosen is not None:
            checkpoint["graphzoo_micro_batch_size"] = self.micro_batches.chosen
        super().on_save_checkpoint(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the modules for the checkpoint's graph, so that the weights find their places."""
        described = checkpoint.get("graphzoo")
        if described is None:
            raise UsageError(
                "the checkpoint holds no graphzoo description: it was not written by a graphzoo task"
            )
        if described["format"] > CHECKPOINT_FORMAT:
            raise UsageError(
                f"the checkpoint has format {described['format']}, this graphzoo reads up to "
                f"{CHECKPOINT_FORMAT}: install the graphzoo version it names: "
                + str(described["versions"].get("graphzoo"))
            )
        if self.encoder is None:
            spec = GraphSpec.from_dict(described["spec"])

            def build() -> Task:
                self.build(spec)
                return self

            build_bounded(build, checkpoint["state_dict"])  # refuses a model far larger than these weights
        fits = self._has_data() and self.trainer.state.fn == "fit"
        if self._has_data():
            # first, since its errors say more than those about shapes of weights
            self._check_loaded(data_described(described))
            self._take_features(described)
            forget_foreign_paths(self.trainer, checkpoint)
        if fits:
            check_callback_states(self.trainer, checkpoint)
        check_loaded_weights(self, checkpoint)
        self._remember_data(described)
        if fits:
            self._resumed = checkpoint
            self.micro_batches.resume(checkpoint.get("graphzoo_micro_batch_size"))
            self._resume_losses(checkpoint)

    @classmethod
    def from_checkpoint_dict(
        cls, checkpoint: dict[str, Any], encoder: Callable[[GraphSpec], Encoder] | None
    ) -> Self:
        """A task in evaluation mode from a loaded checkpoint and a factory for the encoder that it names.

        The caller decides which class paths it trusts.
        """
        known = {each.name for each in arguments_of(cls)} - {"encoder"}
        settings = {k: v for k, v in checkpoint.get("hyper_parameters", {}).items() if k in known}
        task = cls(encoder, **settings)
        task.on_load_checkpoint(checkpoint)
        task.load_state_dict(checkpoint["state_dict"])
        return task.eval()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights, as in any module.

        Raises:
            UsageError: if the encoder is not built yet; the error says how to load a checkpoint.
        """
        if self.encoder is None and state_dict:
            raise UsageError(
                "the task has no weights yet: its encoder is built when the data are known\n"
                "Take graphzoo.load(CHECKPOINT).task, or give the Trainer ckpt_path=CHECKPOINT"
            )
        return super().load_state_dict(state_dict, *args, **kwargs)

    # Training

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of a part of the global batch, scaled so that gradients add up to the global mean's."""
        return self.part_loss(batch) if self._halved is None else self._halved.loss(batch)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Gradients of a part of the global batch; computed in halves if memory runs out."""
        run = partial(super().backward, *args, **kwargs)
        run(loss) if self._halved is None else self._halved.backward(loss, run)

    def part_loss(self, batch: Any) -> Tensor:
        """Loss of any part of the global batch, see `training_step`."""
        raise AttributeError(f"{type(self).__name__} must define part_loss")

    def places_to_cut(self, batch: Any) -> list[int]:
        """Positions at which a batch may be cut into parts, its begin and end included."""
        return list(range(len(batch) + 1))

    def sample_losses(self, batch: Any) -> Tensor:
        """Loss of each sample of a part of the global batch, [B]; for `fit_to_memory`."""
        raise AttributeError(f"{type(self).__name__} must define sample_losses")

    @property
    def parts_of_batch(self) -> int:
        """Parts that a global batch is cut into, over processes and micro-batches.

        Gradients are averaged over both: by DDP over processes, by Lightning over micro-batches. To get the
        gradient of the global batch's mean loss, a part therefore multiplies its sum of losses by this number
        and divides it by the size of the global batch. `batch_loss` does so, and handles terms that are means
        themselves. Batches that a user accumulates are averaged.
        """
        return self.trainer.world_size * self.micro_batches.count

    def batch_loss(
        self, losses: Tensor, num_global: int, auxiliary: Tensor | None, num_parts: int | None = None
    ) -> Tensor:
        """Loss of a part of the global batch, scaled so that gradients add up to the global mean's.

        The auxiliary term is averaged over the parts, of which each process has `num_parts`; None for the
        usual number.
        """
        self.collect_loss(losses, num_global)
        loss = losses.sum() * (self.parts_of_batch / max(num_global, 1))
        if auxiliary is None:
            return loss
        self.log_training("train/auxiliary_loss", auxiliary.detach())
        usual = self.parts_of_batch // self.trainer.world_size  # Lightning divides shorter steps by it, too
        return loss + auxiliary * (usual / (num_parts or usual))

    def fit_to_memory(self) -> None:
        """Choose a size of micro-batches that fits into memory, unless the user has set one.

        If memory runs out nevertheless, the step is computed in halves.
        """
        can_repeat = type(self).training_step is Task.training_step
        self._halved = HalvedSteps(self, SMALLER, can_repeat=can_repeat)
        self.micro_batches.choose()

    def check_memory(self, num_queries: int, num_nodes: int, *, option: str) -> None:
        """Refuse a batch whose node states alone exceed the memory: a layer needs two tensors [N, B, D].

        B is `num_queries`, the queries that are computed at once; the error says to lower `option`.
        """
        assert self.encoder is not None
        channels = self.encoder.out_channels
        refuse_what_cannot_fit(
            2 * num_nodes * num_queries * channels * 4,
            self.device,
            f"computing {num_queries:,} queries at once over {num_nodes:,} nodes, width {channels},",
            f"Take a smaller {option}, or a smaller --model.encoder.hidden_channels"
            if num_queries > 1
            else "There cannot be less than one query: take a smaller --model.encoder.hidden_channels",
        )

    @property
    def less_memory(self) -> str:
        """The remedy when a training step runs out of memory, one line."""
        if not hasattr(type(getattr(self.trainer, "datamodule", None)), "num_micro_batches"):
            return SMALLER  # a DataModule that is not ours has no micro-batches
        smaller = "Take a smaller --data.micro_batch_size; batch and loss stay what they are"
        return smaller if self.micro_batches.share > 1 else SMALLER

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Say whether validation is due after this loader item."""
        self.micro_batches.begin_item(batch_idx)

    def on_fit_end(self) -> None:
        """Restore the settings of trainer and data from before the fit."""
        self.micro_batches.end_fit()
        self._halved = None

    # Optimiser

    @property
    def fuses_optimizer(self) -> bool | None:
        """Whether Adam updates all parameters in one call; None leaves the choice to torch.

        On the CPU, Adam's many small operations would take longer than a small model itself. On a GPU, None
        gives torch's `foreach` form; False would start a dozen kernels for every parameter. Under mixed
        precision, Lightning cannot clip the gradients of fused optimisers.
        """
        trainer = self._trainer
        if trainer is not None and trainer.gradient_clip_val:
            if isinstance(trainer.precision_plugin, MixedPrecision):
                return None
        return True if self.device.type == "cpu" else None

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Optimiser groups: biases are not decayed."""
        decayed = [p for name, p in self.named_parameters() if not name.endswith("bias")]
        biases = [p for name, p in self.named_parameters() if name.endswith("bias")]
        return [{"params": decayed, "weight_decay": weight_decay}, {"params": biases, "weight_decay": 0.0}]

    def with_milestones(self, optimizer: Optimizer, epochs: Sequence[int], gamma: float) -> dict[str, Any]:
        """The optimiser, its learning rate multiplied by `gamma` after each of these epochs."""
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, epochs, gamma)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}

    # Evaluation

    def attention_entropy(self, batch: Any) -> Tensor | None:
        """Entropy of the encoder's attention in each layer, [L], on a few samples of a validation batch.

        Between 0 and 1, see `graphzoo.layers.row_entropy`; None if the encoder has no attention. This is
        called in evaluation mode and must not change anything.
        """
        return None

    def few_nodes(self, nodes: Tensor, num_nodes: int) -> Tensor:
        """Some of the nodes [n], evenly spread, for attention to all `num_nodes`."""
        count = max(1, min(FEW_NODES, nodes.numel(), FEW_WEIGHTS // max(1, num_nodes)))
        return nodes[torch.arange(count, device=nodes.device) * nodes.numel() // count]

    def bad_scores(self, split: str, error: NonFiniteError) -> None:
        """End a run with scores that are not finite; several processes end once all of them have scored."""
        where = f"{split} scores after step {self.trainer.global_step}"
        self._bad_scores = f"{where}: {describe_weights(self)}; {error}"
        if self.trainer.world_size == 1:
            self.require_good_scores()

    def require_good_scores(self) -> None:
        """Raise in every process if any of them called `bad_scores`; called before metrics are computed."""
        mine, self._bad_scores = self._bad_scores, ""
        if bad := next(filter(None, texts_of_processes(self.trainer, mine)), ""):
            raise stopped(self.trainer, bad)
