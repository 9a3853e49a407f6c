"""The contract of `NodeEncoder`, tested for every node encoder."""

import copy
import inspect

import pytest
import torch
from helpers.node_cases import CASES, graph

from graphzoo import encoders
from graphzoo.encoders import (
    GNN,
    MLP,
    SGC,
    GALiT,
    NodeEncoder,
    NodeFormer,
    Polynormer,
    SGFormer,
    SGFormerPyG,
)
from graphzoo.errors import UsageError
from graphzoo.types import GraphSpec


@pytest.fixture(params=CASES)
def encoder(request):
    cls, settings = CASES[request.param]
    built = cls(GraphSpec(30, in_channels=9, num_classes=4), **settings)
    with torch.no_grad():  # biases start at 0, where a missing one would not be noticed
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return built


def test_every_node_encoder_is_among_the_cases():
    known = {getattr(encoders, name) for name in encoders.__all__}
    concrete = {cls for cls in known if issubclass(cls, NodeEncoder) and cls is not NodeEncoder}
    assert concrete == {cls for cls, _ in CASES.values()}


def test_states_and_gradients(encoder):
    x, edge_index = graph()
    states, auxiliary = encoder.train().forward_with_auxiliary(x, edge_index, noise_seed=1)
    assert states.shape == (30, encoder.out_channels) and states.dtype == torch.float32
    assert torch.isfinite(states).all() and states.std(0).max() > 0
    if states.requires_grad:
        loss = (states * torch.randn_like(states)).sum() + (0 if auxiliary is None else auxiliary)
        loss.backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    assert encoder.init_args.keys() == set(inspect.signature(type(encoder)).parameters) - {"spec"}


def test_renumbering_the_nodes_renumbers_the_states(encoder):
    x, edge_index = graph()
    encoder.eval()
    order = torch.randperm(30)
    place = torch.empty(30, dtype=torch.int64)
    place[order] = torch.arange(30)
    expected = encoder(x, edge_index)[order]
    torch.testing.assert_close(encoder(x[order], place[edge_index]), expected, atol=1e-4, rtol=1e-4)


def test_precomputed_results_replace_the_edges(encoder):
    x, edge_index = graph()
    encoder.eval()
    once = encoder.precompute(x, edge_index)
    kept = edge_index if encoder.needs_edges else None
    assert torch.equal(encoder(x, kept, **once), encoder(x, edge_index))


def test_the_caller_may_write_to_the_states(encoder):
    x, edge_index = graph()
    expected = encoder.eval()(x, edge_index).clone()
    with torch.no_grad():
        encoder(x, edge_index).zero_()
        assert torch.equal(encoder(x, edge_index), expected)


def test_no_part_has_the_name_of_an_attribute_of_exported_programs(encoder):
    """`torch.export` makes such a program, but it can be neither called nor loaded."""
    assert not {"graph", "code"} & {name for name, _ in encoder.named_children()}


def test_hidden_edges_give_the_states_of_the_graph_without_them(encoder):
    """With equal bits. The first call makes the pattern of edges, later ones reuse it."""
    x, edge_index = graph()
    encoder.eval()
    for seed in range(3):
        kept = torch.rand(edge_index.shape[1], generator=torch.Generator().manual_seed(seed)) < 0.8
        edges, once = encoder.precompute_masked(x, edge_index, kept)
        assert (edges is None) != encoder.needs_edges
        assert torch.equal(encoder(x, edges, **once), encoder(x, edge_index[:, kept]))


class Tenfold(GALiT):
    def precompute(self, x, edge_index, *, cache=None):
        return {name: 10 * value for name, value in super().precompute(x, edge_index, cache=cache).items()}


def test_hidden_edges_use_the_precompute_of_a_subclass():
    x, edge_index = graph()
    encoder, kept = Tenfold(x.shape[1], 12, 3), torch.arange(edge_index.shape[1]) % 5 > 0
    _, once = encoder.precompute_masked(x, edge_index, kept)
    assert torch.equal(once["denoised"], encoder.precompute(x, edge_index[:, kept])["denoised"])


def test_sparse_features_give_the_same_states(encoder):
    x, edge_index = graph()
    encoder.eval()
    sparse = x.to_sparse_csr()
    expected = encoder(x, edge_index)
    torch.testing.assert_close(encoder(sparse, edge_index), expected, atol=1e-5, rtol=1e-4)
    once = encoder.precompute(sparse, edge_index)
    found = encoder(sparse, edge_index if encoder.needs_edges else None, **once)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert torch.isfinite(encoder.train()(sparse, edge_index)).all()


def test_noise_depends_on_the_noise_seed_and_not_on_the_global_state(encoder):
    x, edge_index = graph()
    encoder.train()
    if "noise_seed" not in inspect.signature(encoder.forward).parameters:
        assert torch.equal(encoder(x, edge_index), encoder.eval()(x, edge_index))
        return
    before = torch.get_rng_state()
    one = encoder(x, edge_index, noise_seed=3)
    assert torch.equal(encoder(x, edge_index, noise_seed=3), one)
    assert not torch.equal(encoder(x, edge_index, noise_seed=4), one)
    saved = copy.deepcopy(encoder.state_dict())
    following = encoder(x, edge_index)
    assert not torch.equal(encoder(x, edge_index), following)
    encoder.load_state_dict(saved)
    assert torch.equal(encoder(x, edge_index), following), "a loaded state_dict does not continue the stream"
    draws = int(encoder.noise.draws)
    encoder.eval()
    assert torch.equal(encoder(x, edge_index), encoder(x, edge_index))
    assert int(encoder.noise.draws) == draws and torch.equal(torch.get_rng_state(), before)


