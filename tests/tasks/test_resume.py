"""A killed and resumed run has the samples, weights, optimiser and metrics of an uninterrupted one."""

import dataclasses
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from helpers.resume_cases import (
    CASES,
    EPOCHS,
    STOPS,
    STOPS_WITH_WORKERS,
    WITH_WORKERS,
    Killed,
    difference,
    exists,
    knowformer,
    rows,
    state_of,
    table,
    train,
)
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Timer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphzoo.callbacks import LastCheckpoint
from graphzoo.errors import UsageError
from graphzoo.tasks import KGCompletion


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """`whole(name)` trains a case uninterrupted; returns its folder with copies at stops, and batches."""

    done = {}

    def run(name):
        if name not in done:
            folder = tmp_path_factory.mktemp("resume")
            killed = Killed(folder / "whole", STOPS)
            done[name] = folder, train(CASES[name], folder / "whole", more=[killed])[0]
        return done[name]

    yield run
    done.clear()


@pytest.mark.fault(
    "a run is killed at any of the points in the table of resumed runs",
    ("after resuming, samples, weights, optimiser and metrics are those of an uninterrupted run"),
)
@pytest.mark.parametrize(
    ("name", "stop"), [(name, stop) for name in CASES for stop in STOPS if exists(name, stop)]
)
def test_a_killed_and_resumed_run_is_like_an_uninterrupted_one(whole, name, stop, tmp_path):
    check(whole, name, stop, tmp_path, workers=0)


@pytest.mark.parametrize("stop", STOPS_WITH_WORKERS)
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_run_with_loader_processes_is_resumed(whole, name, stop, tmp_path):
    check(whole, name, stop, tmp_path, workers=2)


def check(whole, name, stop, tmp_path, workers):
    folder, batches = whole(name)
    left = shutil.copytree(folder / stop, tmp_path / "run")
    before = state_of(left / "checkpoints" / "last.ckpt")
    # The seed of the global generator differs from that of the first run.
    again, trainer = train(
        CASES[name], left, workers=workers, resume=left / "checkpoints" / "last.ckpt", seed=99
    )
    assert 0 < len(again) < len(batches) and before["global_step"] < trainer.global_step
    assert again == batches[len(batches) - len(again) :], "order and content of the batches"
    for kind in ("last", "best"):
        file = f"checkpoints/{kind}.ckpt"
        assert difference(state_of(folder / "whole" / file), state_of(left / file)) == ""
    assert rows(left) == rows(folder / "whole")


class Stops(Callback):
    """Ends training at a batch of the first epoch, by `should_stop` or at the end of its time."""

    def __init__(self, by, batch):
        self.by, self.batch = by, batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (0, self.batch):
            trainer.should_stop = self.by == "should_stop"
            for timer in (one for one in trainer.callbacks if isinstance(one, Timer)):
                timer._duration = 0.0


STOPPED_INSIDE = {
    "kg-completion, KnowFormer": 2,  # at a micro-batch of the second step
    "node-classification, GALiT, parts": 1,  # at the end of the first of two steps
    "kg-completion, KnowFormer, two validations an epoch": 3,  # at a validation
}


