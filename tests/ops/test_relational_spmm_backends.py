"""The optional backends: missing packages, blocks of messages, cut segments."""

import os
import subprocess

import pytest
import torch
from helpers.spmm_cases import backend_device, random_graph, reference, run
from helpers.tolerances import assert_close
from helpers.warm_python import python

from graphzoo.ops import relational_spmm


@pytest.mark.parametrize(
    ("backend", "package", "remedy"),
    [("scatter", "torch_scatter", "graphzoo[scatter]"), ("triton", "triton", "torch for CUDA")],
)
def test_a_missing_package_is_explained(backend, package, remedy):
    code = f"""
import sys
sys.modules[{package!r}] = None
import torch
from graphzoo.ops import RelationalGraph, relational_spmm
graph = RelationalGraph(torch.tensor([[0], [1]]), torch.tensor([0]), 2, 1)
try:
    relational_spmm(torch.ones(2, 3), torch.ones(1, 3), graph, backend={backend!r})
except ImportError as error:
    print(error)
"""
    done = subprocess.run([python(), "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert f"backend '{backend}' needs" in done.stdout and remedy in done.stdout


def test_triton_on_the_cpu_is_explained():
    pytest.importorskip("triton", reason="Triton is not installed")
    code = """
import torch
from graphzoo.ops import RelationalGraph, relational_spmm
graph = RelationalGraph(torch.tensor([[0], [1]]), torch.tensor([0]), 2, 1)
try:
    relational_spmm(torch.ones(2, 3), torch.ones(1, 3), graph, backend="triton")
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [python(), "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
    )
    assert "backend 'triton' runs on CUDA, but x is on cpu; use 'numba' there" in done.stdout


@pytest.mark.parametrize("max_messages", [1, 100, 450, 10_000])
def test_scatter_in_blocks_of_features(max_messages, monkeypatch):
    pytest.importorskip("torch_scatter", reason="torch-scatter is not installed")
    from graphzoo.ops.relational_spmm import scatter

    monkeypatch.setattr(scatter, "MAX_MESSAGES", max_messages)
    graph, mask = random_graph(12, 100, 3), torch.rand(100) < 0.8
    x, relation, grad = torch.randn(12, 13), torch.randn(3, 13), torch.randn(12, 13)
    for got, wanted in zip(
        run("scatter", x, relation, graph, mask, grad), reference(x, relation, graph, mask, grad), strict=True
    ):
        assert_close(got, wanted, backward=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("piece", [1, 10, 33, 1000])
def test_triton_cuts_long_segments(piece, dtype, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    from graphzoo.ops.relational_spmm import pieces

    monkeypatch.setattr(pieces, "PIECE", piece)
    graph, mask = random_graph(12, 100, 3), torch.rand(100) < 0.8
    x, relation = torch.randn(12, 5).to(dtype), torch.randn(3, 5).to(dtype)
    grad = torch.randn(12, 5).to(dtype)
    for got, wanted in zip(
        run("triton", x, relation, graph, mask, grad), reference(x, relation, graph, mask, grad), strict=True
    ):
        assert_close(got, wanted, backward=True)


def test_triton_result_is_the_same_every_time():
    pytest.importorskip("triton", reason="Triton is not installed")
    graph = random_graph(12, 600, 2)
    x, relation, grad = torch.randn(12, 40), torch.randn(2, 40), torch.randn(12, 40)
    runs = [run("triton", x, relation, graph, None, grad) for _ in range(3)]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_triton_detects_a_changed_mask():
    """Kept edges are gathered once per mask. A mask that is changed in place counts as another one."""
    pytest.importorskip("triton", reason="Triton is not installed")
    graph, mask = random_graph(12, 100, 3), torch.rand(100) < 0.5
    x, relation, grad = torch.randn(12, 8), torch.randn(3, 8), torch.randn(12, 8)
    for change in (lambda: None, lambda: mask.logical_not_(), lambda: mask.zero_(), lambda: mask.fill_(True)):
        change()
        found = run("triton", x, relation, graph, mask, grad)
        for got, wanted in zip(found, reference(x, relation, graph, mask, grad), strict=True):
            assert_close(got, wanted, backward=True)


def test_triton_gathers_kept_edges_once_per_step_and_ordering(monkeypatch):
    """There are three orderings, by target, source and relation, for any number of layers."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from graphzoo.ops.relational_spmm import triton

    gathered, gather = [], triton._gather
    monkeypatch.setattr(triton, "_gather", lambda *given: gathered.append(given[1]) or gather(*given))
    device = backend_device("triton")
    graph = random_graph(5, 12, 2).to(device)
    x, relation = (torch.randn(n, 4, device=device, requires_grad=True) for n in (5, 2))
    for step in range(2):
        mask, z = torch.rand(12, device=device) < 0.8, x
        for _ in range(3):
            z = relational_spmm(z, relation, graph, edge_mask=mask, backend="triton")
        assert len(gathered) == 3 * step + 1
        z.sum().backward()
        assert len(gathered) == 3 * step + 3 and all(used is mask for used in gathered[-3:])


@pytest.mark.parametrize("num_edges", [20, 2000])
@pytest.mark.parametrize("channels", [40, 64, 130])
@pytest.mark.parametrize("half_of_l2", [1, 1 << 30])
def test_triton_in_blocks_of_any_width(num_edges, channels, half_of_l2, monkeypatch):
    """Short and long segments, full and partial blocks, a cache for all rows or none, 64-bit offsets."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from graphzoo.ops.relational_spmm import triton

    monkeypatch.setattr(triton, "_half_of_l2", lambda device: half_of_l2)
    monkeypatch.setattr(triton, "WIDE_ELEMENTS", half_of_l2)
    device = backend_device("triton")
    graph = random_graph(12, num_edges, 3).to(device)
    x, relation = torch.randn(12, channels, device=device), torch.randn(3, channels, device=device)
    expected = relational_spmm(x, relation, graph, backend="naive")
    found = relational_spmm(x, relation, graph, backend="triton")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 64])
def test_triton_reads_pairs_of_bfloat16_only_if_aligned(channels, monkeypatch):
    """Aligned numbers are read in pairs, as 32 bits, others one by one. The results have the same bits."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from graphzoo.ops.relational_spmm import triton

    paired, kernel = [], triton._sum_products_kernel

    class Recorder:
        def __getitem__(self, grid):
            return lambda *given, **named: paired.append(named["PAIRS"]) or kernel[grid](*given, **named)

    monkeypatch.setattr(triton, "_sum_products_kernel", Recorder())
    device = backend_device("triton")
    graph = random_graph(12, 200, 3).to(device)
    relation = torch.randn(3, channels, device=device).bfloat16()
    x = torch.randn(1 + 12 * channels, device=device).bfloat16()[1:].view(12, channels)
    shifted = relational_spmm(x, relation, graph, backend="triton")
    aligned = relational_spmm(x.clone(), relation, graph, backend="triton")
    assert paired == [False, channels > 1] and torch.equal(aligned, shifted)
    expected = relational_spmm(x.float(), relation.float(), graph, backend="naive")
    torch.testing.assert_close(aligned.float(), expected, rtol=1e-2, atol=1e-2)
