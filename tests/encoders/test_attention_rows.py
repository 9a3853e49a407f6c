"""Rows of attention, compared with the outputs of the layers (weights times values), and their entropy."""

import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.pair_subgraphs import make_subgraphs

from graphzoo.encoders import PENCIL, GALiT, KnowFormer, NodeFormer
from graphzoo.encoders.knowformer import MessageUpdate
from graphzoo.encoders.mlp import MLP
from graphzoo.errors import UsageError
from graphzoo.layers import recorded_messages, row_entropy
from graphzoo.ops import RelationalGraph
from graphzoo.types import GraphSpec

NODES, WIDTH = 17, 8
SPEC = GraphSpec(num_nodes=NODES, num_relations=1, in_channels=6, num_classes=3)


def graph(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, 6, generator=generator)
    return x, torch.randint(0, NODES, (2, 40), generator=generator)


def inputs_and_outputs(module):
    """The list into which a hook puts the arguments and outputs of a module's calls."""
    seen = []
    module.register_forward_hook(lambda _, arguments, output: seen.append((arguments, output)))
    return seen


def test_nodeformers_attention_times_values_is_the_layers_output():
    x, edge_index = graph()
    encoder = NodeFormer(SPEC, hidden_channels=WIDTH, num_heads=3, rb_order=0, edge_loss_weight=0.0)
    maps = [inputs_and_outputs(layer.query_key_value) for layer in encoder.layers]
    joins = [inputs_and_outputs(layer.out) for layer in encoder.layers]
    weights = encoder.attention(x, edge_index, torch.arange(NODES))  # all N x N
    assert encoder.training and weights.shape == (2, 3, NODES, NODES)
    for layer, (_, made), (mixed, _) in zip(
        weights, *([m[0] for m in part] for part in (maps, joins)), strict=True
    ):
        value = made.view(NODES, 3, 3, WIDTH)[:, 2]
        torch.testing.assert_close(torch.einsum("hqn,nhd->qhd", layer, value).flatten(1), mixed[0])
    some = encoder.attention(x, edge_index, torch.tensor([5, 2]))
    torch.testing.assert_close(some, weights[:, :, [5, 2]])
    pairs = torch.tensor([[3, 4], [5, 2]])  # sources, targets
    for row, of_pairs in zip(some, encoder.return_attention(x, edge_index, pairs), strict=True):
        torch.testing.assert_close(torch.stack([row[:, 0, 3], row[:, 1, 4]]), of_pairs)


@pytest.mark.parametrize("settings", [{}, {"similarity": "qkcos", "num_heads": 3, "norm": "fro"}])
def test_galits_attention_times_values_is_the_layers_output(settings):
    x, edge_index = graph(1)
    encoder = GALiT(SPEC, hidden_channels=WIDTH, **settings).eval()
    seen = [inputs_and_outputs(layer.attention) for layer in encoder.layers]
    weights = encoder.attention(x, edge_index, torch.arange(NODES))
    assert weights.shape == (2, settings.get("num_heads", 1), NODES, NODES)
    for layer, ((_, value), mixed) in zip(weights, [part[0] for part in seen], strict=True):
        torch.testing.assert_close(layer.mean(0) @ value, mixed)
    precomputed = encoder.precompute(x, edge_index)
    some = encoder.attention(x, None, torch.tensor([7]), **precomputed)
    torch.testing.assert_close(some, weights[:, :, [7]])
    with pytest.raises(UsageError, match="no attention"):
        GALiT(SPEC, attention="none").attention(x, edge_index, torch.tensor([0]))
    assert GALiT(SPEC, attention="none").attention_entropy(x, edge_index, torch.tensor([0])) is None
    with pytest.raises(UsageError, match="MLP has no attention"):
        MLP(SPEC).attention(x, edge_index, torch.tensor([0]))


