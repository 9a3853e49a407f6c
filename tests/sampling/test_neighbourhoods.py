"""Query neighbourhoods: their entities and facts, and that the query's own fact has no influence."""

import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.ops import RelationalGraph, relational_spmm
from graphzoo.sampling import FactRemover, NeighbourhoodSampler
from graphzoo.sampling.neighbourhoods import kernels, sampler
from graphzoo.types import GraphSpec


def make_triples(num_entities=40, num_relations=3, num_facts=120, seed=0):
    """Distinct facts with a hub (entity 0), a self-loop and an entity without facts (the last)."""
    generator = torch.Generator().manual_seed(seed)
    head = (torch.rand(num_facts, generator=generator) ** 2 * (num_entities - 1)).long()
    tail = torch.randint(num_entities - 1, (num_facts,), generator=generator)
    relation = torch.randint(num_relations, (num_facts,), generator=generator)
    triples = torch.stack([head, relation, tail], 1)
    return torch.unique(torch.cat([triples, torch.tensor([[1, 0, 1]])]), dim=0)


def make_graph(triples, num_entities=40, num_relations=3):
    head, relation, tail = triples.unbind(1)
    return RelationalGraph(
        torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        torch.cat([relation, relation + num_relations]),
        num_entities,
        2 * num_relations,
    )


def queries_of(triples, num_relations=3):
    """Queries of both directions of all triples: heads, relations, answers."""
    head, relation, tail = triples.unbind(1)
    return torch.cat([head, tail]), torch.cat([relation, relation + num_relations]), torch.cat([tail, head])


def edges_of(graph, query):
    """The edges (source, type, target) of one query, in node numbers of the whole graph."""
    size, types = graph.num_nodes, graph.num_relations
    source, target = graph.edge_index.long()
    chosen = target // size == query
    nodes = graph.nodes[query]
    return {
        (int(nodes[u % size]), int(r % types), int(nodes[v % size]))
        for u, r, v in zip(source[chosen], graph.edge_type.long()[chosen], target[chosen], strict=True)
    }


def all_edges(graph):
    return {(int(u), int(r), int(v)) for (u, v), r in zip(graph.edge_index.t(), graph.edge_type, strict=True)}


@pytest.fixture(scope="module")
def triples():
    return make_triples()


@pytest.fixture(scope="module")
def graph(triples):
    return make_graph(triples)


@pytest.mark.parametrize("hides", ["exact", "one_hop"])
@pytest.mark.parametrize("num_nodes", [4, 8, 16])
def test_hiding_a_fact_that_the_graph_does_not_have_changes_nothing(hides, num_nodes):
    """Fact dropout queries dropped facts. The other facts of their relation must still count."""
    triples = make_triples(num_relations=1)
    dropped = torch.arange(len(triples)) % 3 == 0
    sampler = NeighbourhoodSampler(make_graph(triples[~dropped], num_relations=1), num_nodes)
    head, relation, tail = queries_of(triples[dropped], num_relations=1)
    not_joined = torch.tensor([not (hides == "one_hop" and _are_joined(triples[~dropped], h, t))
                              for h, t in zip(head, tail, strict=True)])  # fmt: skip
    found = sampler(head, relation, tail, hides=hides)[0].nodes
    expected = sampler(head, relation)[0].nodes
    assert not_joined.sum() > 20 and torch.equal(found[not_joined], expected[not_joined])


def _are_joined(triples, u, v):
    ends = triples[:, [0, 2]]
    return bool(((ends == torch.stack([u, v])) | (ends == torch.stack([v, u]))).all(1).any())


def test_pagerank_agrees_with_networkx(graph):
    sampler = NeighbourhoodSampler(graph, 10, tolerance=1e-12)
    weights = nx.DiGraph()
    weights.add_nodes_from(range(40))
    for u, v in graph.edge_index.t().tolist():
        before = weights.get_edge_data(u, v, {"weight": 0})["weight"]
        weights.add_edge(u, v, weight=before + 1)
    for head in (0, 7, 20):
        expected = nx.pagerank(weights, alpha=0.85, personalization={head: 1}, tol=1e-13, max_iter=1000)
        found = sampler.pagerank(head)
        np.testing.assert_allclose(found.numpy(), [expected[v] for v in range(40)], atol=1e-8)


