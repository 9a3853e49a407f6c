"""Read old data files that are pickles, without running code of the pickle.

A pickle may only use the functions and classes listed below. Any other name is refused before it is called.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graphzoo.errors import DataError
from graphzoo.system.memory import reading

# The number at the beginning of an old file of torch.save.
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C


class SparseRows:
    """A stand-in for scipy's CSR matrix, which takes its state without its code."""

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]
    _shape: tuple[int, int]

    def to_dense(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The matrix [rows, columns], float32; repeated entries are summed."""
        dense = np.zeros(self._shape, dtype=np.float32)
        rows = np.repeat(np.arange(self._shape[0]), np.diff(self.indptr))
        np.add.at(dense, (rows, self.indices), self.data)
        return dense


def _make_array(kind: type, shape: Any, code: Any) -> np.ndarray[Any, Any]:
    # Like numpy's `_reconstruct`: an empty array that the pickle then fills.
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"an array of type {kind!r}")
    return np.ndarray(shape, dtype=np.dtype(code))


def _from_buffer(buffer: bytes, kind: np.dtype[Any], shape: Any, order: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(buffer, dtype=kind).reshape(shape, order=order)


def _make_scalar(kind: np.dtype[Any], data: bytes) -> Any:
    return np.frombuffer(data, dtype=kind)[0]


def _load_storage(data: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(data), weights_only=True)


def _rebuild_tensor(*arguments: Any) -> Any:
    import torch

    return torch._utils._rebuild_tensor_v2(*arguments)  # type: ignore[no-untyped-call]


_KNOWN: dict[str, Callable[..., Any]] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    # numpy 1 and 2
    **{
        f"numpy.{core}.{name}": function
        for core in ("core", "_core")
        for name, function in (
            ("multiarray._reconstruct", _make_array),
            ("multiarray.scalar", _make_scalar),
            ("numeric._frombuffer", _from_buffer),
        )
    },
    **dict.fromkeys(("scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix"), SparseRows),
    "collections.defaultdict": defaultdict,
    "__builtin__.list": list,
    "builtins.list": list,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch.storage._load_from_bytes": _load_storage,
    # the hooks of a tensor
    "collections.OrderedDict": dict,
    # bytes in a pickle of protocol 2
    "_codecs.encode": lambda text, encoding: text.encode("latin1"),
}


class _HasTensors(Exception):
    """Raised if the data of a tensor are not in the pickle but beside it."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name.endswith("Storage"):
            raise _HasTensors
        try:
            return _KNOWN[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not data") from None


def read_pickle(path: Path) -> Any:
    """Read arrays, sparse matrices, tensors, lists and dictionaries from a pickle of Python 2 or 3.

    Raises:
        DataError: if the file is damaged, or its pickle uses another function or class.
    """
    return _read(path, io.BytesIO(path.read_bytes()))


def read_pickled_array(path: Path) -> Sequence[Any]:
    """The elements of a one-dimensional `.npy` file of Python objects, read as by `read_pickle`.

    Raises:
        DataError: as `read_pickle`, or if the file has another form.
    """
    stream = io.BytesIO(path.read_bytes())
    with reading(path, "a readable .npy file", errors=(KeyError, ValueError, EOFError)):
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, kind = read_header[version](stream)
    if kind != np.dtype("O") or len(shape) != 1:
        raise DataError(f"{path}: expected a list of objects, got {kind} {shape}; fetch it again")
    return list(_read(path, stream))


def read_torch_file(path: Path) -> Any:
    """Read a file of `torch.save` with arrays, numbers, strings, lists, dictionaries and tensors.

    The pickle in both versions of the format is read as by `read_pickle`. torch's own reader with
    `weights_only` is used only for files with tensors, because it does not accept arrays of numpy.

    Raises:
        DataError: as `read_pickle`, or if this is not a file of `torch.save`.
    """
    with path.open("rb") as stream:
        # `is_zipfile` looks at the end of the file, and some damage there makes it raise.
        if stream.read(2) == b"PK":
            return _read_torch_archive(path)
        stream.seek(0)
        if _read(path, stream) != _TORCH_MAGIC:
            raise DataError(f"{path}: not a file of torch.save; fetch it again")
        # The version of the protocol and the sizes of C types come before the object.
        for _ in range(2):
            _read(path, stream)
        return _read(path, stream, tensors_in=path)


def _read_torch_archive(path: Path) -> Any:
    with reading(path, "a readable file of torch.save"), zipfile.ZipFile(path) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        data = archive.read(member)
    return _read(path, io.BytesIO(data), tensors_in=path)


def _load_tensors(path: Path) -> Any:
    import torch

    with reading(path):
        return torch.load(path, map_location="cpu", weights_only=True)


def _read(path: Path, stream: BinaryIO, *, tensors_in: Path | None = None) -> Any:
    with reading(path):
        try:
            return _Unpickler(stream, encoding="latin1").load()
        except _HasTensors:
            if tensors_in is None:
                message = f"{path}: not a readable data file (it refers to tensors outside the file)"
                raise DataError(message) from None
            return _load_tensors(tensors_in)
