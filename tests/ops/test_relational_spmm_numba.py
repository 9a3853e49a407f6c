"""The CPU backend: threads, determinism, bounded memory, lazy import."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
import torch
from helpers.spmm_cases import FAST_BACKENDS, random_graph, reference, run
from helpers.tolerances import assert_close

from graphzoo.ops import RelationalGraph, relational_spmm, row_kernels
from graphzoo.ops.relational_spmm import numba as backend


@pytest.fixture
def many_small_pieces(monkeypatch):
    """Cut tiny problems into pieces and blocks, which is otherwise done for large ones only."""
    monkeypatch.setattr(backend, "MIN_WORK_PER_PIECE", 1)
    monkeypatch.setattr(backend, "MAX_BLOCK", 128)


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", [1, 32, 63, 128, 129, 700])
@pytest.mark.parametrize("kind", ["skewed", "even", "one_segment", "no_edges"])
def test_the_number_of_threads_changes_no_bit(kind, size, many_small_pieces, torch_threads):
    graph = {
        "skewed": lambda: random_graph(20, 300, 4),
        "even": lambda: RelationalGraph(torch.arange(40).repeat(2, 1), torch.arange(40) % 20, 40, 20),
        "one_segment": lambda: RelationalGraph(
            torch.zeros(2, 77, dtype=torch.int64), torch.zeros(77, dtype=torch.int64), 1, 1
        ),
        "no_edges": lambda: RelationalGraph(
            torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 9, 2
        ),
    }[kind]()
    x, relation = torch.randn(graph.num_nodes, size), torch.randn(graph.num_relations, size)
    grad, mask = torch.randn_like(x), torch.rand(graph.num_edges) < 0.9
    results = []
    for num_threads in (1, 2, 3, 7):
        torch_threads(num_threads)
        results.append(run("numba", x, relation, graph, mask, grad))
    for i, wanted in enumerate(reference(x, relation, graph, mask, grad)):
        assert_close(results[0][i], wanted, backward=True)
        for result in results[1:]:
            assert torch.equal(result[i], results[0][i])


@pytest.mark.parametrize(("kernel", "size"), [("_sum_products", 300), ("sum_narrow_products", 32)])
def test_pieces_cover_everything_once(kernel, size, many_small_pieces, torch_threads, monkeypatch):
    graph = random_graph(20, 300, 4)
    calls = []
    original = getattr(backend, kernel)

    def record(*arguments):
        calls.append(arguments[-2:])
        original(*arguments)

    monkeypatch.setattr(backend, kernel, record)
    torch_threads(3)
    relational_spmm(torch.randn(20, size), torch.randn(4, size), graph, backend="numba")
    calls.sort()
    assert len(calls) == 3 * backend.PIECES_PER_THREAD
    num_blocks = -(-size // backend.MAX_BLOCK)
    assert calls[0][0] == 0 and calls[-1][1] == (20 if size == 32 else num_blocks * (20 + 300))
    assert all(a[1] == b[0] for a, b in zip(calls, calls[1:], strict=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [16, 32, 48, 128])
def test_the_loop_for_narrow_rows_gives_the_bits_of_the_wide_one(size, dtype, monkeypatch):
    # segments of 0 to 9 edges, so that every remainder of four occurs
    target = torch.arange(10).repeat_interleave(torch.arange(10))
    edge_index = torch.stack([torch.randint(0, 10, target.shape), target])
    graph = RelationalGraph(edge_index, torch.randint(0, 3, target.shape), 10, 3)
    x, relation = torch.randn(10, size, dtype=dtype), torch.randn(3, size, dtype=dtype)
    x[4, 1], x[5, 2], relation[0, 3] = float("nan"), float("inf"), 0
    mask, grad = torch.rand(graph.num_edges) < 0.8, torch.randn_like(x)
    for kept in (None, mask):
        narrow = run("numba", x, relation, graph, kept, grad)
        with monkeypatch.context() as patch:
            patch.setattr(backend, "vectors_of", lambda size: ())
            wide = run("numba", x, relation, graph, kept, grad)
        for one, other in zip(narrow, wide, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("size", "vectors"), [(0, 0), (8, 0), (16, 1), (40, 0), (64, 4), (128, 8), (144, 0)])
def test_rows_of_up_to_eight_vectors_are_narrow(size, vectors, monkeypatch):
    assert len(backend.vectors_of(size)) == vectors
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)  # the effect of NUMBA_DISABLE_JIT
    assert not backend.vectors_of(size)


def test_an_error_in_a_helper_thread_is_raised(many_small_pieces, torch_threads, monkeypatch):
    graph = random_graph(20, 300, 4)

    def fail(*_):
        raise FloatingPointError("in the kernel")

    monkeypatch.setattr(backend, "_sum_products", fail)
    torch_threads(2)
    with pytest.raises(FloatingPointError, match="in the kernel"):
        relational_spmm(torch.randn(20, 300), torch.randn(4, 300), graph, backend="numba")


def test_calls_from_several_threads(many_small_pieces, torch_threads):
    torch_threads(2)
    graph = random_graph(20, 300, 4)
    xs, relation = [torch.randn(20, 200) for _ in range(32)], torch.randn(4, 200)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: relational_spmm(x, relation, graph, backend="numba"), xs))
    for x, result in zip(xs, results, strict=True):
        assert torch.equal(result, relational_spmm(x, relation, graph, backend="numba"))


def _run_in_child(x, relation, graph, queue):
    torch.set_num_threads(2)
    queue.put(relational_spmm(x, relation, graph, backend="numba").tolist())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_threads(many_small_pieces, torch_threads):
    torch_threads(2)
    graph = random_graph(20, 300, 4)
    x, relation = torch.randn(20, 70), torch.randn(4, 70)
    wanted = relational_spmm(x, relation, graph, backend="numba").tolist()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_run_in_child, args=(x, relation, graph, queue), daemon=True)
    child.start()
    assert queue.get(timeout=60) == wanted
    child.join(60)
    assert child.exitcode == 0


def test_kernels_compile_without_a_cache_folder(monkeypatch):
    def njit_without_cache(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(row_kernels, "njit", njit_without_cache)
    assert backend._jit(lambda x: x + 1)(1) == 2


MEMORY = """
import sys, torch
from graphzoo.ops import RelationalGraph, relational_spmm, row_kernels

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024

def run(num_edges):
    graph = RelationalGraph(torch.randint(100, (2, num_edges)), torch.randint(5, (num_edges,)), 100, 5)
    x, relation = torch.randn(100, 512, requires_grad=True), torch.randn(5, 512, requires_grad=True)
    mask = torch.ones(num_edges, dtype=torch.bool)
    relational_spmm(x, relation, graph, edge_mask=mask, backend=sys.argv[1]).sum().backward()

run(10)
before = peak()
run(200_000)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "name", ["naive", *(b for b in FAST_BACKENDS if b == "numba" or b.values[0] != "triton")]
)
def test_peak_memory(name):
    """The messages [E, F] would take 390 MiB; only the reference may store them."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, name], capture_output=True, text=True, timeout=120, check=True
    )
    limits = {"naive": (390, float("inf")), "numba": (0, 60), "scatter": (0, 250)}
    low, high = limits[name]
    assert low <= int(done.stdout) <= high


def test_importing_ops_loads_no_backend():
    code = "import sys, graphzoo.ops; print(sorted({'numba', 'triton', 'torch_scatter'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
