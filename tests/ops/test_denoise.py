import importlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from helpers.memory import MemoryRecorder
from helpers.pretended_cuda import Waits
from helpers.warm_python import python
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.ops import cached_denoise, denoise_features, normalized_adjacency

denoise = importlib.import_module("graphzoo.ops.denoise")


def graph(num_nodes=30, num_edges=60, channels=7, dtype=torch.float64):
    """Features and directed edges, some repeated, some self-loops. The last three nodes are isolated."""
    edges = torch.randint(0, num_nodes - 3, (2, num_edges))
    edges = torch.cat([edges, edges[:, :9], torch.tensor([[1, 1, 2], [1, 1, 2]])], 1)
    return torch.randn(num_nodes, channels, dtype=dtype), edges


def dense_adjacency(edge_index, num_nodes, self_loops=True):
    matrix = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    for source, target in edge_index.t().tolist():
        matrix[source, target] = matrix[target, source] = 1
    for node in range(num_nodes):
        matrix[node, node] = float(self_loops)
    degree = matrix.sum(1)
    scale = torch.where(degree > 0, degree.clamp(min=1) ** -0.5, 0)
    return scale[:, None] * matrix * scale


def explicit(x, edge_index, gamma, num_iterations, self_loops=True):
    """Eq. 29 with the dense matrix."""
    matrix, smooth = dense_adjacency(edge_index, x.shape[0], self_loops), x
    for _ in range(num_iterations):
        smooth = (1 - gamma) * matrix @ smooth + gamma * x
    return smooth


@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("num_iterations", [0, 1, 10])
@pytest.mark.parametrize("self_loops", [True, False])
def test_every_step_equals_the_dense_loop(gamma, num_iterations, self_loops):
    x, edges = graph()
    settings = {"gamma": gamma, "num_iterations": num_iterations, "self_loops": self_loops}
    torch.testing.assert_close(denoise_features(x, edges, **settings), explicit(x, edges, **settings))


@settings(max_examples=40)
@given(st.data(), st.integers(1, 12), st.floats(0, 1), st.integers(0, 4), st.booleans())
def test_any_graph_equals_the_dense_loop(data, num_nodes, gamma, num_iterations, self_loops):
    """Down to one node and no edges; most graphs have isolated nodes, repeated edges or self-loops."""
    nodes = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(nodes, nodes), max_size=15))
    edges = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    x = torch.randn(num_nodes, data.draw(st.integers(1, 4)), dtype=torch.float64)
    options = {"gamma": gamma, "num_iterations": num_iterations, "self_loops": self_loops}
    torch.testing.assert_close(denoise_features(x, edges, **options), explicit(x, edges, **options))


def test_many_steps_reach_the_exact_solution():
    """Eq. 6, solved by scipy."""
    x, edges = graph()
    gamma = 0.1
    matrix = scipy.sparse.csc_matrix(torch.eye(30) - (1 - gamma) * dense_adjacency(edges, 30))
    exact = torch.from_numpy(gamma * scipy.sparse.linalg.spsolve(matrix, x.numpy()))
    distances = []
    for num_iterations in (0, 5, 10, 20, 400):
        found = denoise_features(x, edges, gamma=gamma, num_iterations=num_iterations)
        distances.append(float((found - exact).norm()))
        assert distances[-1] <= (1 - gamma) ** num_iterations * distances[0] + 1e-12
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-12


def test_it_minimises_the_energy_of_equation_5():
    x, edges = graph()
    gamma = 0.2
    matrix = dense_adjacency(edges, 30)
    clean = denoise_features(x, edges, gamma=gamma, num_iterations=300).requires_grad_()
    xi = 1 / gamma - 1
    smoothness = (clean * (clean - matrix @ clean)).sum()  # 1/2 sum over edges of the scaled differences
    energy = 0.5 * (clean - x).square().sum() + xi / 2 * smoothness
    (gradient,) = torch.autograd.grad(energy, clean)
    assert gradient.abs().max() < 1e-12


