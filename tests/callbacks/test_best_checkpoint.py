"""Which file is the best, and when it is written."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from helpers.regression import Regression
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger

from graphzoo.callbacks.best_checkpoint import BestCheckpoint, _copy
from graphzoo.errors import UsageError


def test_a_module_of_another_package_needs_a_named_metric(tmp_path):
    batches = torch.utils.data.DataLoader(torch.ones(4, 1))

    def trainer(checkpoint):
        settings = {"max_epochs": 2, "logger": False, "enable_progress_bar": False, "accelerator": "cpu"}
        return Trainer(callbacks=[checkpoint], enable_model_summary=False, **settings)

    unnamed = BestCheckpoint(tmp_path)
    trainer(unnamed).validate(Regression(), batches, verbose=False)  # needs no metric
    for _ in range(2):
        with pytest.raises(
            UsageError, match=r"(?s)Regression does not say .*BestCheckpoint\(directory, 'val/acc'"
        ):
            trainer(unnamed).fit(Regression(), batches, batches)
    assert not list(tmp_path.iterdir())
    best = BestCheckpoint(tmp_path, "val/error", mode="min")
    trainer(best).fit(Regression(), batches, batches)
    assert (tmp_path / "best.ckpt").is_file() and best.best_model_score is not None


def test_another_task_has_another_metric(tmp_path):
    """The score of the first one says nothing of the second."""
    batches, best = torch.utils.data.DataLoader(torch.ones(4, 1)), BestCheckpoint(tmp_path)
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(callbacks=[best], max_epochs=1, accelerator="cpu", **settings)

    class Other(Regression):
        def validation_step(self, batch, batch_idx):
            self.log("val/gain", -1.0)

    first, second, third = ("val/error", "min"), ("val/gain", "max"), ("val/gain", "min")
    for made, (name, mode) in ((Regression(), first), (Other(), second), (Other(), third)):
        made.checkpoint_by = name, mode
        trainer.fit_loop.max_epochs = trainer.current_epoch + 1
        trainer.fit(made, batches, batches)
        assert (best.monitor, best.mode) == (name, mode) and best.best_model_score is not None
    assert best.best_model_score == -1
    score = torch.load(tmp_path / "best.ckpt", weights_only=True)["callbacks"][best.state_key]
    assert score["best_model_score"] == -1


def test_an_evaluation_of_another_task_keeps_metric_and_score(tmp_path):
    batches, best = torch.utils.data.DataLoader(torch.ones(4, 1)), BestCheckpoint(tmp_path)
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(callbacks=[best], max_epochs=1, accelerator="cpu", **settings)
    trained, other = Regression(), Regression()
    trained.checkpoint_by, other.checkpoint_by = ("val/error", "min"), ("val/gain", "max")
    trainer.fit(trained, batches, batches)
    score = best.best_model_score
    trainer.validate(other, batches, verbose=False)
    assert (best.monitor, best.mode) == ("val/error", "min")
    assert best.best_model_score == score is not None and best.best_model_path


def test_a_fit_of_other_data_forgets_the_best_score(tmp_path):
    best, found = BestCheckpoint(tmp_path, "val/acc"), []
    task = Regression()
    for fingerprint in ("first", "first", "second", None):
        best.best_model_score, best.best_model_path = torch.tensor(0.9), "best.ckpt"
        trainer = Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
        trainer.datamodule = SimpleNamespace(fingerprint=fingerprint)
        best.setup(trainer, task, "fit")
        found.append(best.best_model_score is not None and best.best_model_path != "")
    assert found == [True, True, False, False]


def test_an_unreadable_best_file_is_ignored(tmp_path):
    (tmp_path / "best.ckpt").write_bytes(b"damaged")
    checkpoint = BestCheckpoint(tmp_path, "val/acc")
    checkpoint.on_load_checkpoint(None, None, {"global_step": 10})
    checkpoint.load_state_dict({"best_model_score": torch.tensor(0.8)})
    assert checkpoint.best_model_score is None and not checkpoint.best_k_models


@pytest.mark.parametrize(("step", "known"), [(10, True), (12, False)])
def test_a_best_file_newer_than_the_resumed_checkpoint_is_ignored(tmp_path, step, known):
    """The process was killed after it wrote best.ckpt, and before the last.ckpt of the same step."""
    torch.save({"state_dict": {}, "epoch": 1, "global_step": step}, tmp_path / "best.ckpt")
    checkpoint = BestCheckpoint(tmp_path, "val/acc")
    checkpoint.on_load_checkpoint(None, None, {"global_step": 10})
    checkpoint.load_state_dict({"best_model_score": torch.tensor(0.8)})
    assert (checkpoint.best_model_score is not None) is known
    assert bool(checkpoint.best_k_models) is known


def test_the_best_score_is_read_from_the_best_file(tmp_path):
    """If `should_stop` ends training within an epoch, Lightning validates after last.ckpt is written."""
    checkpoint = BestCheckpoint(tmp_path, "val/acc")
    own = {checkpoint.state_key: {"best_model_score": torch.tensor(0.9)}}
    torch.save({"state_dict": {}, "global_step": 10, "callbacks": own}, tmp_path / "best.ckpt")
    for before in (torch.tensor(0.8), None):
        resumed = BestCheckpoint(tmp_path, "val/acc")
        resumed.on_load_checkpoint(None, None, {"global_step": 10})
        resumed.load_state_dict({"best_model_score": before})
        assert resumed.best_model_score == resumed.kth_value == 0.9


class Reader(Logger):
    """Reads the best checkpoint when it is reported."""

    def __init__(self):
        super().__init__()
        self.reported = []

    name = version = "reader"

    def log_metrics(self, metrics, step=None):
        pass

    def log_hyperparams(self, params):
        pass

    def after_save_checkpoint(self, checkpoint):
        step = torch.load(checkpoint.best_model_path, weights_only=True)["global_step"]
        self.reported.append((step, float(checkpoint.best_model_score)))


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_a_best_file_is_written_before_it_is_reported_to_loggers(tmp_path, seconds):
    batches, reader = torch.utils.data.DataLoader(torch.ones(4, 1)), Reader()
    best = BestCheckpoint(tmp_path, "val/error", mode="min", seconds=seconds)
    seen = []
    look = LambdaCallback(on_train_epoch_start=lambda *_: seen.append((tmp_path / "best.ckpt").exists()))
    Trainer(
        callbacks=[best, look], logger=reader, max_epochs=3, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Regression(), batches, batches)  # fmt: skip
    # Every epoch is better than the previous one.
    assert [step for step, _ in reader.reported] == ([4, 8, 12] if not seconds else [4, 12])
    assert reader.reported[-1][1] == float(best.best_model_score) < reader.reported[0][1]
    assert seen == [False, True, True], "an epoch is not waited for"


def test_a_best_file_of_other_data_is_ignored(tmp_path):
    """A run that is resumed with other data has no best epoch yet."""
    saved = {"state_dict": {}, "global_step": 3, "graphzoo": {"data": {"fingerprint": "a"}}}
    torch.save(saved, tmp_path / "best.ckpt")
    state = {"best_model_score": torch.tensor(0.5)}
    for there, counts in (("a", True), ("b", False)):
        best = BestCheckpoint(tmp_path, "val/error")
        best.on_load_checkpoint(None, None, {"global_step": 9, "graphzoo": {"data": {"fingerprint": there}}})
        best.load_state_dict(state)
        assert (best.best_model_score is not None) is counts
        assert bool(best.best_model_path) is counts


def test_a_copy_keeps_named_tuples():
    class Pair(NamedTuple):
        one: torch.Tensor
        other: int

    source = torch.ones(2)
    copied = _copy({"state": [Pair(source, 2)], "plain": (1, 2)})
    source.zero_()  # as further training would
    assert copied["state"][0] == Pair(copied["state"][0].one, 2) and copied["plain"] == (1, 2)
    assert type(copied["state"][0]) is Pair and copied["state"][0].one.tolist() == [1, 1]


class Scores(Regression):
    """Logs one of the given scores in each epoch."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def validation_step(self, batch):
        self.log("val/acc", torch.tensor(self.scores[self.current_epoch]))


@pytest.mark.parametrize(
    ("mode", "scores", "epoch"),
    [
        ("max", [0.5, 0.9, 0.9, 0.8], 1),
        ("max", [0.5, 1.0, 0.9, 1.0], 3),
        ("max", [1.0, 1.0, 1.0, 0.0], 2),
        ("min", [2.0, 1.0, 1.0, 3.0], 1),  # an error of 1 is not perfect
    ],
)
def test_the_first_of_equal_epochs_is_kept_and_the_last_of_perfect_ones(tmp_path, mode, scores, epoch):
    checkpoint = BestCheckpoint(tmp_path, "val/acc", mode=mode, seconds=0)
    settings = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu", "max_epochs": 4}
    trainer = Trainer(callbacks=[checkpoint], enable_model_summary=False, num_sanity_val_steps=0, **settings)
    batches = torch.utils.data.DataLoader(torch.ones(4, 1))
    trainer.fit(Scores(scores), batches, batches)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == epoch
    assert checkpoint.best_model_score == {"max": max, "min": min}[mode](scores)
