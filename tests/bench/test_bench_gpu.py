"""The GPU benchmark, as far as it can be tested without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import bench_gpu
from benchmarks.common import read_rows

FIGURES = {
    "spmm": bench_gpu.spmm_figures,
    "knowformer": bench_gpu.knowformer_figures,
    "nodes": bench_gpu.node_figures,
    "pencil": bench_gpu.pencil_figures,
}


def test_every_part_has_figures_with_distinct_names():
    assert list(FIGURES) == list(bench_gpu.PARTS)
    for figures in FIGURES.values():
        names = [(x, name) for x, name, _ in figures()]
        assert len(names) == len(set(names)) > 5


def test_plain_operations_are_torchs_own():
    code = (
        "import torch; from benchmarks.bench_training_step import use_plain_operations as use; "
        "from graphzoo.ops import eager; rows = torch.ones(2, 2, 32); "
        "print(eager.row_backend(32, rows)); use(); print(eager.row_backend(32, rows), eager._has_triton())"
    )
    root = Path(bench_gpu.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split() == ["numba", "naive", "False"]


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """Pretend a GPU on which every step takes 1 ms; the second figure of each part runs out of memory."""

    def figures():
        yield "small", "ours", lambda: ([("ours", "forward", lambda: None)], "N=3", 1.0)
        yield "large", "ours", lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("out of memory"))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(bench_gpu, "measure", lambda call, share, seconds: ([1.0, 0.9, 1.1], 2.0))
    monkeypatch.setattr(bench_gpu, "RESULTS", tmp_path)
    for name in ("spmm_figures", "node_figures"):
        monkeypatch.setattr(bench_gpu, name, figures)
    before = torch.get_float32_matmul_precision()
    yield tmp_path / "gpu.csv"
    torch.set_float32_matmul_precision(before)


def test_a_part_measured_again_keeps_the_others(pretended, monkeypatch, capsys):
    for part in ("spmm", "nodes", "spmm"):
        monkeypatch.setattr(sys, "argv", ["bench_gpu", "--parts", part])
        assert bench_gpu.main() == 0
    rows = read_rows(pretended)
    assert [(row.name, row.x, row.metric, row.p50) for row in rows] == [
        ("nodes", "small", "time", 1.0),
        ("nodes", "small", "step_memory", 2.0),
        ("spmm", "small", "time", 1.0),
        ("spmm", "small", "step_memory", 2.0),
    ]
    assert capsys.readouterr().out.count("OutOfMemoryError: out of memory") == 3
