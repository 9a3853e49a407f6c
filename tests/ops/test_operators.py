"""The fused ops as registered torch operators, for compilers, exporters and fake tensors."""

import importlib.util

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graphzoo.ops import RelationalGraph, fused_export, relational_spmm
from graphzoo.ops.message_update import message_update
from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
from graphzoo.ops.relational_spmm import graph as graphs
from graphzoo.ops.relational_spmm.query_graph import to_query_major
from graphzoo.ops.state_mlp import state_mlp

ALL_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
N, B, D, R, E = 9, 3, 16, 4, 40


def rows(*, by_query=False, channels=D):
    made = torch.randn(N, B, channels)
    return to_query_major(made) if by_query else made


def a_graph():
    return RelationalGraph(torch.randint(N, (2, E)), torch.randint(R, (E,)), N, R)


def square():
    return torch.randn(D, D)


def vector():
    return torch.randn(D)


def spmm_case(mask=False, backend="numba"):
    graph, kept = a_graph(), (torch.rand(E) < 0.7) if mask else None
    return (
        lambda x, relation: relational_spmm(x, relation, graph, edge_mask=kept, backend=backend),
        [rows(), torch.randn(R, B, D)],
    )


def update_case(by_query=False, backend="numba"):
    parameters = [vector(), square(), vector(), square(), vector(), vector(), vector()]
    return (
        lambda z, sums, *more: message_update(z, sums, more, backend=backend),
        [rows(by_query=by_query), rows(by_query=by_query), *parameters],
    )


def mlp_case(x=True, extra=True, by_query=False, backend="numba"):
    noise = rows(channels=1, by_query=by_query) if extra else None

    def run(weight, b1, w2, b2, *more):
        more = list(more)
        states = more.pop(0) if x else None
        return state_mlp(states, noise, weight, *(more or [None]), (b1, w2, b2), backend=backend)

    given = [rows(by_query=by_query)] if x else []
    return run, [square(), vector(), square(), vector(), *given, *([vector()] if extra else [])]


def layer_case(skip=True, p=0.0, by_query=False, backend="numba"):
    dropout = RowDropout(p, torch.arange(B)) if p else None
    parameters = [vector(), vector(), square(), vector(), square(), vector(), vector(), vector()]

    def run(states, value, weight, bias, *more):
        given = more[-1] if skip else None
        return prototype_layer(
            states, value, given, (weight, bias), more[:8], num_heads=2, dropout=dropout, backend=backend
        )

    pair = [rows(by_query=by_query), rows(by_query=by_query), torch.randn(2 * D, D), torch.randn(2 * D)]
    return run, [*pair, *parameters, *([rows(by_query=by_query)] if skip else [])]


CASES = {
    "relational_spmm": spmm_case,
    "relational_spmm, mask": lambda: spmm_case(mask=True),
    "message_update": update_case,
    "message_update, by query": lambda: update_case(by_query=True),
    "state_mlp": mlp_case,
    "state_mlp, no states": lambda: mlp_case(x=False),
    "state_mlp, no extra": lambda: mlp_case(extra=False),
    "state_mlp, by query": lambda: mlp_case(by_query=True),
    "prototype_layer": layer_case,
    "prototype_layer, no skip": lambda: layer_case(skip=False),
    "prototype_layer, dropout": lambda: layer_case(p=0.3),
    "prototype_layer, by query": lambda: layer_case(by_query=True),
}
if not torch.cuda.is_available() and importlib.util.find_spec("triton"):  # Triton's interpreter
    CASES |= {
        "message_update, triton": lambda: update_case(backend="triton"),
        "state_mlp, triton": lambda: mlp_case(backend="triton"),
        "state_mlp, triton, no states": lambda: mlp_case(x=False, backend="triton"),
        "prototype_layer, triton, dropout": lambda: layer_case(p=0.3, backend="triton"),
        "prototype_layer, triton, no skip": lambda: layer_case(skip=False, backend="triton"),
    }


def prepared(name):
    run, given = CASES[name]()
    return run, [x.requires_grad_() for x in given]


def results(run, given):
    """The output and the gradient of every argument."""
    out = run(*given)
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), given)]


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Records every call of a graphzoo operator with its arguments."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "graphzoo":
            self.found.append((func, args))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_bits_of_the_op(name):
    run, given = prepared(name)
    expected = results(run, given)
    with Calls() as calls:
        found = results(run, given)
    assert calls.found
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride() and torch.equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_operators_pass_torchs_checks(name):
    """Schema, registration of gradients, fake kernels (shapes, strides) and tracing with dynamic sizes."""
    run, given = prepared(name)
    with Calls() as calls:
        results(run, given)
    assert len(calls.found) >= 2, "forward and backward"
    for operator, args in calls.found:
        is_gradient = "gradient" in operator.name()
        fresh = [
            x.detach().clone().requires_grad_(x.is_floating_point() and not is_gradient)
            if isinstance(x, torch.Tensor)
            else x
            for x in args
        ]
        checks = ("test_schema", "test_faketensor") if is_gradient else ALL_CHECKS
        torch.library.opcheck(operator, tuple(fresh), test_utils=checks)


