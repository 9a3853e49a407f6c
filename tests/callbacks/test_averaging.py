"""Averages of the weights that warm up, against the mean written out."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from graphzoo.callbacks import WarmupEMAWeightAveraging


class Weights(nn.Module):
    """One weight and a buffer that counts."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, dtype=dtype))
        self.register_buffer("steps", torch.tensor(0))

    def at(self, step):
        """As after so many optimiser steps."""
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
    assert int(average.module.steps) == steps  # a counter is no mean
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_mean_of_all_weights_at_first(dtype):
    """Up to 1 / (1 - decay) steps; the untrained weights are no part of it."""
    for step, found in enumerate(averages_of(0.9, 10, dtype), start=1):
        mean = torch.stack([Weights(dtype).at(i).weight.detach() for i in range(1, step + 1)]).mean(0)
        torch.testing.assert_close(found, mean)


def test_it_is_exponential_from_then_on():
    found = averages_of(0.9, 30)
    for step in range(10, 30):
        latest = Weights(torch.float64).at(step + 1).weight.detach()
        torch.testing.assert_close(found[step], 0.9 * found[step - 1] + 0.1 * latest)


def test_without_decay_it_is_the_latest():
    assert torch.equal(averages_of(0.0, 5)[-1], Weights(torch.float64).at(5).weight.detach())


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(ValueError, match="decay must be at least 0 and below 1"):
        WarmupEMAWeightAveraging(decay)


def test_processes_that_are_spawned_can_take_it_along():
    assert pickle.loads(pickle.dumps(WarmupEMAWeightAveraging(0.9))).decay == 0.9


def test_the_average_lies_where_the_weights_are():
    """Lightning makes it before it moves them: every step would copy all weights to the host."""
    callback = WarmupEMAWeightAveraging()
    callback._average_model = AveragedModel(Weights(torch.float32), use_buffers=True)
    callback.on_fit_start(None, SimpleNamespace(device=torch.device("meta")))
    state = callback._average_model.state_dict()
    assert {value.device.type for value in state.values()} == {"meta"} and "n_averaged" in state
