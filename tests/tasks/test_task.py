"""Behaviour that all tasks share."""

import copy
import dataclasses
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from helpers.link_tasks import build
from helpers.link_tasks import data as link_data
from helpers.node_encoders import Averaging
from helpers.trainers import QUIET
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
)
from torch import nn
from torch_geometric.data import Data

from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
from graphzoo.encoders import PENCIL, GALiT, KnowFormer, KnowFormerAny
from graphzoo.encoders.base import NodeEncoder
from graphzoo.errors import UsageError
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification
from graphzoo.tasks.base import Task
from graphzoo.types import GraphSpec

TASKS = [
    pytest.param(NodeClassification, Averaging, {"in_channels": 3, "num_classes": 2}, id="nodes"),
    pytest.param(
        KGCompletion, lambda spec: KnowFormer(spec, hidden_channels=8), {"num_relations": 2}, id="kg"
    ),
]


@pytest.mark.parametrize(("cls", "encoder", "sizes"), TASKS)
# "meta" stands for any device other than the CPU.
@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("meta", None)])
def test_adam_is_fused_on_the_cpu_and_has_torchs_default_elsewhere(cls, encoder, sizes, device, fused):
    task = cls(encoder)
    task.build(GraphSpec(num_nodes=4, **sizes))
    task.to(device)
    assert task.fuses_optimizer is fused
    found = task.configure_optimizers()
    optimizer = found["optimizer"] if isinstance(found, dict) else found
    # foreach=False would update parameters one by one.
    assert optimizer.defaults["fused"] is fused and optimizer.defaults["foreach"] is None


def test_weights_are_initialised_on_the_cpu_for_any_device(monkeypatch):
    """A GPU, for which "meta" stands, would draw other numbers from the seed."""
    task = NodeClassification(Averaging)
    spec = GraphSpec(num_nodes=4, in_channels=3, num_classes=2)
    monkeypatch.setattr(task, "_datamodule", lambda: SimpleNamespace(spec=spec))
    monkeypatch.setattr(task, "_trainer", SimpleNamespace(world_size=1))
    with torch.device("meta"):
        task.configure_model()
    assert {parameter.device.type for parameter in task.parameters()} == {"cpu"}


@pytest.mark.parametrize(
    ("task", "datamodule", "message"),
    [
        (KGCompletion, LinkDataModule("citeseer-link"), "is a LinkDataModule\nGive a KGDataModule"),
        (LinkPrediction, KGDataModule("umls"), "is a KGDataModule\nGive a LinkDataModule"),
        (NodeClassification, KGDataModule("umls"), "is a KGDataModule\nGive a NodeDataModule"),
    ],
)
def test_data_of_another_task_are_refused(task, datamodule, message):
    made = task(Averaging)
    made._trainer = SimpleNamespace(datamodule=datamodule)
    with pytest.raises(UsageError, match=message):
        made.setup("fit")


def test_a_datamodule_is_shown_by_its_name():
    for made in (KGDataModule("umls"), LinkDataModule("citeseer-link")):
        assert str(made) == repr(made) == f"{type(made).__name__}({made.name!r})"


def test_a_task_needs_a_function_that_makes_an_encoder():
    with pytest.raises(ValueError, match=r"encoder is a GALiT.*\nGive a function.*: lambda spec: GALiT\("):
        NodeClassification(GALiT(8, 4))
    with pytest.raises(
        ValueError, match=r"without an encoder\nGive encoder=.*graphzoo.load\(checkpoint\).task"
    ):
        NodeClassification().build(GraphSpec(3, in_channels=8, num_classes=2))


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (StochasticWeightAveraging(swa_lrs=0.1), "would average nothing\nTake graphzoo.callbacks.Warmup"),
        (LearningRateFinder(), "hides the answers of a batch from the encoder\nTry some rates"),
        (BatchSizeFinder(), "Leave it out: batches that take too much memory are cut into parts"),
    ],
)
def test_callbacks_that_would_not_work_are_refused(callback, message, tmp_path):
    data = KGDataModule("umls", batch_size=64)
    trainer = Trainer(callbacks=[callback], max_steps=1, default_root_dir=tmp_path, accelerator="cpu")
    with pytest.raises(UsageError, match=f"(?s){type(callback).__name__} .*{message}"):
        trainer.fit(KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8)), data)


