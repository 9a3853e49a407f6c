"""Averages of the weights with a warm-up, compared with explicit means."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from graphzoo.callbacks import WarmupEMAWeightAveraging


class Weights(nn.Module):
    """A weight, and a buffer that counts steps."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, dtype=dtype))
        self.register_buffer("steps", torch.tensor(0))

    def at(self, step):
        """Set the weight as after this optimiser step."""
        self.weight.data = torch.tensor([step, step**2, -1.0]).to(self.weight.dtype)
        self.steps.fill_(step)
        return self


def averages_of(decay, steps, dtype=torch.float64):
    model = Weights(dtype)
    average = AveragedModel(model, use_buffers=True, **WarmupEMAWeightAveraging(decay)._kwargs)
    found = []
    for step in range(1, steps + 1):
        average.update_parameters(model.at(step))
        found.append(average.module.weight.detach().clone())
    assert int(average.module.steps) == steps  # copied, not averaged
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_average_is_at_first_the_mean_of_all_weights(dtype):
    """Up to step 1 / (1 - decay), without the untrained weights."""
    for step, found in enumerate(averages_of(0.9, 10, dtype), start=1):
        mean = torch.stack([Weights(dtype).at(i).weight.detach() for i in range(1, step + 1)]).mean(0)
        torch.testing.assert_close(found, mean)


def test_the_average_is_then_exponential():
    found = averages_of(0.9, 30)
    for step in range(10, 30):
        latest = Weights(torch.float64).at(step + 1).weight.detach()
        torch.testing.assert_close(found[step], 0.9 * found[step - 1] + 0.1 * latest)


def test_without_decay_the_average_is_the_latest_weights():
    assert torch.equal(averages_of(0.0, 5)[-1], Weights(torch.float64).at(5).weight.detach())


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(ValueError, match="decay must be at least 0 and below 1"):
        WarmupEMAWeightAveraging(decay)


def test_the_callback_can_be_pickled():
    assert pickle.loads(pickle.dumps(WarmupEMAWeightAveraging(0.9))).decay == 0.9


def test_the_average_is_moved_to_the_device_of_the_weights():
    """Lightning makes it before it moves the weights; every step would copy them to the host."""
    callback = WarmupEMAWeightAveraging()
    callback._average_model = AveragedModel(Weights(torch.float32), use_buffers=True)
    callback.on_fit_start(None, SimpleNamespace(device=torch.device("meta")))
    state = callback._average_model.state_dict()
    assert {value.device.type for value in state.values()} == {"meta"} and "n_averaged" in state


class Task(LightningModule):
    """A layer made in the constructor, and one made in `configure_model`."""

    def __init__(self):
        super().__init__()
        self.early = nn.Linear(2, 2)

    def configure_model(self):
        if not hasattr(self, "late"):
            self.late = nn.Linear(2, 1)

    def training_step(self, batch, _):
        return self.late(self.early(batch)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_averages_in_double_precision_are_double(tmp_path):
    def fit(folder, epochs, ckpt_path=None):
        # Saved within training, since at its end the average replaces the model.
        kept = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
        trainer = Trainer(
            precision="64-true", max_epochs=epochs, callbacks=[WarmupEMAWeightAveraging(0.5), kept],
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        torch.manual_seed(1)
        batches = torch.rand(4, 3, 2, dtype=torch.float64)
        trainer.fit(Task(), DataLoader(batches, batch_size=None), ckpt_path=ckpt_path)
        return torch.load(folder / f"epoch={epochs - 1}.ckpt", weights_only=True)

    fit(tmp_path / "a", 1)
    resumed = fit(tmp_path / "a", 2, tmp_path / "a" / "epoch=0.ckpt")
    whole = fit(tmp_path / "b", 2)
    for key in ("state_dict", "current_model_state"):
        assert {value.dtype for value in whole[key].values()} == {torch.float64}
        for name, value in whole[key].items():
            assert torch.equal(resumed[key][name], value), (key, name)
            assert not torch.equal(value.float().double(), value), "not single precision in disguise"


def test_a_second_fit_is_averaged_from_its_own_first_step():
    """Lightning skips the step numbers of the first fit; the initial weights would end as the model."""
    callback, weights = WarmupEMAWeightAveraging(0.5), []
    for _ in range(2):
        torch.manual_seed(1)
        task, batches = Task(), torch.rand(4, 3, 2)
        trainer = Trainer(
            max_epochs=1, callbacks=[callback], accelerator="cpu", logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(task, DataLoader(batches, batch_size=None))
        weights.append(task.late.weight.detach())
    assert torch.equal(*weights)
