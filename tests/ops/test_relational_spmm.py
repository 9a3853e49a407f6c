"""Every backend of the relational SpMM, compared with the definition: output and both gradients."""

import pytest
import torch
from helpers.spmm_cases import FAST_BACKENDS, backend_device, random_graph, reference, run
from helpers.tolerances import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.ops import RelationalGraph, relational_spmm

ALL_BACKENDS = ["naive", *FAST_BACKENDS]


def random_inputs(graph, features, dtype=torch.float32):
    x = torch.randn(graph.num_nodes, *features).to(dtype)
    relation = torch.randn(graph.num_relations, *features).to(dtype)
    return x, relation, torch.randn(graph.num_nodes, *features).to(dtype)


def check(backend, graph, features, dtype=torch.float32, edge_mask=None):
    x, relation, grad = random_inputs(graph, features, dtype)
    actual = run(backend, x, relation, graph, edge_mask, grad)
    expected = reference(x, relation, graph, edge_mask, grad)
    for i, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert got.dtype == dtype and got.shape == wanted.shape
        assert_close(got, wanted, backward=i > 0)


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_output_and_gradients(backend, dtype, masked):
    graph = random_graph(30, 200, 5)
    check(backend, graph, (2, 9), dtype, torch.rand(200) < 0.6 if masked else None)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_tiny_graphs(backend, tiny_graph):
    check(backend, tiny_graph, (3,))
    check(backend, tiny_graph, (3,), edge_mask=torch.arange(tiny_graph.num_edges) % 2 == 0)
    check(backend, tiny_graph, (3,), edge_mask=torch.zeros(tiny_graph.num_edges, dtype=torch.bool))


@pytest.mark.parametrize(
    "features", [(), (1,), (7,), (63,), (100,), (4, 25), (2, 3, 5), (130,), (0,), (3, 0)], ids=str
)
@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_feature_shapes(backend, features):
    check(backend, random_graph(12, 50, 3), features)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_no_nodes(backend):
    graph = RelationalGraph(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0, 0)
    check(backend, graph, (4,))


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_int32_indices_give_the_same(backend):
    graph = random_graph(9, 40, 3)
    narrow = RelationalGraph(graph.edge_index.int(), graph.edge_type.int(), 9, 3)
    x, relation, grad = random_inputs(graph, (5,))
    for wide, small in zip(
        run(backend, x, relation, graph, None, grad),
        run(backend, x, relation, narrow, None, grad),
        strict=True,
    ):
        assert torch.equal(wide, small)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_non_contiguous_inputs(backend):
    graph = random_graph(10, 60, 4)
    x, relation = torch.randn(6, 3, 10).permute(2, 1, 0), torch.randn(4, 6, 3).transpose(1, 2)
    edge_mask = (torch.rand(120) < 0.5)[::2]
    grad = torch.randn(3, 1, 10).permute(2, 0, 1).expand(10, 3, 6)
    assert not x.is_contiguous() and not edge_mask.is_contiguous()
    actual = run(backend, x, relation, graph, edge_mask, grad)
    for got, wanted in zip(actual, reference(x, relation, graph, edge_mask, grad), strict=True):
        assert_close(got, wanted, backward=True)


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_masked_edges_are_not_read(backend):
    graph = RelationalGraph(torch.tensor([[0, 1], [2, 2]]), torch.tensor([0, 1]), 3, 2)
    device = backend_device(backend)
    x = torch.tensor([[float("inf")], [2.0], [float("nan")]], device=device, requires_grad=True)
    relation = torch.tensor([[float("nan")], [3.0]], device=device, requires_grad=True)
    mask = torch.tensor([False, True], device=device)
    out = relational_spmm(x, relation, graph.to(device), edge_mask=mask, backend=backend)
    out.sum().backward()
    assert out.flatten().tolist() == [0.0, 0.0, 6.0]
    assert x.grad.flatten().tolist() == [0.0, 3.0, 0.0]
    assert relation.grad.flatten().tolist() == [0.0, 2.0]


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_gradcheck(backend):
    graph = random_graph(5, 12, 3)
    mask = torch.rand(12) < 0.7
    device = backend_device(backend)
    x = torch.randn(5, 2, dtype=torch.float64, device=device, requires_grad=True)
    relation = torch.randn(3, 2, dtype=torch.float64, device=device, requires_grad=True)
    graph, mask = graph.to(device), mask.to(device)
    assert torch.autograd.gradcheck(
        lambda x, relation: relational_spmm(x, relation, graph, edge_mask=mask, backend=backend),
        (x, relation),
    )


