"""How long a run takes: steps and validations until its end, and what later epochs cost."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from graphzoo.callbacks import run_length, summary
from graphzoo.callbacks.run_length import Place, Remaining, interval_seconds
from graphzoo.errors import UsageError


@pytest.mark.parametrize(
    "asked, left, rounds",
    [
        ((1, None), 30, 3),
        ((1, 0.5), 25, 5),
        ((1, 8), 20, 4),  # batches, two in a step
        ((2, None), 50, 2),
        ((None, 70), 30, 0),
        ((None, 30), 50, 3),
        ((None, None), 30, 3),
    ],
)
def test_validations_are_those_of_lightning(asked, left, rounds):
    trainer = SimpleNamespace(num_training_batches=20, accumulate_grad_batches=2)
    assert Remaining(trainer, Place(), *asked)._rounds(left) == rounds


def test_validations_of_an_endless_loader():
    trainer = SimpleNamespace(num_training_batches=float("inf"), accumulate_grad_batches=2)
    assert Remaining(trainer, Place(), 1, None)._rounds(50) == 0
    assert Remaining(trainer, Place(), 1, 30)._rounds(50) == 3
    assert interval_seconds(timedelta(hours=1)) == 3600


def make_trainer(costs=None, **changes):
    datamodule = SimpleNamespace(step_costs=lambda: costs) if costs is not None else SimpleNamespace()
    facts = {
        "max_epochs": 10, "max_steps": -1, "num_training_batches": 20, "accumulate_grad_batches": 1,
        "datamodule": datamodule, "callbacks": [], "num_val_batches": [6], "check_val_every_n_epoch": 1,
        "val_check_interval": 1.0,
    }  # fmt: skip
    return SimpleNamespace(**{**facts, **changes})


@pytest.mark.parametrize(
    ("place", "every", "interval", "expected"),
    [
        (Place(), 1, None, 200 * 2 + 10 * 7),
        (Place(), 3, None, 200 * 2 + 3 * 7),
        (Place(4, 5, 85), 1, 0.5, 115 * 2 + 12 * 7),  # both validations of its epoch are still ahead
        (Place(), None, 30, 200 * 2 + 6 * 7),
        (Place(), 1, "00:00:01:40", 400 + 4 * 7),
        (Place(), 1, timedelta(seconds=100), 400 + 4 * 7),
    ],
)
def test_steps_and_validations_are_counted(place, every, interval, expected):
    assert Remaining(make_trainer(), place, every, interval).seconds(2.0, 7.0) == expected


def test_later_epochs_count_for_what_their_steps_cost():
    trainer = make_trainer({0: 1.0, 4: 3.0, 8: 5.0})
    in_all = 20 * (4 * 1 + 4 * 3 + 2 * 5)
    assert Remaining(trainer, Place(), 1, None).seconds(2.0, 0.0) == pytest.approx(2 * in_all)
    # seconds of a step are those of the epoch where the run stands
    within = Remaining(trainer, Place(5, 10, 110), 1, None).seconds(6.0, 0.0)
    assert within == pytest.approx(2 * (10 * 3 + 20 * 2 * 3 + 20 * 2 * 5))
    short = make_trainer({0: 1.0, 4: 3.0}, max_epochs=-1, max_steps=90)
    assert Remaining(short, Place(), 1, None).seconds(1.0, 0.0) == pytest.approx(80 + 10 * 3)


def test_a_text_that_is_no_time_is_refused():
    with pytest.raises(UsageError, match="val_check_interval"):
        interval_seconds("soon")


def told(trainer, step=2.0, validation=None, allowed=float("inf"), monkeypatch=None):
    monkeypatch.setattr(summary, "seconds_allowed", lambda _: allowed)
    lines = summary.RunSummary()
    monkeypatch.setattr(lines, "whole_validation", lambda _: validation)
    return lines._remaining(trainer, Place(), step)


def test_the_line_counts_validation_and_later_epochs_and_ends_with_max_time(monkeypatch):
    trainer = make_trainer({0: 1.0, 5: 4.0})
    assert told(trainer, monkeypatch=monkeypatch) == "about 16.7 min for 200 steps, validation not counted"
    counted = told(trainer, validation=(60.0, None), monkeypatch=monkeypatch)
    assert counted == "about 26.7 min for 200 steps, validation counted"
    limited = told(trainer, allowed=300.0, monkeypatch=monkeypatch)
    assert limited == "about 5.0 min, when --trainer.max_time ends it"
    endless = make_trainer(max_epochs=-1)
    assert told(endless, monkeypatch=monkeypatch) == ""
    assert told(endless, allowed=300.0, monkeypatch=monkeypatch).startswith("about 5.0 min, when")
    assert told(make_trainer(), step=0.1, monkeypatch=monkeypatch) == ""  # not worth a line


def test_time_allowed_is_that_of_the_shortest_timer():
    from lightning.pytorch.callbacks import Timer

    timers = [Timer(timedelta(minutes=5)), Timer(timedelta(minutes=3)), object()]
    assert run_length.seconds_allowed(make_trainer(callbacks=timers)) == pytest.approx(180, abs=1)
    assert run_length.seconds_allowed(make_trainer()) == float("inf")
