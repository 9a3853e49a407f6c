import copy
import pickle

import pytest
import torch
from helpers.memory import MemoryRecorder
from helpers.pair_subgraphs import make_subgraphs, pad, pick
from helpers.pencil_cases import SIZES, build
from helpers.pencil_reference import encode, encoding

from graphzoo.encoders import PENCIL, PairGNN
from graphzoo.encoders import pencil as module
from graphzoo.types import GraphSpec


def reference(encoder, subgraphs, x=None):
    settings = encoder.init_args
    weights = dict(encoder.named_parameters()) | dict(encoder.named_buffers())
    rows = []
    for nodes, links, size in zip(subgraphs.nodes, subgraphs.adjacency, subgraphs.num_nodes, strict=True):
        features = None if x is None else x[nodes[:size]]
        rows.append(encode(weights, links[:size, :size], features=features, **settings))
    return torch.stack(rows)


def tokens_through(layer):
    """The list to which each later pass of the feed-forward network appends its (pairs, tokens)."""
    seen = []
    layer.ffn_in.register_forward_hook(lambda layer, inputs, out: seen.append(tuple(out.shape[:2])))
    return seen


VARIANTS = {
    "default": {},
    "one_layer": {"num_layers": 1},
    "three_layers": {"num_layers": 3, "num_heads": 1},
    "raw_operator": {"residual_norm": "none"},
    "column_operator": {"residual_norm": "column"},
    "no_residual": {"multiplicative_residual": False},
    "learned_projection": {"trainable_projection": True, "position_embedding": True},
    "shifted": {"projection_init": "shifted_gaussian"},
    "low_rank": {"projection_init": "low_rank"},
    "larger_budget": {"max_nodes": 30, "position_embedding": True},
}


@pytest.mark.parametrize("in_channels", [0, 7])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("grouped", [False, True])
def test_encoder_equals_the_explicit_form(variant, in_channels, grouped, monkeypatch):
    """States and the gradient of every parameter, with one batch or groups of subgraphs of similar size."""
    if grouped:
        monkeypatch.setattr(module, "_MIN_TOKENS", (10, 10))
    encoder = build(in_channels, **VARIANTS[variant])
    subgraphs = make_subgraphs(SIZES)
    x = torch.randn(40, in_channels, dtype=torch.float64) if in_channels else None
    out, expected = encoder(subgraphs, x), reference(encoder, subgraphs, x)
    assert out.shape == (len(SIZES), encoder.out_channels) == (6, 24)
    torch.testing.assert_close(out, expected, atol=1e-9, rtol=1e-9)
    direction = torch.randn_like(out)
    names, weights = zip(*encoder.named_parameters(), strict=True)
    assert ("projection" in names) == VARIANTS[variant].get("trainable_projection", False)
    actual = torch.autograd.grad((out * direction).sum(), weights, allow_unused=True)
    wanted = torch.autograd.grad((expected * direction).sum(), weights, allow_unused=True)
    for name, a, e in zip(names, actual, wanted, strict=True):
        torch.testing.assert_close(a, e, atol=1e-8, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}")


