import importlib

import pytest
import torch
from helpers.attention_matrices import explicit_cosine, similarities
from helpers.memory import MemoryRecorder
from torch.nn import functional as F

from graphzoo.ops import averaged_cosine_attention, cosine_linear_attention
from graphzoo.ops.cosine_attention import cosine_attention_weights

NORMS = ["l2", "fro"]


def states(num_nodes=23, heads=3, channels=4, count=3):
    return [
        torch.randn(num_nodes, heads, channels, dtype=torch.float64, requires_grad=True) for _ in range(count)
    ]


def attention_matrix(query, key, norm, **settings):
    """The attention matrix [N, H, N] of the operator: its output with unit vectors as values."""
    value = torch.eye(query.shape[0], dtype=query.dtype)[:, None].expand(-1, query.shape[1], -1)
    return cosine_linear_attention(query, key, value, norm=norm, **settings)


def assert_same_with_gradients(actual, expected, leaves):
    torch.testing.assert_close(actual, expected, atol=1e-11, rtol=1e-11)
    direction = torch.randn_like(actual)
    grads = (torch.autograd.grad((out * direction).sum(), leaves) for out in (actual, expected))
    for a, e in zip(*grads, strict=True):
        assert e.abs().max() > 1e-6
        torch.testing.assert_close(a, e, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bias", [1.0, 2.5])
@pytest.mark.parametrize("shape", [(23, 3, 4), (5, 1, 7), (300, 2, 8)])
def test_linear_form_equals_the_explicit_matrix(norm, bias, shape):
    q, k, v = states(*shape)
    actual = cosine_linear_attention(q, k, v, norm=norm, bias=bias, eps=1e-3)
    assert_same_with_gradients(actual, explicit_cosine(q, k, v, norm, bias, 1e-3), (q, k, v))


@pytest.mark.parametrize("norm", NORMS)
def test_chunks_of_rows_change_nothing(norm, monkeypatch):
    q, k, v = states()
    expected = cosine_linear_attention(q, k, v, norm=norm)
    monkeypatch.setattr(importlib.import_module("graphzoo.ops.map_rows"), "CPU_ROWS", 12)
    assert_same_with_gradients(cosine_linear_attention(q, k, v, norm=norm), expected, (q, k, v))


def maps(kind, heads=3, channels=4):
    def make(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    linear = (make(heads, channels, channels), make(heads, channels))
    return {
        "cos": ((), None),
        "wcos": ((make(heads, channels),), None),
        "mcos": (linear, None),
        "qkcos": (linear, (make(heads, channels, channels), make(heads, channels))),
    }[kind]


def apply_map(z, weights, heads):
    if not weights:
        return torch.stack([z] * heads, 1)
    if len(weights) == 1:
        return torch.stack([z * w for w in weights[0]], 1)
    return torch.stack([z @ w.t() + b for w, b in zip(*weights, strict=True)], 1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["cos", "wcos", "mcos", "qkcos"])
@pytest.mark.parametrize("rows", [None, 7])
def test_averaged_heads_equal_the_mean_of_explicit_matrices(norm, kind, rows, monkeypatch):
    if rows:
        monkeypatch.setattr(importlib.import_module("graphzoo.ops.map_rows"), "CPU_ROWS", rows)
    z = torch.randn(23, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(23, 5, dtype=torch.float64, requires_grad=True)
    query_map, key_map = maps(kind)
    query = apply_map(z, query_map, 3)
    key = query if key_map is None else apply_map(z, key_map, 3)
    expected = explicit_cosine(query, key, v[:, None].expand(-1, 3, -1), norm).mean(1)
    actual = averaged_cosine_attention(z, v, query_map, key_map, norm=norm)
    assert_same_with_gradients(actual, expected, (z, v, *query_map, *(key_map or ())))


def test_states_are_the_default_value():
    z = torch.randn(23, 4, dtype=torch.float64, requires_grad=True)
    one = z[:, None]
    assert_same_with_gradients(
        averaged_cosine_attention(z, z), explicit_cosine(one, one, one, "l2")[:, 0], (z,)
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("bias", "eps"), [(1.0, 1e-6), (2.0, 0.3)])
def test_weights_are_at_least_eps_and_rows_sum_to_one(norm, bias, eps):
    """Theorem 2. Under "l2", opposite vectors reach the bound."""
    q = torch.randn(40, 2, 3, dtype=torch.float64)
    q[20:] = -q[:20]
    matrix = attention_matrix(q, q, norm, bias=bias, eps=eps)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(40, 2, dtype=torch.float64))
    totals = similarities(q, q, norm, bias, eps).sum(-1)
    weights = matrix.permute(1, 0, 2) * totals[:, :, None]
    torch.testing.assert_close(weights, similarities(q, q, norm, bias, eps))
    assert weights.min() >= eps - 1e-12
    if norm == "l2":
        assert weights.min() <= eps + 1e-12
        assert weights.max() <= 2 * bias - eps + 1e-12


@pytest.mark.parametrize("norm", NORMS)
def test_weights_of_pairs_equal_those_of_the_matrix(norm):
    q, k, _ = (x.detach() for x in states())
    matrix = attention_matrix(q, k, norm)
    pairs = torch.randint(0, 23, (2, 50))
    found = cosine_attention_weights(q, k, pairs, norm=norm, bias=1.0, eps=1e-6)
    torch.testing.assert_close(found, matrix[pairs[0], :, pairs[1]])


@pytest.mark.parametrize("norm", NORMS)
def test_a_zero_vector_attends_to_all_nodes_equally(norm):
    q, k, v = states()
    with torch.no_grad():
        q[3], k[5] = 0, 0
    out = cosine_linear_attention(q, k, v, norm=norm)
    torch.testing.assert_close(out[3], v.mean(0))
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(torch.isfinite(grad).all() for grad in grads)
    if norm == "l2":
        # A zero vector has no direction; the true gradient grows without bound near it.
        assert (grads[0][3] == 0).all() and (grads[1][5] == 0).all()
    zero = torch.zeros_like(q, requires_grad=True)
    out = cosine_linear_attention(zero, zero, v, norm=norm)
    torch.testing.assert_close(out, v.mean(0).expand_as(v))
    (grad,) = torch.autograd.grad(out.square().sum(), zero)
    assert (grad == 0).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_rounds_only_inputs_and_output(norm, dtype):
    q, k, v = (x.detach().to(dtype) for x in states(2000, 2, 16))
    out = cosine_linear_attention(q, k, v + 1, norm=norm)
    assert out.dtype == dtype
    expected = explicit_cosine(q.double(), k.double(), (v + 1).double(), norm)
    torch.testing.assert_close(
        out.double(), expected, atol=1e-6, rtol=2e-6 if dtype == torch.float32 else 2**-8
    )


def test_rank_of_attention_matrices():
    """Eq. 33 and 35: a head of width d has rank d, and 1 for the constant c; H heads at most H times that."""
    num_nodes, heads, channels = 60, 4, 5
    q, k = (torch.randn(num_nodes, heads, channels, dtype=torch.float64) for _ in range(2))
    for norm in NORMS:
        matrix = attention_matrix(q, k, norm)
        single = [int(torch.linalg.matrix_rank(matrix[:, h], rtol=1e-10)) for h in range(heads)]
        assert single == [channels + 1] * heads
        constant = 1 / similarities(q, k, norm, 1.0, 1e-6).sum(-1)  # c / total: a part of rank 1
        assert int(torch.linalg.matrix_rank(matrix[:, 0] - constant[0][:, None], rtol=1e-10)) == channels
        averaged = int(torch.linalg.matrix_rank(matrix.mean(1), rtol=1e-10))
        assert channels + 1 < averaged <= heads * (channels + 1)
        # Without the constant, the rank reaches the bound of Eq. 35.
        rest = (matrix - constant.t()[:, :, None]).mean(1)
        assert int(torch.linalg.matrix_rank(rest, rtol=1e-10)) == heads * channels


def test_rank_with_the_adjacency_is_between_the_bounds():
    """Eq. 34: with an adjacency of rank near N, the combination has rank of at least N - d - 1."""
    from graphzoo.ops.adjacency import normalized_adjacency

    num_nodes, channels = 80, 5
    edges = torch.randint(0, num_nodes, (2, 120))
    adjacency = normalized_adjacency(torch.cat([edges, edges.flip(0)], 1), num_nodes, dtype=torch.float64)
    dense = adjacency.matmul(torch.eye(num_nodes, dtype=torch.float64))
    q = torch.randn(num_nodes, 1, channels, dtype=torch.float64)
    attention = attention_matrix(q, q, "l2")[:, 0]
    ranks = [int(torch.linalg.matrix_rank(m, rtol=1e-10)) for m in (attention, dense)]
    both = int(torch.linalg.matrix_rank(0.5 * attention + 0.5 * dense, rtol=1e-10))
    assert abs(ranks[1] - ranks[0]) <= both <= min(num_nodes, sum(ranks))
    assert ranks[1] > 0.9 * num_nodes and both >= ranks[1] - channels - 1


@pytest.mark.parametrize("norm", NORMS)
def test_tensors_grow_linearly_with_the_number_of_nodes(norm):
    sizes = {}
    for num_nodes in (2_000, 8_000):
        z = torch.randn(num_nodes, 8, requires_grad=True)
        weights = tuple(torch.randn(4, *shape, requires_grad=True) for shape in ((8, 8), (8,)))
        with MemoryRecorder() as recorded:
            averaged_cosine_attention(z, z, weights, norm=norm).sum().backward()
        sizes[num_nodes] = recorded.largest
    assert sizes == {2_000: 2_000 * 8, 8_000: 8_000 * 8}


def test_heads_are_not_kept_for_the_backward_pass():
    z = torch.randn(500, 8, requires_grad=True)
    weights = tuple(torch.randn(16, *shape, requires_grad=True) for shape in ((8, 8), (8,)))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        averaged_cosine_attention(z, z, weights)
    assert sum(saved) < 4 * z.numel() + 6 * weights[0].numel()


def test_no_nodes_and_one_node():
    empty = torch.empty(0, 2, 3)
    assert cosine_linear_attention(empty, empty, empty).shape == (0, 2, 3)
    assert averaged_cosine_attention(empty[:, 0], empty[:, 0]).shape == (0, 3)
    q, k, v = (x.detach() for x in states(1))
    torch.testing.assert_close(cosine_linear_attention(q, k, v), v)


def test_wrong_input_is_refused():
    q, k, v = states()
    with pytest.raises(ValueError, match=r"value \[N, H, C\], got \[23, 3, 4\], \[23, 1, 4\]"):
        cosine_linear_attention(q, k[:, :1], v)
    with pytest.raises(ValueError, match=r"must be \[N, H, D\]"):
        cosine_linear_attention(q[:, 0], k[:, 0], v[:, 0])
    with pytest.raises(ValueError, match="norm must be one of l2, fro, got 'max'"):
        cosine_linear_attention(q, k, v, norm="max")
    for eps in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="eps must be above 0 and below"):
            averaged_cosine_attention(q[:, 0], v[:, 0], eps=eps)


def test_similarity_is_the_cosine():
    q, k, _ = (x.detach() for x in states(heads=1))
    matrix = attention_matrix(q, k, "l2", eps=1e-9)[:, 0]
    cosine = F.cosine_similarity(q, k.transpose(0, 1), dim=-1)
    torch.testing.assert_close(matrix, (1 + cosine) / (1 + cosine).sum(1, keepdim=True))
