"""The length of a training that follows the size of the graph."""

from functools import partial

import lightning as L
import pytest
from lightning.pytorch.callbacks import Timer

from graphzoo.callbacks import QueryBudget
from graphzoo.datamodules import KGDataModule, LinkDataModule
from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.tasks import KGCompletion, LinkPrediction

SMALL = {"hidden_channels": 4, "num_layers": 1, "num_heads": 1, "num_query_layers": 0, "num_value_layers": 0}


def cut(tmp_path, budget, *, batch_size=64, more=(), **settings):
    """A trainer and task as the callback leaves them, for UMLS with its 5,216 triples."""
    task = KGCompletion(partial(KnowFormer, **SMALL))
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


def test_a_small_graph_is_asked_twenty_times_and_wholly(tmp_path):
    trainer, task = cut(tmp_path, 1_000_000)
    assert trainer.max_epochs == 20 and trainer.limit_train_batches == 1.0
    assert task.lr_milestones == [10, 15]


def test_a_graph_between_has_the_epochs_that_the_budget_pays(tmp_path):
    trainer, task = cut(tmp_path, 14 * 5216)
    assert trainer.max_epochs == 14 and trainer.limit_train_batches == 1.0
    assert task.lr_milestones == [7, 10]


def test_a_large_graph_is_asked_in_parts(tmp_path):
    trainer, task = cut(tmp_path, 10_000)
    assert trainer.max_epochs == 10
    assert trainer.limit_train_batches == 16  # of 64 queries: a thousand and a bit
    assert task.lr_milestones == [5, 7]


def test_training_ends_without_a_better_validation_unless_the_user_says_how_long(tmp_path):
    trainer, _ = cut(tmp_path, 10_000)
    assert (trainer.callbacks[0].patience, trainer.callbacks[0].mode) == (4, "max")
    trainer, _ = cut(tmp_path, 10_000, max_epochs=300)
    assert trainer.callbacks[0].patience > 10**6


@pytest.mark.parametrize(
    "settings", [{"max_epochs": 3}, {"max_steps": 40}, {"max_epochs": 20, "max_steps": 7}], ids=str
)
def test_what_the_user_sets_stays(tmp_path, settings):
    trainer, task = cut(tmp_path, 10**9, **settings)
    assert {name: getattr(trainer, name) for name in settings} == settings
    assert task.lr_milestones == [10, 15]


def test_a_time_of_the_users_stays(tmp_path):
    trainer, _ = cut(tmp_path, 10**9, more=[Timer("00:01:00:00")])
    assert trainer.max_epochs == -1


def test_a_part_of_the_batches_of_the_users_stays(tmp_path):
    trainer, _ = cut(tmp_path, 10_000, limit_train_batches=5)
    assert trainer.limit_train_batches == 5


def test_one_batch_is_no_share(tmp_path):
    trainer, _ = cut(tmp_path, 10_000, limit_train_batches=1)
    assert trainer.limit_train_batches == 1 and isinstance(trainer.limit_train_batches, int)


def test_patience_is_this_runs_after_a_resume(tmp_path):
    trainer, _ = cut(tmp_path, 10_000)
    state = trainer.callbacks[0].state_dict()
    resumed, _ = cut(tmp_path, 10_000, max_epochs=50)
    resumed.callbacks[0].load_state_dict({**state, "wait_count": 3})
    assert resumed.callbacks[0].patience > 10**6 and resumed.callbacks[0].wait_count == 3


def test_a_second_fit_is_cut_like_the_first(tmp_path):
    trainer, task = cut(tmp_path, 10_000)
    trainer.callbacks[0].setup(trainer, task, "fit")
    assert trainer.max_epochs == 10 and trainer.callbacks[0].patience == 4


def test_anything_but_a_knowledge_graph_is_refused(tmp_path):
    with pytest.raises(UsageError, match="knowledge graphs"):
        QueryBudget().setup(L.Trainer(logger=False, enable_checkpointing=False), L.LightningModule(), "fit")


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(UsageError, match="at least 1, got 0"):
        QueryBudget(0)


def test_links_have_no_budget_of_queries(tmp_path):
    trainer = L.Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path)
    trainer.datamodule = LinkDataModule("citeseer-link")
    with pytest.raises(
        UsageError, match="QueryBudget is for knowledge graphs: KGCompletion with a KGDataModule"
    ):
        QueryBudget(64).setup(trainer, LinkPrediction(partial(KnowFormer, **SMALL)), "fit")