def test_directed_links_are_read_along_their_row():
    encoder, subgraphs = build(), make_subgraphs(SIZES, directed=True)
    assert not torch.equal(subgraphs.adjacency, subgraphs.adjacency.transpose(1, 2))
    torch.testing.assert_close(encoder(subgraphs), reference(encoder, subgraphs), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("max_nodes", [11, 30])
def test_tokens_equal_the_one_hot_encoding_times_the_projection(max_nodes):
    encoder, subgraphs = build(max_nodes=max_nodes), make_subgraphs(SIZES)
    tokens = encoder._embed(subgraphs.adjacency.double(), None)
    for row, links, size in zip(tokens, subgraphs.adjacency, subgraphs.num_nodes, strict=True):
        expected = encoding(links[:size, :size], max_nodes) @ encoder.projection
        torch.testing.assert_close(torch.cat([row[:size], row[-2:]]), expected, atol=1e-12, rtol=0)


def test_the_encoding_is_not_stored():
    """The memory of the forward and backward pass does not grow with N_max, the width of the encoding."""
    subgraphs, peaks = make_subgraphs(SIZES), []
    for max_nodes in (11, 1000):
        encoder = build(max_nodes=max_nodes).train()
        with MemoryRecorder() as recorder:
            encoder(subgraphs).sum().backward()
        peaks.append((recorder.peak_bytes, recorder.largest))
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("in_channels", [0, 7])
def test_padding_changes_nothing(in_channels):
    encoder, subgraphs = build(in_channels, max_nodes=20), make_subgraphs(SIZES)
    x = torch.randn(40, in_channels, dtype=torch.float64) if in_channels else None
    out = encoder(subgraphs, x)
    for width in (12, 20):
        torch.testing.assert_close(encoder(pad(subgraphs, width), x), out, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("grouped", [False, True])
def test_other_pairs_of_the_batch_change_nothing(grouped, monkeypatch):
    if grouped:
        monkeypatch.setattr(module, "_MIN_TOKENS", (10, 10))
    encoder, subgraphs = build(position_embedding=True), make_subgraphs(SIZES)
    out = encoder(subgraphs)
    for rows in ([2], [1, 4], [5, 0, 3, 3], [4, 1, 0, 5, 2, 3]):
        torch.testing.assert_close(encoder(pick(subgraphs, rows)), out[rows], atol=1e-11, rtol=1e-11)


def test_permuting_nodes_and_rows_of_the_projection_gives_the_same_states():
    encoder, subgraphs = build(), make_subgraphs([9, 11])
    out = encoder(subgraphs)
    order = torch.cat([torch.arange(2), 2 + torch.randperm(7), torch.arange(9, 11)])
    renumbered = copy.deepcopy(subgraphs)
    renumbered.adjacency = subgraphs.adjacency[:, order][:, :, order]
    assert not torch.allclose(encoder(renumbered), out, atol=1e-3)
    rows = torch.cat([order, 11 + order, torch.tensor([22, 23])])
    encoder.projection.copy_(encoder.projection[rows])
    torch.testing.assert_close(encoder(renumbered), out, atol=1e-11, rtol=1e-11)


def test_swapping_endpoints_and_rows_of_the_projection_swaps_the_states():
    encoder, subgraphs = build(), make_subgraphs([7])
    out = encoder(subgraphs)
    order = torch.tensor([1, 0, *range(2, 11)])
    turned = copy.deepcopy(subgraphs)
    turned.adjacency = subgraphs.adjacency[:, order[:7]][:, :, order[:7]]
    encoder.projection.copy_(encoder.projection[torch.cat([order, 11 + order, torch.tensor([22, 23])])])
    torch.testing.assert_close(encoder(turned), out.roll(12, 1), atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("num_nodes", [40, 400])
def test_dense_and_sparse_features_are_added_to_their_tokens(form, num_nodes):
    """Of a large table, only the rows of the batch are mapped; of a small table, all rows."""
    encoder = build(30)
    subgraphs = make_subgraphs(SIZES, num_nodes=num_nodes)
    x = torch.randn(num_nodes, 30, dtype=torch.float64) * (torch.rand(num_nodes, 30) < 0.2)
    seen = []
    encoder.features.linear.register_forward_hook(lambda layer, inputs, out: seen.append(out.shape[0]))
    out = encoder(subgraphs, x if form == "dense" else x.to_sparse_csr())
    assert seen == [40 if num_nodes == 40 else len(set(subgraphs.nodes.clamp_min(0).flatten().tolist()))]
    expected = reference(encoder, subgraphs, x)
    torch.testing.assert_close(out, expected, atol=1e-9, rtol=1e-9)
    weight = encoder.features.linear.weight
    (grad,) = torch.autograd.grad(out.square().sum(), weight)
    (wanted,) = torch.autograd.grad(expected.square().sum(), weight)
    torch.testing.assert_close(grad, wanted, atol=1e-7, rtol=1e-7)


def test_features_can_be_switched_off():
    subgraphs = make_subgraphs(SIZES)
    without = build(7, use_features=False)
    assert without.features is None
    out = without(subgraphs)
    assert torch.equal(without(subgraphs, torch.randn(40, 7)), out)
    assert torch.equal(build()(subgraphs), out)


def test_the_last_layer_computes_only_what_the_task_tokens_need():
    subgraphs = make_subgraphs(SIZES, density=0.15)
    received = (subgraphs.adjacency[:, :2].any(1)).sum(1) + 2
    assert 2 < int(received.max()) < 9
    for residual, rows in ((True, int(received.max()) + 2), (False, 2)):
        encoder = build(multiplicative_residual=residual, num_layers=3)
        tokens = [tokens_through(layer) for layer in encoder.layers]
        encoder(subgraphs)
        assert tokens == [[(6, 13)], [(6, 13)], [(6, rows)]]


def test_large_batches_are_split_into_groups_of_similar_size(monkeypatch):
    monkeypatch.setattr(module, "_MIN_TOKENS", (40, 40))
    sizes = torch.cat([torch.full((30,), 4), torch.tensor([20, 19, 11, 9, 9, 8]), torch.full((20,), 3)])
    encoder = build(max_nodes=20)
    tokens = tokens_through(encoder.layers[0])
    subgraphs = make_subgraphs(sizes[torch.randperm(56)])
    out = encoder(subgraphs)
    assert tokens == [(2, 22), (4, 13), (30, 6), (20, 5)]
    monkeypatch.setattr(module, "_MIN_TOKENS", (10_000, 10_000))
    torch.testing.assert_close(encoder(subgraphs), out, atol=1e-11, rtol=1e-11)
    assert tokens[4:] == [(56, 22)]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_attention_has_no_mask_if_known_sizes_need_no_padding(monkeypatch, dropout):
    masks, attend = [], module.masked_attention
    monkeypatch.setattr(
        module, "masked_attention", lambda *given, **more: masks.append(given[3]) or attend(*given, **more)
    )
    encoder = build(dropout=dropout, dtype=torch.float32).train(dropout > 0)

    def states(sizes, known):
        subgraphs = make_subgraphs(sizes)
        subgraphs.sizes = tuple(sizes) if known else None
        masks.clear()
        return encoder(subgraphs, noise_seed=5), [mask is None for mask in masks]

    (known, without), (unknown, masked) = states([6, 6, 6], True), states([6, 6, 6], False)
    assert torch.equal(known, unknown) and all(without) and not any(masked)
    assert not any(states([6, 5, 6], True)[1])
    monkeypatch.setattr(module, "_MIN_TOKENS", (10, 10))  # groups of 9, 9 and of 6, 5
    assert (
        states([6, 9, 9, 6], True)[1] == [True] * 4
        and states([6, 9, 9, 5], True)[1] == [True] * 2 + [False] * 2
    )


def test_initial_weights_are_those_of_bert():
    torch.manual_seed(0)
    encoder = PENCIL(GraphSpec(40, in_channels=50, max_subgraph_nodes=30), position_embedding=True)
    for name, parameter in encoder.named_parameters():
        if "norm" in name:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("weight"))))
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02), name
            assert abs(parameter.mean().item()) < 1e-3, name
    assert encoder.layers[0].ffn_norm.eps == encoder.layers[3].attention_norm.eps == 1e-12