def test_pushes_stop_within_the_tolerance(graph):
    degree = torch.bincount(graph.edge_index[0], minlength=40)
    exact = NeighbourhoodSampler(graph, 10, tolerance=1e-12).pagerank(3)
    rough = NeighbourhoodSampler(graph, 10, tolerance=1e-2).pagerank(3)
    assert bool((rough <= exact + 1e-9).all())
    assert float((exact - rough).max()) > 1e-6  # it stopped early
    # Andersen, Chung and Lang (2006): a node's error is at most the tolerance times its degree
    assert bool((exact - rough <= 1e-2 * degree.clamp(min=1) + 1e-9).all())


@pytest.mark.parametrize("size", [2, 5, 17, 39])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_neighbourhood_is_k_distinct_entities_and_all_facts_among_them(graph, triples, size, share):
    head, relation, answer = queries_of(triples)
    found, rows = NeighbourhoodSampler(graph, size, relation_share=share)(head, relation, answer)
    assert rows.tolist() == list(range(len(head)))
    assert found.nodes.shape == (len(head), size)
    assert bool((found.nodes.diff(dim=1) > 0).all())
    assert bool((found.find(head) >= 0).all())
    whole = all_edges(graph)
    for b in range(len(head)):
        inside = set(found.nodes[b].tolist())
        own = (int(head[b]), int(relation[b]), int(answer[b]))
        inverse = (own[2], (own[1] + 3) % 6, own[0])
        expected = {(u, r, v) for u, r, v in whole if u in inside and v in inside} - {own, inverse}
        assert edges_of(found, b) == expected


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 20), hides=st.sampled_from(["exact", "one_hop"]))
def test_the_own_fact_has_no_influence(seed, size, hides):
    triples = make_triples(seed=seed, num_facts=60)
    place = seed % len(triples)
    own = triples[place]
    without = torch.cat([triples[:place], triples[place + 1 :]])
    if hides == "one_hop":  # all facts between the two
        ends = {(int(own[0]), int(own[2])), (int(own[2]), int(own[0]))}
        without = without[[(int(h), int(t)) not in ends for h, _, t in without]]
    for head, relation, answer in zip(*queries_of(own[None]), strict=True):
        query = head[None], relation[None], answer[None]
        with_fact = NeighbourhoodSampler(make_graph(triples), size)(*query, hides=hides)[0]
        without_fact = NeighbourhoodSampler(make_graph(without), size)(*query, hides="none")[0]
        assert torch.equal(with_fact.nodes, without_fact.nodes)
        assert edges_of(with_fact, 0) == edges_of(without_fact, 0)


def test_queries_do_not_depend_on_their_batch_or_on_threads(graph, triples):
    head, relation, answer = queries_of(triples)
    sampler = NeighbourhoodSampler(graph, 9)
    together = sampler(head, relation, answer)[0]
    order = torch.randperm(len(head), generator=torch.Generator().manual_seed(1))
    shuffled = sampler(head[order], relation[order], answer[order])[0]
    assert torch.equal(together.nodes[order], shuffled.nodes)
    copy = pickle.loads(pickle.dumps(sampler))  # as worker processes get it
    for b in range(0, len(head), 17):
        alone = copy(head[b : b + 1], relation[b : b + 1], answer[b : b + 1])[0]
        assert torch.equal(alone.nodes[0], together.nodes[b])
        assert edges_of(alone, 0) == edges_of(together, b)


def test_far_entities_are_chosen_by_frequency_as_answers_then_by_degree(graph, triples):
    sampler = NeighbourhoodSampler(graph, 12, relation_share=0.5)
    head, relation, tail = triples.unbind(1)
    counts = torch.bincount(tail[relation == 2], minlength=40)
    found = sampler(torch.tensor([39]), torch.tensor([2]))[0]  # entity 39 has no facts: nothing is near
    best = sorted(range(40), key=lambda v: (-int(counts[v]), v))[:6]
    assert set(best) <= set(found.nodes[0].tolist())
    assert 39 in found.nodes[0]
    degree = torch.bincount(graph.edge_index[0], minlength=40)
    rest = [v for v in sorted(range(40), key=lambda v: (-int(degree[v]), v)) if v not in {39, *best}][:5]
    assert set(found.nodes[0].tolist()) == {39, *best, *rest}


def test_queries_with_answers_outside_are_kept_dropped_or_completed(graph, triples):
    head, relation, answer = queries_of(triples)
    sampler = NeighbourhoodSampler(graph, 4)
    kept = sampler(head, relation, answer)[0]
    outside = kept.find(answer) < 0
    assert 0 < int(outside.sum()) < len(head)
    dropped, rows = sampler(head, relation, answer, outside="drop")
    assert rows.tolist() == (~outside).nonzero().flatten().tolist()
    assert torch.equal(dropped.nodes, kept.nodes[~outside])
    brought = sampler(head, relation, answer, outside="bring")[0]
    assert bool((brought.find(answer) >= 0).all()) and bool((brought.find(head) >= 0).all())
    assert torch.equal(brought.nodes[~outside], kept.nodes[~outside])
    assert brought.nodes.shape == kept.nodes.shape


