"""NodeClassification: losses, inputs of the encoder, several processes, and refused settings."""

import abc
import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.node_encoders import Averaging, Prepared
from helpers.node_graphs import small_parts, yes_no_labels
from helpers.trainers import QUIET
from lightning.pytorch import Callback, Trainer, seed_everything
from torch.nn import functional as F
from torch_geometric.data import Data

from graphzoo.callbacks import BestCheckpoint, best_checkpoint
from graphzoo.datamodules import NodeDataModule
from graphzoo.datamodules.node_batches import NodeBatches, PartSampler, WholeGraphSampler
from graphzoo.encoders import GALiT
from graphzoo.encoders.base import QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.metrics import Accuracy
from graphzoo.tasks import NodeClassification


def fit(task, datamodule, epochs=2, **more):
    seed_everything(0, verbose=False)
    trainer = Trainer(max_epochs=epochs, **{**QUIET, **more})
    trainer.fit(task, datamodule=datamodule)
    return trainer


def build(datamodule, encoder=Averaging, world_size=1, accumulate=1, **settings):
    """A task ready for `training_step`, without a trainer."""
    datamodule.setup("fit")
    torch.manual_seed(0)
    task = NodeClassification(encoder, **settings)
    task.build(datamodule.spec)
    task.log = lambda *args, **kwargs: None
    task._trainer = SimpleNamespace(
        world_size=world_size,
        accumulate_grad_batches=accumulate,
        datamodule=datamodule,
        is_global_zero=True,
    )
    graph = datamodule.graph
    task._weights = task._weigh_classes(graph.y, datamodule.split.train, graph)
    return task


def gradient(task, batch):
    task.zero_grad()
    loss = task.training_step(batch, 0)
    loss.backward()
    return torch.cat([p.grad.flatten() for p in task.parameters()])


def whole(datamodule):
    return next(iter(datamodule.train_dataloader(epoch=0)))


def logits_of(task, batch):
    with torch.no_grad():
        return task.decoder(task.encoder(batch.x, batch.edge_index))[batch.target]


def test_single_label_loss_is_the_mean_cross_entropy(small):
    datamodule = small()
    task = build(datamodule)
    batch = whole(datamodule)
    expected = F.cross_entropy(logits_of(task, batch), batch.y[batch.target])
    assert torch.allclose(task.training_step(batch, 0), expected)


