"""The time left of a run: steps and validations until its end, and the cost of later epochs."""

import math
from datetime import timedelta
from types import SimpleNamespace

import pytest

from graphzoo.callbacks import run_length, summary
from graphzoo.callbacks.run_length import Place, Remaining, RunClock, interval_seconds
from graphzoo.errors import UsageError


@pytest.mark.parametrize(
    "asked, left, rounds",
    [
        ((1, None), 30, 3),
        ((1, 0.5), 25, 5),
        ((1, 8), 20, 4),  # every 8 batches, with two batches per step
        ((2, None), 50, 2),
        ((None, 70), 30, 0),
        ((None, 30), 50, 3),
        ((None, None), 30, 3),
    ],
)
def test_validations_are_counted_as_in_lightning(asked, left, rounds):
    trainer = SimpleNamespace(num_training_batches=20, accumulate_grad_batches=2)
    assert Remaining(trainer, Place(), *asked)._rounds(left) == rounds


def test_validations_of_an_endless_loader_are_counted():
    trainer = SimpleNamespace(num_training_batches=float("inf"), accumulate_grad_batches=2)
    assert Remaining(trainer, Place(), 1, None)._rounds(50) == 0
    assert Remaining(trainer, Place(), 1, 30)._rounds(50) == 3
    assert interval_seconds(timedelta(hours=1)) == 3600


def make_trainer(costs=None, **changes):
    datamodule = SimpleNamespace(step_costs=lambda: costs) if costs is not None else SimpleNamespace()
    facts = {
        "max_epochs": 10, "max_steps": -1, "num_training_batches": 20, "accumulate_grad_batches": 1,
        "datamodule": datamodule, "callbacks": [], "num_val_batches": [6], "check_val_every_n_epoch": 1,
        "val_check_interval": 1.0, "current_epoch": 0, "sanity_checking": False,
        "fit_loop": SimpleNamespace(_should_accumulate=lambda: False), "lightning_module": None,
    }  # fmt: skip
    return SimpleNamespace(**{**facts, **changes})


@pytest.mark.parametrize(
    ("place", "every", "interval", "expected"),
    [
        (Place(), 1, None, 200 * 2 + 10 * 7),
        (Place(), 3, None, 200 * 2 + 3 * 7),
        (Place(4, 5, 85), 1, 0.5, 115 * 2 + 12 * 7),  # both validations of the current epoch count
        (Place(), None, 30, 200 * 2 + 6 * 7),
        (Place(), 1, "00:00:01:40", 400 + 4 * 7),
        (Place(), 1, timedelta(seconds=100), 400 + 4 * 7),
        (Place(), 1, {"minutes": 1, "seconds": 40}, 400 + 4 * 7),
    ],
)
def test_steps_and_validations_are_counted(place, every, interval, expected):
    assert Remaining(make_trainer(), place, every, interval).seconds(2.0, 7.0) == expected


def test_steps_of_later_epochs_count_by_their_cost():
    trainer = make_trainer({0: 1.0, 4: 3.0, 8: 5.0})
    in_all = 20 * (4 * 1 + 4 * 3 + 2 * 5)
    assert Remaining(trainer, Place(), 1, None).seconds(2.0, 0.0) == pytest.approx(2 * in_all)
    # The seconds per step are those of the current epoch.
    within = Remaining(trainer, Place(5, 10, 110), 1, None).seconds(6.0, 0.0)
    assert within == pytest.approx(2 * (10 * 3 + 20 * 2 * 3 + 20 * 2 * 5))
    short = make_trainer({0: 1.0, 4: 3.0}, max_epochs=-1, max_steps=90)
    assert Remaining(short, Place(), 1, None).seconds(1.0, 0.0) == pytest.approx(80 + 10 * 3)


def test_an_interval_that_is_no_time_is_refused():
    with pytest.raises(UsageError, match="val_check_interval"):
        interval_seconds("soon")


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def timed(clock, trainer, seconds, *, steps=6):
    """Let the callback see steps of `seconds` each."""
    clock._clock = time = Clock()
    for number in range(steps):
        time.now += seconds
        trainer.global_step = number + 1
        RunClock.on_train_batch_end(clock, trainer, None, None, None, number)


def line_of(trainer, step=2.0, validation=None, allowed=float("inf"), test=None, monkeypatch=None):
    monkeypatch.setattr(run_length, "seconds_allowed", lambda _: allowed)
    lines = summary.RunSummary(tests=test is not None)
    monkeypatch.setattr(lines, "whole_test", lambda _: test)
    monkeypatch.setattr(lines, "whole_validation", lambda _: validation)
    timed(lines, trainer, step)
    return lines._remaining(trainer)


