import copy
import pickle
import weakref

import pytest
import torch

from graphzoo.errors import UsageError
from graphzoo.layers import LastResult, NoiseStream, SparseLinear, dropout
from graphzoo.ops import SparseMatrix


def bag_of_words(num_rows=40, num_columns=30, dtype=torch.float32):
    x = (torch.rand(num_rows, num_columns) < 0.1) * torch.randn(num_rows, num_columns)
    x[3] = 0
    return x.to(dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", ["csr", "coo", "matrix"])
def test_sparse_and_dense_input_give_the_same(form, bias):
    x = bag_of_words(dtype=torch.float64)
    linear = SparseLinear(30, 5, bias).double()
    sparse = {"csr": x.to_sparse_csr, "coo": x.to_sparse_coo, "matrix": lambda: SparseMatrix.from_tensor(x)}
    direction = torch.randn(40, 5, dtype=torch.float64)
    results = []
    for given in (x, sparse[form]()):
        linear.zero_grad()
        out = linear(given)
        (out * direction).sum().backward()
        results.append([out, *(parameter.grad.clone() for parameter in linear.parameters())])
    for dense, other in zip(*results, strict=True):
        torch.testing.assert_close(other, dense, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_entries_of_the_input_are_dropped(is_sparse):
    linear, x, noise = SparseLinear(30, 5), bag_of_words(), NoiseStream(0)
    x = SparseMatrix.from_tensor(x) if is_sparse else x
    values = x.values if is_sparse else x
    kept = dropout(values, 0.5, noise.generator(1, "cpu"), True)
    expected = linear(x.with_values(kept) if is_sparse else kept)
    assert torch.equal(linear(x, 0.5, noise.generator(1, "cpu")), expected)
    assert not torch.equal(linear(x), expected)
    assert torch.equal(linear(x, 0.5), linear(x)) and torch.equal(
        linear(x, 0.0, torch.Generator()), linear(x)
    )
    with pytest.raises(UsageError, match="dropout must be at least 0 and below 1"):
        linear(x, -0.5, torch.Generator())


def test_initial_weights_and_state_dict_are_those_of_linear():
    torch.manual_seed(1)
    plain = torch.nn.Linear(30, 5)
    torch.manual_seed(1)
    linear = SparseLinear(30, 5)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), linear.parameters(), strict=True))
    plain.load_state_dict(linear.state_dict())


def test_results_do_not_change_from_run_to_run():
    linear, x = SparseLinear(30, 5), bag_of_words().to_sparse_csr()
    grads = []
    for _ in range(2):
        linear.zero_grad()
        linear(x).square().sum().backward()
        grads.append(linear.weight.grad.clone())
    assert torch.equal(*grads)


def test_nothing_is_made_dense():
    # as a dense matrix, x would take 4 TB
    size = 1_000_000
    x = torch.sparse_coo_tensor(torch.tensor([[0, size - 1], [5, size - 1]]), torch.ones(2), (size, size))
    linear = SparseLinear(size, 2)
    out = linear(x.coalesce())
    out.sum().backward()
    torch.testing.assert_close(out[0], linear.weight[:, 5] + linear.bias)
    assert linear.weight.grad.count_nonzero() == 4


def test_the_prepared_matrix_is_kept_for_the_same_tensor_only(monkeypatch):
    made = []
    original = SparseMatrix.from_tensor.__func__
    monkeypatch.setattr(
        SparseMatrix, "from_tensor", classmethod(lambda cls, x: made.append(x.shape) or original(cls, x))
    )
    linear = SparseLinear(30, 5)
    first, second = bag_of_words().to_sparse_csr(), bag_of_words().to_sparse_csr()
    outs = [linear(first), linear(first), linear(second), linear(first)]
    assert len(made) == 3
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[3])
    assert not torch.equal(outs[0], outs[2])


def test_copies_and_pickles():
    linear, x = SparseLinear(30, 5), bag_of_words().to_sparse_csr()
    out = linear(x)
    for twin in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
        assert torch.equal(twin(x), out)


def test_a_gradient_for_sparse_input_is_refused():
    with pytest.raises(ValueError, match="get no gradient"):
        SparseLinear(30, 5)(bag_of_words().to_sparse_csr().requires_grad_())


def test_last_result_is_for_unchanged_tensors_and_does_not_keep_them_alive():
    last, calls = LastResult(), []

    def compute():
        calls.append(len(calls))
        return calls[-1]

    x, y = torch.zeros(2), torch.zeros(2)
    assert [last.get((x,), compute), last.get((x,), compute), last.get((x, y), compute)] == [0, 0, 1]
    assert last.get((y, x), compute) == 2
    assert last.get((y, x), compute) == 2
    x += 1
    assert last.get((y, x), compute) == 3
    reference = weakref.ref(x)
    del x
    assert reference() is None
    # The new tensor may have the address of the deleted one.
    assert last.get((y, torch.ones(2)), compute) == 4


def test_last_result_of_tensors_from_inference_mode():
    """These tensors have no version counter, so a change of one cannot be noticed."""
    last = LastResult()
    with torch.inference_mode():
        x = torch.zeros(2)
        assert last.get((x,), x.sum).item() == 0
        x += 1
        assert last.get((x,), x.sum).item() == 2


def test_last_result_does_not_keep_an_error():
    last, x = LastResult(), torch.zeros(2)
    with pytest.raises(ZeroDivisionError):
        last.get((x,), lambda: 1 / 0)
    assert last.get((x,), lambda: 7) == 7
