"""LinkPrediction with every kind of encoder: training, hidden links, batches and scores."""

import copy
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.link_graphs import NODES, make_link_graph
from helpers.link_tasks import ENCODERS, build, data, fit, gradient
from helpers.trainers import QUIET
from lightning.pytorch import Callback, Trainer

from graphzoo.datamodules import LinkDataModule
from graphzoo.encoders.base import NodeEncoder
from graphzoo.errors import UsageError
from graphzoo.heuristics import LinkHeuristic
from graphzoo.metrics import link_figures
from graphzoo.tasks import LinkPrediction
from graphzoo.tasks.prepared_graph import PreparedGraph


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("own_negatives", [0, 20])
def test_communities_are_learned(encoder, own_negatives):
    datamodule = data(make_link_graph(own_negatives=own_negatives), batch_size=32)
    task, trainer = fit(encoder, datamodule, 12 if encoder == "knowformer" else 25)
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert figures["test/mrr"] > 0.8, figures
    assert ("test/auroc" in figures) == (own_negatives == 0)
    assert own_negatives or figures["test/auroc"] > 0.9


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_do_not_depend_on_batches(encoder):
    found = []
    for eval_batch_size in (7, 1000):
        datamodule = data(eval_batch_size=eval_batch_size)
        task = build(encoder, datamodule)
        task.eval()
        judged = datamodule.judged("valid")
        total = len(judged.positive) + len(judged.negative)
        scores = torch.full((total,), float("nan"))
        for batch in datamodule.val_dataloader():
            scores[batch.index] = task.score_batch(batch, "valid")
        found.append(scores)
    assert torch.allclose(*found, atol=1e-5)
    figures = link_figures(found[0][: len(judged.positive)], found[0][len(judged.positive) :])
    del task.log
    trainer = Trainer(**QUIET)
    logged = trainer.validate(task, datamodule=datamodule, verbose=False)[0]
    assert logged["val/mrr"] == pytest.approx(figures["mrr"].item(), abs=1e-6)


@pytest.mark.parametrize(
    ("encoder", "settings"),
    [*((encoder, {}) for encoder in ENCODERS), ("knowformer", {"structured_negatives": True})],
)
def test_ranks_and_micro_batches_add_up_to_the_global_batch(encoder, settings):
    whole = data(**settings)
    expected = gradient(build(encoder, whole), [next(iter(whole.train_dataloader(0)))])
    parts = data(micro_batch_size=10, **settings)
    batches = []
    for rank in range(2):
        parts.trainer = SimpleNamespace(
            global_rank=rank, world_size=2, accumulate_grad_batches=4, current_epoch=0
        )
        parts.batching = build(encoder, whole).batching
        parts.setup("fit")
        assert parts.num_micro_batches == 4
        loader = iter(parts.train_dataloader())
        batches += [next(loader) for _ in range(4)]
    assert sum(len(batch) for batch in batches) == 128
    task = build(encoder, parts, world_size=2, accumulate=4)
    assert torch.allclose(gradient(task, batches) / 2, expected, atol=2e-5)


@pytest.mark.parametrize("encoder", ["galit", "nodeformer"])
def test_a_last_batch_of_fewer_micro_batches_has_the_gradient_of_a_whole_one(encoder):
    """NodeFormer adds an auxiliary loss, which Lightning divides by the parts of a full batch."""
    whole, parts = data(), data(micro_batch_size=16)
    expected = gradient(build(encoder, whole), list(whole.train_dataloader(0))[-1:])
    task = build(encoder, parts, accumulate=4)
    full = len(parts.graph.train) // 64
    last = list(parts.train_dataloader(0))[4 * full :]
    assert 0 < len(last) < 4
    assert torch.allclose(gradient(task, last), expected, atol=2e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_rank_with_an_empty_last_batch_has_zero_gradients(encoder):
    datamodule = data()
    task = build(encoder, datamodule)
    batch = next(iter(datamodule.train_dataloader(0)))
    empty = datamodule.scoring_batches(torch.empty(0, 2, dtype=torch.int64))[0]
    if batch.subgraphs is not None:
        none = datamodule.subgraph_sampler("train").sample(torch.empty(0, 2, dtype=torch.int64), seed=0)
        empty = dataclasses.replace(empty, subgraphs=none.pad(torch.empty(0, dtype=torch.int64)))
    empty = dataclasses.replace(empty, edge_label=torch.empty(0), removed=batch.removed, num_global=2)
    assert (gradient(task, [empty]) == 0).all() or encoder == "nodeformer"  # except for its auxiliary loss


@pytest.mark.parametrize("world_size", [1, 2])
def test_micro_batches_of_an_epoch_have_different_numbers(world_size):
    numbers = []
    for rank in range(world_size):
        part = data(batch_size=40, micro_batch_size=10, num_negatives=2)
        part.trainer = SimpleNamespace(global_rank=rank, world_size=world_size, current_epoch=0)
        part.setup("fit")
        part.batching = "subgraphs"
        numbers += [batch.number for batch in part.train_dataloader()]
    assert len(set(numbers)) == len(numbers) > 10


def test_batches_by_source_hold_at_most_a_number_of_sources():
    datamodule = data()
    datamodule.setup()
    datamodule.batching = "sources"
    pairs = torch.randint(0, NODES, (300, 2))
    batches = datamodule.scoring_batches(pairs)
    batches = type(batches)(pairs, 5, by_source=True, both_directions=True)
    seen = [[], []]
    for number in range(len(batches)):
        batch = batches[number]
        sources = batch.edge_label_index[0].unique().tolist()
        assert 1 <= len(sources) <= 5
        copy = 0 if len(seen[0]) < 300 else 1
        seen[copy] += batch.index.tolist()
        expected = pairs[batch.index] if copy == 0 else pairs[batch.index].flip(1)
        assert torch.equal(batch.edge_label_index.t(), expected)
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(300))


