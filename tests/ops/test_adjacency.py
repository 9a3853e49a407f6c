import copy
import gc
import pickle
import weakref

import pytest
import torch
from helpers.tiny_graphs import TINY_GRAPHS

from graphzoo.ops import SparseMatrix, adjacency_orders, normalized_adjacency
from graphzoo.ops import adjacency as adjacency_module
from graphzoo.ops.adjacency import EdgePattern, PlainAdjacency

# name -> (edges, nodes)
GRAPHS = {name: (pairs, num_nodes) for name, (pairs, _, num_nodes, _) in TINY_GRAPHS.items()} | {
    "directed_cycle": ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)], 5),
    "isolated_and_repeated": ([(0, 1), (0, 1), (1, 0), (3, 3)], 6),
    "one_node_no_edge": ([], 1),
    "no_node": ([], 0),
}


def edges(name):
    pairs, num_nodes = GRAPHS[name]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t(), num_nodes


def random_edges(num_nodes, num_edges, seed=0):
    return torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))


def dense_pattern(edge_index, num_nodes, self_loops=True):
    """1 in row v and column u for every edge u -> v."""
    pattern = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    for source, target in edge_index.t().tolist():
        pattern[target, source] = 1
    if self_loops:
        pattern.fill_diagonal_(1)
    return pattern


def dense_normalized(pattern):
    degree = pattern.sum(1)
    scale = torch.where(degree > 0, degree.rsqrt(), 0)
    return scale[:, None] * pattern * scale


def to_dense(matrix):
    return matrix.matmul(torch.eye(matrix.shape[1], dtype=matrix.values.dtype))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("self_loops", [True, False])
def test_normalised_adjacency_equals_the_dense_formula(name, self_loops):
    edge_index, num_nodes = edges(name)
    matrix = normalized_adjacency(edge_index, num_nodes, self_loops=self_loops, dtype=torch.float64)
    pattern = dense_pattern(edge_index, num_nodes, self_loops)
    torch.testing.assert_close(to_dense(matrix), dense_normalized(pattern))
    torch.testing.assert_close(to_dense(matrix.transpose()), dense_normalized(pattern).t())
    assert matrix.in_degree.tolist() == pattern.sum(1).tolist()
    torch.testing.assert_close(matrix.row_sums(), dense_normalized(pattern).sum(1))
    assert matrix.nnz == int(pattern.sum())


@pytest.mark.parametrize("name", GRAPHS)
def test_masked_edges_give_the_graph_of_the_kept_edges(name):
    """Equal bits on the CPU. A repeated edge stays if one copy does. On a device, zeros are stored."""
    edge_index, num_nodes = edges(name)
    pattern = EdgePattern(edge_index, num_nodes)
    for kept in (0.0, 0.5, 1.0):
        mask = torch.rand(edge_index.shape[1]) < kept
        expected = normalized_adjacency(edge_index[:, mask], num_nodes, dtype=torch.float64)
        found = pattern.masked(mask, dtype=torch.float64)
        for part in ("rowptr", "col", "values"):
            assert torch.equal(getattr(found, part), getattr(expected, part))
        place = expected.row_of_entry() * num_nodes + expected.col
        stays = torch.isin(pattern._row * num_nodes + pattern._col, place)
        marked = pattern._with_zeros(stays, torch.float64)
        assert marked.nnz == pattern._row.numel() and torch.equal(marked.values[stays], expected.values)
        torch.testing.assert_close(to_dense(marked), to_dense(expected))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_adjacency_of_exported_programs_is_the_same(name):
    """`PlainAdjacency`, also with self-loops and repeated edges."""
    edge_index, num_nodes = edges(name)
    x = torch.rand(num_nodes, 3, dtype=torch.float64)
    for given in (edge_index, torch.cat([edge_index, edge_index.flip(1)[:, ::2]], 1)):
        plain = PlainAdjacency(given, num_nodes, torch.float64)
        (expected,) = adjacency_orders(given, num_nodes, 1, dtype=torch.float64)
        torch.testing.assert_close(plain.matmul(x), expected.matmul(x))
        torch.testing.assert_close(plain.row_sums(), expected.row_sums())


