"""Runs of link prediction on a small graph, in the form of `graphzoo fit`."""

import warnings
from types import SimpleNamespace

from helpers.link_graphs import make_link_graph


def encoders():
    from graphzoo.encoders import PENCIL, GALiT, KnowFormer

    return {
        "pencil": lambda spec: PENCIL(
            spec, hidden_channels=16, num_layers=1, num_heads=2, ffn_channels=32, dropout=0.1
        ),
        "galit": lambda spec: GALiT(spec, hidden_channels=8, dropout=0.1),
        "knowformer": lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, dropout=0.1),
    }


def link_data(graph=None, **settings):
    """A data module of a graph in memory."""
    from graphzoo.datamodules import LinkDataModule

    found = LinkDataModule(**{"batch_size": 64, "depth": 1, "num_neighbors": 6, **settings})
    given = make_link_graph() if graph is None else graph
    found._load = lambda download: given
    return found


def train_links(run, encoder, datamodule, task_class=None):
    from lightning.pytorch import Trainer, seed_everything

    from graphzoo.tasks import LinkPrediction

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_everything(1, verbose=False)
        factory = encoder if callable(encoder) else encoders()[encoder]
        task = (task_class or LinkPrediction)(factory, lr=0.02)
        trainer = Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(task, datamodule=datamodule)
        trainer.save_checkpoint(run / "checkpoints" / "best.ckpt")
        datamodule.save_artifacts(run / "graph")
        metrics = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    return SimpleNamespace(path=run, task=task.eval(), datamodule=datamodule, metrics=metrics)