def test_edges_have_their_numbers_in_the_whole_graph(graph, triples):
    head, relation, answer = (column[:5] for column in queries_of(triples))
    found = NeighbourhoodSampler(graph, 15)(head, relation, answer, with_edges=True)[0]
    source, target = found.edge_index.long()
    nodes = found.nodes.flatten()
    assert torch.equal(nodes[source], graph.edge_index[0, found.edge])
    assert torch.equal(nodes[target], graph.edge_index[1, found.edge])
    assert torch.equal(found.edge_type.long() % 6, graph.edge_type[found.edge])


def test_levels_order_the_entities_outside(graph):
    sampler = NeighbourhoodSampler(graph, 6, tolerance=1e-3)
    head, relation = torch.tensor([7, 39]), torch.tensor([1, 1])
    found, levels = sampler.with_levels(head, relation)
    assert torch.equal(found.nodes, sampler(head, relation)[0].nodes)
    for b in range(2):
        inside = torch.zeros(40, dtype=torch.bool).index_fill_(0, found.nodes[b], True)
        assert torch.equal(levels[b] == 0, inside)
        near = sampler.pagerank(int(head[b]))
        reached = ((near > 0) & ~inside).nonzero().flatten().tolist()
        order = sorted(reached, key=lambda v: -float(near[v]))
        assert sorted(reached, key=lambda v: (int(levels[b, v]), order.index(v))) == order
        rest = levels[b][(near == 0) & ~inside]
        assert not reached or int(rest.min()) > max(int(levels[b, v]) for v in reached)


def test_levels_of_entities_that_are_not_reached(graph, triples):
    """They follow the frequency as the relation's answer, then the number of facts. Ties share a level."""
    head, relation = torch.tensor([39]), torch.tensor([1])  # entity 39 has no facts: nothing is reached
    found, levels = NeighbourhoodSampler(graph, 4).with_levels(head, relation)
    answers = torch.bincount(triples[triples[:, 1] == 1, 2], minlength=40).tolist()
    degree = torch.bincount(graph.edge_index[0], minlength=40).tolist()
    outside = sorted(set(range(40)) - set(found.nodes[0].tolist()))
    counts = sorted({answers[v] for v in outside if answers[v]}, reverse=True)
    degrees = sorted(set(degree), reverse=True)
    for v in outside:
        place = counts.index(answers[v]) if answers[v] else len(counts) + degrees.index(degree[v])
        assert int(levels[0, v]) == place + 1
    assert len(set(levels[0].tolist())) < len(outside)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), scores=st.lists(st.sampled_from([0.0, 0.1, 0.25, 1e-300, 3.0]), max_size=40))
def test_best_first_breaks_ties_by_the_lowest_number(data, scores):
    score = np.array(scores)
    nodes = np.array(data.draw(st.permutations(range(len(scores)))), np.int32)
    count = data.draw(st.integers(0, len(scores)))
    kernels.best_first(nodes, score, count)
    assert sorted(nodes) == list(range(len(scores)))
    if 0 < count < len(scores):
        bound = np.partition(score, -count)[-count]
        above, level = np.flatnonzero(score > bound), np.flatnonzero(score == bound)
        assert set(nodes[:count]) == {*above, *level[: count - len(above)]}


