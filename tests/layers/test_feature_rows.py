import pytest
import torch
from torch.nn import functional as F

from graphzoo.errors import UsageError
from graphzoo.layers import FeatureRows


@pytest.mark.parametrize("form", [torch.strided, torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("rows", [[[3, 1], [3, 3]], [[0]], list(range(9)), [8, 8, 0, 2, 8]])
def test_rows_equal_those_of_the_whole_table(form, rows):
    torch.manual_seed(0)
    x = torch.randn(9, 5, dtype=torch.float64) * (torch.rand(9, 5) < 0.5)
    x[3] = 0  # a row without entries
    layer, rows = FeatureRows(5, 4).double(), torch.tensor(rows)
    mapped, position = layer(x if form is torch.strided else x.to_sparse(layout=form), rows)
    assert position.shape == rows.shape
    assert mapped.shape[0] == (9 if rows.numel() >= 9 else rows.unique().numel())
    out = F.embedding(position, mapped)
    expected = F.linear(x, layer.linear.weight, layer.linear.bias)[rows]
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)
    direction = torch.randn_like(out)
    for a, e in zip(
        torch.autograd.grad(out, list(layer.parameters()), direction),
        torch.autograd.grad(expected, list(layer.parameters()), direction),
        strict=True,
    ):
        torch.testing.assert_close(a, e, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("rows", [[3, 1], list(range(9))])
def test_sparse_features_that_require_a_gradient_are_refused(rows):
    x = torch.randn(9, 5).to_sparse_csr().requires_grad_()
    with pytest.raises(UsageError, match="sparse features get no gradient"):
        FeatureRows(5, 4)(x, torch.tensor(rows))


def test_dense_features_get_a_gradient():
    x = torch.randn(9, 5, requires_grad=True)
    layer = FeatureRows(5, 4)
    mapped, position = layer(x, torch.tensor([2, 2, 7]))
    F.embedding(position, mapped).sum().backward()
    counts = torch.zeros(9).index_add(0, torch.tensor([2, 2, 7]), torch.ones(3))
    torch.testing.assert_close(x.grad, counts[:, None] * layer.linear.weight.sum(0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool, torch.float16])
@pytest.mark.parametrize("rows", [[3, 1], list(range(9))])
def test_a_table_of_any_dtype_is_converted_to_that_of_the_weights(dtype, rows):
    table = (torch.rand(9, 5) * 4).to(dtype)
    layer, rows = FeatureRows(5, 4), torch.tensor(rows)
    mapped, position = layer(table, rows)
    torch.testing.assert_close(F.embedding(position, mapped), layer.linear(table.float())[rows])
