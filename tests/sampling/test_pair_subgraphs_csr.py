"""Graphs in CSR form, in memory and in mapped files, are checked and used without a copy."""

import pickle
import re

import numpy as np
import pytest
import torch
from helpers.pair_graphs import all_pairs, assert_equal, random_graph

from graphzoo.datasets import DataError
from graphzoo.errors import UsageError
from graphzoo.sampling import PairGraph, PairSubgraphSampler

pytestmark = pytest.mark.usefixtures("compiled_sampler")

SETTINGS = {"depth": 2, "num_neighbors": 3}
PAIRS = all_pairs(40)[::13]


def make_sampler(*, directed=False):
    return PairSubgraphSampler(random_graph(40, 120), 40, **SETTINGS, directed=directed)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "graph.bin"
    make_sampler().save(path)
    return path


@pytest.mark.parametrize("directed", [False, True])
def test_the_graph_of_an_edge_list(directed):
    edge_index = random_graph(40, 400)
    graph = PairGraph.from_edge_index(edge_index, 40, directed=directed)
    graph.check()
    dense = np.zeros((40, 40), bool)
    dense[edge_index[0], edge_index[1]] = True
    np.fill_diagonal(dense, False)
    found, forward = np.zeros((2, 40, 40), bool)
    for i in range(40):
        row = slice(graph.rowptr[i], graph.rowptr[i + 1])
        found[i, graph.col[row]] = True
        if directed:
            forward[i, graph.col[row]] = graph.forward[row]
    assert np.array_equal(found, dense | dense.T) and graph.is_directed == directed
    assert not directed or np.array_equal(forward, dense)


def test_every_graph_has_the_same_dtypes():
    """With other dtypes, the kernels would be compiled again."""
    graphs = [PairGraph.from_edge_index(random_graph(40, edges), 40) for edges in (0, 1, 500)]
    assert all((g.rowptr.dtype, g.col.dtype) == (np.int64, np.int32) for g in graphs)


def test_too_many_nodes_are_refused():
    with pytest.raises(UsageError, match="has 2,147,483,648 nodes; at most 2,147,483,647 are supported"):
        PairGraph.from_edge_index(random_graph(4, 3), 2**31)


def test_an_edge_that_is_repeated_256_times():
    """Repeats are counted in a byte, which overflows at 256."""
    edge_index = torch.tensor([[0] * 256, [1] * 256])
    graph = PairGraph.from_edge_index(edge_index, 3, directed=True)
    assert graph.col.tolist() == [1, 0] and graph.forward.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_given_arrays_are_used_as_they_are(dtype):
    sampler = make_sampler()
    rowptr, col = sampler.graph.rowptr.astype(dtype), sampler.graph.col.astype(dtype)
    given = PairSubgraphSampler.from_csr(rowptr, col, **SETTINGS)
    assert np.shares_memory(given.graph.rowptr, rowptr) and np.shares_memory(given.graph.col, col)
    assert_equal(given(PAIRS, seed=1), sampler(PAIRS, seed=1))
    tensors = PairSubgraphSampler.from_csr(torch.from_numpy(rowptr), torch.from_numpy(col), **SETTINGS)
    assert_equal(tensors(PAIRS, seed=1), sampler(PAIRS, seed=1))


@pytest.mark.parametrize("directed", [False, True])
def test_a_file_gives_the_same_as_memory(tmp_path, directed):
    sampler = make_sampler(directed=directed)
    sampler.save(tmp_path / "new" / "graph.bin")
    mapped = PairSubgraphSampler.from_file(tmp_path / "new" / "graph.bin", **SETTINGS)
    assert isinstance(mapped.graph.col, np.memmap) and isinstance(mapped.graph.rowptr, np.memmap)
    assert mapped.graph.is_directed == directed and not mapped.graph.col.flags.writeable
    assert_equal(mapped(PAIRS, seed=1), sampler(PAIRS, seed=1))
    # a mapped graph can be saved, too
    mapped.save(tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "new" / "graph.bin").read_bytes()


def test_a_mapped_graph_is_pickled_as_the_name_of_its_file(tmp_path):
    graph = PairGraph.from_edge_index(random_graph(40, 600), 40)
    graph.save(tmp_path / "graph.bin")
    both = tmp_path / "both.bin"
    np.concatenate([graph.rowptr, graph.col]).astype(np.int64).tofile(both)
    part = np.memmap(both, np.int64, "r")
    samplers = [
        PairSubgraphSampler.from_file(tmp_path / "graph.bin", **SETTINGS),
        PairSubgraphSampler.from_csr(part[:41], part[41:], **SETTINGS, max_nodes=9),
    ]
    for sampler in samplers:
        sent = pickle.dumps(sampler)
        assert len(sent) < 2000 < graph.col.nbytes + graph.rowptr.nbytes
        received = pickle.loads(sent)
        assert isinstance(received.graph.col, np.memmap) and received.max_nodes == sampler.max_nodes
        assert_equal(received(PAIRS, seed=1), sampler(PAIRS, seed=1))


