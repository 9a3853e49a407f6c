"""Scores are decoded in at least single precision, for any precision of a run."""

import dataclasses

import pytest
import torch
from helpers.node_encoders import Averaging
from helpers.resume_cases import CASES, galit, train
from helpers.trainers import QUIET
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch_geometric.data import Data

from graphzoo.datamodules import NodeDataModule
from graphzoo.datasets import from_triples
from graphzoo.decoders import EntityDecoder, NodeDecoder, PairDecoder
from graphzoo.encoders import KnowFormer
from graphzoo.metrics import Accuracy, LinkMetric
from graphzoo.ops import RelationalGraph
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification, kg_completion
from graphzoo.tasks.base import Task
from graphzoo.tasks.prepared_graph import PreparedGraph
from graphzoo.types import GraphSpec

NAMES = [
    "kg-completion, KnowFormer",
    "node-classification, GALiT, parts",
    "link-prediction, GALiT",
    "link-prediction, PENCIL",
    "link-prediction, KnowFormer",
    "heuristic-estimation, PENCIL",
]


DECODED = {
    **{name: CASES[name] for name in NAMES},
    "node-classification, NodeFormer, mlp": CASES["node-classification, NodeFormer, whole graph"],
    **{
        f"link-prediction, GALiT, {kind}": dataclasses.replace(
            CASES["link-prediction, GALiT"], task=lambda kind=kind: LinkPrediction(galit, decoder=kind)
        )
        for kind in ("dot", "concat")
    },
}
PRECISIONS = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def in_precision(case, precision):
    """The case with this precision; on a CPU, Lightning alone would replace "16-mixed" by "bf16-mixed"."""
    given = {"precision": precision}
    if precision == "16-mixed":
        given = {"plugins": [MixedPrecision(precision, "cpu", torch.amp.GradScaler("cpu"))]}
    return dataclasses.replace(case, trainer={**case.trainer, **given})


