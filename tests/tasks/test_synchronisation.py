"""A training step does not wait for its device: one look at its numbers, before the weights change."""

import contextlib
import dataclasses

import pytest
import torch
from helpers.pretended_cuda import Waits, autocast_to_bf16, move_weights, pretended_cuda
from helpers.resume_cases import CASES, knowformer, train
from lightning.pytorch import Callback

from graphzoo.callbacks import NanGuard
from graphzoo.datamodules import LinkDataModule
from graphzoo.encoders import pencil as pencil_module
from graphzoo.layers import FeatureRows, NoiseStream
from graphzoo.tasks import KGCompletion

NEAR = CASES["kg-completion, KnowFormer, neighbourhoods"]
MORE = {
    "kg-completion, KnowFormer, other answers left out": dataclasses.replace(
        NEAR, task=lambda: KGCompletion(knowformer, loss="filtered_ce")
    ),
}
# The guard's look at loss and gradients.
ONCE = {"item": 1}
WAITS = {
    "kg-completion, KnowFormer": ONCE,
    "kg-completion, KnowFormer, sampled negatives": ONCE,
    "kg-completion, KnowFormer, neighbourhoods": ONCE,
    "kg-completion, KnowFormer, other answers left out": ONCE,
    "node-classification, NodeFormer, whole graph": ONCE,
    "node-classification, GALiT, parts": ONCE,
    "link-prediction, PENCIL": ONCE,
    # The links of each batch are hidden, so each step has a graph of its own: its size ("mask"), whether its
    # numbers are in range ("item", twice), and its distinct edges ("unique") have to be known to make it.
    "link-prediction, GALiT": {"item": 3, "mask": 1, "unique": 1},
    # The distinct sources of the batch: each is asked once.
    "link-prediction, KnowFormer": {"item": 1, "unique": 1},
}


class Stop(Exception):
    pass


class FirstBatch(Callback):
    """Ends the training before its first step, and keeps what it would have been made of."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.kept = trainer, pl_module, batch
        raise Stop


def first_step(name, folder):
    """Trainer, task and first batch of a case, on the CPU."""
    first = FirstBatch()
    with pytest.raises(Stop):
        train((CASES | MORE)[name], folder / "run", more=[first])
    trainer, task, batch = first.kept
    task.log = lambda *args, **kwargs: None
    if isinstance(task.trainer.datamodule, LinkDataModule):
        task.trainer.datamodule.relational_graph("train")  # made once
    return trainer, task.train(), batch


def move(task):
    """The weights and what is kept of the graph, on the device."""
    move_weights(task)
    if (prepared := getattr(task, "_prepared", None)) is not None:
        prepared.x, prepared.device = prepared.x.to(task.device), task.device
        prepared.edge_index = None if prepared.edge_index is None else prepared.edge_index.to(task.device)
        prepared.precomputed = {name: value.to(task.device) for name, value in prepared.precomputed.items()}
    if getattr(task, "_hider", None) is not None:
        task._hider.to(task.device)


def step(trainer, task, batch, optimizer):
    """What the host waits for in a training step but for its backward pass; its batch is still the host's."""
    guard = NanGuard()
    with Waits() as waits:
        batch = task.transfer_batch_to_device(batch, task.device, 0)
        loss = task.training_step(batch, 0)
        guard.on_before_backward(trainer, task, loss)
        for weight in task.parameters():
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        guard.on_before_optimizer_step(trainer, task, optimizer)
        task.on_before_optimizer_step(optimizer)
        optimizer.step()
    return dict(waits.found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WAITS)
def test_a_step_waits_once(tmp_path, monkeypatch, name, precision):
    monkeypatch.setattr(pencil_module, "_MIN_TOKENS", (1, 1))  # groups of like size in small batches, too
    trainer, task, batch = first_step(name, tmp_path)
    with pretended_cuda(monkeypatch):
        move(task)
        optimizers = task.configure_optimizers()
        optimizer = optimizers["optimizer"] if isinstance(optimizers, dict) else optimizers
        with autocast_to_bf16() if precision == "bfloat16" else contextlib.nullcontext():
            step(trainer, task, batch, optimizer)  # what is moved once for the whole run
            assert step(trainer, task, batch, optimizer) == WAITS[name]


@pytest.mark.parametrize("name", WAITS)
def test_a_backward_pass_waits_for_nothing(tmp_path, name):
    _, task, batch = first_step(name, tmp_path)
    task.training_step(batch, 0).backward()  # sorts the graph, once
    loss = task.training_step(batch, 0)
    with Waits("cpu") as waits:
        loss.backward()
    assert waits.found == {}
    assert any(weight.grad is not None for weight in task.parameters())


def test_what_waits_is_counted(monkeypatch):
    with pretended_cuda(monkeypatch), Waits() as waits:
        x = torch.arange(4.0, device="cuda")
        index = torch.zeros(2, dtype=torch.int64, device="cuda")
        float(x.sum()), x.tolist(), x.cpu(), x[x > 1], (x > 1).nonzero(), torch.unique(x)
        torch.bincount(index), index.repeat_interleave(index), torch.ones(3).to("cuda:0")
        x[index] = 1.0  # the number is copied to the device
        torch.ones(3).to("cuda:0", non_blocking=True), index.repeat_interleave(index, output_size=2), x[index]
    once = dict.fromkeys(["mask", "nonzero", "unique", "bincount", "repeat_interleave"], 1)
    assert waits.found == {"item": 1 + 4, "copy": 3, **once}


def test_distinct_rows_are_not_looked_for_on_a_device(monkeypatch):
    with pretended_cuda(monkeypatch):
        layer, table = FeatureRows(5, 3), torch.randn(100, 5, device="cuda")
        move_weights(layer)
        with Waits() as waits:
            mapped, position = layer(table, torch.zeros(2, 4, dtype=torch.int64, device="cuda"))
        assert mapped.shape == (8, 3) and position.shape == (2, 4) and not waits.found


def test_a_stream_of_noise_reads_its_count_once(monkeypatch):
    with pretended_cuda(monkeypatch):
        stream = NoiseStream()
        move_weights(stream)
        with Waits() as waits:
            for _ in range(3):
                stream.generator(None, "cuda")
        assert waits.found == {"item": 1}
        stream.draws.fill_(7)  # as a checkpoint does
        with waits:
            stream.generator(None, "cuda")
        assert waits.found == {"item": 2}
