"""Pickles: data of all protocol versions are read, anything else is refused before it is called."""

import collections
import io
import os
import pickle

import numpy as np
import pytest
import scipy.sparse
import torch

from graphzoo.datasets import DataError
from graphzoo.datasets.node.unpickle import SparseRows, read_pickle, read_pickled_array


def store(tmp_path, value, protocol):
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_lists_and_dictionaries(tmp_path, protocol):
    neighbours = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    value = {"a": np.arange(6).reshape(2, 3), "b": np.float32(1.5), "c": [1, "x", None], "d": neighbours}
    found = read_pickle(store(tmp_path, value, protocol))
    assert np.array_equal(found["a"], value["a"]) and found["a"].dtype == value["a"].dtype
    assert found["b"] == np.float32(1.5) and found["c"] == value["c"] and found["d"] == value["d"]


@pytest.mark.parametrize("protocol", [2, 4])
def test_sparse_matrix_and_tensor(tmp_path, protocol):
    dense = np.array([[0, 2.0, 0], [0, 0, 0], [1, 0, 3]], dtype=np.float32)
    rows = read_pickle(store(tmp_path, scipy.sparse.csr_matrix(dense), protocol))
    assert isinstance(rows, SparseRows)
    assert np.array_equal(rows.to_dense(), dense)
    tensor = torch.arange(6.0).reshape(2, 3).t()
    assert torch.equal(read_pickle(store(tmp_path, tensor, protocol)), tensor)


def test_repeated_sparse_entries_are_summed():
    rows = SparseRows()
    rows.data, rows.indices, rows.indptr = np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])
    rows._shape = (2, 2)
    assert rows.to_dense().tolist() == [[0, 3], [4, 0]]


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.fault("the pickle of a data set calls a function", "refused with its name; no code runs")
@pytest.mark.parametrize(
    "hostile",
    [
        Hostile(os.system, "touch run"),
        Hostile(eval, "open('run', 'w')"),
        Hostile(getattr, "", "join"),
        Hostile(np.lib.npyio.NpzFile, "run"),
        Hostile(torch.load, "run"),
        np.array([Hostile(os.system, "touch run")], dtype=object),
        collections.defaultdict(os.getcwd),
    ],
    ids=["system", "eval", "getattr", "npz", "torch", "array", "factory"],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_anything_else_is_refused(tmp_path, monkeypatch, hostile, protocol):
    monkeypatch.chdir(tmp_path)
    path = store(tmp_path, hostile, protocol)
    with pytest.raises(DataError, match="which is not data"):
        read_pickle(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.pkl"]


@pytest.mark.fault("a tensor in a pickle hides another pickle", "refused; no code runs")
def test_a_storage_is_loaded_as_weights_only(tmp_path):
    """The bytes of a tensor's storage are a file of `torch.save`, which may contain code."""
    buffer = io.BytesIO()
    torch.save(Hostile(os.system, f"touch {tmp_path}/run"), buffer)

    class Storage:
        def __reduce__(self):
            return torch.storage._load_from_bytes, (buffer.getvalue(),)

    with pytest.raises(DataError, match="not a readable data file"):
        read_pickle(store(tmp_path, Storage(), 4))
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("the pickle of a data set is damaged", "refused; the message says to download it again")
@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"garbage", b"\x80\x02cnumpy\nndarray\n(tR."])
def test_damaged_pickles_are_refused(tmp_path, content):
    path = tmp_path / "data.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="fetch it again"):
        read_pickle(path)


def test_array_of_dictionaries(tmp_path):
    splits = np.array([{"train": np.arange(3)}, {"train": np.arange(2)}], dtype=object)
    path = tmp_path / "splits.npy"
    np.save(path, splits, allow_pickle=True)
    assert [split["train"].size for split in read_pickled_array(path)] == [3, 2]
    np.save(path, np.array([Hostile(os.system, f"touch {tmp_path}/run")], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="system, which is not data"):
        read_pickled_array(path)
    assert not (tmp_path / "run").exists()
    np.save(path, np.arange(3))
    with pytest.raises(DataError, match="expected a list of objects"):
        read_pickled_array(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="not a readable .npy file"):
        read_pickled_array(path)
