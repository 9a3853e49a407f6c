"""Estimation of link heuristics by regression: targets, loss, RMSE and learning."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.link_graphs import NODES, make_link_graph
from helpers.trainers import QUIET
from lightning.pytorch import Trainer, seed_everything

from graphzoo.datamodules import LinkDataModule
from graphzoo.encoders import GALiT, PairGNN
from graphzoo.encoders.base import PairEncoder
from graphzoo.errors import UsageError
from graphzoo.heuristics import HeuristicTargets, shortest_path
from graphzoo.tasks import HeuristicEstimation

NAMES = ("cn", "aa", "ra", "katz", "spd", "pagerank")


class Oracle(PairEncoder):
    """Counts the common neighbours in the subgraph and learns a `scale`."""

    def __init__(self, spec):
        super().__init__()
        self.out_channels = 2
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, subgraphs, x=None, *, noise_seed=None):
        common = (subgraphs.adjacency[:, 0] & subgraphs.adjacency[:, 1]).sum(1).float()
        return torch.stack([common.log1p() * self.scale, torch.zeros(len(common))], 1)


def data(graph=None, **settings):
    found = LinkDataModule(
        **{"batch_size": 64, "depth": 1, "num_neighbors": 47, "use_features": False, **settings}
    )
    found._load = lambda download: graph or make_link_graph(features=False)
    return found


def ready(encoder, datamodule, **settings):
    """A task in its state at the beginning of training, without a trainer."""
    datamodule.setup("fit")
    task = HeuristicEstimation(encoder, **settings)
    task.build(datamodule.spec)
    datamodule.batching = task.batching
    task.logged = {}
    task.log = lambda name, value, **_: task.logged.update({name: value})
    task._trainer = SimpleNamespace(
        world_size=1,
        accumulate_grad_batches=1,
        datamodule=datamodule,
        global_step=0,
        num_training_batches=1,
        is_global_zero=True,
    )
    task.setup("fit")
    task.fit_to_memory = lambda: None  # needs a real trainer
    task.on_fit_start()
    return task


@pytest.mark.parametrize("hide_link", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_target_of_every_pair_is_its_score(name, hide_link):
    datamodule = data()
    task = ready(Oracle, datamodule, heuristic=name, hide_link=hide_link)
    targets_seen = []
    task.losses = lambda logits, label: targets_seen.append(label) or (logits - label).square()
    targets = HeuristicTargets(datamodule.edge_index("train"), NODES, name, hide_link=hide_link)
    for batch in datamodule.train_dataloader(epoch=0):
        loss = task.training_step(task.on_before_batch_transfer(batch, 0), 0)
        expected = targets(batch.edge_label_index.t())
        torch.testing.assert_close(targets_seen[-1], expected)
        logits = task._logits(batch, "train", None)[0]
        squared = (logits - expected).square().sum() / batch.num_global
        torch.testing.assert_close(loss, squared)
    assert {float(label) for label in batch.edge_label} == {0.0, 1.0}


def test_the_loss_is_the_squared_error():
    task = HeuristicEstimation(Oracle)
    found = task.losses(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0]))
    assert found.tolist() == [1, 4]
    assert task.monitor == "val/rmse" and task.mode == "min"


@pytest.mark.parametrize("relabelled", [1, 2])
def test_rmse_is_over_links_and_negatives(relabelled):
    graph = make_link_graph(features=False)
    datamodule = data(graph, num_relabelings=relabelled, eval_batch_size=7)
    task = ready(Oracle, datamodule)
    for prefix, split, loader in (
        ("val", graph.valid, datamodule.val_dataloader()),
        ("test", graph.test, datamodule.test_dataloader()),
    ):
        step = task.validation_step if prefix == "val" else task.test_step
        report = task.on_validation_epoch_end if prefix == "val" else task.on_test_epoch_end
        rows = []
        for batch in loader:
            step(batch, 0)
            rows += zip(batch.index.tolist(), task.score_batch(batch, prefix).tolist(), strict=True)
        report()
        pairs = torch.cat([split.positive, split.negative])
        predicted = np.full(len(pairs), np.nan)
        for index, score in rows:
            predicted[index] = score
        targets = HeuristicTargets(graph.edge_index("train"), NODES, "cn")(pairs).double().numpy()
        expected = np.sqrt(np.mean((predicted - targets) ** 2))
        assert float(task.logged[f"{prefix}/rmse"]) == pytest.approx(expected, rel=1e-9)


def test_rmse_includes_own_negatives():
    graph = make_link_graph(own_negatives=5, features=False)
    datamodule = data(graph)
    task = ready(Oracle, datamodule)
    for batch in datamodule.val_dataloader():
        task.validation_step(batch, 0)
    metric = task._metric("val")
    assert metric.scores()[1].shape == (len(graph.valid.positive), 5)
    task.on_validation_epoch_end()
    assert 0 < float(task.logged["val/rmse"]) < 10


def test_an_encoder_that_counts_common_neighbours_learns_them():
    seed_everything(0, verbose=False)
    task = HeuristicEstimation(Oracle, heuristic="cn", lr=0.02, weight_decay=0.0)
    datamodule = data()
    trainer = Trainer(max_epochs=60, check_val_every_n_epoch=60, **QUIET)
    trainer.fit(task, datamodule=datamodule)
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert set(figures) == {"test/rmse"} and figures["test/rmse"] < 0.02


def test_pairs_that_were_not_scored_are_reported(caplog):
    task, datamodule = HeuristicEstimation(Oracle, heuristic="cn"), data(eval_batch_size=8)
    Trainer(max_epochs=1, limit_val_batches=0, **QUIET).fit(task, datamodule=datamodule)
    Trainer(**QUIET).test(task, datamodule=datamodule, verbose=False)
    assert task.num_evaluated == datamodule.num_tested and "not every pair" not in caplog.text
    Trainer(limit_test_batches=2, **QUIET).test(task, datamodule=datamodule, verbose=False)
    assert 0 < task.num_evaluated < datamodule.num_tested and "not every pair was scored" in caplog.text


def test_identity_aware_encoders_have_a_lower_error():
    def rmse(aware):
        seed_everything(0, verbose=False)
        task = HeuristicEstimation(
            lambda spec: PairGNN(spec, kind="sage", identity_aware=aware, hidden_channels=32), lr=0.005
        )
        trainer = Trainer(max_epochs=30, check_val_every_n_epoch=30, **QUIET)
        datamodule = data()
        trainer.fit(task, datamodule=datamodule)
        return trainer.test(task, datamodule=datamodule, verbose=False)[0]["test/rmse"]

    assert rmse(True) < 0.8 * rmse(False)


def test_the_link_of_the_pair_is_hidden():
    datamodule = data()
    ready(Oracle, datamodule, heuristic="spd")
    targets = HeuristicTargets(datamodule.edge_index("train"), NODES, "spd")
    for batch in datamodule.train_dataloader(epoch=0):
        assert not batch.subgraphs.adjacency[:, 0, 1].any()
        links = batch.edge_label_index.t()[batch.edge_label == 1].numpy()
        assert (shortest_path(targets.adjacency, links) == 1).all()
        assert (targets.scores(links) >= 2).all()


def test_wrong_settings_are_refused():
    graph = make_link_graph(features=False, valid_edges_at_test=True)
    with pytest.raises(UsageError, match="tested on another graph"):
        ready(Oracle, data(graph))
    with pytest.raises(ValueError, match="name must be one of cn, aa"):
        ready(Oracle, data(), heuristic="ppr")
    task = HeuristicEstimation(lambda spec: GALiT(spec, hidden_channels=8))
    datamodule = data(make_link_graph(), use_features=True)
    datamodule.setup("fit")
    with pytest.raises(UsageError, match="needs a PairEncoder; GALiT is not one"):
        task.build(datamodule.spec)


def test_settings_reach_decoder_and_optimizer():
    settings = {"decoder": "concat", "dropout": 0.3, "lr": 0.01, "weight_decay": 0.2, "lr_gamma": 0.1}
    task = ready(Oracle, data(), lr_milestones=[3], seed=4, **settings)
    assert (task.decoder.kind, task.decoder.dropout, task.seed) == ("concat", 0.3, 4)
    task._trainer = None
    found = task.configure_optimizers()
    groups, scheduler = found["optimizer"].param_groups, found["lr_scheduler"]["scheduler"]
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.01, 0.2), (0.01, 0.0)]
    assert (list(scheduler.milestones), scheduler.gamma) == ([3], 0.1)


def test_a_checkpoint_restores_its_heuristic(tmp_path):
    seed_everything(0, verbose=False)
    task = HeuristicEstimation(
        lambda spec: PairGNN(spec, hidden_channels=8), heuristic="katz", hide_link=False
    )
    datamodule = data()
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(task, datamodule=datamodule)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    checkpoint = torch.load(tmp_path / "x.ckpt", weights_only=True)
    again = HeuristicEstimation.from_checkpoint_dict(
        checkpoint, lambda spec: PairGNN(spec, hidden_channels=8)
    )
    assert (again.heuristic, again.hide_link) == ("katz", False)
    before = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert trainer.test(again, datamodule=data(), verbose=False)[0] == before