@pytest.mark.parametrize("name", GRAPHS)
def test_orders_are_the_patterns_of_squares(name):
    edge_index, num_nodes = edges(name)
    orders = adjacency_orders(edge_index, num_nodes, 3, dtype=torch.float64)
    pattern = dense_pattern(edge_index, num_nodes)
    for order in orders:
        torch.testing.assert_close(to_dense(order), dense_normalized(pattern))
        pattern = (pattern @ pattern > 0).double()
    assert len(orders) == 3


def test_orders_of_a_random_directed_graph():
    edge_index = random_edges(50, 70)
    pattern = dense_pattern(edge_index, 50)
    assert not torch.equal(pattern, pattern.t())
    second = (pattern @ pattern > 0).double()
    orders = adjacency_orders(edge_index, 50, 2, dtype=torch.float64)
    torch.testing.assert_close(to_dense(orders[1]), dense_normalized(second))


def test_orders_reach_one_two_four_steps():
    path = torch.tensor([[i for i in range(9)], [i + 1 for i in range(9)]])
    reach = [int(order.in_degree.max()) - 1 for order in adjacency_orders(path, 10, 4)]
    assert reach == [1, 2, 4, 8]


def test_orders_with_many_pairs_give_a_warning(monkeypatch, caplog):
    """Two steps over a hub join all nodes. The bound is exact there, and nowhere below the true number."""
    hub = torch.stack([torch.zeros(30, dtype=torch.int64), torch.arange(1, 31)])
    both = torch.cat([hub, hub.flip(0)], 1)
    for edge_index, most in ((both, 31 * 31), (random_edges(31, 60), 31 * 31 - 1)):
        found = adjacency_orders(edge_index, 31, 2)[1].nnz
        monkeypatch.setattr(adjacency_module, "_MANY_PAIRS", most)
        adjacency_orders(edge_index, 31, 2)
        assert not caplog.records
        monkeypatch.setattr(adjacency_module, "_MANY_PAIRS", found - 1)
        adjacency_orders(edge_index, 31, 2)
        assert "order 2 links up to" in caplog.text and "rb_order" in caplog.text
        caplog.clear()


def test_order_zero_has_no_matrices():
    assert adjacency_orders(random_edges(5, 5), 5, 0) == ()
    with pytest.raises(ValueError, match="at least 0, got -1"):
        adjacency_orders(random_edges(5, 5), 5, -1)


@pytest.mark.parametrize("edge_index", [random_edges(6, 9), random_edges(6, 9).int()])
def test_product_and_its_gradients(edge_index):
    matrix = normalized_adjacency(edge_index, 6, dtype=torch.float64)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(matrix.matmul, (x,))
    assert torch.autograd.gradgradcheck(lambda z: matrix.matmul(z).square(), (x,))


def test_product_at_entries_and_its_gradients():
    matrix = normalized_adjacency(random_edges(6, 9), 6)
    a, b = (torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    rows, columns = matrix.row_of_entry(), matrix.col.long()
    expected = torch.einsum("uhf,vhf->uvh", a, b)[rows, columns]
    torch.testing.assert_close(matrix.sampled_product(a, b), expected)
    assert torch.autograd.gradcheck(matrix.sampled_product, (a, b))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_keep_the_dtype_and_sum_in_float32(dtype):
    edge_index = random_edges(40, 600)
    matrix = normalized_adjacency(edge_index, 40)
    x = torch.randn(40, 3).to(dtype)
    out = matrix.matmul(x)
    expected = dense_normalized(dense_pattern(edge_index, 40)) @ x.double()
    assert out.dtype == dtype
    tolerance = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps * 8)
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)


