"""A training step that runs out of memory is repeated in halves, with the gradients of the whole step."""

import logging
import re
from functools import partial
from weakref import ref

import pytest
import torch
from helpers.link_graphs import make_link_graph
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy

from graphzoo.datamodules import KGDataModule, LinkDataModule
from graphzoo.encoders import PENCIL, KnowFormer
from graphzoo.errors import OutOfMemoryError
from graphzoo.tasks import KGCompletion, LinkPrediction, halved_steps

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu",
         "num_sanity_val_steps": 0, "limit_val_batches": 0, "enable_checkpointing": False}  # fmt: skip
ERRORS = {
    "forward": RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    "backward": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
}
BF16 = {"precision": "bf16-mixed"}
KNOWFORMER = partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2, dropout=0.0)


def queries(**settings):
    return KGCompletion(KNOWFORMER, loss="bce", lr=0.01), KGDataModule("umls", batch_size=24, **settings)


def links(encoder=KNOWFORMER, **settings):
    data = LinkDataModule(batch_size=24, depth=1, num_neighbors=12, max_nodes=26, **settings)
    data._load = lambda download: make_link_graph()
    return LinkPrediction(encoder, lr=0.01), data


SMALL = {"hidden_channels": 16, "num_layers": 1, "num_heads": 2, "ffn_channels": 16, "dropout": 0.0}
TASKS = {
    "queries": queries,
    "queries in neighbourhoods": partial(queries, neighbourhood=40),
    "links by source": links,
    "links in neighbourhoods": partial(links, neighbourhood=20),
    "subgraphs": partial(links, encoder=partial(PENCIL, **SMALL)),
}


class Gate(torch.autograd.Function):
    """Identity that raises if there are too many states."""

    @staticmethod
    def forward(ctx, states, where, count, refuse):
        ctx.check = partial(refuse, "backward", count)
        refuse("forward", count)
        return states.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.check()
        return grad, None, None, None


def fit(make, folder, where="", most=0, since=2, prepare=lambda encoder: None, trainer=None, **settings):
    """Train for four steps; from step `since` on, only `most` samples fit into memory at once."""
    seed_everything(0, verbose=False)
    task, data = make(**settings)
    trainer = Trainer(max_steps=4, default_root_dir=folder, **QUIET, **(trainer or {}))
    refused = []

    def refuse(place, count):
        if place == where and trainer.global_step >= since and count > most:
            refused.append(count)
            raise type(ERRORS[where])(*ERRORS[where].args)  # a new one: its traceback holds the graph

    build = task._factory

    def built(spec):
        encoder = build(spec)
        prepare(encoder)
        encoder.register_forward_hook(
            lambda module, args, states: Gate.apply(
                states, where, len(args[0]) if isinstance(module, PENCIL) else states.shape[1], refuse
            )
        )
        return encoder

    task._factory = built
    losses = []
    log = task.log_training
    task.log_training = lambda name, value: losses.append(float(value)) or log(name, value)
    trainer.fit(task, data)
    return task, refused, losses


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault(
    "a training step runs out of memory",
    "training continues with halved batches and the same gradients; a line says so",
)
@pytest.mark.parametrize("parts", [None, 12], ids=["whole", "parts"])
@pytest.mark.parametrize("where", ERRORS)
@pytest.mark.parametrize("name", TASKS)
def test_a_step_in_halves_trains_the_same(name, where, parts, tmp_path, caplog):
    whole, _, losses = fit(TASKS[name], tmp_path, micro_batch_size=parts)
    with caplog.at_level(logging.WARNING, logger="graphzoo"):
        halved, refused, same = fit(TASKS[name], tmp_path, where, most=7, micro_batch_size=parts)
    assert "out of memory while training: continuing with" in caplog.text
    assert 1 <= len(refused) <= 3, "the first one, and its half; later ones are known not to fit"
    assert same == pytest.approx(losses, rel=3e-6) and len(losses) == 4
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(halved.state_dict()[key], value, atol=2e-4, rtol=1e-3, msg=key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ERRORS)
def test_halves_in_bf16_have_the_gradients_of_micro_batches(where, tmp_path):
    parts, _, _ = fit(queries, tmp_path, trainer=BF16, micro_batch_size=6)
    halved, refused, _ = fit(queries, tmp_path, where, most=7, since=0, trainer=BF16, micro_batch_size=24)
    assert refused
    for key, value in parts.state_dict().items():
        torch.testing.assert_close(halved.state_dict()[key], value, atol=2e-4, rtol=1e-3, msg=key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ERRORS)