def test_a_training_batch_holds_its_distinct_sources():
    datamodule = data()
    task = build("knowformer", datamodule)
    batch = next(iter(datamodule.train_dataloader(0)))
    assert torch.equal(batch.source[batch.source_row], batch.edge_label_index[0])
    assert batch.source.unique().numel() == batch.source.numel() < len(batch)
    unnamed = dataclasses.replace(batch, source=None, source_row=None)
    assert torch.equal(task.sample_losses(batch), task.sample_losses(unnamed))
    assert batch.part(1, 3).source is None, "of another part they would be others"


def test_the_first_batches_hold_links_and_negatives():
    for own_negatives in (0, 20):
        datamodule = data(make_link_graph(own_negatives=own_negatives), eval_batch_size=42)
        build("galit", datamodule)
        count = len(datamodule.judged("valid").positive)
        is_link = next(iter(datamodule.val_dataloader())).index < count
        assert is_link.any() and not is_link.all()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_under_bfloat16_autocast_are_float32(encoder):
    datamodule = data()
    task = build(encoder, datamodule)
    task.eval()
    batch = next(iter(datamodule.val_dataloader()))
    with torch.autocast("cpu", torch.bfloat16):
        scores = task.score_batch(batch, "valid")
    assert scores.dtype == torch.float32
    assert (scores != scores.bfloat16().float()).float().mean() > 0.9


def test_hits_at_any_k_can_be_the_metric():
    datamodule = data()
    task, trainer = fit("galit", datamodule, 2, metric="hits@7")
    assert task.monitor == "val/hits@7"
    assert 0 <= trainer.callback_metrics["val/hits@7"] <= 1


def test_another_split_of_the_same_own_links_is_refused(tmp_path, caplog):
    graph = make_link_graph()
    links = torch.cat([graph.train, graph.valid.positive, graph.test.positive])
    path = tmp_path / "links.csv"
    path.write_text("".join(f"{u},{v}\n" for u, v in links.tolist()))
    task = LinkPrediction(ENCODERS["knowformer"])
    first, second = (LinkDataModule(path=str(path), split_index=i, batch_size=64) for i in range(2))
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(task, datamodule=first)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = LinkPrediction(ENCODERS["knowformer"])
    arguments = {"ckpt_path": tmp_path / "run.ckpt", "weights_only": True, "verbose": False}
    Trainer(**QUIET).test(again, datamodule=first, **arguments)
    with pytest.raises(UsageError, match="may be among its training links\\nGive --data.split_index 0"):
        Trainer(**QUIET).test(LinkPrediction(ENCODERS["knowformer"]), datamodule=second, **arguments)
    caplog.clear()
    Trainer(**QUIET).test(LinkPrediction(ENCODERS["knowformer"]), datamodule=first, **arguments)
    assert "these are not the data that the model was trained on" not in caplog.text
    # With one more link, another split is drawn.
    (tmp_path / "more.csv").write_text(path.read_text() + "0,new\n")
    more = LinkDataModule(path=str(tmp_path / "more.csv"), batch_size=64)
    Trainer(**QUIET).test(LinkPrediction(ENCODERS["knowformer"]), datamodule=more, **arguments)
    assert caplog.text.count("these are not the data that the model was trained on") == 1
    # No split_index gives the split of other files, or of the same links with other features.
    for part, pairs in zip(("train", "valid", "test"), links.split([len(links) - 40, 20, 20]), strict=True):
        (tmp_path / f"{part}.csv").write_text("".join(f"{u},{v}\n" for u, v in pairs.tolist()))
    np.savez(tmp_path / "featured.npz", edge_index=links.t().numpy(), x=np.ones((graph.num_nodes, 2)))
    files = [str(tmp_path / f"{part}.csv") for part in ("train", "valid", "test")]
    for other in (files, str(tmp_path / "featured.npz")):
        with pytest.raises(UsageError, match="links\nGive the files that it was trained on$"):
            given = LinkDataModule(path=other)
            Trainer(**QUIET).test(LinkPrediction(ENCODERS["knowformer"]), datamodule=given, **arguments)