def test_a_task_that_skips_what_graphzoo_prepares_is_refused_in_every_fit():
    """Else the encoder would see the links of a batch, and class weights would be ignored, unnoticed."""
    calls = iter([True, False])

    class Own(NodeClassification):
        def on_fit_start(self):
            if next(calls):
                super().on_fit_start()

    _, (data, _) = two_splits("nodes")
    task = Own(lambda spec: GALiT(spec, hidden_channels=4))
    quiet_trainer().fit(task, datamodule=data)
    with pytest.raises(
        UsageError, match=r"Own overrides on_fit_start without super\(\)\.on_.*\nCall it first"
    ):
        quiet_trainer().fit(task, datamodule=data)


def test_a_backward_pass_outside_of_a_fit_is_not_checked():
    _, (data, _) = two_splits("nodes")
    task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=4))
    for _ in range(2):  # the second time after a validation, which has a trainer
        if task.encoder is None:
            data.setup("fit")
            task.build(data.spec)
        task.zero_grad()
        task.backward(sum(each.square().sum() for each in task.parameters()))
        assert all(each.grad is not None for each in task.parameters())
        quiet_trainer().validate(task, datamodule=data, verbose=False)


class Frozen(BaseFinetuning):
    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.encoder)

    def finetune_function(self, pl_module, epoch, optimizer):
        pass


@pytest.mark.parametrize("make", [Frozen, lambda: ModelPruning("l1_unstructured", amount=0.1)])
def test_callbacks_that_need_weights_need_a_built_task(make):
    task, (data, _) = two_splits("nodes")
    with pytest.raises(UsageError, match=r"before the encoder is built\nGive it, in Python, a task that has"):
        quiet_trainer(callbacks=[make()]).fit(task, datamodule=data)
    quiet_trainer().fit(task, datamodule=data)
    before = [weight.clone() for weight in task.encoder.parameters()]
    trainer = quiet_trainer(callbacks=[make()])
    trainer.fit(task, datamodule=data)
    same = all(torch.equal(*pair) for pair in zip(before, task.encoder.parameters(), strict=True))
    assert trainer.global_step == 1 and same == (make is Frozen)


def test_a_schedule_of_accumulation_is_refused_for_parts_of_a_graph(tmp_path):
    """The sampler fixes the sizes of batches, so another accumulation would change their gradients."""
    generator = torch.Generator().manual_seed(0)
    graph = Data(
        x=torch.randn(60, 3, generator=generator),
        edge_index=torch.randint(60, (2, 90), generator=generator),
        y=torch.arange(60) % 2,
    )
    scheduler = GradientAccumulationScheduler({0: 2})
    settings = {"max_epochs": 1, "default_root_dir": tmp_path, "accelerator": "cpu", "logger": False}
    trainer = Trainer(callbacks=[scheduler], enable_progress_bar=False, **settings)
    with pytest.raises(UsageError, match="Give the Trainer accumulate_grad_batches instead"):
        trainer.fit(NodeClassification(Averaging), NodeDataModule(data=graph, batch_size=20))
    trainer.fit(NodeClassification(Averaging), NodeDataModule(data=graph))  # allowed with whole graphs


class OwnTask(Task):
    """A user's task, which does not describe its data."""

    accepts = (NodeEncoder,)

    def build_decoder(self, encoder):
        return nn.Linear(encoder.out_channels, 1)

    def training_step(self, batch, batch_idx):
        scores = self.decode(self.encoder(batch.x, batch.edge_index))
        return self.batch_loss(scores[batch.target].square().squeeze(1), batch.num_global, None)

    def test_step(self, batch, batch_idx):
        self.log("test/loss", self.training_step(batch, batch_idx), batch_size=1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_the_memory_remedy_for_own_data_is_a_smaller_model():
    """These data have no `micro_batch_size`."""
    task = OwnTask(Averaging)
    task._trainer = SimpleNamespace(datamodule=LightningDataModule())
    assert task.less_memory.startswith("Take a smaller --model.encoder.hidden_channels")


def quiet_trainer(**settings):
    return Trainer(**{**QUIET, "max_epochs": 1, "num_sanity_val_steps": 0, **settings})


def two_splits(kind, seed=0):
    """A task, and two data modules with different splits of one graph."""
    torch.manual_seed(seed)
    if kind == "nodes":
        data = Data(x=torch.randn(60, 3), y=torch.arange(60) % 3, edge_index=torch.randint(60, (2, 200)))
        own = {"split": "random-50-25-25"}
        modules = [NodeDataModule.from_data(data, split_index=index, **own) for index in (0, 1)]
        return NodeClassification(Averaging), modules
    triples = [(f"n{i}", f"r{i % 2}", f"n{j}") for i in range(12) for j in range(i)]
    modules = [KGDataModule.from_triples(triples, split_index=index, batch_size=16) for index in (0, 1)]
    return KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8)), modules