@pytest.mark.parametrize("max_nodes", [50, 400])
def test_initial_projections(max_nodes):
    """The shorter side of the orthogonal one is orthonormal; all kinds have the same standard deviation."""
    rows, columns = 2 * max_nodes + 2, 256
    made = {}
    for init in ("orthogonal", "shifted_gaussian", "low_rank"):
        torch.manual_seed(0)
        encoder = PENCIL(
            GraphSpec(40), hidden_channels=columns, max_nodes=max_nodes, num_layers=1, projection_init=init
        )
        made[init] = encoder.projection
        assert made[init].shape == (rows, columns)
        assert "projection" in encoder.state_dict() and not made[init].requires_grad
    weight = made["orthogonal"]
    gram = weight @ weight.t() if rows < columns else weight.t() @ weight
    torch.testing.assert_close(gram, torch.eye(min(rows, columns)), atol=1e-5, rtol=0)
    assert made["shifted_gaussian"].mean().item() == pytest.approx(0.1, abs=1e-3)
    values = torch.linalg.svdvals(made["low_rank"])
    assert (values > 1e-3).sum() == 5
    for init, tolerance in (("shifted_gaussian", 0.02), ("low_rank", 0.3)):
        assert made[init].std().item() == pytest.approx(weight.std().item(), rel=tolerance), init


