"""What a trial is scored by."""

from types import SimpleNamespace

import pytest

from graphzoo.search.trial import BestValue

NAN = float("nan")
# accuracy and loss of each epoch: the best accuracy, the least loss and a loss that is NaN are three epochs
EPOCHS = [(0.5, 1.0), (0.7, 0.8), (0.6, 0.4), (0.9, 0.9), (0.8, NAN)]


@pytest.mark.parametrize(
    ("by", "window", "value", "epoch"),
    [
        (("val/acc", "max"), 1, 0.9, 3),
        (("val/acc", "max"), 2, 0.85, 4),
        (("val/loss", "min"), 1, 0.6, 2),
        (("val/loss", "min"), 2, 0.65, 2),
        (None, 1, 0.9, 3),
    ],
)
def test_a_trial_is_scored_where_its_checkpoint_would_be_chosen(by, window, value, epoch):
    best = BestValue(window)
    task = SimpleNamespace(monitor="val/acc", mode="max", **({"checkpoint_by": by} if by else {}))
    for number, (acc, loss) in enumerate(EPOCHS):
        scores = {"val/acc": acc, "val/loss": loss}
        trainer = SimpleNamespace(sanity_checking=False, current_epoch=number, callback_metrics=scores)
        best.on_validation_end(trainer, task)
    assert best.value == pytest.approx(value) and best.epoch == epoch and best.monitor == "val/acc"