def test_isolated_nodes_keep_their_features():
    x, edges = graph()
    torch.testing.assert_close(denoise_features(x, edges)[-3:], x[-3:])
    nothing = torch.empty(2, 0, dtype=torch.int64)
    torch.testing.assert_close(denoise_features(x, nothing), x)
    assert denoise_features(x[:0], nothing).shape == (0, 7)
    torch.testing.assert_close(denoise_features(x, edges, gamma=0.3, self_loops=False)[-3:], 0.3 * x[-3:])


def test_direction_order_and_repetition_of_edges_do_not_matter():
    x, edges = graph()
    expected = denoise_features(x, edges)
    shuffled = edges[:, torch.randperm(edges.shape[1])].flip(0)
    torch.testing.assert_close(denoise_features(x, shuffled), expected)
    torch.testing.assert_close(denoise_features(x, torch.cat([edges, edges.flip(0)], 1)), expected)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_chunks_of_columns_change_nothing(columns, is_sparse, monkeypatch):
    x, edges = graph()
    x = x * (x > 0.3)
    expected = explicit(x, edges, 0.1, 10)
    features = x.to_sparse_csr() if is_sparse else x
    whole = denoise_features(features, edges)
    monkeypatch.setattr(denoise, "CHUNK_BYTES", columns * 30 * 8)
    monkeypatch.setattr(denoise, "CPU_MIN_COLUMNS", 1)
    monkeypatch.setattr(denoise, "CPU_CACHE_BYTES", 0)
    chunked = denoise_features(features, edges)
    torch.testing.assert_close(chunked, expected)
    torch.testing.assert_close(chunked, whole)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_matrix_in_place_of_the_edges_needs_no_synchronisation(is_sparse):
    x, edges = graph(dtype=torch.float32)
    x = (x * (x > 0)).to_sparse_csr() if is_sparse else x
    adjacency = normalized_adjacency(torch.cat([edges, edges.flip(0)], 1), 30)
    with Waits("cpu") as waits:
        found = denoise_features(x, adjacency)
    assert torch.equal(found, denoise_features(x, edges)) and not waits.found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_the_work_is_done_in_float32(dtype):
    x, edges = graph(dtype=torch.float32)
    x = x.to(dtype)
    out = denoise_features(x, edges)
    assert out.dtype == torch.float32 and out.layout == torch.strided
    torch.testing.assert_close(out.double(), explicit(x.double(), edges, 0.1, 10), atol=1e-6, rtol=1e-5)


def test_on_any_device(device):
    x, edges = graph(dtype=torch.float32)
    out = denoise_features(x.to(device), edges.to(device))
    assert out.device.type == device.type
    torch.testing.assert_close(out.cpu().double(), explicit(x.double(), edges, 0.1, 10), atol=1e-6, rtol=1e-5)


def test_features_stay_as_they_are_and_get_no_gradient():
    x, edges = graph()
    before = x.clone()
    out = denoise_features(x.requires_grad_(), edges)
    assert not out.requires_grad and torch.equal(x, before)


def test_wide_sparse_features_take_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(denoise, "CHUNK_BYTES", 1 << 14)
    x = (torch.rand(100, 5_000) < 0.01).float()
    edges = torch.randint(0, 100, (2, 300))
    expected = denoise_features(x, edges)
    sparse = x.to_sparse_csr()
    memory = torch.from_file(str(tmp_path / "out"), shared=True, size=x.numel()).view(x.shape)
    with MemoryRecorder() as recorded:
        denoise_features(sparse, edges, out=memory)
    torch.testing.assert_close(memory, expected)
    # the largest tensors are the positions of the entries of x
    assert 0 < recorded.largest < x.numel() / 20
    assert recorded.peak_bytes < x.numel()


def files(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".bin")


@pytest.fixture
def calls(monkeypatch):
    """The calls that were computed, not read from a file."""
    counted = []

    def count(*args, **kwargs):
        counted.append(kwargs)
        return denoise_features(*args, **kwargs)

    monkeypatch.setattr(denoise, "denoise_features", count)
    return counted


