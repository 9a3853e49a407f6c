"""Batches for a GPU are in pinned memory, from which they are copied while the host continues."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from helpers.resume_cases import CASES

from graphzoo.datamodules import base, batches
from graphzoo.datamodules.batches import pins_memory
from graphzoo.ops import QueryGraph

NAMES = [
    "kg-completion, KnowFormer, sampled negatives",
    "kg-completion, KnowFormer, neighbourhoods",
    "node-classification, NodeFormer, whole graph",
    "node-classification, GALiT, parts",
    "link-prediction, PENCIL",
    "link-prediction, GALiT",
]


def tensors(value):
    """Every tensor of a batch that is copied to the device."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, QueryGraph):
        graph = value.flat
        parts = [*graph._orderings.values(), *graph._pieces.values()]
        return [value.nodes, graph.edge_index, graph.edge_type, *(x for part in parts for x in tensors(part))]
    if isinstance(value, tuple):
        return [x for part in value for x in tensors(part)]
    if dataclasses.is_dataclass(value):
        return [x for field in dataclasses.fields(value) for x in tensors(getattr(value, field.name))]
    return []


def first_batch(name, folder):
    """The first training batch of a case."""
    case = CASES[name]
    datamodule = case.data(folder / "data", 0)
    datamodule.prepare_data()
    datamodule.setup("fit")
    if "PENCIL" in name:
        datamodule.batching = "subgraphs"
    datamodule.knows_answers = True
    loader = datamodule.train_dataloader(0)
    return next(iter(loader)), loader


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_pinned(tmp_path, monkeypatch, name):
    batch, loader = first_batch(name, tmp_path)
    assert not loader.pin_memory
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.clone()) or pinned[-1])
    found = batch.pin_memory()
    assert type(found) is type(batch)
    if name == "node-classification, NodeFormer, whole graph":  # features and edges are kept on the device
        assert found.x is batch.x and found.edge_index is batch.edge_index
        assert len(pinned) == 2 and found.y is pinned[0] and found.target is pinned[1]
        return
    places = {id(value) for value in pinned}
    assert all(id(value) in places for value in tensors(found)) and len(tensors(found)) == len(pinned)
    for field in dataclasses.fields(batch):
        value = getattr(batch, field.name)
        if not tensors(value):
            assert getattr(found, field.name) is value
    before = tensors(batch)  # `pin_memory` has computed the pieces of a graph
    assert all(torch.equal(one, other) for one, other in zip(tensors(found), before, strict=True))


@pytest.mark.parametrize(("device", "pins"), [("cpu", False), ("cuda", True), ("cuda:1", True)])
def test_memory_is_pinned_only_for_a_gpu(device, pins):
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)))
    assert pins_memory(trainer) is pins and not pins_memory(None)


@pytest.mark.filterwarnings("ignore")  # torch warns that it pins nothing without a GPU
@pytest.mark.parametrize("name", NAMES)
def test_loaders_pin_for_a_gpu(tmp_path, monkeypatch, name):
    for module in (base, batches):
        monkeypatch.setattr(module, "pins_memory", lambda trainer: True)
    assert first_batch(name, tmp_path)[1].pin_memory
