"""Own classes of a user, which tests give by their import path."""

import builtins
import os
import resource
import signal
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule
from torch import nn

from graphzoo.encoders.base import NodeEncoder, QueryEncoder
from graphzoo.types import GraphSpec

# A run takes a second, and the encoder has all its parts.
SMALL = [
    "--model.encoder.hidden_channels=8",
    "--model.encoder.num_heads=2",
    "--model.encoder.num_layers=1",
    "--model.encoder.num_query_layers=1",
    "--model.encoder.num_value_layers=1",
    "--data.batch_size=16",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
    "--trainer.num_sanity_val_steps=0",
    "--logger=csv",
]

SMALL_LINKS = {
    "pencil": [
        "--model.encoder.hidden_channels=16",
        "--model.encoder.num_layers=1",
        "--model.encoder.num_heads=2",
        "--model.encoder.ffn_channels=16",
        "--data.depth=1",
    ],
    "galit": ["--model.encoder.hidden_channels=8"],
    "nodeformer": ["--model.encoder.hidden_channels=8"],
    "knowformer": ["--model.encoder.hidden_channels=8", "--model.encoder.num_layers=1"],
}
QUIET_CPU = ["--trainer.accelerator=cpu", "--logger=csv"]


class SendSignal(Callback):
    """Sends a signal to this process when one batch of one epoch begins.

    Epoch -1 is the sanity check before training, -2 the test. `then` is the handler after the signal.
    """

    def __init__(self, epoch: int, batch: int, name: str = "SIGTERM"):
        self.epoch, self.batch, self.name = epoch, batch, name

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch == self.epoch and batch_idx == self.batch:
            self.send()

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if trainer.sanity_checking and self.epoch == -1:
            self.send()

    def on_test_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if self.epoch == -2:
            self.send()

    def send(self):
        signum = getattr(signal, self.name)
        os.kill(os.getpid(), signum)
        SendSignal.then = signal.getsignal(signum)


class InterruptTest(Callback):
    """Sends Ctrl-C during the test of the best checkpoint."""

    def on_test_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        os.kill(os.getpid(), signal.SIGINT)


class FullDisk(Callback):
    """Limits the size of files from one epoch on, and only once, so that the run can be resumed."""

    def __init__(self, epoch: int, size: int):
        self.epoch, self.size, self.limits = epoch, size, None

    def on_train_epoch_start(self, trainer, pl_module):
        mark = Path("the-disk-was-full")
        if trainer.current_epoch == self.epoch and not mark.exists():
            mark.touch()
            self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.limits[1]))

    def on_exception(self, trainer, pl_module, exception):
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer, pl_module, stage):
        if self.limits is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
            self.limits = None


class BreakLoss(Callback):
    """Sets a weight to NaN at one step."""

    def __init__(self, step: int):
        self.step = step

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            next(pl_module.encoder.parameters()).data.fill_(float("nan"))


class BreakScores(Callback):
    """Sets all weights to NaN when the validation of one epoch begins."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_validation_start(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            for parameter in pl_module.parameters():
                parameter.data.fill_(float("nan"))


class BreakStep(Callback):
    """Raises a built-in error at the third step."""

    def __init__(self, kind: str):
        self.kind = kind

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 2:
            raise getattr(builtins, self.kind)("broken on purpose")


class Picky(Callback):
    """Refuses its argument with a ValueError."""

    def __init__(self, size: int):
        raise ValueError(f"size must be odd, got {size}")


class BreakBegin(Callback):
    """Fails before training begins."""

    def setup(self, trainer, pl_module, stage):
        raise RuntimeError("broken on purpose")


class OwnModule(LightningModule):
    """A LightningModule that is not a graphzoo task: it has no seed, monitor or encoder."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.save_hyperparameters()
        self.weight = nn.Parameter(torch.ones(width))

    def training_step(self, batch, batch_idx):
        return (self.weight**2).sum() + 0 * batch.head.sum()

    def validation_step(self, batch, batch_idx):
        self.log("val/own", float(len(batch)), batch_size=1)

    def test_step(self, batch, batch_idx):
        self.log("test/own", float(len(batch)), batch_size=1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class OwnEncoder(QueryEncoder):
    """A minimal query encoder."""

    def __init__(self, spec: GraphSpec, *, hidden_channels: int = 4):
        super().__init__()
        self.out_channels = hidden_channels
        self.relation = nn.Embedding(2 * spec.num_relations, hidden_channels)

    def forward(self, graph, head, relation, *, edge_mask=None, noise_seed=0):
        return self.relation(relation).expand(graph.num_nodes, -1, -1)


class OwnNodeEncoder(NodeEncoder):
    """A minimal node encoder, without noise, precomputation or sparse features."""

    def __init__(self, spec: GraphSpec, *, hidden_channels: int = 4):
        super().__init__()
        self.out_channels = hidden_channels
        self.lin = nn.Linear(spec.in_channels, hidden_channels)

    def forward(self, x, edge_index):
        source, target = edge_index
        return self.lin(x + torch.zeros_like(x).index_add(0, target, x[source]))


class LazyNodeEncoder(OwnNodeEncoder):
    """A node encoder whose weights have no shape before the first batch."""

    def __init__(self, spec: GraphSpec, *, hidden_channels: int = 4):
        super().__init__(spec, hidden_channels=hidden_channels)
        self.lin = nn.LazyLinear(hidden_channels)


class RunOutInside(Callback):
    """Makes the encoder allocate too much memory at one step, and only once."""

    def __init__(self, step: int):
        self.step = step

    def on_train_start(self, trainer, pl_module):
        def check(*_):
            mark = Path("there-is-memory-now")
            if trainer.training and trainer.global_step == self.step and not mark.exists():
                mark.touch()
                torch.empty(1 << 60, dtype=torch.uint8)

        pl_module.encoder.register_forward_hook(check)


class RunOut(Callback):
    """Allocates too much memory at one step, and only once; torch's allocator raises the error.

    This is between the loss and its backward pass, where a step is not retried in halves.
    """

    def __init__(self, step: int):
        self.step = step

    def on_before_backward(self, trainer, pl_module, loss):
        mark = Path("there-is-memory-now")
        if trainer.global_step == self.step and not mark.exists():
            mark.touch()
            torch.empty(1 << 60, dtype=torch.uint8)