@pytest.fixture(params=[1 << 30, 0], ids=["read", "mapped"])
def settings(request, tmp_path):
    return {"cache": tmp_path / "made" / "here", "memory_map_bytes": request.param}


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr, torch.sparse_coo])
def test_the_second_call_reads_the_file(layout, settings, calls):
    x, edges = graph(dtype=torch.float32)
    if layout is not torch.strided:
        x = (x * (x > 0)).to_sparse(layout=layout)
    first = cached_denoise(x, edges, **settings)
    second = cached_denoise(x, edges, **settings)
    assert len(calls) == 1
    assert torch.equal(first, denoise_features(x, edges)) and torch.equal(first, second)
    assert [path.name for path in settings["cache"].iterdir() if path.suffix == ".part"] == []


def test_a_mapped_result_can_be_changed_without_changing_the_file(tmp_path, calls):
    x, edges = graph()
    for _ in range(3):
        out = cached_denoise(x, edges, cache=tmp_path, memory_map_bytes=0)
        torch.testing.assert_close(out, explicit(x, edges, 0.1, 10))
        out.zero_()
    assert len(calls) == 1


def test_the_key_depends_on_the_content_of_all_arguments(tmp_path, calls):
    x, edges = graph()
    variants = [
        (x, edges, {}),
        (x + 1e-9, edges, {}),
        (x.float(), edges, {}),
        (x.view(-1, 14), edges % 15, {}),
        (x, edges[:, :-9], {}),
        (x, edges, {"gamma": 0.2}),
        (x, edges, {"num_iterations": 9}),
        (x, edges, {"self_loops": False}),
    ]
    for features, index, other in variants:
        out = cached_denoise(features, index, cache=tmp_path, **other)
        torch.testing.assert_close(out, denoise_features(features, index, **other))
    assert len(calls) == len(files(tmp_path)) == len(variants)
    for features, index, other in variants:
        cached_denoise(features.clone(), index.clone(), cache=str(tmp_path), **other)
    assert len(calls) == len(variants)


def test_equal_bytes_of_another_shape_or_type_have_another_key(tmp_path, calls):
    x, edges = torch.zeros(30, 8, dtype=torch.float32), graph()[1] % 15
    variants = [x, x.view(15, 16), x.view(torch.float64), x.view(torch.int32)]
    for features in variants:
        out = cached_denoise(features, edges, cache=tmp_path)
        assert (out.shape, out.dtype) == (features.shape, denoise._result_dtype(features))
    assert len(calls) == len(files(tmp_path)) == len(variants)


def test_a_graph_without_edges_has_a_key(tmp_path, calls):
    x, edges = graph()[0], torch.from_numpy(np.stack([np.empty(0, dtype=np.int64)] * 2))  # its strides are 0
    for _ in range(2):
        assert torch.equal(cached_denoise(x, edges, cache=tmp_path), denoise_features(x, edges))
    assert len(calls) == 1


def test_another_format_version_makes_another_file(tmp_path, monkeypatch, calls):
    x, edges = graph()
    cached_denoise(x, edges, cache=tmp_path)
    monkeypatch.setattr(denoise, "FORMAT_VERSION", denoise.FORMAT_VERSION + 1)
    cached_denoise(x, edges, cache=tmp_path)
    assert len(calls) == 2


def flip_a_number(data):
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def claim_another_key(data):
    header = json.loads(data[:4096].rstrip(b"\0"))
    header["key"] = "0" * 64
    return json.dumps(header).encode().ljust(4096, b"\0") + data[4096:]


def claim_another_shape(data):
    header = json.loads(data[:4096].rstrip(b"\0"))
    header["shape"] = header["shape"][::-1]
    return json.dumps(header).encode().ljust(4096, b"\0") + data[4096:]