def test_the_line_counts_validation_and_later_epochs_up_to_max_time(monkeypatch):
    trainer = make_trainer({0: 1.0, 5: 4.0})
    assert line_of(trainer, monkeypatch=monkeypatch) == "about 16.5 min for 194 steps, validation not counted"
    counted = line_of(trainer, validation=(60.0, None), monkeypatch=monkeypatch)
    assert counted == "about 26.5 min for 194 steps, validation counted"
    limited = line_of(trainer, allowed=300.0, monkeypatch=monkeypatch)
    assert limited == "about 5.0 min, when --trainer.max_time ends it"
    tested = line_of(trainer, validation=(60.0, None), test=(120.0, 8), monkeypatch=monkeypatch)
    assert tested == "about 26.5 min for 194 steps, validation counted, then 2.0 min of test"
    limited = line_of(trainer, allowed=300.0, test=(120.0, 8), monkeypatch=monkeypatch)
    assert limited == "about 5.0 min, when --trainer.max_time ends it, then 2.0 min of test"
    endless = make_trainer(max_epochs=-1)
    assert line_of(endless, monkeypatch=monkeypatch) == ""
    assert line_of(endless, allowed=300.0, monkeypatch=monkeypatch).startswith("about 5.0 min, when")
    assert line_of(make_trainer(max_epochs=1), monkeypatch=monkeypatch) == ""  # too short for a line


def test_the_time_left_follows_the_run():
    """A validation counts like the last one, and a step like those of the last minute."""
    trainer, early, clock = make_trainer(max_epochs=3), RunClock(), RunClock()
    timed(early, trainer, 2.0, steps=3)
    assert early.left == math.inf, "the first step compiles, and two say little"
    timed(clock, trainer, 2.0, steps=20)
    assert clock.left == pytest.approx(40 * 2)
    clock.on_validation_start(trainer, None)
    clock._clock.now += 100
    clock.on_validation_end(trainer, None)
    trainer.current_epoch = 1
    for number in range(20):  # steps of 4 s
        clock._clock.now += 4
        trainer.global_step = 21 + number
        clock.on_train_batch_end(trainer, None, None, None, number)
    # With steps of 2 s, 140 s would be left.
    assert 20 * 3 + 100 < clock.left < 20 * 4 + 100


@pytest.mark.parametrize(
    ("limit", "cost", "expected"), [(1.0, None, (24.0, 8)), (0.5, None, (12.0, 4)), (3, 5.0, (45.0, 3))]
)
def test_the_time_of_a_test_follows_from_its_batches_and_their_cost(limit, cost, expected):
    facts = {"test_dataloader": lambda: range(8)} | ({} if cost is None else {"test_cost": cost})
    clock = run_length.ValidationClock()
    trainer = make_trainer(limit_test_batches=limit, lightning_module=None)
    trainer.datamodule = SimpleNamespace(**facts)
    assert clock.whole_test(trainer) is None, "nothing was timed"
    clock._batches = [(5.0, 1), (3.0, 1)]
    assert clock.whole_test(trainer) == expected
    trainer.datamodule = SimpleNamespace(test_dataloader=lambda: iter(range(8)))
    assert clock.whole_test(trainer) is None, "nobody knows how many"


def test_the_shortest_timer_limits_the_time():
    from lightning.pytorch.callbacks import Timer

    timers = [Timer(timedelta(minutes=5)), Timer(timedelta(minutes=3)), object()]
    assert run_length.seconds_allowed(make_trainer(callbacks=timers)) == pytest.approx(180, abs=1)
    assert run_length.seconds_allowed(make_trainer()) == float("inf")


def test_a_second_fit_is_timed_anew(monkeypatch):
    """Its steps may take longer, and the hour before it is not that of a step."""
    said = []
    monkeypatch.setattr(summary, "describe_run", lambda *_: ())
    monkeypatch.setattr(summary, "_say", lambda *words: said.append(words))
    clock = summary.RunSummary()
    trainer = make_trainer(strategy=SimpleNamespace(root_device=SimpleNamespace(type="cpu")))
    for number, seconds in enumerate([2.0, 4.0], start=1):
        clock.setup(trainer, None, "fit")
        assert clock.left == math.inf and clock.whole_validation(trainer) is None
        clock.on_train_start(trainer, None)
        time = clock._clock = Clock()
        time.now = 3600.0 * number
        for step in range(6):
            time.now += seconds
            trainer.global_step = step + 1
            clock.on_train_batch_end(trainer, None, None, None, step)
        clock.setup(trainer, None, "test")
        assert clock.seconds_left(trainer)[0] == pytest.approx(194 * seconds)
        assert len(said) == number
        clock._batches = [(7.0, 1)]


def test_late_steps_decide_the_time_left():
    """The mean of all 60 steps would be 11 s, but steps now take 20 s."""
    now = [0.0]
    clock, trainer = RunClock(lambda: now[0]), make_trainer(global_step=0)
    for step in range(60):
        now[0] += 2.0 if step < 30 else 20.0
        trainer.current_epoch, batch = divmod(step, 20)
        trainer.global_step = step + 1
        clock.on_train_batch_end(trainer, None, None, None, batch)
    seconds, steps, _ = clock.seconds_left(trainer)
    assert steps == 140 and seconds == pytest.approx(20 * steps, rel=0.05)