@pytest.mark.fault(
    "training ends within an epoch: `max_steps`, `max_time`, `should_stop`",
    ("after resuming, the rest of the epoch is trained, with the result of an uninterrupted run"),
)
@pytest.mark.parametrize("by", ["max_steps", "max_time", "should_stop"])
@pytest.mark.parametrize("name", STOPPED_INSIDE)
def test_a_run_stopped_within_an_epoch_is_resumed_like_an_uninterrupted_one(whole, name, by, tmp_path):
    folder, batches = whole(name)
    case, run, batch = CASES[name], tmp_path / "run", STOPPED_INSIDE[name]
    stop = {"max_steps": {"max_steps": batch // 2 + 1}, "max_time": {"max_time": timedelta(hours=1)}}
    cut = dataclasses.replace(case, trainer={**case.trainer, **stop.get(by, {})})
    begun, _ = train(cut, run, more=[Stops(by, batch)] if by != "max_steps" else [])
    again, _ = train(case, run, resume=run / "checkpoints" / "last.ckpt", seed=99)
    assert begun and begun + again == batches, "order and content of the batches"
    file = "checkpoints/last.ckpt"
    assert difference(state_of(folder / "whole" / file), state_of(run / file)) == ""


class StopsLate(Callback):
    """Lets the module end training in its own hook, which runs after those of callbacks."""

    def on_train_start(self, trainer, pl_module):
        for last in (one for one in trainer.callbacks if isinstance(one, LastCheckpoint)):
            last.minutes = 10  # by default every step is saved

        def stop(outputs, batch, batch_idx):
            trainer.should_stop = trainer.should_stop or batch_idx == 1  # the first of two steps

        pl_module.on_train_batch_end = stop


def test_a_run_stopped_by_its_module_within_an_epoch_is_resumed(whole, tmp_path):
    name = "node-classification, GALiT, parts"
    folder, batches = whole(name)
    begun, _ = train(CASES[name], tmp_path, more=[StopsLate()])
    last = tmp_path / "checkpoints" / "last.ckpt"
    again, _ = train(CASES[name], tmp_path, resume=last, seed=99)
    assert len(begun) == 2 and begun + again == batches
    assert difference(state_of(folder / "whole" / "checkpoints" / "last.ckpt"), state_of(last)) == ""


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_a_run_is_resumed_with_more_steps(steps, tmp_path):
    """An epoch has four steps."""
    case = CASES["kg-completion, KnowFormer"]
    limited = {count: dataclasses.replace(case, trainer={"max_steps": count}) for count in (steps, 10)}
    batches, _ = train(limited[10], tmp_path / "whole", epochs=-1)
    begun, _ = train(limited[steps], tmp_path / "run", epochs=-1)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    again, _ = train(limited[10], tmp_path / "run", resume=last, seed=99, epochs=-1)
    assert begun + again == batches, "order and content of the batches"
    assert difference(state_of(tmp_path / "whole" / "checkpoints" / "last.ckpt"), state_of(last)) == ""
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def falling(interval):
    """A case whose learning rate falls at every step of its schedule after the first."""

    class Falling(KGCompletion):
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
            plateau = ReduceLROnPlateau(
                optimizer, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs"
            )
            monitor = {"epoch": "val/mrr", "step": "train/loss"}[interval]
            config = {"scheduler": plateau, "monitor": monitor, "interval": interval}
            return {"optimizer": optimizer, "lr_scheduler": config}

    return dataclasses.replace(CASES["kg-completion, KnowFormer"], task=lambda: Falling(knowformer))


@pytest.mark.fault(
    "a run with `ReduceLROnPlateau` is stopped or killed, and resumed",
    "the scheduler makes the same steps as in an uninterrupted run",
)
@pytest.mark.parametrize(
    ("interval", "stop", "every"),
    [("epoch", (2, 0), 1.0), ("epoch", (1, 4), 1.0), ("epoch", (1, 7), 3), ("step", (1, 4), 1.0)],
)
def test_reduce_lr_on_plateau_makes_the_same_steps(interval, stop, every, tmp_path):
    case = dataclasses.replace(falling(interval), trainer={"val_check_interval": every})
    stops = {"stop": (*stop, "on_train_batch_start")}
    train(case, tmp_path / "whole", more=[Killed(tmp_path / "whole", stops)])
    left = tmp_path / "stop" / "checkpoints" / "last.ckpt"
    train(case, tmp_path / "stop", resume=left, seed=99)
    whole = state_of(tmp_path / "whole" / "checkpoints" / "last.ckpt")
    steps = whole["lr_schedulers"][0]["last_epoch"]
    assert steps == {"epoch": 3, "step": 12}[interval], "with the last step, too"
    assert whole["optimizer_states"][0]["param_groups"][0]["lr"] == 0.01 * 0.5 ** (steps - 1)
    assert difference(whole, state_of(left)) == ""


def test_the_page_lists_the_tested_stops():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- resume: begin -->\n")[2].partition("\n<!-- resume: end -->")[0]
    assert shown == table(), "put this between the marks of docs/reliability.md"


@pytest.mark.fault(
    "`trainer.fit(ckpt_path=...)` in Python, and the optimiser's state has another shape",
    "refused before it is loaded, as by the command",
)
@pytest.mark.parametrize("name", CASES)
def test_checkpoints_are_also_checked_in_python(whole, name, tmp_path):
    folder, _ = whole(name)
    left = shutil.copytree(folder / "whole", tmp_path / "run") / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(left, weights_only=True)
    state = checkpoint["optimizer_states"][0]["state"]
    state[next(iter(state))]["exp_avg"] = torch.zeros(1).expand(3, 5)
    torch.save(checkpoint, left)
    with pytest.raises(UsageError, match="exp_avg"):
        train(CASES[name], tmp_path / "run", resume=left, epochs=EPOCHS + 1)