DAMAGES = {
    "a flipped bit": flip_a_number,
    "half of it": lambda data: data[: len(data) // 2],
    "the header alone": lambda data: data[:4096],
    "nothing": lambda data: b"",
    "too much": lambda data: data + b"\0" * 8,
    "no header": lambda data: b"\0" * 4096 + data[4096:],
    "something else": lambda data: b"[1, 2]".ljust(len(data), b"\0"),
    "not even text": lambda data: b"\xff" * len(data),
    "another key": claim_another_key,
    "another shape": claim_another_shape,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_replaced(damage, settings, calls, caplog):
    x, edges = graph()
    expected = cached_denoise(x, edges, **settings).clone()
    (path,) = files(settings["cache"])
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert torch.equal(cached_denoise(x, edges, **settings), expected)
    assert len(calls) == 2 and "computed again" in caplog.text and path.name in caplog.text
    assert path.read_bytes() == whole
    assert torch.equal(cached_denoise(x, edges, **settings), expected)
    assert len(calls) == 2


def test_a_failed_computation_leaves_no_files(settings, monkeypatch):
    x, edges = graph()

    def interrupted(*args, out=None, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(denoise, "denoise_features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached_denoise(x, edges, **settings)
    assert [path for path in settings["cache"].iterdir() if path.suffix != ".lock"] == []


def test_an_unwritable_folder_gives_only_a_warning(tmp_path, settings, caplog):
    x, edges = graph()
    (tmp_path / "file").write_text("not a folder")
    settings["cache"] = tmp_path / "file" / "below"
    torch.testing.assert_close(cached_denoise(x, edges, **settings), explicit(x, edges, 0.1, 10))
    assert "cannot be kept" in caplog.text


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve space")
def test_a_full_disk_gives_only_a_warning(settings, monkeypatch, caplog):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    x, edges = graph()
    torch.testing.assert_close(cached_denoise(x, edges, **settings), explicit(x, edges, 0.1, 10))
    assert "No space left" in caplog.text and files(settings["cache"]) == []


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, edges = graph()
    torch.testing.assert_close(cached_denoise(x, edges), explicit(x, edges, 0.1, 10))
    assert list(tmp_path.iterdir()) == []


PROCESS = """
import sys, time, importlib, pathlib, torch
denoise = importlib.import_module("graphzoo.ops.denoise")
folder, name, bound = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
whole = denoise.denoise_features
def slowly(*args, **kwargs):
    (folder / f"computed-{name}").touch()
    time.sleep(1.0)
    return whole(*args, **kwargs)
denoise.denoise_features = slowly
x, edges = torch.load(folder / "graph.pt")
(folder / f"ready-{name}").touch()
until = time.monotonic() + 60
while len(list(folder.glob("ready-*"))) < 2 and time.monotonic() < until:
    time.sleep(0.01)
out = denoise.cached_denoise(x, edges, cache=folder / "cache", memory_map_bytes=bound)
torch.save(out.clone(), folder / f"result-{name}.pt")
"""


@pytest.mark.parametrize("memory_map_bytes", [1 << 30, 0])
def test_two_processes_compute_a_result_once(tmp_path, memory_map_bytes):
    x, edges = graph()
    torch.save((x, edges), tmp_path / "graph.pt")
    root = Path(__file__).resolve().parents[2]
    command = [python(), "-c", PROCESS, str(tmp_path)]
    running = [
        subprocess.Popen(
            [*command, name, str(memory_map_bytes)], cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for name in ("a", "b")
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert len(list(tmp_path.glob("computed-*"))) == 1
    for name in ("a", "b"):
        torch.testing.assert_close(torch.load(tmp_path / f"result-{name}.pt"), explicit(x, edges, 0.1, 10))


@pytest.mark.parametrize("function", [denoise_features, cached_denoise])
def test_wrong_input_is_refused(function):
    x, edges = graph()
    for gamma in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"gamma must be at least 0 and at most 1, got {gamma}"):
            function(x, edges, gamma=gamma)
    with pytest.raises(ValueError, match="num_iterations must be at least 0, got -1"):
        function(x, edges, num_iterations=-1)
    with pytest.raises(ValueError, match=r"x must be features \[N, F\], got shape \[30\]"):
        function(x[:, 0], edges)
    with pytest.raises(ValueError, match="edge_index"):
        function(x, edges + 10)


def test_a_result_of_another_shape_is_refused():
    x, edges = graph()
    with pytest.raises(
        ValueError, match=r"out must be \[30, 7\] of torch.float64, got \[30, 7\] of torch.float32"
    ):
        denoise_features(x, edges, out=torch.empty(30, 7))