def test_copies_and_pickles_give_the_same_states():
    encoder, subgraphs = build(7), make_subgraphs(SIZES)
    x = torch.randn(40, 7, dtype=torch.float64)
    out = encoder(subgraphs, x)
    for twin in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(twin(subgraphs, x), out)
    rebuilt = PENCIL(encoder.spec, **encoder.init_args).double().eval()
    assert not torch.allclose(rebuilt(subgraphs, x), out)
    rebuilt.load_state_dict(encoder.state_dict())
    assert torch.equal(rebuilt(subgraphs, x), out)


def test_max_nodes_is_that_of_the_data_unless_set():
    assert PENCIL(GraphSpec(40, max_subgraph_nodes=9), num_layers=1).projection.shape[0] == 20
    assert PENCIL(GraphSpec(40, max_subgraph_nodes=9), max_nodes=12, num_layers=1).projection.shape[0] == 26


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_channels": 0}, "hidden_channels must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"ffn_channels": -1}, "ffn_channels must be at least 1, got -1"),
        ({"hidden_channels": 10}, "hidden_channels must be a multiple of num_heads, got 10 and 3"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        (
            {"max_nodes": None},
            "needs the size of the largest subgraph, which the data does not give: set max_nodes",
        ),
        ({"max_nodes": 1}, "max_nodes must be at least 2"),
        ({"residual_norm": "both"}, "residual_norm must be one of row, none, column, got 'both'"),
        ({"projection_init": "zero"}, "projection_init must be one of orthogonal, .*, got 'zero'"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        build(**settings)


def test_max_nodes_below_that_of_the_data_is_refused():
    with pytest.raises(
        ValueError, match="max_nodes must be at least 9, the size of sampled subgraphs, got 8"
    ):
        PENCIL(GraphSpec(40, max_subgraph_nodes=9), max_nodes=8)


def test_batches_that_do_not_fit_are_refused():
    encoder, subgraphs = build(7), make_subgraphs(SIZES)
    with pytest.raises(ValueError, match="12 nodes, but the encoder was built for at most 11"):
        encoder(pad(subgraphs, 12), torch.randn(40, 7))
    with pytest.raises(ValueError, match=r"node features \[N, 7\] and got none"):
        encoder(subgraphs)
    with pytest.raises(ValueError, match=r"features \[N, 7\] and got \[40, 6\]"):
        encoder(subgraphs, torch.randn(40, 6))
    last = int(subgraphs.nodes.max())
    with pytest.raises(ValueError, match=rf"{last} rows, but a subgraph has node {last}:"):
        encoder(subgraphs, torch.randn(last, 7))
    assert encoder(subgraphs, torch.randn(last + 1, 7)).isfinite().all()


@pytest.mark.parametrize("kind", [PENCIL, PairGNN])
def test_features_that_would_be_ignored_are_refused(kind):
    subgraphs, x = make_subgraphs(SIZES), torch.randn(40, 8)
    spec = GraphSpec(40, max_subgraph_nodes=11)
    with pytest.raises(ValueError, match=r"x is given.*\nBuild it with GraphSpec\(in_channels=8\), or leave"):
        kind(spec)(subgraphs, x)
    told = kind(spec, use_features=False).eval()
    assert torch.equal(told(subgraphs, x), told(subgraphs))


def test_a_graph_in_place_of_subgraphs_is_refused():
    with pytest.raises(ValueError, match="PENCIL takes a PairSubgraphs first, got a Tensor\nGive sampler"):
        build()(torch.randn(40, 8), torch.zeros(2, 3, dtype=torch.int64))