def test_messages_are_those_of_the_querys_graph(graph, triples):
    head, relation, answer = (column[:6] for column in queries_of(triples))
    found = NeighbourhoodSampler(graph, 8)(head, relation, answer)[0]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(6, 6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 6, 5, generator=generator, dtype=torch.float64)
    expected = torch.zeros_like(weight)
    for b in range(6):
        for u, r, v in edges_of(found, b):
            at, to = (int(p) for p in found.find(torch.tensor([u, v]), torch.tensor([b, b])))
            expected[to, b] = expected[to, b] + x[at, b] * vectors[r, b]
    wanted = torch.autograd.grad((expected * weight).sum(), (x, vectors))
    for backend in ("naive", "numba"):
        out = relational_spmm(x, vectors, found, backend=backend)
        torch.testing.assert_close(out, expected)
        got = torch.autograd.grad((out * weight).sum(), (x, vectors))
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("attention", ["prototype", "none", "random_features"])
@pytest.mark.parametrize("hides", ["none", "exact", "one_hop"])
def test_with_all_entities_states_and_gradients_are_those_of_the_whole_graph(
    graph, triples, attention, hides
):
    torch.manual_seed(0)
    encoder = KnowFormer(
        GraphSpec(num_nodes=40, num_relations=3), hidden_channels=8, num_layers=2, num_heads=2,
        attention=attention,
    )  # fmt: skip
    place = torch.tensor([3, 50, 80])
    head, relation, tail = triples[place].unbind(1)
    found = NeighbourhoodSampler(graph, 10**6)(head, relation, tail, hides=hides)[0]
    assert torch.equal(found.nodes, torch.arange(40).expand(3, 40))
    remover = FactRemover(triples, 40, hides)
    weight = torch.randn(40, 3, 8)
    near = encoder(found, found.find(head), relation, noise_seed=5)
    gradients = torch.autograd.grad((near * weight).sum(), list(encoder.parameters()))
    whole = torch.cat(
        [
            encoder(
                graph,
                head[i : i + 1],
                relation[i : i + 1],
                noise_seed=5,
                edge_mask=remover.edge_mask(place[i : i + 1]),
            )  # fmt: skip
            for i in range(3)
        ],
        dim=1,
    )
    torch.testing.assert_close(near, whole, atol=1e-5, rtol=1e-5)
    expected = torch.autograd.grad((whole * weight).sum(), list(encoder.parameters()))
    for got, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5 * max(float(wanted.abs().max()), 1e-3), rtol=0)


@pytest.mark.parametrize("facts", [[(0, 0, 1)], [(0, 0, 1), (0, 0, 2)], [(0, 0, 1), (1, 0, 0), (2, 0, 2)]])
@pytest.mark.parametrize("hides", ["exact", "one_hop"])
def test_an_answer_whose_only_fact_is_hidden_stays_in_the_neighbourhood(facts, hides):
    """With K = N, all entities are inside, also those whose only fact is hidden."""
    triples = torch.tensor(facts)
    count = int(triples[:, [0, 2]].max()) + 1
    sampler = NeighbourhoodSampler(make_graph(triples, count, 1), count)
    head, relation, answer = queries_of(triples, 1)
    found = sampler(head, relation, answer, hides=hides)[0]
    assert torch.equal(found.nodes, torch.arange(count).expand(len(head), count))


def test_numbers_out_of_range_are_refused(graph):
    sampler = NeighbourhoodSampler(graph, 5)
    one, none = torch.tensor([1]), torch.tensor([-1])
    for wrong in ((torch.tensor([40]), one, None), (none, one, None), (one, torch.tensor([6]), None)):
        with pytest.raises(ValueError, match="must lie in"):
            sampler(*wrong)
    with pytest.raises(ValueError, match="own must lie in"):
        sampler(one, one, torch.tensor([40]))
    for outside in ("drop", "bring"):
        with pytest.raises(ValueError, match="give own"):
            sampler(one, one, outside=outside)
        with pytest.raises(ValueError, match="own must lie in 0"):
            sampler(one, one, torch.tensor([-1]), outside=outside)


def test_states_of_a_query_do_not_depend_on_its_batch(graph, triples):
    torch.manual_seed(0)
    encoder = KnowFormer(GraphSpec(40, 3), hidden_channels=8, num_layers=2, num_heads=2).eval()
    head, relation, answer = (column[:7] for column in queries_of(triples))
    sampler = NeighbourhoodSampler(graph, 9)
    found = sampler(head, relation, answer)[0]
    together = encoder(found, found.find(head), relation)
    for b in (0, 3, 6):
        one = slice(b, b + 1)
        alone = sampler(head[one], relation[one], answer[one])[0]
        states = encoder(alone, alone.find(head[one]), relation[one])
        torch.testing.assert_close(states[:, 0], together[:, b], atol=1e-6, rtol=1e-6)