@pytest.mark.parametrize("weights", ["balanced", [1.0, 5.0]])
def test_class_weights_have_a_mean_of_one(small, weights):
    parts = small_parts()
    y = torch.from_numpy(parts["y"] // 2)  # class 0 twice as often as class 1
    datamodule = small(y=y.numpy())
    task = build(datamodule, class_weights=weights)
    batch = whole(datamodule)
    target = batch.y[batch.target]
    counts = torch.bincount(target).float()
    factors = target.numel() / (2 * counts) if weights == "balanced" else torch.tensor(weights)
    expected = F.cross_entropy(logits_of(task, batch), target, weight=factors)
    assert torch.allclose(task.training_step(batch, 0), expected)
    assert float(task._weights[target].mean()) == pytest.approx(1.0)


def test_class_weights_do_not_affect_evaluation(small):
    """`graphzoo test` of a checkpoint has no class weights, and must give the scores of the training run."""
    datamodule = small()
    losses = []
    for weights in (None, [1.0, 5.0, 1.0]):
        task = build(datamodule, class_weights=weights).eval()
        task.metrics["test"] = Accuracy()
        task.log = lambda name, value, **_: losses.append(value)
        with torch.no_grad():
            task.test_step(next(iter(datamodule.test_dataloader())), 0)
    assert torch.equal(*losses)


@pytest.mark.parametrize("names", [["bee", "cat", "dog"], ["cat", "bee", "ant"]])
def test_data_with_other_class_names_are_refused(small, names):
    """Comparing class numbers would count predictions of "ant" as right for "bee"."""
    y = np.array(["ant", "bee", "cat"])[small_parts()["y"]]
    trained = small(y=y, class_names=np.array(["ant", "bee", "cat"]))
    task = build(trained)
    task._loaded_data = {key: task.describe()[key] for key in ("classes", "features", "data")}
    for given, fits in ((names, False), (["ant", "bee", "cat"], True)):
        y = np.array(given)[small_parts(seed=3)["y"]]
        other = small(y=y, x=small_parts(seed=3)["x"], class_names=np.array(given))
        other.setup("test")
        task._trainer = SimpleNamespace(datamodule=other, state=SimpleNamespace(fn="test"))
        if fits:
            task.on_test_start()
            continue
        with pytest.raises(
            UsageError, match="classes are ant, bee, cat, those of .* are " + ", ".join(given)
        ):
            task.on_test_start()


@pytest.mark.parametrize("index", [0, 1])
def test_another_split_is_refused_with_another_number_of_neighbours_too(index):
    trained = NodeDataModule("digits")
    trained.setup()
    task = build(trained)
    task._loaded_data = {key: task.describe()[key] for key in ("classes", "features", "data")}
    other = NodeDataModule("digits", num_neighbors=3, split_index=index)
    other.setup("test")
    task._trainer = SimpleNamespace(datamodule=other, state=SimpleNamespace(fn="test"))
    if index == 0:
        task.on_test_start()
        return
    with pytest.raises(UsageError, match="may be among its training nodes"):
        task.on_test_start()


def test_own_nodes_in_another_order_are_tested_with_a_message(caplog):
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    edge_index = torch.randint(60, (2, 150))
    order = torch.randperm(60)
    given = Data(x=x, y=y, edge_index=edge_index)
    shuffled = Data(x=x[order], y=y[order], edge_index=order.argsort()[edge_index])
    modules = [NodeDataModule(data=data, split="random-50-25-25") for data in (given, given, shuffled)]
    for module in modules:
        module.setup()
    task = build(modules[0])
    task._loaded_data = {key: task.describe()[key] for key in ("classes", "features", "data")}
    for module, count in zip([*modules[1:], modules[-1]], (0, 1, 1), strict=True):
        task._trainer = SimpleNamespace(datamodule=module, state=SimpleNamespace(fn="test"))
        task.on_test_start()
        assert caplog.text.count("these are not the data that the model was trained on") == count


def test_multi_label_loss_uses_only_known_labels(small):
    datamodule = small(y=yes_no_labels())
    task = build(datamodule)
    batch = whole(datamodule)
    logits, target = logits_of(task, batch), batch.y[batch.target]
    means = [
        F.binary_cross_entropy_with_logits(row[~known.isnan()], known[~known.isnan()])
        for row, known in zip(logits, target, strict=True)
    ]
    assert torch.allclose(task.training_step(batch, 0), torch.stack(means).mean())
    assert torch.isfinite(gradient(task, batch)).all()


@pytest.mark.parametrize("settings", [{}, {"decoder": "mlp", "dropout": 0.4}], ids=["linear", "mlp"])
def test_processes_sharing_a_whole_graph_have_the_gradient_of_one(small, settings):
    """DDP averages gradients over processes."""
    datamodule = small(y=yes_no_labels())
    single = gradient(build(datamodule, **settings), whole(datamodule))
    shares = []
    assert datamodule.split.train.numel() % 4, "shares of different sizes"
    for rank in range(4):
        task = build(datamodule, world_size=4, **settings)
        sampler = WholeGraphSampler(datamodule.split.train, rank, 4)
        shares.append(gradient(task, NodeBatches(datamodule.graph)[next(iter(sampler))]))
    assert not torch.allclose(shares[0], single)
    assert torch.allclose(torch.stack(shares).mean(0), single, atol=1e-6)


@pytest.mark.parametrize("encoder", [Averaging, Prepared])
def test_processes_sharing_parts_have_the_gradient_of_one_that_accumulates(small, encoder):
    """This also holds for a last step of fewer parts, and with an auxiliary loss (`Prepared`)."""
    datamodule = small(settings={"batch_size": 13})
    datamodule.setup("fit")
    is_target = torch.zeros(60, dtype=torch.bool)
    is_target[datamodule.split.train] = True

    def gradients(accumulate, rank, world):
        sampler = PartSampler(datamodule._parts, 5, is_target, accumulate, rank, world)
        task = build(datamodule, encoder, world_size=world, accumulate=accumulate)
        # Lightning divides by the number of accumulated batches.
        return [gradient(task, NodeBatches(datamodule.graph)[part]) / accumulate for part in sampler]

    alone = gradients(2, 0, 1)
    together = [gradients(1, rank, 2) for rank in range(2)]
    steps = [alone[0] + alone[1], alone[2] + alone[3], alone[4]]
    for step, one, other in zip(steps, *together, strict=True):
        assert torch.allclose(step, (one + other) / 2, atol=1e-6)


def test_steps_without_training_nodes_log_no_loss(small, monkeypatch):
    """Of five steps at most two have one of the two training nodes."""
    losses = []
    monkeypatch.setattr(NodeClassification, "log_training", lambda task, name, value: losses.append(value))
    datamodule = small(settings={"batch_size": 13}, train_mask=np.arange(60) < 2)
    trainer = fit(NodeClassification(Averaging), datamodule, epochs=1)
    assert trainer.global_step == 5 and 1 <= len(losses) <= 2
    assert all(0 < loss < math.inf for loss in losses)


def test_noise_seeds_depend_on_seed_epoch_and_part(small):
    datamodule = small(settings={"batch_size": 20})
    task = NodeClassification(Averaging, seed=4)
    fit(task, datamodule)
    named = [seed for training, seed in task.encoder.calls if training]
    assert len(named) == 6 == len(set(named))
    again = NodeClassification(Averaging, seed=4)
    fit(again, small(settings={"batch_size": 20}))
    assert [seed for training, seed in again.encoder.calls if training] == named
    assert {seed for training, seed in task.encoder.calls if not training} == {None}


def test_training_does_not_change_the_global_random_state(small):
    datamodule = small(settings={"batch_size": 20})
    states = []

    class Watch(Averaging):
        def forward(self, *args, **kwargs):
            states.append(torch.get_rng_state())
            return super().forward(*args, **kwargs)

    task = NodeClassification(lambda spec: Watch(spec, p=0.5), dropout=0.5, decoder="mlp")
    fit(task, datamodule, num_sanity_val_steps=1)
    assert len(states) > 6 and all(torch.equal(state, states[0]) for state in states)


def test_the_graph_is_precomputed_once_and_then_used_without_edges(small):
    """If a validation comes first, it must not leave inference tensors, which cannot be trained on."""
    datamodule = small()
    task = NodeClassification(Prepared)
    Trainer(**QUIET).validate(task, datamodule=datamodule, verbose=False)
    trainer = fit(task, datamodule)
    assert "train/auxiliary_loss" in trainer.callback_metrics
    trainer.test(task, datamodule=datamodule, verbose=False)
    assert len(task.encoder.prepared) == 1
    cache = task.encoder.prepared[0][1]
    assert cache is not None and "graphzoo" in str(cache)
    assert all(edges is None and rows == 60 for edges, rows in task.encoder.seen)


def test_parts_use_rows_of_the_precomputed_tensors(small):
    datamodule = small(settings={"batch_size": 20})
    task = NodeClassification(Prepared)
    fit(task, datamodule)
    assert len(task.encoder.prepared) == 1
    assert all(edges is None for edges, _ in task.encoder.seen)
    assert {rows for _, rows in task.encoder.seen} == {20, 60}
    (batch, *_) = list(datamodule.train_dataloader(epoch=0))
    assert batch.edge_index is None, "edges inside a part are not computed"
    x, edge_index, precomputed = task._inputs(batch)
    assert edge_index is None and torch.equal(
        precomputed["summed"], task._prepared.precomputed["summed"][batch.index]
    )
    fit(NodeClassification(Averaging), datamodule)  # which needs edges
    assert next(iter(datamodule.train_dataloader(epoch=0))).edge_index is not None


def test_parts_are_precomputed_if_a_value_has_no_rows(small):
    class Scaled(Prepared):
        def precompute(self, x, edge_index, *, cache=None):
            return {**super().precompute(x, edge_index, cache=cache), "scale": x.sum()}

        def forward(self, x, edge_index, *, scale, **more):
            return super().forward(x, edge_index, **more) / scale

    task = NodeClassification(Scaled)
    fit(task, small(settings={"batch_size": 20}), epochs=1)
    assert sorted(len(x) for x, _ in task.encoder.prepared) == [20, 20, 20, 60]


def test_the_auxiliary_loss_is_added_unscaled(small):
    datamodule = small()
    task = build(datamodule, Prepared)
    batch = whole(datamodule)
    x, _, precomputed = task._inputs(batch)
    states, auxiliary = task.encoder.forward_with_auxiliary(x, None, **precomputed)
    supervised = F.cross_entropy(task.decoder(states)[batch.target], batch.y[batch.target])
    assert torch.allclose(task.training_step(batch, 0), supervised + auxiliary)
    assert auxiliary > 0


def test_mostly_empty_features_become_sparse_for_encoders_that_accept_them(small):
    x = torch.zeros(60, 300)
    x[torch.arange(60), torch.arange(60)] = 1.0
    for encoder, layout in ((Prepared, torch.sparse_csr), (Averaging, torch.strided)):
        datamodule = small(x=x.numpy())
        task = NodeClassification(encoder)
        fit(task, datamodule)
        assert task._prepared.x.layout is layout


@pytest.mark.parametrize(
    ("y", "metric", "monitor"),
    [(None, None, "val/acc"), ("labels", "roc_auc", "val/auroc"), ("labels", "accuracy", "val/acc")],
)
def test_the_metric_decides_what_is_monitored(small, y, metric, monitor):
    datamodule = small() if y is None else small(y=yes_no_labels())
    task = NodeClassification(Averaging, metric=metric)
    trainer = fit(task, datamodule)
    assert task.monitor == monitor and monitor in trainer.callback_metrics
    assert trainer.callback_metrics[monitor].dtype == torch.float64


def test_without_a_metric_that_of_the_data_is_monitored(small):
    datamodule = small(y=yes_no_labels())
    datamodule.setup("fit")
    datamodule._graph = dataclasses.replace(datamodule.graph, metric="roc_auc")
    task = NodeClassification(Averaging)
    fit(task, datamodule)
    assert task.monitor == "val/auroc"


def test_the_best_weights_are_saved_without_the_command(small, tmp_path, monkeypatch):
    monkeypatch.setattr(best_checkpoint.time, "monotonic", lambda: 0.0)
    task = NodeClassification(Averaging, lr=0.05)
    best = BestCheckpoint(tmp_path)
    fit(task, small(), epochs=20, enable_checkpointing=True, callbacks=[best])
    assert best.monitor == "val/acc"
    checkpoint = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert 0 < checkpoint["epoch"] < 20 and best.best_model_score > 0.5


def test_the_checkpoint_of_the_smallest_loss_is_kept(small, tmp_path):
    """It is not the epoch of the best accuracy."""
    losses, scores = [], []

    class Curve(Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                losses.append(float(trainer.callback_metrics["val/loss"]))
                scores.append(float(trainer.callback_metrics["val/acc"]))

    task = NodeClassification(Averaging, lr=0.5, checkpoint_by_loss=True)
    best = BestCheckpoint(tmp_path, seconds=0)
    fit(task, small(), epochs=20, enable_checkpointing=True, callbacks=[best, Curve()])
    assert task.monitor == "val/acc" and (best.monitor, best.mode) == ("val/loss", "min")
    epoch = torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"]
    assert losses[epoch] == min(losses) == float(best.best_model_score)
    assert epoch == losses.index(min(losses)) != scores.index(max(scores))


class Mute(Averaging):
    """Gives zero states, so only the majority class is learned."""

    def forward(self, x, edge_index=None, **prepared):
        return 0 * super().forward(x, edge_index, **prepared)


def test_predicting_one_class_for_all_gives_a_warning(small, caplog):
    data = small()
    fit(NodeClassification(Mute, lr=0.1), data, epochs=8)
    lines = [record.getMessage() for record in caplog.records if "predicts one class" in record.getMessage()]
    assert len(lines) == 1 and "5 validations in a row" in lines[0]
    assert ("roc_auc" in lines[0]) == (data.graph.num_classes == 2) and "class_weights balanced" in lines[0]
    caplog.clear()
    fit(NodeClassification(Averaging, lr=0.1), small(), epochs=8)
    assert "predicts one class" not in caplog.text


def test_classes_are_learned(small):
    datamodule = small()
    task = NodeClassification(Averaging, lr=0.05)
    trainer = fit(task, datamodule, epochs=60)
    (found,) = trainer.test(task, datamodule=datamodule, verbose=False)
    assert found["test/acc"] > 0.9


def test_the_rate_falls_at_milestones_and_biases_may_have_no_decay(small):
    task = NodeClassification(Averaging, lr=0.1, lr_milestones=[1, 2], decay_biases=False, weight_decay=0.3)
    trainer = fit(task, small(), epochs=3)
    (optimizer,) = trainer.optimizers
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 0.025])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
    published = NodeClassification(Averaging, weight_decay=0.3)
    (optimizer,) = fit(published, small(), epochs=1).optimizers
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3]


