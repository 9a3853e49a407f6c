"""NaN and infinity stop a run before they are saved in a checkpoint; a diverged epoch is never the best."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.resume_cases import CASES, train
from lightning.pytorch import Callback, LightningModule, Trainer

from graphzoo.callbacks import BestCheckpoint, LastCheckpoint, NanGuard, nan_guard
from graphzoo.errors import NonFiniteError

STEP = 5


class Break(Callback):
    """Sets NaN or infinity in a place given by `kind`, at one optimiser step or in the second validation."""

    def __init__(self, kind, value=math.nan):
        self.kind, self.value = kind, value

    def _weight(self, module):
        return next(value for value in module.parameters() if value.requires_grad)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == STEP and self.kind == "loss":
            self._weight(pl_module).data.fill_(self.value)

    def on_after_backward(self, trainer, pl_module):
        if trainer.global_step == STEP and self.kind in ("gradient", "large gradient"):
            weight = next(value for value in pl_module.parameters() if value.grad is not None)
            weight.grad.fill_(1e30 if self.kind == "large gradient" else self.value)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == STEP and self.kind == "weights":
            self._weight(pl_module).data.fill_(self.value)

    def on_validation_start(self, trainer, pl_module):
        if trainer.current_epoch == 1 and self.kind == "scores":
            for value in pl_module.parameters():
                value.data.fill_(self.value)


KG, NODES, LINKS = "kg-completion, KnowFormer", "node-classification, GALiT, parts", "link-prediction, GALiT"
WHAT = {
    "loss": "the run stops; the message has step, weights and the last good checkpoints",
    "gradient": "the run stops before the step; the message has weights and the last good checkpoints",
    "large gradient": "the run stops with the names of the weights whose gradient norm overflows",
    "weights": "no good checkpoint is overwritten; the run stops with the names of the weights",
    "scores": "no metric is computed; the run stops with split, step and the names of the weights",
}
MESSAGES = {
    "loss": r"the loss is nan; the weights of \w+[\w.]* are not finite \(epoch \d, step 5\)",
    "gradient": r"the gradient of \w+[\w.]* is not finite \(epoch \d, step 5\)",
    "large gradient": r"the gradient of \w+[\w.]* is too large: its norm is infinite \(epoch \d, step 5\)",
    "weights": r"the weights of \w+[\w.]* are not finite, so no checkpoint is written \(epoch \d, step 5\)",
    "scores": r"valid scores after step \d+: the weights of \w+[\w.]*, .* are not finite; \d+ of \d+ scores",
}
NAMES = {"loss": "loss", "gradient": "gradient", "large gradient": "gradient beyond 1e19", "scores": "score"}
TRIED = [(kind, KG, math.nan) for kind in WHAT] + [("gradient", KG, math.inf), ("weights", KG, math.inf)]
TRIED += [(kind, case, math.nan) for kind in ("loss", "scores") for case in (NODES, LINKS)]
TRIED += [("scores", "heuristic-estimation, PENCIL", math.nan)]


def as_param(kind, case, value):
    fault = (
        f"NaN or infinity in the {NAMES.get(kind, kind)}"
        if kind != "large gradient"
        else "a gradient beyond 1e19"
    )
    return pytest.param(
        kind, case, value, marks=pytest.mark.fault(fault, WHAT[kind]), id=f"{kind} {value} {case}"
    )


@pytest.mark.parametrize(("kind", "case", "value"), [as_param(*tried) for tried in TRIED])
def test_a_bad_number_stops_the_run(tmp_path, monkeypatch, kind, case, value):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NonFiniteError, match=MESSAGES[kind]) as caught:
        train(CASES[case], tmp_path / "run", more=[NanGuard(), Break(kind, value)])
    lines = str(caught.value).splitlines()
    assert lines[1] == "Lower --model.lr or add --trainer.gradient_clip_val 1.0"
    assert lines[2].startswith("Last good checkpoints: ") and len(lines) == 3
    named = lines[2].partition(": ")[2].split(", ")
    found = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "run/checkpoints").iterdir())
    assert named == found and "run/checkpoints/last.ckpt" in named
    for path in named:
        state = torch.load(path, weights_only=True)["state_dict"]
        assert all(bool(value.isfinite().all()) for value in state.values())


def test_a_run_in_float16_is_advised_to_use_another_precision(tmp_path):
    case = replace(CASES[KG], trainer={**CASES[KG].trainer, "precision": "16-true"})
    with pytest.raises(NonFiniteError, match=r"\nTake --trainer\.precision bf16-true or 16-mixed: "):
        train(case, tmp_path / "run", more=[NanGuard(), Break("scores")])


@pytest.mark.parametrize("kind", ["loss", "gradient", "large gradient"])
@pytest.mark.parametrize("case", [KG, NODES])
def test_a_guard_that_reads_once_per_step_has_the_same_messages(tmp_path, monkeypatch, kind, case):
    """On a GPU the guard reads the losses of a step's micro-batches together, before the weights change."""
    monkeypatch.setattr(nan_guard, "_is_waited_for", lambda value: True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NonFiniteError, match=MESSAGES[kind]):
        train(CASES[case], tmp_path / "run", more=[NanGuard(), Break(kind)])
    state = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(bool(value.isfinite().all()) for value in state.values())