@pytest.mark.parametrize("stage", ["fit", "validate", "test"])
@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("nodes", {"in_channels": 5}, "built for 5 features per node, but the data have 3"),
        ("nodes", {"num_classes": 2}, "built for 2 classes, but the data have 3"),
        ("kg", {"num_relations": 1_200}, "built for 1,200 relations, but the data have 2"),
    ],
)
def test_data_of_other_sizes_are_refused_by_a_built_task(kind, size, message, stage):
    task, (data, _) = two_splits(kind)
    data.setup()
    task.build(dataclasses.replace(data.spec, **size))
    with pytest.raises(UsageError, match=f"{message}\nGive a task that is not built yet"):
        getattr(quiet_trainer(), stage)(task, datamodule=data)


def test_relations_of_a_trained_model_are_compared_by_name():
    """Which ones differ says more than how many there are."""
    task, (data, _) = two_splits("kg")
    quiet_trainer().fit(task, datamodule=data)
    more = KGDataModule.from_triples([(f"n{i}", f"r{i % 3}", f"n{j}") for i in range(12) for j in range(i)])
    with pytest.raises(UsageError, match="the model was trained with other relations"):
        quiet_trainer().fit(task, datamodule=more)


def test_sizes_that_shape_no_weights_may_differ():
    """Some encoders rank links without their features, and some take any relations."""
    data = link_data()
    data.setup()
    pencil = partial(PENCIL, hidden_channels=8, num_heads=2, num_layers=1, ffn_channels=8, use_features=False)
    for encoder in (partial(KnowFormer, hidden_channels=8), pencil):
        task = LinkPrediction(encoder)
        task.build(dataclasses.replace(data.spec, in_channels=data.spec.in_channels + 1))
        assert quiet_trainer().test(task, datamodule=data, verbose=False)
    _, (facts, _) = two_splits("kg")
    facts.setup()
    answering = KGCompletion(lambda spec: KnowFormerAny(spec, hidden_channels=8))
    answering.build(dataclasses.replace(facts.spec, num_relations=facts.spec.num_relations + 1))
    assert quiet_trainer().test(answering, datamodule=facts, verbose=False)


@pytest.mark.parametrize("kind", ["nodes", "kg"])
def test_another_split_is_refused_after_a_fit(kind):
    """This also holds without a checkpoint, for the weights of an earlier fit."""
    task, (first, second) = two_splits(kind)
    for _ in range(3):
        quiet_trainer().fit(task, datamodule=first)
        quiet_trainer().test(task, datamodule=first, verbose=False)
    described = task.describe()
    assert described["began_with"] == [described["data"]]
    weights = [parameter.clone() for parameter in task.parameters()]
    for stage in ("validate", "test", "fit"):
        with pytest.raises(UsageError, match="may be among its training"):
            getattr(quiet_trainer(), stage)(task, datamodule=second)
    assert all(torch.equal(*pair) for pair in zip(weights, task.parameters(), strict=True))


def test_a_fit_that_was_refused_trained_on_nothing():
    """Its settings are checked after the data."""
    task, (first, second) = two_splits("nodes")
    with pytest.raises(UsageError, match="nothing to accumulate"):
        quiet_trainer(accumulate_grad_batches=2).fit(task, datamodule=first)
    quiet_trainer().fit(task, datamodule=second)
    described = task.describe()
    assert described["data"]["split"] == second.describe_split() and "began_with" not in described


def test_a_task_with_hooks_of_its_own_knows_what_it_was_trained_on():
    """Lightning's own modules need no call of `super()` in them."""

    class Hooks(NodeClassification):
        def on_train_start(self):
            pass

    _, (first, second) = two_splits("nodes")
    task = Hooks(Averaging)
    quiet_trainer().fit(task, datamodule=first)
    with pytest.raises(UsageError, match="may be among its training"):
        quiet_trainer().test(task, datamodule=second)


def test_a_checkpoint_saved_after_a_test_describes_the_training_data(tmp_path):
    task, (trained, _) = two_splits("kg")
    others = [(f"m{i}", f"r{i % 2}", f"m{j}") for i in range(9) for j in range(i)]
    tested = KGDataModule.from_triples(others, batch_size=16)
    trainer = quiet_trainer()
    trainer.fit(task, datamodule=trained)
    trainer.test(task, datamodule=tested, verbose=False)
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    described = torch.load(tmp_path / "after.ckpt", weights_only=True)["graphzoo"]["data"]
    assert described["fingerprint"] == trained.fingerprint != tested.fingerprint
    assert described["split"] == trained.describe_split()