def test_weights_settings_and_copies_give_the_same_states(encoder):
    x, edge_index = graph()
    expected = encoder.eval()(x, edge_index)
    assert torch.equal(copy.deepcopy(encoder)(x, edge_index), expected)
    again = type(encoder)(encoder.spec, **encoder.init_args).eval()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(x, edge_index), expected)


def test_features_of_another_width_are_refused(encoder):
    x, edge_index = graph(channels=8)
    with pytest.raises(ValueError, match=r"30, 8\]"):
        encoder(x, edge_index)
    with pytest.raises(ValueError, match="needs node features"):
        type(encoder)(GraphSpec(30))


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_the_gradient_of_features_agrees_with_finite_differences(float64, encoder):
    """A layer in front of the encoder needs this gradient. Copies of the encoder have no cached results."""
    x, edge_index = graph()
    x.requires_grad_()
    encoder.eval()
    states = encoder(x, edge_index)
    weight, way = torch.randn_like(states), torch.randn_like(x)
    (slope,) = torch.autograd.grad((states * weight).sum(), x)
    with torch.no_grad():
        above, below = (copy.deepcopy(encoder)(x + step * way, edge_index) for step in (1e-6, -1e-6))
    numeric = ((above - below) * weight).sum() / 2e-6
    torch.testing.assert_close((slope * way).sum(), numeric, atol=1e-5, rtol=1e-5)


def test_features_with_gradient_are_refused_if_a_subclass_changes_precompute():
    x, edge_index = graph()
    x.requires_grad_()
    encoder = Tenfold(x.shape[1], 12, 3).eval()
    with pytest.raises(UsageError, match=r"no gradient for x\nGive x.detach\(\)"):
        encoder(x, edge_index)
    with torch.no_grad():
        expected = encoder(x, edge_index)
    assert torch.equal(encoder(x.detach(), edge_index), expected)


@pytest.mark.parametrize("cls", [SGC, GALiT, MLP, GNN, NodeFormer, SGFormer, SGFormerPyG, Polynormer])
def test_sparse_features_that_require_a_gradient_are_refused(cls):
    x, edge_index = graph()
    with pytest.raises(UsageError, match="sparse features get no gradient"):
        cls(x.shape[1])(x.to_sparse_csr().requires_grad_(), edge_index)


@pytest.mark.parametrize("cls", [GNN, SGFormer, SGFormerPyG, Polynormer])
def test_an_encoder_that_needs_edges_says_so(cls):
    x, _ = graph()
    with pytest.raises(UsageError, match=f"{cls.__name__} needs edges"):
        cls(x.shape[1])(x)


@pytest.mark.parametrize(("position", "node"), [(0, 30), (1, -1)])
def test_an_edge_with_a_node_outside_the_graph_is_refused(encoder, position, node):
    x, edge_index = graph()
    if isinstance(encoder, MLP) and not encoder.denoise:
        return  # it reads no edges
    edge_index[position, 3] = node
    with pytest.raises(ValueError, match=rf"edge_index\[[01]\] must be in 0..29 .*, got {node} at "):
        encoder.eval()(x, edge_index)


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_training_uses_results_of_inference_mode(encoder, layout):
    x, edge_index = graph()
    x = x if layout is torch.strided else x.to_sparse_csr()
    with torch.inference_mode():
        encoder.eval()(x, edge_index)
    states = encoder.train()(x, edge_index)
    if parameters := list(encoder.parameters()):
        assert all(slope is not None for slope in torch.autograd.grad(states.sum(), parameters[:1]))


@pytest.mark.parametrize(
    ("cls", "settings", "name", "value"),
    [
        (GALiT, {}, "gamma", 0.9),
        (MLP, {"denoise": True}, "gamma", 0.9),
        (SGC, {}, "num_iterations", 5),
        (NodeFormer, {"rb_order": 0, "edge_loss_weight": 0.0}, "edge_loss_weight", 1.0),
    ],
)
def test_a_changed_setting_is_used_in_the_next_call(cls, settings, name, value):
    x, edge_index = graph()
    encoder = cls(GraphSpec(30, in_channels=9), **settings).eval()
    encoder(x, edge_index)
    fresh = copy.deepcopy(encoder)  # has no cached results
    for either in (encoder, fresh):
        setattr(either, name, value)
    for got, expected in zip(
        encoder.forward_with_auxiliary(x, edge_index),
        fresh.forward_with_auxiliary(x, edge_index),
        strict=True,
    ):
        assert (got is None and expected is None) or torch.equal(got, expected)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("encoder", [GALiT, NodeFormer, GNN, SGFormer, SGFormerPyG, Polynormer, MLP, SGC])
def test_features_of_any_dtype_are_converted_to_that_of_the_weights(encoder, dtype, layout):
    """NumPy's default is float64, and one-hot features are often integers."""
    torch.manual_seed(0)
    x = torch.eye(6)[torch.tensor([0, 1, 2, 3, 4, 5, 1, 2])]
    edges = torch.tensor([[0, 1, 2, 5], [1, 2, 3, 7]])
    made = encoder(6, 4, 2).eval()
    given = x.to(dtype) if layout == "dense" else x.to_sparse_csr().to(dtype)
    found, expected = made(given, edges), made(x, edges)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    with pytest.raises(UsageError, match="features are real numbers, got complex ones"):
        made(x.to(torch.complex64), edges)