@pytest.mark.parametrize("encoder", ["galit", "knowformer"])
def test_links_of_the_batch_are_hidden_from_the_whole_graph(encoder):
    """Their logits are those on a graph without these links."""
    datamodule = data()
    task = build(encoder, datamodule)
    task.eval()
    batch = next(iter(datamodule.train_dataloader(0)))
    hidden = {frozenset(pair) for pair in batch.removed.t().tolist()}
    assert len(hidden) == 64
    kept = [frozenset(pair) not in hidden for pair in datamodule.graph.train.tolist()]
    smaller = data(
        dataclasses.replace(make_link_graph(), train=make_link_graph().train[kept], fingerprint="")
    )
    other = build(encoder, smaller)
    other.eval()
    other.load_state_dict(task.state_dict())
    assert torch.allclose(task._logits(batch, "train", 1)[0], other._logits(batch, "train", 1)[0], atol=1e-5)
    leaking = build(encoder, datamodule, hide_positives=False)
    leaking.eval()
    leaking.load_state_dict(task.state_dict())
    assert not torch.allclose(
        task._logits(batch, "train", 1)[0], leaking._logits(batch, "train", 1)[0], atol=1e-3
    )


def test_pencil_does_not_see_the_link_of_the_pair():
    datamodule = data()
    build("pencil", datamodule)
    batch = next(iter(datamodule.train_dataloader(0)))
    assert not batch.subgraphs.adjacency[:, 0, 1].any() and not batch.subgraphs.adjacency[:, 1, 0].any()
    assert batch.edge_label.sum() == 64 and len(batch) == 128


def test_micro_batches_hold_subgraphs_of_similar_size():
    datamodule = data(batch_size=120, micro_batch_size=20)
    build("pencil", datamodule)
    loader = iter(datamodule.train_dataloader(0))
    sizes = [next(loader).subgraphs.num_nodes for _ in range(6)]
    assert all(a.max() <= b.min() for a, b in zip(sizes, sizes[1:], strict=False))
    assert sizes[0].max() < sizes[-1].max()


def test_negatives_are_no_training_links_and_change_with_the_epoch():
    datamodule = data(num_negatives=3)
    build("galit", datamodule)
    links = {frozenset(pair) for pair in datamodule.graph.train.tolist()}
    seen = []
    for epoch in range(2):
        batches = list(datamodule.train_dataloader(epoch))
        pairs = torch.cat([batch.edge_label_index for batch in batches], dim=1)
        label = torch.cat([batch.edge_label for batch in batches])
        assert {frozenset(p) for p in pairs[:, label == 1].t().tolist()} == links
        negative = pairs[:, label == 0]
        assert negative.shape[1] == 3 * len(links) and (negative[0] != negative[1]).all()
        assert not links & {frozenset(p) for p in negative.t().tolist()}
        seen.append(negative.sort().values)
    assert not torch.equal(*seen)


def test_structured_negatives_follow_their_link():
    datamodule = data(num_negatives=3, structured_negatives=True, batch_size=40, micro_batch_size=15)
    build("galit", datamodule)
    links = {frozenset(pair) for pair in datamodule.graph.train.tolist()}
    for batch in datamodule.train_dataloader(0):
        (source, target), label = batch.edge_label_index, batch.edge_label == 1
        assert torch.equal(source.view(-1, 4), source[::4, None].expand(-1, 4))
        assert label.view(-1, 4)[:, 0].all() and not label.view(-1, 4)[:, 1:].any()
        negatives = torch.stack([source, target])[:, ~label]
        assert not links & {frozenset(pair) for pair in negatives.t().tolist()}