def test_nan_scores_end_the_run(small):
    datamodule = small()
    task = NodeClassification(Averaging)
    trainer = fit(task, datamodule)
    task.encoder.own.weight.data.fill_(float("nan"))
    with pytest.raises(
        ValueError,
        match="test scores after step 2: the weights of encoder.own.weight are not finite; 45 of 45",
    ):
        trainer.test(task, datamodule=datamodule, verbose=False)


class OtherKind(QueryEncoder):
    def __init__(self, spec):
        super().__init__()

    def forward(self, graph, head, relation, *, edge_mask=None, noise_seed=0):
        raise AssertionError("never called")


@pytest.mark.parametrize(
    ("settings", "changes", "error", "message"),
    [
        ({"class_weights": [1.0]}, {}, UsageError, r"class_weights has 1 factors for 3 classes \(0, 1, 2\)"),
        ({"class_weights": "balanced"}, {"y": yes_no_labels()}, UsageError, "these data have yes-no labels"),
        ({"encoder": OtherKind}, {}, UsageError, "needs a NodeEncoder; OtherKind is not one"),
        ({"encoder": None}, {}, ValueError, "made without an encoder"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(small, settings, changes, error, message):
    task = NodeClassification(**{"encoder": Averaging, **settings})
    with pytest.raises(error, match=message):
        fit(task, small(**changes))


@pytest.mark.parametrize("form", [tuple, torch.tensor, np.array])
def test_class_weights_may_have_any_form(form):
    assert NodeClassification(Averaging, class_weights=form([3.0, 1.0])).class_weights == [3.0, 1.0]
    with pytest.raises(UsageError, match="class_weights must be at least 0"):
        NodeClassification(Averaging, class_weights=form([3.0, -1.0]))


@pytest.mark.parametrize("given", [2.0, torch.tensor(3.0), ["a", "b"]])
def test_class_weights_that_are_no_factors_are_refused(given):
    with pytest.raises(UsageError, match="class_weights must be 'balanced' or a list of factors"):
        NodeClassification(Averaging, class_weights=given)


def test_a_task_of_the_user_s_own_may_be_abstract_and_take_any_arguments(tmp_path):
    class Own(NodeClassification, abc.ABC):
        def __init__(self, folder, **settings):
            super().__init__(Averaging, **settings)
            self.folder = folder

    assert Own(tmp_path).folder is tmp_path


def test_weights_of_absent_classes_alone_are_refused(small):
    """Their mean would be 0 and the loss NaN."""
    data = small()
    data.setup()
    absent = torch.zeros(data.graph.num_classes)
    absent[2] = 1.0
    data.graph.y[data.split.train] = 0
    with pytest.raises(UsageError, match="class_weights are 0 for every class of the training nodes"):
        fit(NodeClassification(Averaging, class_weights=absent.tolist()), data)


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_roc_auc_of_several_classes_is_refused_by_every_command(small, command):
    task = NodeClassification(Averaging, metric="roc_auc")
    with pytest.raises(UsageError, match="for two classes or for yes-no labels, small.* has 3 classes"):
        getattr(Trainer(**QUIET, max_epochs=1), command)(task, datamodule=small())


def test_accumulation_needs_parts(small):
    with pytest.raises(UsageError, match="nothing to accumulate"):
        fit(NodeClassification(Averaging), small(), accumulate_grad_batches=2)
    fit(NodeClassification(Averaging), small(settings={"batch_size": 13}), accumulate_grad_batches=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "f1"}, "metric must be one of accuracy, roc_auc, got 'f1'"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"class_weights": "even"}, "'balanced' or a list"),
        ({"class_weights": [1.0, -1.0]}, "class_weights must be at least 0"),
        ({"class_weights": [0.0, 0.0]}, "not all 0"),
        ({"class_weights": [1.0, float("nan")]}, "finite"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NodeClassification(Averaging, **settings)


def test_an_unknown_decoder_is_refused(small):
    with pytest.raises(ValueError, match="decoder must be one of linear, mlp, got 'dot'"):
        fit(NodeClassification(Averaging, decoder="dot"), small())


@pytest.mark.parametrize("sanity", [0, 2])
def test_parts_are_trained_on_in_double_precision(small, sanity):
    """Rows of precomputed tensors have the precision of the batch, also after a validation."""
    task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=8, dropout=0.0))
    trainer = Trainer(**{**QUIET, "num_sanity_val_steps": sanity}, max_epochs=1, precision="64-true")
    trainer.fit(task, datamodule=small(settings={"batch_size": 13}))
    assert next(task.parameters()).dtype == torch.float64 and trainer.global_step > 1
