"""Link prediction by a query encoder in the neighbourhood of each source."""

import pytest
import torch
from helpers.link_graphs import make_link_graph
from helpers.link_tasks import build, data, fit, gradient

import graphzoo
from graphzoo.errors import UsageError
from graphzoo.inference.link_scoring import LinkPlace
from graphzoo.sampling import NeighbourhoodSampler


def everything(datamodule, monkeypatch):
    """Let the data module sample neighbourhoods with all nodes."""
    datamodule.setup()
    few = datamodule.neighbourhoods("train")
    assert few is not None
    sampler = NeighbourhoodSampler(datamodule._paired[False], datamodule.graph.num_nodes)
    monkeypatch.setattr(datamodule, "neighbourhoods", lambda *a, **k: sampler)


def batches_of(datamodule):
    return list(datamodule.train_dataloader())


@pytest.mark.parametrize("directed", [False, True])
def test_neighbourhoods_with_all_nodes_score_like_the_whole_graph(directed, monkeypatch):
    graph = make_link_graph(is_directed=directed)
    whole = build("knowformer", data(graph, batch_size=1))
    near_data = data(graph, batch_size=1, neighbourhood=8)
    near = build("knowformer", near_data)
    everything(near_data, monkeypatch)
    for batch in batches_of(near_data)[:3]:
        torch.testing.assert_close(
            near.score_batch(batch, "valid"), whole.score_batch(batch, "valid"), atol=1e-5, rtol=1e-5
        )
        # On the whole graph the links of a batch are hidden from all its pairs, so take a batch of one link.
        link = batch.part(0, 1)
        assert link.edge_label.tolist() == [1]
        found, expected = (task._logits(link, "train", 5)[0] for task in (near, whole))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(gradient(near, [link]), gradient(whole, [link]), atol=1e-5, rtol=1e-4)


def test_the_name_of_the_protocol_is_that_of_the_evaluation():
    def words(batching="sources", **settings):
        module = data(**settings)
        module.setup()
        module.batching = batching
        return module.protocol_in_words

    assert words() is None and words(neighbourhood=10**6) is None
    assert words("subgraphs", neighbourhood=8) is None, "encoders of pairs have no use for them"
    assert words(neighbourhood=8) == "in neighbourhoods of 8 nodes"
    assert words(neighbourhood=8, eval_neighbourhood=12) == "in neighbourhoods of 12 nodes"
    assert words(neighbourhood=8, eval_neighbourhood=10**6) == "on the whole graph"