def test_autocast_does_not_round_the_products():
    matrix, x = normalized_adjacency(random_edges(40, 600), 40), torch.randn(40, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = matrix.matmul(x)
        at_entries = matrix.sampled_product(x[:, None], x[:, None])
    assert torch.equal(out, matrix.matmul(x))
    assert torch.equal(at_entries, matrix.sampled_product(x[:, None], x[:, None]))


def test_pairs_with_repetitions():
    pairs = torch.tensor([[3, 0, 3, 1], [1, 2, 1, 0]])
    pattern, position = SparseMatrix.from_pairs(pairs, 4)
    assert pattern.nnz == 3
    assert torch.equal(pattern.col[position].long(), pairs[0])
    assert torch.equal(pattern.row_of_entry()[position], pairs[1])


def test_entries_at_one_position_are_summed():
    places, values = torch.tensor([[1, 0, 1], [2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0])
    matrix = SparseMatrix.from_tensor(torch.sparse_coo_tensor(places, values, (2, 3)))
    assert to_dense(matrix).tolist() == [[2, 0, 0], [0, 0, 4]]


def test_other_values_at_the_same_positions():
    """Dropout gives other values in every step; all of them share one sort."""
    edge_index = random_edges(20, 60)
    matrix, _ = SparseMatrix.from_pairs(edge_index, 20)
    x = torch.randn(20, 3, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        values = torch.randn(matrix.nnz, dtype=torch.float64)
        changed = matrix.with_values(values)
        dense = torch.zeros(20, 20, dtype=torch.float64)
        dense[changed.row_of_entry(), changed.col.long()] = values
        torch.testing.assert_close(to_dense(changed), dense)
        torch.testing.assert_close(to_dense(changed.transpose()), dense.t())
        assert torch.autograd.gradgradcheck(changed.matmul, x) and torch.autograd.gradcheck(
            lambda a, m=changed: m.sampled_product(a[:, None], a[:, None]), x
        )
        assert changed._order is matrix._order is not None


def test_a_matrix_of_one_step_is_freed_at_once():
    """It must not wait for the garbage collector, which may run hundreds of steps later."""
    kept = normalized_adjacency(random_edges(20, 60), 20)
    gc.disable()
    try:
        for make in (
            lambda: normalized_adjacency(random_edges(20, 60), 20),
            lambda: kept.with_values(torch.ones(kept.nnz)),
        ):
            matrix, x = make(), torch.randn(20, 3, requires_grad=True)
            matrix.matmul(x).sum().backward()
            alive = weakref.ref(matrix.values), weakref.ref(matrix.transpose().values)
            del matrix
            assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()


def test_copies_pickles_and_moves():
    matrix = normalized_adjacency(random_edges(6, 9), 6)
    x = torch.randn(6, 3, requires_grad=True)
    matrix.matmul(x).sum().backward()
    for twin in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert torch.equal(twin.matmul(x), matrix.matmul(x))
    assert matrix.to("cpu") is matrix
    moved = matrix.to("meta")
    assert moved.device.type == "meta" and moved.shape == matrix.shape and type(moved) is type(matrix)
    assert matrix.device.type == "cpu" and matrix.transpose().device.type == "cpu"


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.tensor([[0, 1], [1, 5]]), r"edge_index\[1\] must be in 0\.\.4 .* got 5 at position 1"),
        (torch.tensor([[-1], [0]]), r"edge_index\[0\] must be in 0\.\.4 .* got -1 at position 0"),
        (torch.zeros(7, 2, dtype=torch.int64), r"\[2, num_edges\], got \[7, 2\]; transpose it"),
        (torch.zeros(2, 3), r"must be int64 or int32, got torch\.float32"),
    ],
)
def test_wrong_edges_are_refused(edge_index, message):
    with pytest.raises(ValueError, match=message):
        normalized_adjacency(edge_index, 5)


def test_wrong_operands_are_refused():
    matrix = normalized_adjacency(random_edges(5, 5), 5)
    with pytest.raises(ValueError, match=r"multiplied by x of shape \[5, F\], got \[4, 2\]"):
        matrix.matmul(torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"two dimensions, got shape \[3\]"):
        SparseMatrix.from_tensor(torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_orders_do_not_depend_on_the_default_type(dtype):
    """Lightning's "bf16-true" changes the default dtype during a step."""
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    expected = adjacency_orders(edge_index, 6, 3)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = adjacency_orders(edge_index, 6, 3)
    finally:
        torch.set_default_dtype(before)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.to_dense(), other.to_dense())


def test_integer_operands_are_refused():
    matrix = normalized_adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
    with pytest.raises(ValueError, match=r"floating-point numbers, got x of torch.int64: give x.float\(\)"):
        matrix.matmul(torch.eye(3, dtype=torch.int64))


def test_an_exported_program_in_half_precision_counts_beyond_256_neighbours():
    leaves = torch.arange(1, 1001)
    edge_index = torch.stack([torch.cat([leaves, leaves * 0]), torch.cat([leaves * 0, leaves])])
    plain = PlainAdjacency(edge_index, 1001, torch.bfloat16)
    exact = normalized_adjacency(edge_index, 1001)
    torch.testing.assert_close(plain.row_sums().float(), exact.row_sums())
    x = torch.ones(1001, 2, dtype=torch.bfloat16)
    assert plain.matmul(x).dtype == torch.bfloat16
