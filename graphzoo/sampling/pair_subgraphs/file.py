"""The file of a `PairGraph`: a header of JSON, then the arrays, each aligned to eight bytes.

The header has the dtype and the length of every array, and a checksum of all their bytes.
"""

from __future__ import annotations

import json
import mmap
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import DataError
from graphzoo.system.files import write_atomically

Array = np.ndarray[Any, np.dtype[Any]]

_FORMAT = "graphzoo pair graph, version 1"
_HEADER_BYTES = 4096
_ALIGNMENT = 8
_CHUNK_BYTES = 1 << 24
_REMEDY = "write it again with PairSubgraphSampler.save"


class MappedFile(NamedTuple):
    """An array in a file, from which it can be mapped again in another process."""

    path: str
    dtype: str
    offset: int
    length: int


def write_arrays(path: Path, arrays: list[Array]) -> None:
    """Write the arrays in pieces, so that memory-mapped arrays are not read into memory as a whole."""

    def write(file: BinaryIO) -> None:
        file.write(bytes(_HEADER_BYTES))
        checksum = 0
        for array in arrays:
            values = array.data.cast("B") if array.size else memoryview(b"")
            for start in range(0, len(values), _CHUNK_BYTES):
                chunk = values[start : start + _CHUNK_BYTES]
                checksum = zlib.crc32(chunk, checksum)
                file.write(chunk)
            padding = bytes(-len(values) % _ALIGNMENT)
            checksum = zlib.crc32(padding, checksum)
            file.write(padding)
        facts = [{"dtype": array.dtype.name, "length": array.shape[0]} for array in arrays]
        header = json.dumps({"format": _FORMAT, "arrays": facts, "crc32": checksum})
        file.seek(0)
        file.write(header.encode().ljust(_HEADER_BYTES, b"\0"))

    write_atomically(path, write)


def map_arrays(path: Path, *, check: bool) -> list[Array]:
    """Map the arrays of a file, read-only.

    Args:
        path: The file.
        check: Whether to compare the checksum, which reads the whole file.

    Raises:
        DataError: if the file cannot be read, is of another kind or of a wrong size, or does not match its
            checksum.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(file, path)
            size = file.seek(0, 2)
            arrays, end = [], _HEADER_BYTES
            for fact in header["arrays"]:
                arrays.append(MappedFile(str(path.absolute()), fact["dtype"], end, fact["length"]))
                num_bytes = np.dtype(fact["dtype"]).itemsize * fact["length"]
                end += num_bytes + -num_bytes % _ALIGNMENT
            if size != end:
                state = "cut off" if size < end else "too long"
                raise DataError(f"{path}: {state}: it has {size:,} bytes instead of {end:,}; {_REMEDY}")
            if check and _checksum(file) != header["crc32"]:
                raise DataError(f"{path}: damaged: its contents do not match their checksum; {_REMEDY}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return [_map(place) for place in arrays]


def _read_header(file: BinaryIO, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(file.read(_HEADER_BYTES).rstrip(b"\0"))
        is_known = header["format"] == _FORMAT
    except (ValueError, KeyError, TypeError):
        is_known = False
    if not is_known:
        raise DataError(f"{path}: not a file of the kind '{_FORMAT}'; {_REMEDY}")
    return dict(header)


def _checksum(file: BinaryIO) -> int:
    file.seek(_HEADER_BYTES)
    checksum = 0
    while chunk := file.read(_CHUNK_BYTES):
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def _map(place: MappedFile) -> Array:
    if not place.length:
        # An empty array cannot be mapped.
        return np.empty(0, place.dtype)
    try:
        return np.memmap(place.path, place.dtype, "r", place.offset, (place.length,))
    except FileNotFoundError as error:
        # Possible only if the file is mapped again in another process.
        what = "removed while it was in use; start again, and keep the file until the end"
        raise DataError(f"{place.path}: {what}") from error


def portable(array: Array) -> MappedFile | Tensor:
    """The form in which an array is sent to another process: its position in a file, or a tensor."""
    whole: Any = array
    while isinstance(whole, np.ndarray):
        if isinstance(whole, np.memmap) and isinstance(whole.base, mmap.mmap) and whole.filename is not None:
            # For a slice of a mapped array, `whole.offset` is that of the whole array.
            offset = whole.offset + array.ctypes.data - whole.ctypes.data
            return MappedFile(str(Path(whole.filename).absolute()), array.dtype.name, offset, len(array))
        whole = whole.base
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def from_portable(value: MappedFile | Tensor) -> Array:
    """The inverse of `portable`."""
    return value.numpy() if isinstance(value, Tensor) else _map(value)