def test_no_queries_give_no_neighbourhoods(graph):
    none = torch.empty(0, dtype=torch.int64)
    found, rows = NeighbourhoodSampler(graph, 9)(none, none, none, outside="drop")
    assert found.num_queries == 0 and rows.numel() == 0
    assert found.find(none).numel() == 0
    states = KnowFormer(GraphSpec(40, 3), hidden_channels=8, num_heads=2)(found, none, none)
    assert states.shape == (9, 0, 8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_nodes": 1}, "num_nodes must be at least 2, got 1"),
        ({"num_nodes": 2.5}, "num_nodes must be a whole number of at least 2, got 2.5"),
        ({"num_nodes": 5, "relation_share": 1.5}, "relation_share must be at least 0 and at most 1, got 1.5"),
        ({"num_nodes": 5, "teleport": 0.0}, "teleport must be above 0 and below 1, got 0.0"),
        ({"num_nodes": 5, "tolerance": 0.0}, "above 0, got 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(graph, wrong, message):
    with pytest.raises(UsageError, match=message):
        NeighbourhoodSampler(graph, **wrong)


def test_a_graph_without_inverses_is_refused():
    edges = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(UsageError, match="inverses"):
        NeighbourhoodSampler(RelationalGraph(edges, torch.tensor([0, 1]), 3, 2), 2)


def test_query_graphs_refuse_masks_and_other_shapes(graph):
    found = NeighbourhoodSampler(graph, 5)(torch.tensor([1]), torch.tensor([0]))[0]
    x, vectors = torch.ones(5, 1, 4), torch.ones(6, 1, 4)
    with pytest.raises(ValueError, match="takes no edge_mask"):
        relational_spmm(x, vectors, found, edge_mask=torch.ones(found.num_edges, dtype=torch.bool))
    with pytest.raises(ValueError, match="x must have shape"):
        relational_spmm(torch.ones(4, 1, 4), vectors, found)
    with pytest.raises(ValueError, match="relation must have shape"):
        relational_spmm(x, torch.ones(5, 1, 4), found)


def test_samplers_of_one_graph_share_their_index(graph):
    first, second = NeighbourhoodSampler(graph, 4), NeighbourhoodSampler(graph, 12)
    assert all(a is b for a, b in zip(first._edges, second._edges, strict=True))
    alone = NeighbourhoodSampler(pickle.loads(pickle.dumps(graph)), 12)
    assert alone._edges[0] is not second._edges[0]
    head, relation = torch.arange(5), torch.zeros(5, dtype=torch.int64)
    first(head, relation)  # leaves scratch memory that the second sampler reuses
    assert torch.equal(second(head, relation)[0].nodes, alone(head, relation)[0].nodes)


def test_wrong_arguments_of_a_call_are_refused():
    graph = RelationalGraph.from_triples(torch.tensor([[0, 0, 1], [0, 1, 1], [1, 0, 2], [2, 0, 3]]), 5, 2)
    sampler = NeighbourhoodSampler(graph, 3)
    one, two = torch.tensor([0]), torch.tensor([0, 1])
    for wrong in ({"hides": "onehop"}, {"outside": "brings"}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be one of"):
            sampler(one, one, one, **wrong)
    for name, queries in {"relation": (one, two), "own": (one, one, two), "head": (one.float(), one)}.items():
        with pytest.raises(ValueError, match=rf"{name} must be whole numbers \[1\]"):
            sampler(*queries)


def test_copies_of_a_hidden_fact_do_not_count_for_its_answer():
    others = [[0, 1, 1], [1, 1, 2], [2, 1, 3], [3, 1, 4]]
    for times in (1, 2, 3):
        sampler = NeighbourhoodSampler(make_graph(torch.tensor([[0, 0, 25]] * times + others), 30, 2), 4)
        found, _ = sampler(torch.tensor([0]), torch.tensor([0]), torch.tensor([25]))
        assert found.nodes.tolist() == [[0, 1, 2, 3]], times


@pytest.mark.parametrize("head", [-1, 40, 10**9, 1.5])
def test_pagerank_of_a_wrong_head_is_refused(graph, head):
    with pytest.raises(UsageError, match="head must be"):
        NeighbourhoodSampler(graph, 5).pagerank(head)


def test_a_graph_whose_facts_do_not_fit_into_64_bits_is_refused():
    source, target, kind = np.array([0, 2**31]), np.array([2**31, 0]), np.array([0, 1])
    with pytest.raises(UsageError, match="too many to be sampled"):
        sampler._answers_by_relation(source, target, kind, 4)


def test_repeated_facts_are_one_answer():
    source, target, kind = np.array([[0, 1, 1], [0, 1, 1], [2, 1, 1], [1, 0, 3], [2, 0, 1]]).T
    starts, member, count, best, of_best = sampler._answers_by_relation(source, target, kind, 4)
    assert starts.tolist() == [0, 0, 2, 2, 3] and member.tolist() == [0, 1, 0] and count.tolist() == [1, 2, 1]
    assert best.tolist() == [1, 0, 0] and of_best.tolist() == [2, 1, 1]
