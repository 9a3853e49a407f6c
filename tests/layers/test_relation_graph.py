"""The relation graph, compared with sets of entities and pairs in plain Python."""

import math
import pickle
from types import SimpleNamespace

import pytest
import torch

from graphzoo.errors import UsageError
from graphzoo.layers import compare_relations
from graphzoo.layers.relation_graph import _count_relations
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import NeighbourhoodSampler

N, R = 12, 4


def facts(num_facts=40, num_nodes=N, num_relations=R):
    return torch.stack(
        [torch.randint(size, (num_facts,)) for size in (num_nodes, num_relations, num_nodes)], 1
    )


def graph_of(triples, num_nodes=N, num_relations=R):
    head, relation, tail = triples.t()
    edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    kinds = torch.cat([relation, relation + num_relations])
    return RelationalGraph(edge_index, kinds, num_nodes, 2 * num_relations)


def sets(triples, num_relations=R):
    """Heads, tails and pairs of every relation, inverses included."""
    forward = [[] for _ in range(num_relations)]
    for head, relation, tail in triples.tolist():
        forward[relation].append((head, tail))
    pairs = [set(part) for part in forward + [[(t, h) for h, t in part] for part in forward]]
    return [{h for h, _ in part} for part in pairs], [{t for _, t in part} for part in pairs], pairs


def cosine(one, other):
    return len(one & other) / math.sqrt(len(one) * len(other)) if one and other else 0.0


def dense(matrix):
    return matrix.matmul(torch.eye(matrix.shape[1]))


def test_the_matrices_are_cosines_of_sets():
    torch.manual_seed(0)
    triples = facts()
    triples = torch.cat([triples, triples[:5], triples[:3].flip(1).roll(1, 1)[:, [1, 0, 2]] % R])  # repeats
    triples[:, 1] %= R
    relations = compare_relations(graph_of(triples))
    heads, _, pairs = sets(triples)
    for made, parts in ((relations.heads, heads), (relations.pairs, pairs)):
        expected = torch.tensor([[cosine(a, b) for b in parts] for a in parts])
        torch.testing.assert_close(dense(made), expected)


def test_thousands_of_relations():
    torch.manual_seed(1)
    count = 5_000
    triples = facts(10_000, 2_000, count)
    relations = compare_relations(graph_of(triples, 2_000, count))
    heads, _, pairs = sets(triples, count)
    chosen = torch.randint(2 * count, (10,)).tolist()
    for made, parts in ((relations.heads, heads), (relations.pairs, pairs)):
        assert made.nnz < 60 * count  # most share nothing and are not stored
        columns = torch.zeros(2 * count, len(chosen))
        columns[chosen, range(len(chosen))] = 1
        expected = [[cosine(parts[a], parts[b]) for b in chosen] for a in range(2 * count)]
        torch.testing.assert_close(made.matmul(columns), torch.tensor(expected))


def test_states_are_propagated_along_six_kinds_of_edges():
    torch.manual_seed(2)
    triples = facts()
    heads, tails, pairs = sets(triples)
    turned = [{(t, h) for h, t in part} for part in pairs]
    states = torch.randn(2 * R, 3)
    kinds = [(heads, heads), (heads, tails), (tails, heads), (tails, tails), (pairs, pairs), (pairs, turned)]
    expected = torch.stack(
        [torch.tensor([[cosine(a, b) for b in theirs] for a in mine]) @ states for mine, theirs in kinds],
        dim=1,
    )
    torch.testing.assert_close(compare_relations(graph_of(triples)).propagate(states), expected)


def test_a_relation_without_facts_has_no_edges():
    torch.manual_seed(3)
    relations = compare_relations(graph_of(facts(), num_relations=R + 1))
    unused = [R, 2 * R + 1]
    assert relations.inverse[R] == 2 * R + 1
    assert not dense(relations.heads)[unused].any() and not dense(relations.pairs)[:, unused].any()


def test_a_graph_without_facts():
    relations = compare_relations(graph_of(torch.empty(0, 3, dtype=torch.int64)))
    assert not dense(relations.heads).any() and not dense(relations.pairs).any()


def test_a_graph_without_relations():
    none = torch.empty(0, dtype=torch.int64)
    relations = compare_relations(RelationalGraph(none.view(2, 0), none, 3, 0))
    assert dense(relations.heads).shape == (0, 0) and relations.inverse.numel() == 0


def test_pairs_of_entities_with_a_relation_have_64_bits():
    none = torch.empty(0, dtype=torch.int64)
    large = SimpleNamespace(edge_index=none.view(2, 0), edge_type=none, num_edges=0, num_relations=8)
    large.num_nodes = 2**30 - 1
    assert not dense(_count_relations(large).pairs).any()
    large.num_nodes = 2**30
    with pytest.raises(UsageError, match="1,073,741,824 entities and 8 relations are too many"):
        _count_relations(large)


def test_one_relation():
    relations = compare_relations(graph_of(torch.tensor([[0, 0, 1], [1, 0, 2]]), 3, 1))
    torch.testing.assert_close(dense(relations.heads), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))


def test_links_of_one_type_are_their_own_inverses():
    u, v = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = RelationalGraph(torch.stack([torch.cat([u, v]), torch.cat([v, u])]), torch.zeros(6).long(), 4, 1)
    relations = compare_relations(graph)
    assert relations.inverse.tolist() == [0]
    torch.testing.assert_close(dense(relations.heads), torch.ones(1, 1))


def test_a_graph_and_its_neighbourhoods_share_one_relation_graph():
    torch.manual_seed(4)
    graph = graph_of(facts())
    near = NeighbourhoodSampler(graph, 5)(torch.tensor([0, 3]), torch.tensor([0, 1]))[0]
    assert compare_relations(near) is compare_relations(graph)
    with torch.inference_mode():
        made = compare_relations(graph_of(facts()))
    assert not made.heads.values.is_inference()


def test_a_neighbourhood_from_another_process_needs_the_whole_graph():
    torch.manual_seed(5)
    near = NeighbourhoodSampler(graph_of(facts()), 5)(torch.tensor([0]), torch.tensor([0]))[0]
    with pytest.raises(UsageError, match="whole"):
        compare_relations(pickle.loads(pickle.dumps(near)))


def test_a_graph_without_inverses_is_refused():
    head, relation, tail = facts().t()
    with pytest.raises(UsageError, match="inverse"):
        compare_relations(RelationalGraph(torch.stack([head, tail]), relation, N, R))


def test_the_comparison_is_not_compiled():
    """It calls SciPy, which a compiler would trace, and again for every new graph."""
    from torch._dynamo.testing import CompileCounter

    graph, counter = graph_of(facts()), CompileCounter()
    torch.compiler.reset()
    compare = torch.compile(lambda graph, x: compare_relations(graph).propagate(x) + 1, backend=counter)
    states = torch.randn(2 * R, 3)
    torch.testing.assert_close(compare(graph, states), compare_relations(graph).propagate(states) + 1)
    assert counter.frame_count <= 5, "dozens of frames: SciPy was traced"


def test_two_types_that_are_no_inverses_are_refused():
    graph = RelationalGraph(torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0]), 3, 2)
    with pytest.raises(UsageError, match="needs facts with inverses"):
        compare_relations(graph)