@pytest.mark.fault(
    "bf16-mixed or 16-mixed, in which rounded scores would tie",
    "scores are decoded in float32, in training and in evaluation",
)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", DECODED)
def test_every_task_decodes_in_single_precision(tmp_path, monkeypatch, name, precision):
    """The cases have every decoder of the tasks."""
    found, around, decode = {True: set(), False: set()}, set(), Task.decode

    def look(self, *states, **more):
        around.add(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return decode(self, *states, **more)

    monkeypatch.setattr(Task, "decode", look)
    for kind in (EntityDecoder, NodeDecoder, PairDecoder):
        forward = kind.forward

        def note(self, *states, forward=forward, **more):
            logits = forward(self, *states, **more)
            found[self.training].add(logits.dtype)
            return logits

        monkeypatch.setattr(kind, "forward", note)
    train(in_precision(DECODED[name], precision), tmp_path / "run", epochs=1)
    assert found == {True: {torch.float32}, False: {torch.float32}}
    assert around == {PRECISIONS[precision]}


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true", "64-true"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("heuristic")])
def test_evaluated_scores_are_not_rounded(tmp_path, monkeypatch, name, precision):
    evaluated = []

    def noted(function, place):
        def call(*args, **kwargs):
            evaluated.append(args[place].detach())
            return function(*args, **kwargs)

        return call

    for owner, function, place in (
        (kg_completion, "rank_targets", 0),
        (Accuracy, "update", 1),
        (LinkMetric, "update", 1),
    ):
        monkeypatch.setattr(owner, function, noted(getattr(owner, function), place))
    case = CASES[name]
    case = dataclasses.replace(case, trainer={**case.trainer, "precision": precision})
    train(case, tmp_path / "run", epochs=1)
    assert evaluated and {scores.dtype for scores in evaluated} <= {torch.float32, torch.float64}
    scores = torch.cat([scores.flatten() for scores in evaluated])
    for narrow in (torch.bfloat16, torch.float16):
        rounded = (scores == scores.to(narrow).to(scores.dtype)).double().mean()
        assert rounded < 0.1, f"numbers that {narrow} could hold"


@pytest.mark.parametrize("name", [*NAMES, "kg-completion, KnowFormer, sampled negatives"])
def test_losses_in_double_precision_are_float64(tmp_path, monkeypatch, name):
    found, collect = set(), Task.collect_loss

    def note(self, losses, num_global):
        found.add(losses.dtype)
        collect(self, losses, num_global)

    monkeypatch.setattr(Task, "collect_loss", note)
    train(in_precision(CASES[name], "64-true"), tmp_path / "run", epochs=1)
    assert found == {torch.float64}


def test_class_weights_work_in_double_precision(tmp_path):
    case = dataclasses.replace(
        in_precision(CASES["node-classification, NodeFormer, whole graph"], "64-true"),
        task=lambda: NodeClassification(galit, class_weights="balanced"),
    )
    _, trainer = train(case, tmp_path / "run", epochs=1)
    assert trainer.global_step == 1


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "64-true"])
def test_a_whole_graph_is_precomputed_once(tmp_path, monkeypatch, precision):
    """Lightning converts the features again for every batch, in training and validation."""
    made, init = [], PreparedGraph.__init__
    monkeypatch.setattr(PreparedGraph, "__init__", lambda *args: made.append(args) or init(*args))
    case = in_precision(CASES["node-classification, NodeFormer, whole graph"], precision)
    train(case, tmp_path / "run", epochs=2)
    assert len(made) == 1


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_features_follow_weights_that_a_later_trainer_converts(precision):
    """`Averaging` converts nothing itself."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(60, (2, 200), generator=generator)
    graph = Data(x=torch.randn(60, 3, generator=generator), edge_index=edge_index, y=torch.arange(60) % 2)
    task, data = NodeClassification(Averaging), NodeDataModule.from_data(graph)
    Trainer(**QUIET, max_epochs=1).fit(task, data)
    scores = Trainer(**QUIET, precision=precision).predict(task, data)
    assert task.weight_dtype != torch.float32 and bool(scores[0].isfinite().all())


@pytest.mark.parametrize(
    ("weights", "autocast"),
    [
        (torch.float32, None),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.bfloat16, None),
        (torch.float16, None),
    ],
)
def test_explained_scores_are_float32(weights, autocast):
    """This holds in float32, under autocast, and with narrow weights as of "bf16-true"."""
    facts = from_triples(
        [("a", "r", "b"), ("c", "s", "b"), ("c", "s", "d"), ("a", "r", "d"), ("d", "s", "e")]
    )
    torch.manual_seed(3)
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=2, num_heads=2))
    task.build(GraphSpec(facts.num_entities, facts.num_relations))
    query = RelationalGraph.from_triples(facts.train, 5, 2), *facts.train[3:4].t().unbind()
    expected = task.eval().edge_gradients(*query)
    task.to(weights)
    decoded = []
    task.decoder.register_forward_hook(lambda _, given, made: decoded.extend((given[0].dtype, made.dtype)))
    with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        value, gradient = task.edge_gradients(*query)
    assert {*decoded, value.dtype, gradient.dtype} == {torch.float32}
    assert value != value.bfloat16() and value != value.half() and gradient.abs().max() > 0
    torch.testing.assert_close(value, expected[0], atol=0.05, rtol=0.05)
    torch.testing.assert_close(gradient, expected[1], atol=0.05, rtol=0.2)


DECODERS = {
    "entity": lambda: EntityDecoder(8),
    "linear": lambda: NodeDecoder(8, 3),
    "mlp": lambda: NodeDecoder(8, 3, kind="mlp"),
    **{
        f"pairs, {kind}": lambda kind=kind: PairDecoder(8, kind=kind)
        for kind in ("hadamard", "dot", "concat", "linear")
    },
}


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_computes_in_at_least_float32(name, weights, narrow):
    """States are narrow under autocast; with "bf16-true", weights are narrow too."""
    torch.manual_seed(0)
    task: Task = Task()
    task.decoder = DECODERS[name]().to(weights)
    shape = (5000, 2, 8) if name == "entity" else (5000, 8)
    states = [torch.randn(shape).to(narrow) for _ in range(2 if name.startswith("pairs") else 1)]
    with torch.autocast("cpu", narrow):
        logits = task.decode(*states)
    has_weights = bool(list(task.decoder.parameters()))
    wide = torch.promote_types(torch.float32, weights) if has_weights else torch.float32
    assert logits.dtype == wide
    plain: nn.Module = task.decoder.to(wide)
    torch.testing.assert_close(logits, plain(*(state.to(wide) for state in states)))
    assert logits.flatten().unique().numel() > 4000, "few of them tie"


@pytest.mark.fault("TF32 on CUDA, in which rounded states would tie", "scores are decoded without TF32")
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_scores_on_cuda_are_decoded_without_tf32(monkeypatch, precision, device):
    task, seen = Task(), []
    task.decoder = NodeDecoder(8, 3)
    task.decoder.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    monkeypatch.setattr(Task, "device", torch.device(device))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        task.decode(torch.randn(2, 8))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["highest" if device == "cuda" else precision]


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("name", ["kg-completion, KnowFormer", "node-classification, GALiT, parts"])
def test_gradients_are_clipped_in_mixed_precision(tmp_path, name, precision):
    """Lightning refuses to clip for a fused optimiser, so Adam is not fused here, as it is else on a CPU."""
    case = in_precision(CASES[name], precision)
    case = dataclasses.replace(case, trainer={**case.trainer, "gradient_clip_val": 0.5})
    _, trainer = train(case, tmp_path, epochs=1)
    assert trainer.global_step > 0 and trainer.optimizers[0].defaults["fused"] is None


def test_gradients_reach_narrow_weights():
    task = Task()
    task.decoder = NodeDecoder(8, 3).bfloat16()
    states = torch.randn(5, 8, dtype=torch.bfloat16, requires_grad=True)
    task.decode(states).sum().backward()
    assert states.grad is not None and task.decoder.out.weight.grad.dtype == torch.bfloat16
