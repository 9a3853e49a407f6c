"""PENCIL's benchmark compares equal models and counts tokens correctly."""

import dataclasses

import pytest
import torch
from helpers.pair_subgraphs import make_subgraphs
from helpers.pencil_cases import SIZES, build

from benchmarks import bench_pencil_step as bench


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hugging_faces_layers_give_the_same_states():
    pytest.importorskip("transformers", reason="pip install transformers")
    encoder, subgraphs = build(num_heads=4), make_subgraphs(SIZES)
    theirs = bench.HuggingFacePencil(encoder).double().eval()
    tokens, mask = bench.literal_encoding(subgraphs, 11)
    out, expected = theirs(tokens.double(), mask), encoder(subgraphs)
    torch.testing.assert_close(out, expected, atol=1e-9, rtol=1e-9)
    used = [weight for weight in encoder.parameters() if weight.requires_grad]
    assert sum(weight.numel() for weight in theirs.parameters()) == sum(weight.numel() for weight in used)


def test_the_batched_graph_has_the_subgraphs_as_components():
    subgraphs = make_subgraphs(SIZES, directed=True)
    place, edge_index, first = bench.batched_graph(subgraphs)
    assert place.tolist() == [i for size in SIZES for i in range(size)]
    assert first.tolist() == [0, 5, 7, 18, 26, 28]
    expected = torch.block_diag(
        *(a[:n, :n].float() for a, n in zip(subgraphs.adjacency, SIZES, strict=True))
    ).bool()
    found = torch.zeros_like(expected)
    found[edge_index[0], edge_index[1]] = True
    assert torch.equal(found, expected) and edge_index.shape[1] == int(expected.sum())


def test_the_count_of_tokens_is_that_of_the_computed_ones(monkeypatch):
    monkeypatch.setattr(bench.module, "_MIN_TOKENS", (20, 20))
    subgraphs = make_subgraphs([3, 11, 3, 10, 3, 3, 3, 3])
    random, by_size = bench.cut(subgraphs, 4, False), bench.cut(subgraphs, 4, True)
    assert [batch.nodes.shape[1] for batch, _ in random] == [11, 3]
    assert [batch.nodes.shape[1] for batch, _ in by_size] == [3, 11]
    assert torch.cat([rows for _, rows in by_size]).tolist() == [0, 2, 4, 5, 6, 7, 3, 1]
    assert bench.computed_tokens(random, False) == 4 * 13 + 4 * 5
    assert bench.computed_tokens(random, True) == 2 * 13 + 2 * 5 + 4 * 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("provider", bench.PROVIDERS)
def test_every_provider_runs(provider, monkeypatch):
    if provider.startswith("hf"):
        pytest.importorskip("transformers", reason="pip install transformers")
    case = dataclasses.replace(bench.CASES["citeseer"], width=16, num_pairs=16, micro_batch=6, max_nodes=11)
    # so that it is restored afterwards
    monkeypatch.setattr(bench.module, "_MIN_TOKENS", bench.module._MIN_TOKENS)
    monkeypatch.setattr(
        bench,
        "load",
        lambda case: (make_subgraphs([*SIZES, *SIZES, 4, 4, 9, 7]), torch.arange(16) % 2.0, 100),
    )
    all_pairs, known, problem = bench.setup(case, provider)
    all_pairs(True)
    all_pairs(False)
    assert known["padding"] >= 1 and known["pairs_per_epoch"] == 100 and "pairs=16" in problem
