"""With `torch.compile`, encoders give the same states, and the same gradient of every weight."""

import pytest
import torch

from graphzoo.encoders import PENCIL, GALiT, KnowFormer, KnowFormerAny, NodeFormer, SGFormer
from graphzoo.layers import FeatureRows, NoiseStream
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import NeighbourhoodSampler, hash_integers, normal_from_hash
from graphzoo.types import GraphSpec, PairSubgraphs

N, R, B = 20, 2, 3
SMALL = {"hidden_channels": 8, "num_layers": 1, "num_heads": 2}


def facts(num_facts=40):
    ends, types = torch.randint(N, (2, num_facts)), torch.randint(R, (num_facts,))
    return RelationalGraph(torch.cat([ends, ends.flip(0)], 1), torch.cat([types, types + R]), N, 2 * R)


def queries(near=False):
    """A call of a query encoder. With `near`, each seed has other neighbourhoods."""
    graph, head, relation = facts(), torch.randint(N, (B,)), torch.randint(2 * R, (B,))
    if not near:
        mask = torch.rand(graph.num_edges) < 0.8
        return lambda encoder, seed: encoder(graph, head, relation, edge_mask=mask, noise_seed=seed)
    sampler = NeighbourhoodSampler(graph, 8)

    def call(encoder, seed):
        graph = sampler(head, relation, (head + seed) % N, hides="none", outside="bring")[0]
        return encoder(graph, graph.find(head), relation, noise_seed=seed)

    return call


def nodes():
    x, edges = torch.randn(N, 5), torch.unique(torch.randint(N, (2, 40)), dim=1)
    return lambda encoder, seed: encoder(x, edges, noise_seed=seed)


def pairs():
    sizes = torch.tensor([8, 2, 5])
    valid = torch.arange(8) < sizes[:, None]
    links = torch.rand(B, 8, 8) < 0.4
    links = (links | links.mT) & valid[:, None] & valid[..., None]
    subgraphs = PairSubgraphs(torch.where(valid, torch.randint(N, (B, 8)), -1), links, sizes)
    x = torch.randn(N, 5)
    return lambda encoder, seed: encoder(subgraphs, x, noise_seed=seed)


def knowformer(**settings):
    return KnowFormer(GraphSpec(N, R), num_query_layers=1, num_value_layers=1, **SMALL, **settings)


SPEC = GraphSpec(N, 1, 5, 3, max_subgraph_nodes=8)
# Name: encoder, its call, and whether it compiles to one graph.
CASES = {
    "KnowFormer": (knowformer, queries, True),
    "KnowFormer, Frobenius norms": (lambda: knowformer(norm="fro"), queries, True),
    "KnowFormer, no attention": (lambda: knowformer(attention="none"), queries, True),
    "KnowFormer, neighbourhoods": (knowformer, lambda: queries(near=True), False),
    "KnowFormerAny": (lambda: KnowFormerAny(GraphSpec(N, R), num_relation_layers=1, **SMALL), queries, False),
    "NodeFormer": (lambda: NodeFormer(SPEC, dropout=0.2, **SMALL), nodes, False),
    "GALiT": (lambda: GALiT(SPEC, dropout=0.2, **SMALL), nodes, False),
    "PENCIL": (lambda: PENCIL(SPEC, ffn_channels=8, **SMALL), pairs, False),
    "PENCIL, no dropout": (
        lambda: PENCIL(SPEC, ffn_channels=8, dropout=0.0, use_features=False, **SMALL),
        pairs,
        True,
    ),
}


def results(call, encoder, seed):
    out = call(encoder, seed)
    weights = [p for p in encoder.parameters() if p.requires_grad]
    return [out.detach(), *torch.autograd.grad(out.square().sum(), weights, allow_unused=True)]


def check(name, backend):
    make, arguments, is_one_graph = CASES[name]
    torch.compiler.reset()
    encoder, call = make().train(), arguments()
    compiled = torch.compile(encoder, backend=backend, fullgraph=is_one_graph)
    for seed in (1, 2):  # the second may compile again, with a symbolic seed
        expected, found = results(call, encoder, seed), results(call, compiled, seed)
        for one, other in zip(found, expected, strict=True):
            if other is not None:
                torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_eager_in_all_encoders(name):
    check(name, "aot_eager")


def test_inductors_code_draws_the_same_noise():
    """Inductor's own code for integers that overflow gives other bits."""
    torch.compiler.reset()
    head = torch.randint(N, (B,))

    def draw(seed):
        keys = hash_integers(seed, 1, head)
        bits = hash_integers(keys, torch.arange(N)[:, None])
        return bits, normal_from_hash(bits)

    compiled = torch.compile(draw, backend="inductor", fullgraph=True)
    for seed in (1, 2):
        (bits, noise), (expected, normal) = compiled(seed), draw(seed)
        assert torch.equal(bits, expected)
        torch.testing.assert_close(noise, normal, atol=1e-5, rtol=1e-5)


def test_a_compiled_loop_has_the_noise_of_an_eager_one():
    """Without a noise seed, each call of a compiled encoder takes the next draw of its stream."""
    torch.compiler.reset()
    encoder = knowformer(dropout=0.5).train()
    graph, head, relation = facts(), torch.randint(N, (B,)), torch.randint(2 * R, (B,))
    expected = [encoder(graph, head, relation) for _ in range(3)]
    encoder.noise.draws.zero_()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    for states in expected:
        torch.testing.assert_close(compiled(graph, head, relation), states, atol=1e-4, rtol=1e-4)
    assert not torch.equal(expected[0], expected[1])


def test_wrappers_do_not_share_the_limit_of_recompilations():
    """`torch.compile` allows eight recompilations of a code object, so each wrapper has its own."""
    functions = [NoiseStream.generator, NoiseStream.fixed_generator, FeatureRows.forward]
    methods = [encoder.forward for encoder in (GALiT, NodeFormer, SGFormer)]
    codes = {id(function.__code__) for function in (*functions, *methods)}
    assert len(codes) == len(functions) + len(methods)
