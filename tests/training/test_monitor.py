"""The metric "auto" in a callback is the task's metric, with its mode."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from graphzoo.catalog.presets import find_preset
from graphzoo.catalog.settings import read_settings
from graphzoo.training.callbacks import Monitor


@pytest.mark.parametrize("mode", ["min", "max"])
def test_early_stopping_takes_the_mode_of_the_task(mode):
    early = EarlyStopping("auto", mode="max", patience=1, min_delta=0.1)
    trainer = Trainer(callbacks=[early], accelerator="cpu", logger=False, enable_checkpointing=False)
    task = SimpleNamespace(monitor="val/own", mode=mode)
    for _ in range(2):  # a second fit changes nothing
        Monitor().setup(trainer, task, "fit")
    sign = 1 if mode == "max" else -1
    same = EarlyStopping("val/own", mode=mode, patience=1, min_delta=0.1)
    assert early.monitor == "val/own" and early.best_score == same.best_score
    for value, stops in ((sign * 1.0, False), (sign * 2.0, False), (sign * 2.05, True)):
        trainer.callback_metrics["val/own"] = same.best_score.new_tensor(value)
        assert early._evaluate_stopping_criteria(trainer.callback_metrics["val/own"])[0] is stops


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("given", ["min", "max"])
def test_a_users_checkpoint_takes_the_mode_of_the_task(given, mode):
    """The default `mode` of ModelCheckpoint is "min", which would keep the worst epoch."""
    kept = ModelCheckpoint(monitor="auto", mode=given)
    trainer = Trainer(callbacks=[kept], accelerator="cpu", logger=False)
    Monitor().setup(trainer, SimpleNamespace(monitor="val/own", mode=mode), "fit")
    same = ModelCheckpoint(monitor="val/own", mode=mode)
    assert (kept.monitor, kept.mode, kept.kth_value) == ("val/own", mode, same.kth_value)
    assert kept.state_key == same.state_key
    kept.best_k_models = {"first": torch.tensor(0.5)}
    kept.kth_best_model_path = "first"
    assert bool(kept.check_monitor_top_k(trainer, torch.tensor(0.6))) is (mode == "max")


def test_the_patience_of_the_preset_is_that_of_its_title():
    preset = find_preset("trainer", "early")
    (given,) = read_settings(preset.path)["trainer"]["callbacks+"]
    early = EarlyStopping(**{**given["init_args"], "monitor": "val/acc"}, mode="max")
    stops = [early._evaluate_stopping_criteria(torch.tensor(0.5))[0] for _ in range(12)]
    waited = stops.index(True)  # all scores are equal, so the first is the best
    assert waited == 10 and f"after {waited} validations without an improvement" in preset.header["title"]
