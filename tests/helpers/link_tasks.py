"""LinkPrediction with small encoders of every kind, with and without a Trainer."""

from types import SimpleNamespace

import torch
from lightning.pytorch import Trainer, seed_everything

from graphzoo.datamodules import LinkDataModule
from graphzoo.encoders import PENCIL, GALiT, KnowFormer, NodeFormer
from graphzoo.tasks import LinkPrediction
from helpers.link_graphs import make_link_graph
from helpers.trainers import QUIET

PENCIL_SIZE = {"hidden_channels": 32, "num_layers": 2, "num_heads": 4, "ffn_channels": 64, "dropout": 0.0}
ENCODERS = {
    "pencil": lambda spec: PENCIL(spec, **PENCIL_SIZE),
    "galit": lambda spec: GALiT(spec, hidden_channels=16, dropout=0.0),
    "nodeformer": lambda spec: NodeFormer(spec, hidden_channels=16, num_heads=2),
    "knowformer": lambda spec: KnowFormer(spec, hidden_channels=16, num_layers=2, dropout=0.0),
}


def data(graph=None, **settings):
    """A data module of a graph in memory."""
    found = LinkDataModule(**{"batch_size": 64, "depth": 1, "num_neighbors": 12, "max_nodes": 26, **settings})
    found._load = lambda download: graph or make_link_graph()
    return found


def fit(encoder, datamodule, epochs, **settings):
    seed_everything(0, verbose=False)
    task = LinkPrediction(ENCODERS[encoder], **{"lr": 0.01, **settings})
    trainer = Trainer(max_epochs=epochs, **QUIET)
    trainer.fit(task, datamodule=datamodule)
    return task, trainer


def build(encoder, datamodule, *, world_size=1, accumulate=1, **settings):
    """A task that can take steps without a Trainer."""
    datamodule.setup("fit")
    torch.manual_seed(0)
    task = LinkPrediction(ENCODERS[encoder], **settings)
    task.build(datamodule.spec)
    datamodule.batching = task.batching
    task.log = lambda *args, **kwargs: None
    task._trainer = SimpleNamespace(
        world_size=world_size,
        accumulate_grad_batches=accumulate,
        datamodule=datamodule,
        global_step=0,
        limit_train_batches=1.0,
        val_check_interval=1.0,
    )
    task.fit_to_memory = lambda: None  # it needs a complete Trainer
    task.on_fit_start()
    return task


def gradient(task, batches):
    task.zero_grad()
    for batch in batches:
        (task.training_step(batch, 0) / task.trainer.accumulate_grad_batches).backward()
    return torch.cat([p.grad.flatten() for p in task.parameters() if p.grad is not None])