def test_pencils_attention_times_values_is_the_layers_output():
    subgraphs = make_subgraphs([7, 4, 12, 2])
    spec = GraphSpec(num_nodes=50, max_subgraph_nodes=int(subgraphs.adjacency.shape[1]))
    encoder = PENCIL(spec, hidden_channels=16, num_layers=3, num_heads=2, ffn_channels=16)
    maps = [inputs_and_outputs(layer.query_key_value) for layer in encoder.layers]
    weights = encoder.attention(subgraphs)
    assert encoder.training
    mixes = [inputs_and_outputs(layer.attention_out) for layer in encoder.layers]
    encoder.eval()(subgraphs)
    batch, tokens = subgraphs.adjacency.shape[0], subgraphs.adjacency.shape[1] + 2
    valid = torch.arange(tokens) < subgraphs.num_nodes[:, None]
    valid[:, -2:] = True
    for number, layer in enumerate(weights):
        value = maps[number][0][1].view(batch, tokens, 3, 2, 8)[:, :, 2]
        mixed = torch.einsum("bhqt,bthd->bqhd", layer, value).flatten(2)
        (given,) = mixes[number][0][0]
        if number == 2:  # the last layer has the task tokens first, then the nodes they receive from
            torch.testing.assert_close(mixed[:, -2:], given[:, :2])
        else:
            torch.testing.assert_close(mixed[valid], given[valid])
        assert layer.sum(-1).transpose(1, 2)[valid] == pytest.approx(1.0)
    assert not weights.transpose(2, 3)[:, ~valid].any()


def test_entropy_is_one_for_equal_weights_and_zero_for_one():
    assert row_entropy(torch.full((2, 8), 1 / 8)).tolist() == pytest.approx([1, 1])
    assert row_entropy(torch.eye(4)).tolist() == [0, 0, 0, 0]
    assert row_entropy(torch.ones(3, 1)).tolist() == [0, 0, 0]  # there is no other node
    half = torch.tensor([0.5, 0.5, 0.0, 0.0])
    assert float(row_entropy(half)) == pytest.approx(0.5)
    assert float(row_entropy(half, torch.tensor(2))) == pytest.approx(1.0)
    w = torch.tensor([0.1, 0.2, 0.7])
    expected = -sum(p * math.log(p) for p in w.tolist()) / math.log(3)
    assert float(row_entropy(w)) == pytest.approx(expected)


def test_entropies_are_means_of_the_rows():
    x, edge_index = graph(2)
    queries = torch.tensor([0, 3, 4])
    for encoder in (NodeFormer(SPEC, hidden_channels=WIDTH), GALiT(SPEC, hidden_channels=WIDTH).eval()):
        rows = encoder.attention(x, edge_index, queries)
        torch.testing.assert_close(
            encoder.attention_entropy(x, edge_index, queries), row_entropy(rows).mean((1, 2))
        )
    subgraphs = make_subgraphs([7, 4, 12, 2])
    spec = GraphSpec(num_nodes=50, max_subgraph_nodes=int(subgraphs.adjacency.shape[1]))
    pencil = PENCIL(spec, hidden_channels=16, num_layers=2, num_heads=2, ffn_channels=16).eval()
    for layer in pencil.layers:  # unequal weights: of equal ones, any mean is 1
        layer.query_key_value.weight.data.mul_(40)
    weights, sizes = pencil.attention(subgraphs), subgraphs.num_nodes.tolist()
    by_hand = []
    for layer in range(2):
        rows = []
        for pair, size in enumerate(sizes):
            tokens = [*(range(size) if layer == 0 else ()), -2, -1]
            for token in tokens:
                entropy = torch.special.entr(weights[layer, pair, :, token]).sum(-1) / math.log(size + 2)
                rows.append(float(entropy.mean()))
        by_hand.append(sum(rows) / len(rows))
    assert pencil.attention_entropy(subgraphs).tolist() == pytest.approx(by_hand, rel=1e-5)


def test_nodeformer_holds_one_layer_of_features_at_a_time():
    x, edge_index = graph(4)
    encoder = NodeFormer(SPEC, hidden_channels=WIDTH, num_layers=4).eval()
    alive = []

    def before(*_):
        assert not any(reference() is not None for reference in alive)

    def after(_, arguments, output):
        alive[:] = [weakref.ref(output[1]), weakref.ref(output[2])]

    for layer in encoder.layers:
        layer.register_forward_pre_hook(before)
        layer.register_forward_hook(after)
    encoder.attention_entropy(x, edge_index, torch.tensor([0, 3]))
    assert len(alive) == 2