@pytest.mark.parametrize("structured", [False, True])
def test_neighbourhoods_hold_the_target_but_not_the_link_of_a_pair(structured, monkeypatch):
    datamodule = data(neighbourhood=8, num_negatives=2, structured_negatives=structured)
    task = build("knowformer", datamodule)
    seen = []
    forward = type(task.encoder).forward

    def watched(self, graph, head, relation, **settings):
        seen.append(graph)
        return forward(self, graph, head, relation, **settings)

    monkeypatch.setattr(type(task.encoder), "forward", watched)
    links = {tuple(link) for link in datamodule.edge_index("train").t().tolist()}
    for batch in batches_of(datamodule):
        task.training_step(batch, 0)
        near = seen.pop()
        rows = {(u, v): b for b, (u, v) in enumerate(batch.edge_label_index.t().tolist())}
        assert all((near.nodes[b] == v).any() for (_, v), b in rows.items())
        source, target = near.flat.edge_index
        row = source // near.nodes.shape[1]
        flat = near.nodes.flatten()
        edges = set(zip(row.tolist(), flat[source].tolist(), flat[target].tolist(), strict=True))
        assert edges
        assert not any((b, u, v) in edges or (b, v, u) in edges for (u, v), b in rows.items())
        assert all((u, v) in links for _, u, v in edges)
        if structured:  # the link is hidden from its negatives too, else its absence would mark it
            link = (batch.edge_label_index[:, ::3]).t().tolist()
            assert batch.edge_label[::3].all() and not batch.edge_label[1::3].any()
            assert not any((b, *link[b // 3]) in edges for b in range(len(batch)))
        assert {bool(label) for label in batch.edge_label} == {True, False}


@pytest.mark.parametrize("hides", [True, False])
def test_the_link_of_a_pair_is_hidden_if_hide_positives(hides):
    datamodule = data(neighbourhood=8, num_negatives=1)
    fit("knowformer", datamodule, 1, hide_positives=hides)
    own = []
    for batch in batches_of(datamodule):
        source, target = batch.graph.flat.edge_index
        flat, size = batch.graph.nodes.flatten(), batch.graph.nodes.shape[1]
        edges = set(zip((source // size).tolist(), flat[source].tolist(), flat[target].tolist(), strict=True))
        pairs = zip(batch.edge_label_index.t().tolist(), batch.edge_label.tolist(), strict=True)
        own += [(b, *pair) in edges for b, (pair, label) in enumerate(pairs) if label]
    assert own and (not any(own) if hides else all(own))


def test_a_batch_without_neighbourhoods_is_refused_with_the_remedy():
    datamodule = data(neighbourhood=8)
    task = build("knowformer", datamodule)
    batch = batches_of(datamodule)[0]
    batch.graph = None
    with pytest.raises(UsageError, match=r"no neighbourhoods[^\n]*\n.*as `near`"):
        task.training_step(batch, 0)


def test_gradients_and_scores_do_not_depend_on_parts_of_a_batch():
    whole = data(neighbourhood=8)
    cut = data(neighbourhood=8, micro_batch_size=16)
    one = gradient(build("knowformer", whole), batches_of(whole)[:1])
    four = gradient(build("knowformer", cut, accumulate=4), batches_of(cut)[:4])
    torch.testing.assert_close(one, four, atol=1e-6, rtol=1e-4)

    task = build("knowformer", whole)
    batch = batches_of(whole)[0]
    scores = task.score_batch(batch.part(0, len(batch)), "valid")
    halves = [task.score_batch(batch.part(*ends), "valid") for ends in ((0, 9), (9, len(batch)))]
    torch.testing.assert_close(torch.cat(halves), scores, atol=1e-6, rtol=1e-6)


def test_nodes_outside_rank_behind_all_inside():
    datamodule = data(neighbourhood=8, eval_neighbourhood=10)
    task = build("knowformer", datamodule)
    head = torch.arange(6)
    sampler = datamodule.neighbourhoods("test")
    near = sampler(head, torch.zeros_like(head))[0]
    assert near.nodes.shape == (6, 10)
    scores, far = task.score_near(sampler, head)
    inside = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, near.nodes, True)
    assert torch.equal(far, ~inside)
    lowest = scores.masked_fill(~inside, float("inf")).amin(1)
    assert (scores.masked_fill(inside, -float("inf")).amax(1) < lowest).all()


def test_communities_are_learned_and_a_loaded_model_has_the_same_scores():
    datamodule = data(batch_size=32, neighbourhood=12)
    task, trainer = fit("knowformer", datamodule, 12)
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert figures["test/mrr"] > 0.8, figures
    settings = task.describe_data(datamodule)["data"]["settings"]
    assert settings["neighbourhood"] == 12
    place = LinkPlace(task, datamodule.graph, datamodule.transform, settings)
    pairs = datamodule.graph.test.positive[:20]
    (batch,) = (datamodule.scoring_batches(pairs)[0],)
    expected = torch.empty(len(batch))
    expected[batch.index] = task.score_batch(batch)
    torch.testing.assert_close(place.score(pairs[: len(batch)]), expected, atol=1e-5, rtol=1e-5)
    del settings["neighbourhood"], settings["eval_neighbourhood"]  # like older checkpoints
    assert LinkPlace(task, datamodule.graph, datamodule.transform, settings).score(pairs).isfinite().all()


@pytest.mark.parametrize("both", [False, True])
def test_far_pairs_have_logits(both):
    datamodule = data(neighbourhood=6, both_directions=both)
    task = build("knowformer", datamodule).eval()
    graph = datamodule.graph
    place = LinkPlace(task, graph, datamodule.transform, task.describe_data(datamodule)["data"]["settings"])
    pairs = torch.combinations(torch.arange(graph.num_nodes), 2)[::7]
    sampler = datamodule.neighbourhoods("test")

    def logit(u, v):
        near, _ = sampler(u, torch.zeros_like(u))
        is_far = not bool((near.nodes == v).any())
        if is_far:
            near, _ = sampler(u, torch.zeros_like(u), hides="none", outside="bring", target=v)
        states = task.encoder(near, near.find(u), torch.zeros_like(u), noise_seed=0)
        return task.decode(states)[0, near.find(v)[0]], is_far

    with torch.no_grad():
        there = [logit(*pair.split(1)) for pair in pairs]
        back = [logit(*pair.flip(0).split(1)) for pair in pairs]
    expected = torch.stack([value for value, _ in there])
    if both:
        expected = (expected + torch.stack([value for value, _ in back])) / 2
    far = torch.tensor([a or (both and b) for (_, a), (_, b) in zip(there, back, strict=True)])
    assert 10 < int(far.sum()) < len(far)
    scores = place.score(pairs, brings=True)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(place.score(pairs, 1, brings=True), scores, atol=1e-5, rtol=1e-5)
    alone = torch.cat([place.score(pair[None], brings=True) for pair in pairs[far][:5]])
    torch.testing.assert_close(alone, scores[far][:5], atol=1e-5, rtol=1e-5)
    order = place.score(pairs)  # scores of a test, which only rank far pairs
    torch.testing.assert_close(order[~far], scores[~far])
    assert (order[far] < -9).all()


def test_a_loaded_model_gives_logits_of_far_pairs(tmp_path):
    datamodule = data(batch_size=32, neighbourhood=6)
    task, trainer = fit("knowformer", datamodule, 1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    graph = datamodule.graph
    model = graphzoo.load(tmp_path / "a.ckpt", data=graph)
    pairs = torch.combinations(torch.arange(graph.num_nodes), 2)[::7]
    settings = task.describe_data(datamodule)["data"]["settings"]
    place = LinkPlace(task.eval(), graph, datamodule.transform, settings)
    found = torch.from_numpy(model.score(pairs)["score"].to_numpy(copy=True))
    torch.testing.assert_close(found, place.score(pairs, brings=True), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, place.score(pairs), atol=1.0), "some are far"


def test_far_pairs_are_scored_in_batches_that_fit_into_memory(monkeypatch):
    datamodule = data(neighbourhood=6)
    task = build("knowformer", datamodule).eval()
    settings = task.describe_data(datamodule)["data"]["settings"]
    place = LinkPlace(task, datamodule.graph, datamodule.transform, settings)
    pairs = torch.stack([torch.zeros(40, dtype=torch.int64), torch.arange(1, 41)], 1)
    expected, sizes = place.score(pairs, brings=True), []
    forward, most = type(task.encoder).forward, [4]

    def small(self, graph, head, *more, **settings):
        if head.numel() > most[0]:
            raise torch.OutOfMemoryError("out of memory")
        sizes.append(head.numel())
        return forward(self, graph, head, *more, **settings)

    monkeypatch.setattr(type(task.encoder), "forward", small)
    torch.testing.assert_close(place.score(pairs, brings=True), expected, atol=1e-5, rtol=1e-5)
    assert max(sizes) == 4
    most[0] = 1
    torch.testing.assert_close(place.score(pairs, 1, brings=True), expected, atol=1e-5, rtol=1e-5)


def test_settings_other_than_those_of_the_checkpoint_are_refused():
    datamodule = data(neighbourhood=12)
    task = build("knowformer", datamodule)
    trained = task.describe_data(datamodule)
    task.check_data(trained, datamodule)
    other = data(neighbourhood=8)
    other.setup()
    with pytest.raises(UsageError, match=r"Give --data\.neighbourhood 12"):
        task.check_data(trained, other)
    farther = data(neighbourhood=12, eval_neighbourhood=20)
    farther.setup()
    task.check_data(trained, farther)  # allowed, as for knowledge graphs
    with pytest.raises(UsageError, match=r"eval_neighbourhood 20, here it is None\nGive --data\.eval_nei"):
        task.check_data(task.describe_data(farther), datamodule)  # the default is not the trained value


def test_a_graph_smaller_than_the_neighbourhood_is_taken_whole():
    datamodule = data(neighbourhood=10**6)
    datamodule.setup()
    datamodule.batching = "sources"
    assert datamodule.neighbourhoods("train", training=True) is None
    assert datamodule.describe_queries() == "in the whole graph, which has no more than 1,000,000 nodes"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neighbourhood": 1}, "neighbourhood must be at least 2, got 1"),
        ({"eval_neighbourhood": 9}, "give --data.neighbourhood"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        data(**settings)
