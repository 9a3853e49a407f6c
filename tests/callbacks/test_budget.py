"""The length of training chosen by the size of the graph."""

from functools import partial

import lightning as L
import pytest
from helpers.link_graphs import make_link_graph
from lightning.pytorch.callbacks import Timer

from graphzoo.callbacks import LinkBudget, QueryBudget
from graphzoo.datamodules import KGDataModule, LinkDataModule
from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.tasks import KGCompletion, LinkPrediction

SMALL = {"hidden_channels": 4, "num_layers": 1, "num_heads": 1, "num_query_layers": 0, "num_value_layers": 0}


def limited(tmp_path, budget, *, batch_size=64, more=(), lr_milestones=None, **settings):
    """Trainer and task after the callback's `setup`, for UMLS with its 5,216 triples."""
    task = KGCompletion(partial(KnowFormer, **SMALL), lr_milestones=lr_milestones)
    data = KGDataModule(batch_size=batch_size)
    defaults = {"max_epochs": -1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    callback = QueryBudget(budget)
    trainer = L.Trainer(
        **{**defaults, **settings}, callbacks=[callback, *more], default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    task.trainer = trainer
    trainer.datamodule = data
    data.trainer = trainer
    data.setup()
    callback.setup(trainer, task, "fit")
    return trainer, task


def test_a_small_graph_has_twenty_whole_epochs(tmp_path):
    trainer, task = limited(tmp_path, 1_000_000)
    assert trainer.max_epochs == 20 and trainer.limit_train_batches == 1.0
    assert task.lr_milestones == [10, 15]


def test_a_graph_of_medium_size_has_the_epochs_of_the_budget(tmp_path):
    trainer, task = limited(tmp_path, 14 * 5216)
    assert trainer.max_epochs == 14 and trainer.limit_train_batches == 1.0
    assert task.lr_milestones == [7, 10]


def test_an_epoch_of_a_large_graph_has_a_part_of_the_triples(tmp_path):
    trainer, task = limited(tmp_path, 10_000)
    assert trainer.max_epochs == 10
    assert trainer.limit_train_batches == 16  # batches of 64, for 1,000 queries
    assert task.lr_milestones == [5, 7]


def test_a_budget_below_a_batch_has_ten_epochs_of_one_batch(tmp_path):
    for budget in (5, 19):
        trainer, _ = limited(tmp_path, budget)
        assert trainer.max_epochs == 10 and trainer.limit_train_batches == 1


def test_milestones_of_the_user_are_kept(tmp_path):
    trainer, task = limited(tmp_path, 10_000, lr_milestones=[3])
    assert trainer.max_epochs == 10 and task.lr_milestones == [3]


def test_training_ends_early_unless_the_user_sets_a_length(tmp_path):
    trainer, _ = limited(tmp_path, 10_000)
    assert (trainer.callbacks[0].patience, trainer.callbacks[0].mode) == (4, "max")
    trainer, _ = limited(tmp_path, 10_000, max_epochs=300)
    assert trainer.callbacks[0].patience > 10**6


@pytest.mark.parametrize(
    "settings", [{"max_epochs": 3}, {"max_steps": 40}, {"max_epochs": 20, "max_steps": 7}], ids=str
)
def test_a_length_of_the_user_is_kept(tmp_path, settings):
    trainer, task = limited(tmp_path, 10**9, **settings)
    assert {name: getattr(trainer, name) for name in settings} == settings
    assert task.lr_milestones == [10, 15]


def test_a_timer_of_the_user_is_kept(tmp_path):
    trainer, _ = limited(tmp_path, 10**9, more=[Timer("00:01:00:00")])
    assert trainer.max_epochs == -1


def test_a_limit_of_batches_of_the_user_is_kept(tmp_path):
    trainer, _ = limited(tmp_path, 10_000, limit_train_batches=5)
    assert trainer.limit_train_batches == 5


def test_a_limit_of_one_batch_is_kept(tmp_path):
    trainer, _ = limited(tmp_path, 10_000, limit_train_batches=1)
    assert trainer.limit_train_batches == 1 and isinstance(trainer.limit_train_batches, int)


def test_a_resumed_run_has_its_own_patience(tmp_path):
    trainer, _ = limited(tmp_path, 10_000)
    state = trainer.callbacks[0].state_dict()
    resumed, _ = limited(tmp_path, 10_000, max_epochs=50)
    resumed.callbacks[0].load_state_dict({**state, "wait_count": 3})
    assert resumed.callbacks[0].patience > 10**6 and resumed.callbacks[0].wait_count == 3


def test_a_second_fit_has_the_length_of_the_first(tmp_path):
    trainer, task = limited(tmp_path, 10_000)
    trainer.callbacks[0].setup(trainer, task, "fit")
    assert trainer.max_epochs == 10 and trainer.callbacks[0].patience == 4
    assert trainer.limit_train_batches == 16


def test_a_second_fit_on_a_smaller_graph_has_all_of_its_triples(tmp_path):
    trainer, task = limited(tmp_path, 10_000)
    trainer.datamodule = KGDataModule.from_triples(
        [(f"a{number // 9}", "r", f"b{number % 9}") for number in range(90)]
    )
    trainer.datamodule.setup()
    trainer.callbacks[0].setup(trainer, task, "fit")
    assert (trainer.max_epochs, trainer.limit_train_batches) == (20, 1.0)


def test_a_limit_that_the_user_sets_for_a_second_fit_is_kept(tmp_path):
    trainer, task = limited(tmp_path, 10_000)
    trainer.limit_train_batches = 5
    trainer.callbacks[0].setup(trainer, task, "fit")
    assert trainer.limit_train_batches == 5


def test_anything_but_a_knowledge_graph_is_refused():
    with pytest.raises(UsageError, match="knowledge graphs"):
        QueryBudget().setup(L.Trainer(logger=False, enable_checkpointing=False), L.LightningModule(), "fit")


def test_a_budget_below_one_is_refused():
    for settings in ({"queries": 0}, {"patience": 0}):
        with pytest.raises(UsageError, match="at least 1, got 0"):
            QueryBudget(**settings)


def test_links_have_no_budget_of_queries(tmp_path):
    trainer = L.Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path)
    trainer.datamodule = LinkDataModule("citeseer-link")
    with pytest.raises(
        UsageError, match="QueryBudget is for knowledge graphs: KGCompletion with a KGDataModule"
    ):
        QueryBudget(64).setup(trainer, LinkPrediction(partial(KnowFormer, **SMALL)), "fit")


@pytest.mark.parametrize(
    ("links", "batch_size", "given", "limit"),
    [(40, 8, 1.0, 5), (41, 8, 1.0, 6), (10**6, 8, 1.0, 1.0), (40, 8, 3, 3), (40, 8, 0.5, 0.5)],
)
def test_an_epoch_has_as_many_links_with_any_batches(tmp_path, links, batch_size, given, limit):
    make_link_graph().save(tmp_path / "links.npz")
    data = LinkDataModule("links", path=str(tmp_path / "links.npz"), batch_size=batch_size)
    data.setup()
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, limit_train_batches=given,
        default_root_dir=tmp_path, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.datamodule = data
    callback = LinkBudget(links)
    for _ in range(2):  # a second fit
        callback.setup(trainer, None, "fit")
        assert trainer.limit_train_batches == limit
    data.batch_size = 4
    callback.setup(trainer, None, "fit")
    assert trainer.limit_train_batches == (10 if limit == 5 else 11 if limit == 6 else limit)
    trainer.datamodule = KGDataModule()
    with pytest.raises(UsageError, match="LinkBudget is for links"):
        callback.setup(trainer, None, "fit")
