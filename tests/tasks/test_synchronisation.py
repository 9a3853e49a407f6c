"""A training step waits for its device only once, to check loss and gradients before the weights change."""

import dataclasses

import pytest
import torch
from helpers.pretended_cuda import Waits, autocast_to, move_weights, pretended_cuda
from helpers.resume_cases import CASES, Case, knowformer, links, mixture, nodes, train
from lightning.pytorch import Callback

from benchmarks.step_bytes import Bytes
from graphzoo.callbacks import NanGuard
from graphzoo.datamodules import LinkDataModule, MixtureDataModule
from graphzoo.encoders import GNN, MLP, SGC, PairGNN, SGFormer
from graphzoo.encoders import pencil as pencil_module
from graphzoo.layers import FeatureRows, NoiseStream
from graphzoo.layers.relation_graph import compare_relations
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification

NEAR = CASES["kg-completion, KnowFormer, neighbourhoods"]
SMALL = {"hidden_channels": 8}


def on_nodes(encoder, **settings):
    return Case(lambda: NodeClassification(lambda spec: encoder(spec, **SMALL, **settings)), nodes)


def on_links(encoder, **settings):
    return Case(lambda: LinkPrediction(lambda spec: encoder(spec, **SMALL, **settings)), links)


MORE = {
    "kg-completion, KnowFormer, other answers left out": dataclasses.replace(
        NEAR, task=lambda: KGCompletion(knowformer, loss="filtered_ce")
    ),
    "kg-completion, KnowFormerAny, mixture in neighbourhoods": dataclasses.replace(
        CASES["kg-completion, KnowFormerAny, mixture of graphs"],
        data=lambda folder, workers: mixture(folder, workers, neighbourhood=6),
    ),
    "node-classification, GCN": on_nodes(GNN, kind="gcn"),
    "node-classification, GAT": on_nodes(GNN, kind="gat", num_heads=2),
    "node-classification, GraphSAGE": on_nodes(GNN, kind="sage"),
    "node-classification, SGC": on_nodes(SGC),
    "node-classification, MLP": on_nodes(MLP, denoise=True),
    "node-classification, SGFormer": on_nodes(SGFormer),
    "link-prediction, GCN": on_links(GNN, kind="gcn"),
    "link-prediction, GCN of pairs": on_links(PairGNN, kind="gcn"),
    "link-prediction, GAT of pairs": on_links(PairGNN, kind="gat", num_heads=2, identity_aware=True),
    "link-prediction, GraphSAGE of pairs": on_links(PairGNN, kind="sage", identity_aware=True),
    "link-prediction, KnowFormer, neighbourhoods": Case(
        lambda: LinkPrediction(knowformer), lambda folder, workers: links(folder, workers, neighbourhood=12)
    ),
    "link-prediction, KnowFormer, neighbourhoods, negatives of the same source": Case(
        lambda: LinkPrediction(knowformer),
        lambda folder, workers: links(folder, workers, neighbourhood=12, structured_negatives=True),
    ),
}
# NanGuard reads loss and gradients.
ONCE = {"item": 1}
# Also the number of edges that are not hidden, and of those that are not loops.
MORE_OFTEN = {"link-prediction, GCN": {"mask": 2, **ONCE}}
# Operations of a step on these small graphs and the KiB that they read and write, as the maximum over
# precisions; then those of the backward pass, counted on the CPU. Tests allow a quarter more.
WORK = {
    "kg-completion, KnowFormer": (1037, 783, 153, 244),
    "kg-completion, KnowFormer, sampled negatives": (1125, 807, 160, 247),
    "kg-completion, KnowFormer, neighbourhoods": (1185, 331, 160, 69),
    "kg-completion, KnowFormer, other answers left out": (1104, 327, 154, 68),
    "node-classification, NodeFormer, whole graph": (541, 3708, 262, 7817),
    "node-classification, GALiT, parts": (196, 50, 235, 80),
    "link-prediction, PENCIL": (564, 2376, 86, 2872),
    "heuristic-estimation, PENCIL": (559, 2344, 83, 2859),
    "link-prediction, GALiT": (321, 417, 248, 445),
    "link-prediction, KnowFormer": (1051, 7039, 155, 1220),
    "kg-completion, KnowFormerAny, mixture in neighbourhoods": (1487, 755, 273, 278),
    "node-classification, GCN": (131, 265, 32, 235),
    "node-classification, GAT": (211, 513, 86, 674),
    "node-classification, GraphSAGE": (168, 291, 38, 189),
    "node-classification, SGC": (86, 32, 15, 20),
    "node-classification, MLP": (92, 45, 17, 31),
    "node-classification, SGFormer": (330, 653, 122, 690),
    "link-prediction, GCN": (186, 269, 44, 170),
    "link-prediction, GCN of pairs": (181, 1258, 38, 839),
    "link-prediction, GAT of pairs": (255, 2040, 92, 2406),
    "link-prediction, GraphSAGE of pairs": (210, 1154, 46, 759),
    "link-prediction, KnowFormer, neighbourhoods": (1116, 2551, 157, 699),
    "link-prediction, KnowFormer, neighbourhoods, negatives of the same source": (1116, 2538, 157, 699),
}