def test_knowformer_entropy_counts_every_other_entity_of_a_query():
    generator = torch.Generator().manual_seed(0)
    edges, types = (
        torch.randint(0, 9, (2, 30), generator=generator),
        torch.randint(0, 4, (30,), generator=generator),
    )
    facts = RelationalGraph(edges, types, 9, 4)
    spec = GraphSpec(num_nodes=9, num_relations=2)
    encoder = KnowFormer(spec, hidden_channels=8, num_layers=2, num_heads=2).eval()
    asked = (facts, torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([3, 1]))
    weights = encoder.attention(*asked)  # [L, N, B]
    found = encoder.attention_entropy(*asked)
    by_hand = []
    for layer in weights:
        rows = [[layer[u, b] for u in range(9) if u != v] for b, v in enumerate((3, 1))]
        shares = [torch.stack(row) / sum(row) for row in rows]
        by_hand.append(torch.stack([torch.special.entr(row).sum() / math.log(8) for row in shares]).mean())
    torch.testing.assert_close(found, torch.stack(by_hand))
    for layer in encoder.layers:  # queries and keys of zero: all weights are equal
        for parameter in layer.query_key.parameters():
            parameter.data.zero_()
    assert encoder.attention_entropy(*asked).tolist() == pytest.approx([1.0, 1.0])
    for layer in encoder.layers:  # opposite ones: all weights of others are zero
        layer.query_key.bias.data = torch.ones(16).where(torch.arange(16) < 8, -1.0)
    assert encoder.attention_entropy(*asked).tolist() == [0.0, 0.0]
    for count in (1, 2):  # at most one other entity
        few = RelationalGraph(torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), count, 4)
        one = (few, torch.tensor([0]), torch.tensor([0]), torch.tensor([0]))
        spec_of_few = GraphSpec(num_nodes=count, num_relations=2)
        assert KnowFormer(spec_of_few, hidden_channels=8).attention_entropy(*one).eq(0).all()
    assert KnowFormer(spec, hidden_channels=8, attention="none").attention_entropy(*asked) is None


def test_knowformer_attention_leaves_out_masked_edges():
    triples = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 0, 3], [3, 1, 0]])
    whole, part = (RelationalGraph.from_triples(facts, 4, 2) for facts in (triples, triples[:2]))
    mask = torch.tensor([True, True, False, False]).repeat(2)
    encoder = KnowFormer(GraphSpec(4, 2), hidden_channels=8, num_heads=2, num_layers=2).eval()
    asked = [torch.tensor([number]) for number in (0, 1, 2)]
    for ask in (encoder.attention, encoder.attention_entropy):
        torch.testing.assert_close(ask(whole, *asked, edge_mask=mask), ask(part, *asked))
        assert not torch.allclose(ask(whole, *asked), ask(part, *asked))
    assert encoder.attention_entropy(whole, *(ids[:0] for ids in asked)) is None, "there is no mean"


def test_threads_that_share_a_knowformer_get_their_own_attention():
    triples = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 0, 3], [3, 1, 0]])
    graph = RelationalGraph.from_triples(triples, 4, 2)
    encoder = KnowFormer(GraphSpec(4, 2), hidden_channels=8, num_heads=2, num_layers=2).eval()
    queries = [[torch.tensor([number]) for number in query] for query in ((0, 0, 1), (2, 1, 3))]
    expected = [encoder.attention(graph, *query) for query in queries]
    meeting = threading.Barrier(2)
    encoder.register_forward_pre_hook(lambda *_: [meeting.wait(timeout=60)].clear())
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(encoder.attention, graph, *query) for query in queries]
        for call, weights in zip(calls, expected, strict=True):
            assert torch.equal(call.result(), weights)


def test_threads_that_share_a_knowformer_record_their_own_messages():
    encoder, messages = KnowFormer(GraphSpec(4, 2), hidden_channels=8, num_heads=2, num_layers=1), []
    graph = RelationalGraph.from_triples(torch.tensor([[0, 0, 1]]), 4, 2)
    with recorded_messages(encoder, MessageUpdate) as recorded, ThreadPoolExecutor(1) as pool:
        pool.submit(encoder, graph, torch.tensor([0]), torch.tensor([0])).result()
        messages.append(len(recorded.calls))
        encoder(graph, torch.tensor([0]), torch.tensor([0]))
        messages.append(len(recorded.calls))
    assert messages == [0, 5]