def test_gradients_of_gradients():
    """Only the sum of products has gradients that are such sums again."""
    edges, x, relation = torch.randint(4, (2, 6)), torch.randn(4, 2), torch.randn(3, 2)
    types = torch.randint(3, (6,))

    def run(a, b):
        return torch.ops.graphzoo.segment_products(a, b, edges, types, None, 4, 3, "target", "numba")

    given = [part.double().requires_grad_() for part in (x, relation)]
    assert torch.autograd.gradcheck(run, given) and torch.autograd.gradgradcheck(run, given)


def test_fake_tensors():
    """Fake tensors need neither the device nor Triton, because no kernel is called."""
    with FakeTensorMode(), torch.no_grad():
        x, relation = torch.randn(N, B, D, device="cuda"), torch.randn(R, B, D, device="cuda")
        edges = torch.zeros(2, E, dtype=torch.int64, device="cuda")
        types = torch.zeros(E, dtype=torch.int64, device="cuda")
        graph = RelationalGraph.unchecked(edges, types, N, R)
        out = relational_spmm(x, relation, graph)
        assert out.shape == x.shape and out.device.type == "cuda"
    run, given = prepared("relational_spmm")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        out, *grads = results(run, [mode.from_tensor(x) for x in given])
        assert out.shape == given[0].shape and [g.shape for g in grads] == [x.shape for x in given]


def test_a_graph_is_sorted_once(monkeypatch):
    """Operators take tensors, and look up the graph of these tensors while it exists."""
    sorts, order = [], graphs._order
    monkeypatch.setattr(graphs, "_order", lambda *columns: sorts.append(1) or order(*columns))
    graph = a_graph()
    compiled = torch.compile(lambda x, r: relational_spmm(x, r, graph).sin(), backend="aot_eager")
    x, relation = torch.randn(N, D, requires_grad=True), torch.randn(R, D, requires_grad=True)
    for _ in range(3):
        compiled(x, relation).sum().backward()
    assert len(sorts) == 3, "by target, by source, by relation"
    edges = torch.randint(N, (2, E)), torch.randint(R, (E,))
    for _ in range(3):  # there is no graph of these edges
        torch.ops.graphzoo.segment_products(x, relation, *edges, None, N, R, "target", "numba")
    assert len(sorts) == 4
    edges[0].copy_(edges[0].flip(0))
    found = torch.ops.graphzoo.segment_products(x, relation, *edges, None, N, R, "target", "numba")
    torch.testing.assert_close(found, relational_spmm(x, relation, RelationalGraph(*edges, N, R)))


def test_exported_with_kernels_or_without():
    class Model(torch.nn.Module):
        def forward(self, x, relation, edge_index, edge_type):
            graph = RelationalGraph.unchecked(edge_index, edge_type, x.shape[0], relation.shape[0])
            return relational_spmm(x, relation, graph) + 1

    graph = a_graph()
    given = torch.randn(N, D), torch.randn(R, D), graph.edge_index, graph.edge_type
    free = torch.export.Dim.AUTO
    shapes = [dict.fromkeys(range(x.dim()), free) for x in given]
    plain = torch.export.export(Model(), given, dynamic_shapes={"x": shapes[0], "relation": shapes[1],
                                "edge_index": shapes[2], "edge_type": shapes[3]})  # fmt: skip
    with fused_export():
        fused = torch.export.export(Model(), given)
    assert "graphzoo" in str(fused.graph) and "graphzoo" not in str(plain.graph)
    expected = relational_spmm(given[0], given[1], graph) + 1
    for program in (plain, fused):
        torch.testing.assert_close(program.module()(*given), expected)


def test_graphs_of_other_sizes_that_share_tensors_are_distinguished():
    edges, kinds = torch.randint(3, (2, 8)), torch.randint(2, (8,))
    small, large = RelationalGraph(edges, kinds, 3, 2), RelationalGraph(edges, kinds, 6, 2)
    assert graphs.graph_of(edges, kinds, 3, 2) is small
    assert graphs.graph_of(edges, kinds, 6, 2) is large