def test_frozen_and_unused_weights_stay_as_they_are(where, tmp_path):
    def prepare(encoder):
        encoder.relation_embedding.requires_grad_(False)
        encoder.unused = torch.nn.Parameter(torch.ones(3))

    whole, _, _ = fit(queries, tmp_path, prepare=prepare)
    halved, refused, _ = fit(queries, tmp_path, where, most=7, prepare=prepare)
    assert refused and halved.encoder.unused.grad is None is halved.encoder.relation_embedding.weight.grad
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(halved.state_dict()[key], value, atol=2e-4, rtol=1e-3, msg=key)


@pytest.mark.filterwarnings("ignore")
def test_a_failed_step_is_freed_before_its_halves(tmp_path):
    seen, alive = [], []

    def look(encoder, args, states):
        alive.append(seen[-1]() is not None if seen else False)
        seen.append(ref(states.grad_fn))

    def prepare(encoder):
        encoder.register_forward_hook(look)

    _, refused, _ = fit(queries, tmp_path, "backward", most=12, prepare=prepare, micro_batch_size=24)
    assert refused == [24] and alive == [False] * 7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ERRORS)
@pytest.mark.parametrize("reason", ["another strategy", "a loss scaler"])
def test_a_step_that_cannot_be_repeated_fails_with_its_own_error(reason, where, tmp_path, monkeypatch):
    trainer = {}
    if reason == "a loss scaler":
        trainer = {"plugins": [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]}
    else:  # a trainer of DDP would leave a process group and its environment behind
        monkeypatch.setattr(halved_steps, "SingleDeviceStrategy", DDPStrategy)
    with pytest.raises(type(ERRORS[where]), match=re.escape(str(ERRORS[where]))):
        fit(queries, tmp_path, where, most=7, trainer=trainer)


class Doubled(KGCompletion):
    """Overrides the training step, which the halves of a backward pass would not call."""

    def training_step(self, batch, batch_idx):
        return 2 * super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore")
def test_an_overridden_step_is_halved_only_in_its_forward_pass(tmp_path):
    def make(**settings):
        return Doubled(KNOWFORMER, loss="bce", lr=0.01), KGDataModule("umls", batch_size=24, **settings)

    whole, _, _ = fit(make, tmp_path)
    halved, refused, _ = fit(make, tmp_path, "forward", most=7)
    assert refused
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(halved.state_dict()[key], value, atol=2e-4, rtol=1e-3, msg=key)
    with pytest.raises(torch.OutOfMemoryError):
        fit(make, tmp_path, "backward", most=7)


@pytest.mark.filterwarnings("ignore")
def test_a_single_query_that_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(OutOfMemoryError, match="training, with one of 24 queries at a time: CUDA") as caught:
        fit(queries, tmp_path, "backward", most=0)
    assert str(caught.value).splitlines()[1].startswith("Take a smaller --model.encoder.hidden_channels")


@pytest.mark.filterwarnings("ignore")
def test_other_errors_of_a_step_are_raised(tmp_path, monkeypatch):
    monkeypatch.setitem(ERRORS, "forward", RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="^shapes cannot be multiplied$"):
        fit(queries, tmp_path, "forward", most=7)


@pytest.mark.filterwarnings("ignore")
def test_a_part_of_a_batch_has_its_part_of_the_neighbourhoods():
    _, data = queries(neighbourhood=40)
    data.prepare_data()
    data.setup("fit")
    data.knows_answers = True
    batch = next(iter(data.train_dataloader()))
    part = batch.part(5, 9)
    assert len(part) == 4 == part.graph.num_queries and part.graph.num_nodes == batch.graph.num_nodes
    assert torch.equal(part.graph.nodes, batch.graph.nodes[5:9])
    for query in range(4):
        for graph, number in ((part.graph, query), (batch.graph, query + 5)):
            kept = graph.edge_index[1] // graph.num_nodes == number
            found = torch.stack([*(graph.edge_index[:, kept] - number * graph.num_nodes),
                                 graph.edge_type[kept] - number * graph.num_relations])  # fmt: skip
            if graph is part.graph:
                mine = found
        assert torch.equal(mine, found) and mine.shape[1]
    rows = (batch.known_row >= 5) & (batch.known_row < 9)
    assert torch.equal(part.known_row + 5, batch.known_row[rows])
    assert torch.equal(part.known_entity, batch.known_entity[rows])
