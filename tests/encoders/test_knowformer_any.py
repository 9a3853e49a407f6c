"""`KnowFormerAny` computes relation vectors from the relation graph, so relation numbers must not matter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.encoders import KnowFormer, KnowFormerAny, QueryEncoder, knowformer
from graphzoo.layers.relation_graph import compare_relations
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import NeighbourhoodSampler
from graphzoo.types import GraphSpec

N, R, B = 14, 4, 5
SMALL = {"hidden_channels": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0}


def graph_of(triples, num_nodes=N, num_relations=R):
    head, relation, tail = triples.t()
    edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    kinds = torch.cat([relation, relation + num_relations])
    return RelationalGraph(edge_index, kinds, num_nodes, 2 * num_relations)


def facts(num_facts=40):
    return torch.stack([torch.randint(size, (num_facts,)) for size in (N, R, N)], dim=1)


def make_encoder(**settings):
    encoder = KnowFormerAny(GraphSpec(N, R), **{**SMALL, **settings}).double()
    with torch.no_grad():  # at initial values, a missing LayerNorm, mark or bias would not be noticed
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder.eval()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def queries():
    return torch.randint(N, (B,)), torch.randint(2 * R, (B,))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), num_facts=st.integers(1, 60), weighted=st.booleans())
def test_renumbering_entities_and_relations_renumbers_the_states(seed, num_facts, weighted):
    torch.manual_seed(seed)
    encoder, triples = make_encoder(weighted_relations=weighted), facts(num_facts)
    head, relation = queries()
    states = encoder(graph_of(triples), head, relation)
    entity, kind = torch.randperm(N), torch.randperm(R)
    renamed = torch.stack([entity[triples[:, 0]], kind[triples[:, 1]], entity[triples[:, 2]]], dim=1)
    renamed = renamed[torch.randperm(len(renamed))]
    asked = kind[relation % R] + R * (relation >= R)
    again = encoder(graph_of(renamed), entity[head], asked)
    torch.testing.assert_close(again[entity], states)


def test_without_weights_edges_of_the_relation_graph_are_binary():
    """One more shared head changes the weight of the edge between two relations, not its presence."""
    rows = torch.tensor([[0, 0, 3], [0, 1, 4], [1, 0, 5], [2, 1, 5]])
    more = torch.cat([rows, torch.tensor([[1, 1, 4]])])
    query = torch.tensor([0])
    for weighted in (True, False):
        net = make_encoder(weighted_relations=weighted).relation_net.float()
        graphs = [compare_relations(graph_of(part, 6, 2)) for part in (rows, more)]
        one, other = (net(graph, query) for graph in graphs)
        assert torch.allclose(one, other) != weighted
        torch.testing.assert_close(net(graphs[0].to_dense(), query), one)


def test_inverting_a_relation_gives_the_same_states():
    encoder, triples, (head, relation) = make_encoder(), facts(), queries()
    states = encoder(graph_of(triples), head, relation)
    turned = triples.clone()
    turned[triples[:, 1] == 1] = triples[triples[:, 1] == 1][:, [2, 1, 0]]
    asked = torch.where(relation % R == 1, (relation + R) % (2 * R), relation)
    torch.testing.assert_close(encoder(graph_of(turned), head, asked), states)


def test_an_unused_relation_changes_nothing():
    encoder, triples, (head, relation) = make_encoder(), facts(), queries()
    states = encoder(graph_of(triples), head, relation)
    asked = relation % R + (R + 1) * (relation >= R)
    torch.testing.assert_close(encoder(graph_of(triples, num_relations=R + 1), head, asked), states)


def test_the_same_weights_run_on_graphs_of_other_sizes():
    encoder = make_encoder()
    for num_nodes, num_relations in ((3, 1), (30, 50)):
        triples = torch.stack(
            [torch.randint(size, (20,)) for size in (num_nodes, num_relations, num_nodes)], dim=1
        )
        graph = graph_of(triples, num_nodes, num_relations)
        states = encoder(graph, torch.tensor([0, 1]), torch.tensor([0, 2 * num_relations - 1]))
        assert states.shape == (num_nodes, 2, 8) and states.isfinite().all()
    sizes = {name: value.shape for name, value in encoder.state_dict().items()}
    other = KnowFormerAny(GraphSpec(99, 77), **SMALL).state_dict()
    assert {name: value.shape for name, value in other.items()} == sizes


def test_with_given_relation_vectors_it_is_knowformer(monkeypatch):
    """The two encoders differ only in how they get the relation vectors."""
    settings = {**SMALL, "noise_std": 4.0}
    encoder, usual = KnowFormerAny(GraphSpec(N, R), **settings), KnowFormer(GraphSpec(N, R), **settings)
    shared = {
        name: value
        for name, value in encoder.state_dict().items()
        if name in usual.state_dict() and usual.state_dict()[name].shape == value.shape
    }
    assert len(shared) > 0.7 * len(usual.state_dict())
    usual.load_state_dict(shared, strict=False)
    given = torch.randn(2 * R, B, 8)
    monkeypatch.setattr(knowformer, "relation_vectors", lambda linear, query, graph: given)
    graph, (head, relation) = graph_of(facts()), queries()
    states = [module.eval()(graph, head, relation, noise_seed=7) for module in (encoder, usual)]
    torch.testing.assert_close(*states)


def test_states_do_not_depend_on_the_batch():
    encoder, graph, (head, relation) = make_encoder(), graph_of(facts()), queries()
    together = encoder(graph, head, relation)
    alone = [encoder(graph, head[b : b + 1], relation[b : b + 1]) for b in range(B)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1))


def test_a_neighbourhood_of_all_entities_gives_states_and_gradients_of_the_whole_graph():
    encoder, graph, (head, relation) = make_encoder(), graph_of(facts()), queries()
    near = NeighbourhoodSampler(graph, N)(head, relation)[0]
    gradients = []
    for asked, place in ((graph, head), (near, near.find(head))):
        encoder.zero_grad()
        states = encoder(asked, place, relation)
        (states * torch.linspace(-1, 1, 8)).tanh().sum().backward()
        gradients.append([states.detach()] + [parameter.grad.clone() for parameter in encoder.parameters()])
    torch.testing.assert_close(*gradients)
    # without noise, the input of the first query net is zero, so its first weight has no gradient
    unused = [name for name, parameter in encoder.named_parameters() if not parameter.grad.any()]
    assert unused == ["layers.0.query_net.lin1.weight"]


@pytest.mark.parametrize("is_near", [False, True])
def test_repeated_query_relations_are_computed_once(is_near, monkeypatch):
    encoder, graph, (head, _) = make_encoder(), graph_of(facts()), queries()
    relation = torch.arange(B) % 2
    asked = NeighbourhoodSampler(graph, 5)(head, relation)[0] if is_near else graph
    found = []
    for is_exporting in (False, True):  # an export takes the same branch as training on a GPU
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda is_exporting=is_exporting: is_exporting)
        encoder.zero_grad()
        states = encoder.relation_inputs(asked, relation)
        (states * torch.linspace(-1, 1, 8)).tanh().sum().backward()
        gradients = [parameter.grad.clone() for parameter in encoder.relation_net.parameters()]
        found.append([states.detach(), *gradients])
        assert states.transpose(0, 1).is_contiguous() or not is_near
    torch.testing.assert_close(*found)


def test_states_depend_on_the_query_relation_everywhere():
    encoder, graph = make_encoder(), graph_of(facts())
    states = encoder(graph, torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]))
    assert (states[:, 0] - states[:, 1]).abs().amax(1).min() > 1e-6


def test_saved_weights_load_and_run_on_another_graph(tmp_path):
    encoder = KnowFormerAny(GraphSpec(N, R), **SMALL).eval()
    encoder.save_pretrained(tmp_path / "weights")
    again = QueryEncoder.from_pretrained(tmp_path / "weights")
    assert isinstance(again, KnowFormerAny) and again.any_relations
    triples = torch.tensor([[0, 0, 1], [1, 5, 2], [2, 3, 0]])
    asked = graph_of(triples, 3, 6), torch.tensor([0]), torch.tensor([5])
    with torch.no_grad():
        torch.testing.assert_close(again(*asked), encoder(*asked))


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="num_relation_layers"):
        KnowFormerAny(GraphSpec(N, R), num_relation_layers=0)
    with pytest.raises(ValueError, match="multiple"):
        KnowFormerAny(GraphSpec(N, R), hidden_channels=10, num_heads=4)


def test_without_shared_pairs_only_shared_entities_count():
    """In the two graphs, relations have the same heads and tails, but other pairs."""
    square = torch.tensor([[0, 0, 2], [1, 0, 3], [0, 1, 2], [1, 1, 3]])
    crossed = torch.tensor([[0, 0, 2], [1, 0, 3], [0, 1, 3], [1, 1, 2]])
    query = torch.tensor([0])
    for shared_pairs in (True, False):
        net = make_encoder(shared_pairs=shared_pairs).relation_net
        one, other = (
            net(compare_relations(graph_of(rows, 4, 2)).to("cpu"), query) for rows in (square, crossed)
        )
        assert torch.allclose(one, other) != shared_pairs