def test_a_users_task_is_tested_and_resumed_from_its_checkpoint(tmp_path):
    _, (data, _) = two_splits("nodes")
    trainer, path = quiet_trainer(), tmp_path / "own.ckpt"
    trainer.fit(OwnTask(Averaging), datamodule=data)
    trainer.save_checkpoint(path)
    loaded = {"datamodule": data, "ckpt_path": path, "weights_only": True}
    assert quiet_trainer().test(OwnTask(Averaging), **loaded, verbose=False)[0]["test/loss"] >= 0
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(OwnTask(Averaging), **loaded)
    assert trainer.global_step == 2


def test_a_fit_after_a_resume_that_was_refused_starts_anew(tmp_path):
    wide, (data, other) = two_splits("kg")
    trainer, path = quiet_trainer(), tmp_path / "wide.ckpt"
    trainer.fit(wide, datamodule=data)
    trainer.save_checkpoint(path)
    narrow = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=4))
    with pytest.raises(UsageError, match="does not fit: the weight"):
        quiet_trainer(max_epochs=2).fit(narrow, datamodule=data, ckpt_path=path, weights_only=True)
    trainer = quiet_trainer()
    trainer.fit(narrow, datamodule=other)  # another split: these weights have seen none
    assert trainer.global_step == len(other.train_dataloader()) and "began_with" not in narrow.describe()


@pytest.mark.parametrize("kind", ["nodes", "kg"])
def test_a_fit_does_not_resume_on_another_split(kind, tmp_path):
    task, (first, second) = two_splits(kind)
    trainer, path = quiet_trainer(), tmp_path / "one.ckpt"
    trainer.fit(task, datamodule=first)
    trainer.save_checkpoint(path)
    again, _ = two_splits(kind, seed=1)
    resumed = {"ckpt_path": path, "weights_only": True}
    with pytest.raises(UsageError, match="may be among its training"):
        quiet_trainer(max_epochs=2).fit(again, datamodule=second, **resumed)
    assert again.describe()["data"] == task.describe()["data"]  # of its weights, which are loaded
    again.takes_other_data = True  # as --override does, for one fit
    quiet_trainer(max_epochs=2).fit(again, datamodule=second, **resumed)
    assert again.describe()["data"]["split"] == second.describe_split()
    with pytest.raises(UsageError, match="may be among its training"):
        quiet_trainer(max_epochs=3).fit(again, datamodule=second, **resumed)


def test_a_resumed_fit_began_with_what_its_checkpoint_began_with(tmp_path):
    """The data of the checkpoint are not those of an earlier training."""
    task, (data, _) = two_splits("nodes")
    _, (earlier, _) = two_splits("nodes", seed=1)
    quiet_trainer().fit(task, datamodule=earlier)
    before = task.describe()["data"]
    trainer, path = quiet_trainer(), tmp_path / "one.ckpt"
    trainer.fit(task, datamodule=data)
    trainer.save_checkpoint(path)
    again, _ = two_splits("nodes", seed=2)
    quiet_trainer(max_epochs=2).fit(again, datamodule=data, ckpt_path=path, weights_only=True)
    assert again.describe()["began_with"] == [before] != [again.describe()["data"]]


class FailsToResume(Callback):
    def state_dict(self):
        return {"of": "an earlier version"}

    def load_state_dict(self, state_dict):
        raise UsageError("cannot be resumed")


def test_a_fit_after_a_resume_that_a_callback_ended_takes_no_optimiser(tmp_path):
    task, (data, _) = two_splits("kg")
    trainer, path = quiet_trainer(callbacks=[FailsToResume()]), tmp_path / "one.ckpt"
    trainer.fit(task, datamodule=data)
    trainer.save_checkpoint(path)
    again, _ = two_splits("kg", seed=1)
    with pytest.raises(UsageError, match="cannot be resumed"):
        quiet_trainer(max_epochs=2, callbacks=[FailsToResume()]).fit(
            again, datamodule=data, ckpt_path=path, weights_only=True
        )
    trainer = quiet_trainer()
    trainer.fit(again, datamodule=data)
    assert trainer.global_step == len(data.train_dataloader())
    assert again.describe()["began_with"] == [task.describe()["data"]]  # its weights were loaded