def test_a_mapped_file_that_was_removed_is_named(saved):
    sent = pickle.dumps(PairSubgraphSampler.from_file(saved, **SETTINGS))
    saved.unlink()
    with pytest.raises(DataError, match=f"{re.escape(str(saved))}: removed while it was in use; start again"):
        pickle.loads(sent)


def test_a_graph_in_memory_is_pickled_whole_and_shared_once():
    sampler = make_sampler(directed=True)
    read_only = sampler.graph.rowptr.copy()
    read_only.flags.writeable = False
    sampler = PairSubgraphSampler.from_csr(
        read_only, sampler.graph.col, sampler.graph.forward, **SETTINGS, max_nodes=7
    )
    received = pickle.loads(pickle.dumps(sampler))
    assert_equal(received(PAIRS, seed=1), sampler(PAIRS, seed=1))
    assert received.graph.is_directed
    first, second = sampler.graph.__getstate__(), sampler.graph.__getstate__()
    assert isinstance(first["col"], torch.Tensor) and first["col"] is second["col"]
    # a copy, because a tensor of read-only memory could be written to
    assert not np.shares_memory(first["rowptr"].numpy(), read_only)


@pytest.mark.parametrize("size", [0, 7, 4095, 4096, 5000, -1])
def test_a_file_that_is_cut_off(saved, size):
    contents = saved.read_bytes()
    saved.write_bytes(contents[:size])
    message = "cut off: it has" if size < 0 or size >= 4095 else "not a file of the kind"
    with pytest.raises(DataError, match=f"{re.escape(str(saved))}: {message}") as error:
        PairSubgraphSampler.from_file(saved, **SETTINGS, check=False)
    assert "write it again with PairSubgraphSampler.save" in str(error.value)


def test_files_of_another_kind_are_refused(saved, tmp_path):
    contents = saved.read_bytes()
    saved.write_bytes(contents + b"x")
    with pytest.raises(DataError, match="too long"):
        PairSubgraphSampler.from_file(saved, **SETTINGS)
    saved.write_bytes(b"[1, 2]" + bytes(5000))
    with pytest.raises(DataError, match="not a file of the kind"):
        PairSubgraphSampler.from_file(saved, **SETTINGS)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        PairSubgraphSampler.from_file(tmp_path / "none.bin", **SETTINGS)


def test_a_damaged_file(saved):
    contents = bytearray(saved.read_bytes())
    contents[4096 + 300] ^= 1
    saved.write_bytes(contents)
    with pytest.raises(DataError, match="do not match their checksum"):
        PairSubgraphSampler.from_file(saved, **SETTINGS)


def test_a_failed_save_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        PairSubgraphSampler(random_graph(5, 9), 5, **SETTINGS).save(saved)
    assert saved.read_bytes() == before and list(saved.parent.iterdir()) == [saved]


# the path 0 - 1 - 2
ROWPTR, COL = [0, 1, 3, 4], [1, 0, 2, 1]


@pytest.mark.parametrize(
    ("rowptr", "col", "message"),
    [
        ([0, 1, 3, 5], COL, "rowptr must ascend from 0 to the length of col, 4; it has 0 .. 5"),
        ([1, 1, 3, 4], COL, "it has 1 .. 4"),
        ([], COL, "it has nothing"),
        ([0, 2, 1, 4], [1, 2, 0, 1], r"rowptr\[1\] .. rowptr\[2\] is not a range of col"),
        ([0, 9, 3, 4], COL, r"rowptr\[0\] .. rowptr\[1\] is not a range of col"),
        (ROWPTR, [1, 0, 3, 1], "row 1 has a neighbour that is not in 0..N-1"),
        (ROWPTR, [1, 0, -1, 1], "row 1 has a neighbour that is not in 0..N-1"),
        (ROWPTR, [1, 2, 0, 1], "row 1 are not ascending"),
        (ROWPTR, [1, 0, 0, 1], "row 1 are not ascending, or one is repeated"),
        (ROWPTR, [1, 1, 2, 1], "row 1 has a self-loop"),
        (ROWPTR, [1, 0, 2, 0], "row 1 has a neighbour whose own row does not have 1"),
        ([0, 1, 1, 1], [1], "row 0 has a neighbour whose own row does not have 0"),
    ],
)
def test_arrays_that_are_not_a_graph_are_refused(rowptr, col, message):
    with pytest.raises(UsageError, match=message):
        PairSubgraphSampler.from_csr(np.array(rowptr, np.int64), np.array(col, np.int64), **SETTINGS)


def test_arrays_of_wrong_dtype_or_shape_are_refused():
    good = np.array(ROWPTR), np.array(COL)
    for arrays, message in (
        ((good[0].astype(float), good[1]), "rowptr must be a contiguous array"),
        ((good[0], good[1][:, None]), r"col must be .* got int64 \[4, 1\]"),
        ((good[0], np.repeat(good[1], 2)[::2]), "col must be a contiguous array"),
        ((*good, np.ones(3, bool)), "forward has 3 entries and col 4"),
        ((*good, np.ones(4)), "forward must be"),
    ):
        with pytest.raises(UsageError, match=message):
            PairSubgraphSampler.from_csr(*arrays, **SETTINGS)
    assert PairSubgraphSampler.from_csr(*good, np.ones(4, bool), **SETTINGS).graph.is_directed