class Stop(Exception):
    pass


class FirstBatch(Callback):
    """Ends training before the first step, and keeps trainer, task and batch."""

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
    data = task.trainer.datamodule  # these are computed once per run
    if isinstance(data, LinkDataModule):
        data.relational_graph("train")
    if isinstance(data, MixtureDataModule):
        compare_relations(batch.graph)
    return trainer, task.train(), batch


def move(task):
    """Move the weights and cached tensors of the graph to the device."""
    move_weights(task)
    if (prepared := getattr(task, "_prepared", None)) is not None:
        prepared.x, prepared.device = prepared.x.to(task.device), task.device
        prepared.edge_index = None if prepared.edge_index is None else prepared.edge_index.to(task.device)
        prepared.precomputed = {name: value.to(task.device) for name, value in prepared.precomputed.items()}
    if getattr(task, "_hider", None) is not None:
        task._hider.to(task.device)


def check_work(counted, most_calls, most_kib):
    assert sum(counted.calls.values()) <= 1.25 * most_calls
    assert sum(counted.moved.values()) <= 1.25 * 1024 * most_kib


def step(trainer, task, batch, optimizer):
    """Run a step without its backward pass, from a batch on the host; return its waits and operations."""
    guard = NanGuard()
    with Waits() as waits, Bytes() as counted:
        batch = task.transfer_batch_to_device(batch, task.device, 0)
        loss = task.training_step(batch, 0)
        guard.on_before_backward(trainer, task, loss)
        for weight in task.parameters():
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        guard.on_before_optimizer_step(trainer, task, optimizer)
        task.on_before_optimizer_step(optimizer)
        optimizer.step()
    return dict(waits.found), counted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WORK)
def test_a_step_waits_once(tmp_path, monkeypatch, name):
    """This holds in float32, bf16-mixed and 16-mixed; decoders compute in float32 in all of them."""
    monkeypatch.setattr(pencil_module, "_MIN_TOKENS", (1, 1))  # group subgraphs by size also in small batches
    trainer, task, batch = first_step(name, tmp_path)
    decoded = set()
    task.decoder.register_forward_hook(lambda _, given, made: decoded.add(made.dtype))
    with pretended_cuda(monkeypatch):
        move(task)
        optimizers = task.configure_optimizers()
        optimizer = optimizers["optimizer"] if isinstance(optimizers, dict) else optimizers
        step(trainer, task, batch, optimizer)  # moves tensors that stay on the device
        for dtype in (None, torch.bfloat16, torch.float16):
            with autocast_to(dtype):
                found, counted = step(trainer, task, batch, optimizer)
            assert found == MORE_OFTEN.get(name, ONCE), dtype
            check_work(counted, *WORK[name][:2])
    assert decoded == {torch.float32}


@pytest.mark.parametrize("name", WORK)
def test_a_backward_pass_waits_for_nothing(tmp_path, name):
    _, task, batch = first_step(name, tmp_path)
    task.training_step(batch, 0).backward()  # sorts the graph once
    loss = task.training_step(batch, 0)
    with Waits("cpu") as waits, Bytes() as counted:
        loss.backward()
    assert waits.found == {}
    check_work(counted, *WORK[name][2:])
    assert any(weight.grad is not None for weight in task.parameters())


def test_operations_that_wait_are_counted(monkeypatch):
    with pretended_cuda(monkeypatch), Waits() as waits:
        x = torch.arange(4.0, device="cuda")
        index = torch.zeros(2, dtype=torch.int64, device="cuda")
        float(x.sum()), x.tolist(), x.cpu(), x[x > 1], (x > 1).nonzero(), torch.unique(x)
        torch.bincount(index), index.repeat_interleave(index), torch.ones(3).to("cuda:0")
        x[index] = 1.0  # the number is copied to the device
        torch.ones(3).to("cuda:0", non_blocking=True), index.repeat_interleave(index, output_size=2), x[index]
    once = dict.fromkeys(["mask", "nonzero", "unique", "bincount", "repeat_interleave"], 1)
    assert waits.found == {"item": 1 + 4, "copy": 3, **once}


def test_feature_rows_on_a_device_do_not_wait(monkeypatch):
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
        stream.draws.fill_(7)  # like a checkpoint
        with waits:
            stream.generator(None, "cuda")
        assert waits.found == {"item": 2}