def test_loading_weights_before_the_encoder_is_built_is_refused():
    task, (data, _) = two_splits("nodes")
    quiet_trainer().fit(task, datamodule=data)
    weights = task.state_dict()
    fresh = NodeClassification(Averaging)
    with pytest.raises(UsageError, match=r"Take graphzoo.load\(CHECKPOINT\).task"):
        fresh.load_state_dict(weights)
    fresh.build(data.spec)
    fresh.load_state_dict(weights)
    assert all(torch.equal(value, weights[name]) for name, value in fresh.state_dict().items())


def test_a_task_without_an_encoder_is_not_described():
    with pytest.raises(UsageError, match="not built yet, so there is nothing to describe"):
        NodeClassification(Averaging).describe()


def test_an_evaluation_begins_without_the_count_of_an_earlier_one():
    """An empty split, which is not evaluated, would keep it."""
    task, (data, _) = two_splits("nodes")
    quiet_trainer().test(task, data, verbose=False)
    assert task.num_evaluated == data.num_tested > 0
    task.setup("test")
    assert task.num_evaluated is None


def test_copies_of_a_task_have_no_cached_graphs():
    """Lightning's averages of the weights are such a copy."""
    task, (data, _) = two_splits("nodes")
    quiet_trainer().fit(task, datamodule=data)
    task.to_device_once("classes", data.graph.y)
    copied = copy.deepcopy(task)
    assert task._prepared is not None and task._device_cache
    assert copied._prepared is None and not copied._device_cache


@pytest.mark.parametrize(("kept", "settings"), [("_removers", {}), ("_near", {"neighbourhood": 6})])
def test_copies_of_a_query_task_have_no_facts(kept, settings):
    triples = [(f"n{i}", f"r{i % 2}", f"n{j}") for i in range(12) for j in range(i)]
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8))
    quiet_trainer().fit(task, KGDataModule.from_triples(triples, batch_size=16, **settings))
    assert getattr(task, kept) and not getattr(copy.deepcopy(task), kept)


def test_a_graph_of_several_splits_is_moved_once():
    """Else the device, for which "meta" stands, would hold the graph three times."""
    task, graph = OwnTask(Averaging).to("meta"), torch.arange(3)
    copies = [task.to_device_once(f"graph/{split}", graph) for split in ("train", "valid", "test")]
    assert copies[0].device.type == "meta" and all(copy is copies[0] for copy in copies)
    assert task.to_device_once("graph/test", torch.arange(3)) is not copies[0]
    assert task.to("cpu").to_device_once("graph/test", graph) is graph


def test_the_default_metric_is_that_of_the_data():
    """It follows the current data, not the first that the task was used with."""
    found = []
    for task in (NodeClassification(Averaging), LinkPrediction(Averaging)):
        for metric in ("accuracy", "roc_auc") if isinstance(task, NodeClassification) else ("auroc", "mrr"):
            graph = SimpleNamespace(metric=metric)
            task._trainer = SimpleNamespace(datamodule=SimpleNamespace(graph=graph))
            found.append(task.monitor)
    assert found == ["val/acc", "val/auroc", "val/auroc", "val/mrr"]


def test_a_second_fit_resets_its_state():
    """Hidden links and the count of one-class validations are reset."""
    task = build("galit", link_data())
    assert task._hider is not None
    task.hide_positives = False
    task.on_fit_start()
    assert task._hider is None
    task, (data, _) = two_splits("nodes")
    task._votes = 4
    quiet_trainer(limit_val_batches=0).fit(task, datamodule=data)
    assert task._votes == 0


def test_the_first_training_data_are_remembered_in_a_second_fit():
    """A model trained on graph A, then on B, is neither tested nor trained on another split of A."""
    task, (first, second) = two_splits("nodes")
    _, (other, _) = two_splits("nodes", seed=1)
    for datamodule in (first, other):
        quiet_trainer().fit(task, datamodule=datamodule)
    for stage in ("test", "fit"):
        with pytest.raises(UsageError, match="may be among its training"):
            getattr(quiet_trainer(), stage)(task, datamodule=second)


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_a_hook_may_change_the_features_of_a_whole_graph(precision):
    """A hook may mask features; a cast by Lightning is not such a change."""
    seen = []

    class Masked(NodeClassification):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return (
                dataclasses.replace(batch, x=torch.zeros_like(batch.x)) if precision == "32-true" else batch
            )

        def _prepare(self, x, edge_index):
            seen.append(float(x.abs().sum()) if self.trainer.state.stage == "train" else None)
            return super()._prepare(x, edge_index)

    _, (datamodule, _) = two_splits("nodes")
    quiet_trainer(precision=precision, limit_val_batches=0).fit(Masked(Averaging), datamodule=datamodule)
    assert (seen[-1] == 0) is (precision == "32-true")