def test_undirected_links_are_used_in_both_directions_and_directed_ones_in_theirs():
    graph = make_link_graph()
    for is_directed, expected in ((False, (0.35, 0.65)), (True, (1.0, 1.0))):
        datamodule = data(dataclasses.replace(graph, is_directed=is_directed, fingerprint=""))
        build("galit", datamodule)
        stored = set(map(tuple, graph.train.tolist()))
        pairs = [
            b.edge_label_index[:, b.edge_label == 1].t().tolist() for b in datamodule.train_dataloader(0)
        ]
        share = sum(tuple(pair) in stored for part in pairs for pair in part) / len(stored)
        assert expected[0] <= share <= expected[1]


def test_scores_are_averaged_over_relabellings():
    def scores(**settings):
        datamodule = data(**settings)
        task = build("pencil", datamodule)
        task.eval()
        judged = datamodule.judged("valid")
        rows = []
        for batch in datamodule.val_dataloader():
            rows += list(zip(batch.index.tolist(), task.score_batch(batch).tolist(), strict=True))
        total = len(judged.positive) + len(judged.negative)
        table = torch.zeros(total, dtype=torch.float64)
        count = torch.zeros(total)
        for index, score in rows:
            table[index] += score
            count[index] += 1
        assert count.unique().tolist() == [
            settings.get("num_relabelings", 1) * (2 if settings.get("both_directions") else 1)
        ]
        return table / count

    once, thrice = scores(), scores(num_relabelings=3)
    assert not torch.allclose(once, thrice)
    assert torch.allclose(thrice, scores(num_relabelings=3, eval_batch_size=5), atol=1e-5)
    assert not torch.allclose(once, scores(both_directions=True))


class _BreakOff(Callback):
    def on_validation_batch_end(self, *_):
        raise RuntimeError("broken off")


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_next_validation_uses_the_new_weights(is_whole):
    """States of a node encoder are cached for one evaluation only, even if that is interrupted."""
    datamodule = data()
    task, trainer = fit("galit", datamodule, 1)
    before = trainer.validate(task, datamodule=datamodule, verbose=False)[0]
    if not is_whole:
        with pytest.raises(RuntimeError, match="broken off"):
            Trainer(callbacks=[_BreakOff()], **QUIET).validate(task, datamodule=datamodule, verbose=False)
    changed = copy.deepcopy(task.state_dict())
    for value in changed.values():
        value.neg_()
    task.load_state_dict(changed)
    after = trainer.validate(task, datamodule=datamodule, verbose=False)[0]
    assert before["val/mrr"] != after["val/mrr"]
    copied = copy.deepcopy(task)  # has no states
    assert trainer.validate(copied, datamodule=datamodule, verbose=False)[0] == after


def test_validation_on_a_sample_is_the_same_for_every_seed():
    parts = [data(max_valid_pairs=5, seed=seed) for seed in (0, 1)]
    for part in parts:
        part.setup("fit")
    first, second = (part.judged("valid") for part in parts)
    assert torch.equal(first.positive, second.positive) and torch.equal(first.negative, second.negative)
    assert len(first.positive) == len(first.negative) == 5
    assert len(parts[0].judged("test").positive) == len(make_link_graph().test.positive)


@pytest.mark.parametrize("late", [False, True])
def test_messages_pass_along_validation_links_in_the_test_if_allowed(late):
    graph = dataclasses.replace(make_link_graph(), valid_edges_at_test=late, fingerprint="")
    datamodule = data(graph)
    datamodule.setup()

    def links(split):
        return {frozenset(pair) for pair in datamodule.edge_index(split).t().tolist()}

    valid = {frozenset(pair) for pair in graph.valid.positive.tolist()}
    test = {frozenset(pair) for pair in graph.test.positive.tolist()}
    for split in ("train", "valid"):
        assert not links(split) & (valid | test)
    assert bool(links("test") & valid) == late and not links("test") & test
    assert (datamodule.edge_index("train") is datamodule.edge_index("test")) != late


def test_encoders_that_need_features_are_refused_without():
    with pytest.raises(ValueError, match="GALiT needs node features"):
        fit("galit", data(make_link_graph(features=False)), 1)
    with pytest.raises(ValueError, match="GALiT needs node features"):
        fit("galit", data(use_features=False), 1)


def test_a_decoder_is_refused_for_a_query_encoder():
    with pytest.raises(UsageError, match="decoder of its own"):
        fit("knowformer", data(), 1, decoder="dot")


