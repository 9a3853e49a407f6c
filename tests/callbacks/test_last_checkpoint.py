"""Signals around a training, and trainers that fit twice or not at all."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from helpers.regression import Regression
from helpers.trainers import QUIET
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback

from graphzoo.callbacks import Interrupted, LastCheckpoint


def test_a_test_of_several_processes_leaves_signals_to_lightning(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    checkpoint = LastCheckpoint(tmp_path)
    checkpoint.on_test_start(SimpleNamespace(world_size=2), None)
    assert signal.getsignal(signal.SIGINT) is before
    checkpoint.on_test_start(SimpleNamespace(world_size=1), None)
    try:
        assert signal.getsignal(signal.SIGINT) is not before
    finally:
        checkpoint.teardown(None, None, "test")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_after_the_last_save_is_heard_before_the_test(tmp_path):
    checkpoint = LastCheckpoint(tmp_path)
    checkpoint._signals.note(signal.SIGINT)
    with pytest.raises(Interrupted):
        checkpoint.on_test_start(SimpleNamespace(world_size=1), None)


def test_a_trainer_that_was_interrupted_fits_again(tmp_path):
    batches = torch.utils.data.DataLoader(torch.ones(4, 1))
    stop = LambdaCallback(
        on_train_batch_end=lambda *about: about[-1] == 1 and stops and os.kill(os.getpid(), stops.pop())
    )
    stops = [signal.SIGINT]
    trainer = Trainer(
        callbacks=[LastCheckpoint(tmp_path), stop], max_epochs=2, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Regression()
    with pytest.raises(Interrupted):
        trainer.fit(model, batches)
    trainer.fit(model, batches, ckpt_path=str(tmp_path / "last.ckpt"), weights_only=True)
    assert trainer.global_step == 8


def test_a_fit_does_not_begin_with_the_metrics_of_a_checkpoint_that_was_tested(tmp_path):
    batches, seen = torch.utils.data.DataLoader(torch.ones(4, 1)), []
    look = LambdaCallback(on_train_batch_start=lambda trainer, *_: seen.append({*trainer.callback_metrics}))
    settings = {**QUIET, "enable_checkpointing": True, "callbacks": [LastCheckpoint(tmp_path), look]}
    Trainer(**settings, max_epochs=1).fit(Regression(), batches, batches)
    trainer = Trainer(**settings, max_epochs=1)
    trainer.validate(
        Regression(), batches, ckpt_path=str(tmp_path / "last.ckpt"), weights_only=True, verbose=False
    )
    trainer.fit(Regression(), batches, batches)
    assert not any("val/error" in names for names in seen) and len(seen) == 8


def test_a_trainer_validates_without_a_fit(tmp_path):
    settings = {**QUIET, "enable_checkpointing": True}
    trainer = Trainer(callbacks=[LastCheckpoint(tmp_path)], max_steps=0, **settings)
    batches = torch.utils.data.DataLoader(torch.ones(4, 1))
    (metrics,) = trainer.validate(Regression(), batches, verbose=False)
    assert "val/error" in metrics and not list(tmp_path.iterdir())


def test_a_run_that_its_module_stops_is_saved_without_a_validation(tmp_path):
    """The module's hook comes after that of the callback."""

    class Stops(Regression):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.trainer.should_stop = batch_idx == 1

    trainer = Trainer(callbacks=[LastCheckpoint(tmp_path)], **{**QUIET, "enable_checkpointing": True})
    trainer.fit(Stops(), torch.utils.data.DataLoader(torch.ones(4, 1)))
    assert trainer.global_step == 2 == torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"]