@pytest.mark.parametrize("wanted", ["x", "relation"])
@pytest.mark.parametrize("backend", FAST_BACKENDS)
def test_only_required_gradients_are_computed(backend, wanted):
    graph = random_graph(8, 30, 3).to(backend_device(backend))
    x, relation, grad = (tensor.to(graph.device) for tensor in random_inputs(graph, (4,)))
    leaf = {"x": x, "relation": relation}[wanted].requires_grad_()
    relational_spmm(x, relation, graph, backend=backend).backward(grad)
    expected = dict(
        zip(
            ("out", "x", "relation"),
            reference(x.cpu(), relation.cpu(), graph.to("cpu"), None, grad.cpu()),
            strict=True,
        )
    )
    assert_close(leaf.grad.cpu(), expected[wanted], backward=True)
    assert ("relation" in graph._orderings) == (wanted == "relation")
    assert ("source" in graph._orderings) == (wanted == "x")


@pytest.mark.parametrize("backend", FAST_BACKENDS)
def test_second_derivatives_are_refused(backend):
    graph = random_graph(4, 6, 2).to(backend_device(backend))
    x, relation, _ = (tensor.to(graph.device) for tensor in random_inputs(graph, (2,)))
    out = relational_spmm(x.requires_grad_(), relation, graph, backend=backend)
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_renaming_nodes_and_relations_renames_the_result(backend):
    graph = random_graph(15, 80, 4)
    x, relation, grad = random_inputs(graph, (6,), torch.float64)
    node, edge, kind = torch.randperm(15), torch.randperm(80), torch.randperm(4)  # new index -> old index
    new_node, new_kind = node.argsort(), kind.argsort()
    renamed = RelationalGraph(new_node[graph.edge_index][:, edge], new_kind[graph.edge_type][edge], 15, 4)
    mask = torch.rand(80) < 0.8
    out, grad_x, grad_relation = run(backend, x, relation, graph, mask, grad)
    out2, grad_x2, grad_relation2 = run(backend, x[node], relation[kind], renamed, mask[edge], grad[node])
    assert_close(out2, out[node])
    assert_close(grad_x2, grad_x[node], backward=True)
    assert_close(grad_relation2, grad_relation[kind], backward=True)


@settings(max_examples=60)
@given(
    num_nodes=st.integers(1, 12),
    num_edges=st.integers(0, 40),
    num_relations=st.integers(1, 6),
    features=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    keep=st.sampled_from([None, 0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_numba_on_any_graph(num_nodes, num_edges, num_relations, features, keep, seed):
    torch.manual_seed(seed)
    graph = random_graph(num_nodes, num_edges, num_relations)
    mask = None if keep is None else torch.rand(num_edges) < keep
    check("numba", graph, features, torch.float64, mask)


def test_default_backend_is_numba_on_the_cpu():
    graph = random_graph(20, 100, 3)
    x, relation, _ = random_inputs(graph, (40,))
    default = relational_spmm(x, relation, graph)
    assert torch.equal(default, relational_spmm(x, relation, graph, backend="numba"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_default_backend_is_triton_on_cuda():
    graph = random_graph(20, 3000, 3).to("cuda")
    x, relation, _ = (tensor.cuda() for tensor in random_inputs(graph, (300,)))
    default = relational_spmm(x, relation, graph)
    assert torch.equal(default, relational_spmm(x, relation, graph, backend="triton"))


def good_arguments():
    return {"x": torch.zeros(3, 2), "relation": torch.zeros(2, 2), "edge_mask": None, "backend": None}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": torch.zeros(4, 2)}, r"x must have shape \[N=3, \*F\], got \[4, 2\]"),
        ({"x": torch.tensor(0.0)}, r"x must have shape \[N=3, \*F\], got \[\]"),
        ({"x": torch.zeros(3)}, r"relation must have shape \[R=2\], got \[2, 2\]"),
        (
            {"relation": torch.zeros(5, 2)},
            r"relation must have shape \[R=2, 2\], got \[5, 2\].*inverses included",
        ),
        ({"relation": torch.zeros(2, 3)}, r"relation must have shape \[R=2, 2\], got \[2, 3\]"),
        (
            {"relation": torch.zeros(2, 2, dtype=torch.float64)},
            "one dtype of .* got torch.float32 and torch.float64",
        ),
        ({"x": torch.zeros(3, 2, dtype=torch.int64)}, "got torch.int64"),
        ({"edge_mask": torch.ones(2)}, r"edge_mask must be bool of shape \[2\].*got torch.float32"),
        ({"edge_mask": torch.ones(3, dtype=torch.bool)}, r"edge_mask must be bool of shape \[2\].*\[3\]"),
        ({"backend": "cuda"}, "backend must be one of naive, numba, triton, scatter, got 'cuda'"),
        (
            {"x": torch.zeros(3, 2, device="meta")},
            r"x is on meta, but relation on cpu; move it with relation.to",
        ),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    graph = RelationalGraph(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1]), 3, 2)
    relational_spmm(graph=graph, **good_arguments())
    with pytest.raises(ValueError, match=message):
        relational_spmm(graph=graph, **{**good_arguments(), **wrong})


def test_a_plain_edge_index_is_refused():
    with pytest.raises(ValueError, match="graph must be a RelationalGraph, got Tensor"):
        relational_spmm(torch.zeros(3, 2), torch.zeros(2, 2), torch.zeros(2, 2))