def test_a_metric_that_the_protocol_lacks_is_refused():
    with pytest.raises(UsageError, match="val/auroc needs negatives that all links share"):
        fit("galit", data(make_link_graph(own_negatives=5)), 1, metric="auroc")
    with pytest.raises(ValueError, match="must be mrr, auroc, ap or hits@K"):
        LinkPrediction(ENCODERS["galit"], metric="accuracy")


class Broken(NodeEncoder):
    """Gives NaN states."""

    def __init__(self, spec):
        super().__init__()
        self.out_channels = 4
        self.lin = torch.nn.Linear(spec.in_channels, 4)

    def forward(self, x, edge_index):
        return self.lin(x) * float("nan")


def test_nan_scores_stop_the_run():
    task = LinkPrediction(Broken)
    with pytest.raises(ValueError, match="valid scores after step 0: .*NaN"):
        Trainer(**QUIET).validate(task, datamodule=data(), verbose=False)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 4, "micro_batch_size": 8}, "micro_batch_size 8 exceeds batch_size 4"),
        ({"max_nodes": 1}, "max_nodes must be at least 2"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"name": "cora-link", "path": "x"}, "Drop one of them: --data links"),
        ({"name": "links"}, "means your own links"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        LinkDataModule(**settings)


def test_scores_are_averaged_over_draws_of_the_noise():
    datamodule = data()
    task = build("knowformer", datamodule, num_draws=2)
    batch = next(iter(datamodule.val_dataloader()))
    first, second = (task.eval()._answers(task.encoder, batch, "valid", seed) for seed in (0, 1))
    with torch.no_grad():
        mean = task.score_batch(batch, "valid")
    assert (first - second).abs().max() > 1e-3, "noise matters"
    torch.testing.assert_close(mean, (first + second) / 2)


def test_max_nodes_follows_from_the_sampler_by_default():
    datamodule = data(depth=1, num_neighbors=3, max_nodes=None)
    datamodule.setup()
    assert datamodule.spec.max_subgraph_nodes == datamodule.subgraph_budget == 8
    datamodule = data(depth=3, num_neighbors=30, max_nodes=None)
    datamodule.setup()
    assert datamodule.subgraph_budget == NODES


def test_a_heuristic_is_evaluated_and_not_trained():
    datamodule = data()
    task = LinkPrediction(lambda spec: LinkHeuristic(spec, name="cn"))
    found = Trainer(**QUIET).test(task, datamodule=datamodule, verbose=False)[0]
    edges = {(u, v) for u, v in datamodule.edge_index("test").t().tolist()}
    near = [{v for v in range(NODES) if (u, v) in edges} for u in range(NODES)]

    def common(pairs):
        return torch.tensor([float(len(near[u] & near[v])) for u, v in pairs.tolist()])

    judged = datamodule.judged("test")
    expected = link_figures(common(judged.positive), common(judged.negative))
    assert {name: found[f"test/{name}"] for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, abs=1e-6
    )
    with pytest.raises(UsageError, match="nothing to train"):
        Trainer(**QUIET).fit(LinkPrediction(lambda spec: LinkHeuristic(spec)), datamodule=datamodule)


@pytest.mark.parametrize("sanity", [0, 1])
@pytest.mark.parametrize("encoder", ["pencil", "galit", "knowformer"])
def test_training_in_double_precision(encoder, sanity, monkeypatch):
    """Lightning does not convert features, which are not in a batch; a validation may use them first."""
    made = []
    build = PreparedGraph.__init__
    monkeypatch.setattr(PreparedGraph, "__init__", lambda self, *a: (made.append(1), build(self, *a))[1])
    task = LinkPrediction(ENCODERS[encoder])
    trainer = Trainer(
        max_epochs=2, limit_train_batches=1, precision="64-true", num_sanity_val_steps=sanity, **QUIET
    )
    trainer.fit(task, datamodule=data())
    assert {p.dtype for p in task.parameters()} == {torch.float64} and trainer.global_step == 2
    assert 0 <= float(trainer.callback_metrics["val/mrr"]) <= 1
    assert len(made) == (encoder == "galit"), "the validation graph is prepared once"


def test_tensors_moved_in_inference_mode_can_be_trained_on(monkeypatch):
    task = LinkPrediction(ENCODERS["galit"])
    monkeypatch.setattr(LinkPrediction, "device", torch.device("meta"))  # so the tensor is copied
    with torch.inference_mode():
        moved = task.to_device_once("x", torch.ones(2))
    assert moved.device.type == "meta" and not moved.is_inference()