def test_a_guard_that_reads_once_per_step_reports_the_first_bad_loss(monkeypatch):
    monkeypatch.setattr(nan_guard, "_is_waited_for", lambda value: True)
    monkeypatch.setattr(nan_guard, "values_of_processes", lambda _, loss: torch.cat([torch.ones(1), loss]))
    monkeypatch.setattr(nan_guard, "texts_of_processes", lambda _, text: ["mine", "theirs"])
    trainer = SimpleNamespace(
        world_size=2, current_epoch=0, global_step=3, state=SimpleNamespace(fn="test"), precision_plugin=None
    )
    guard, module = NanGuard(), torch.nn.Linear(1, 1)
    for loss in (0.5, math.inf, math.nan, 0.5):
        guard.on_before_backward(trainer, module, torch.tensor(loss))
    with pytest.raises(NonFiniteError, match=r"the loss is inf in process 1; theirs \(epoch 0, step 3\)"):
        guard.on_before_optimizer_step(trainer, module, None)
    guard.on_before_backward(trainer, module, torch.tensor(0.5))
    guard.on_before_optimizer_step(trainer, module, None)  # the next step
    guard.on_before_backward(trainer, module, torch.tensor(math.nan))
    guard.on_train_start(trainer, module)
    guard.on_before_optimizer_step(trainer, module, None)  # another fit


class Scripted(LightningModule):
    """Logs a given validation metric in each epoch."""

    monitor = "val/given"

    def __init__(self, values):
        super().__init__()
        self.values, self.weight = values, torch.nn.Parameter(torch.ones(1))

    def train_dataloader(self):
        return torch.utils.data.DataLoader([0.0])

    def val_dataloader(self):
        return torch.utils.data.DataLoader([0.0])

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        self.log("val/given", self.values[self.current_epoch], batch_size=1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault(
    "an epoch whose validation metric is NaN or infinite",
    "it never counts as the best epoch, not even as the first",
)
@pytest.mark.parametrize(("mode", "best"), [("max", 0.75), ("min", 0.25)])
def test_a_diverged_epoch_is_never_the_best(tmp_path, mode, best):
    """ModelCheckpoint would keep the first epoch with any metric, and none is better than infinity."""
    values = [math.nan, math.inf, -math.inf, 0.5, math.nan, best, math.inf, -math.inf]
    callback = BestCheckpoint(tmp_path, mode=mode, seconds=0)
    trainer = Trainer(
        max_epochs=len(values), callbacks=[callback], logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Scripted(values))
    assert float(callback.best_model_score) == best
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == 5


@pytest.mark.filterwarnings("ignore")
def test_without_a_finite_epoch_there_is_no_best(tmp_path):
    callbacks = [BestCheckpoint(tmp_path, seconds=0), LastCheckpoint(tmp_path)]
    trainer = Trainer(
        max_epochs=2, callbacks=callbacks, logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Scripted([math.nan, math.nan]))
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["last.ckpt"]


class Spoiled(Scripted):
    """Its weight becomes NaN at the end of the first epoch."""

    def on_train_epoch_end(self):
        self.weight.data.fill_(math.nan)

    def on_validation_start(self):
        self.weight.data.fill_(math.nan)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [BestCheckpoint, LastCheckpoint])
def test_checkpoints_without_a_guard_refuse_nan(tmp_path, kind):
    trainer = Trainer(
        max_epochs=1, callbacks=[kind(tmp_path)], logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    with pytest.raises(
        NonFiniteError, match="the weights of weight are not finite, so no checkpoint is written"
    ):
        trainer.fit(Spoiled([0.5]))
    assert list(tmp_path.iterdir()) == []
