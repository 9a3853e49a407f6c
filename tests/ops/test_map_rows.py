import pytest
import torch
from helpers.row_cases import row_function
from torch.nn import functional as F

from graphzoo.ops import map_rows


def inputs(length=23):
    x, y = (torch.randn(length, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight, bias = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    return (x, y), (weight.requires_grad_(), bias.requires_grad_())


@pytest.mark.parametrize("chunk_rows", [None, 3, 7, 30, 10_000])
def test_chunks_equal_the_whole_in_outputs_sums_and_gradients(chunk_rows):
    rows, shared = inputs()
    mapped, total = map_rows(row_function, rows, shared, num_sums=1, chunk_rows=chunk_rows)
    expected, expected_total = row_function(rows, shared, 0)
    torch.testing.assert_close(mapped, expected)
    torch.testing.assert_close(total, expected_total)
    leaves = (*rows, *shared)
    objective = (
        mapped.square().sum() + (total * torch.arange(4)).sum(),
        expected.square().sum() + (expected_total * torch.arange(4)).sum(),
    )
    for actual, reference in zip(*(torch.autograd.grad(o, leaves) for o in objective), strict=True):
        torch.testing.assert_close(actual, reference)


def test_chunks_have_at_most_the_rows_and_nearly_one_length():
    lengths = []

    def noting(rows, shared, start):
        lengths.append(len(rows[0]))
        return (rows[0].clone(),)

    map_rows(noting, (torch.ones(23, 3, 4),), chunk_rows=30)
    assert lengths == [8, 8, 7]


def test_gradcheck_and_inputs_without_gradient():
    rows, shared = inputs(5)
    frozen = shared[0].detach()

    def run(x, y, bias):
        return map_rows(row_function, (x, y), (frozen, bias), num_sums=1, chunk_rows=6)

    assert torch.autograd.gradcheck(run, (*rows, shared[1]))
    only_sum = map_rows(row_function, rows, shared, num_sums=1)[1].sum()
    assert all(g is not None for g in torch.autograd.grad(only_sum, (*rows, *shared)))


def test_a_gradient_function_is_used():
    def gradient(rows, shared, start, grads):
        x, weight = rows[0], shared[0]
        return (grads[0] @ weight,), (torch.einsum("nbd,nbe->de", grads[0], x),)

    x = torch.randn(11, 2, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

    def run(x, w):
        return map_rows(lambda r, s, _: (F.linear(r[0], s[0]),), (x,), (w,), gradient=gradient, chunk_rows=5)

    assert torch.autograd.gradcheck(run, (x, weight))


def test_intermediates_are_not_kept():
    x = torch.randn(64, 8, 32, requires_grad=True)
    weight = torch.randn(32, 32, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        map_rows(lambda r, s, _: (F.linear(F.linear(r[0], s[0]).relu(), s[0]).tanh(),), (x,), (weight,))
    assert sorted(saved) == [weight.numel(), x.numel()]


def test_an_error_inside_is_raised():
    def broken(rows, shared, start):
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        map_rows(broken, (torch.randn(5000, 4, 4),))


def test_wrong_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        map_rows(row_function, (torch.empty(0, 3, 4),))
    with pytest.raises(ValueError, match=r"one length, got \[2, 3\]"):
        map_rows(row_function, (torch.ones(2, 3), torch.ones(3, 3)))
