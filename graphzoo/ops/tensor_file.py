"""A file for a tensor that is expensive to compute. It is written completely or not at all, and checked."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import Timeout
from torch import Tensor

from graphzoo.system.waiting import TellingLock

_log = logging.getLogger(__name__)
# One page of memory, so that the numbers behind the header are aligned.
_HEADER_BYTES = 4096
_LOCK_TIMEOUT = 3600.0


class TensorFile:
    """A file with a JSON header and the numbers of a tensor, row by row.

    The header has the key, the shape, the dtype and a checksum of the numbers. A file with another header, a
    wrong size or a wrong checksum is not used, but computed again.

    Args:
        path: The file.
        key: Digest of everything that the tensor depends on.
        shape: Shape of the tensor.
        dtype: float32 or float64.
        is_mapped: Whether the tensor is memory-mapped, copy-on-write, instead of read into memory.
    """

    def __init__(
        self, path: Path, key: str, shape: torch.Size, dtype: torch.dtype, *, is_mapped: bool
    ) -> None:
        self.path, self.shape, self.is_mapped = path, tuple(shape), is_mapped
        self.dtype = np.dtype(str(dtype).removeprefix("torch."))
        self.num_bytes = shape.numel() * self.dtype.itemsize
        self.facts = {"key": key, "shape": list(shape), "dtype": self.dtype.name}

    def provide(self, compute: Callable[[Tensor | None], Tensor]) -> Tensor:
        """Read the tensor from the file, or compute it and write the file.

        Args:
            compute: Function of a tensor to write the result to, or of None, in which case it returns a new
                tensor.

        Raises:
            OSError: if the file cannot be read or written, possibly after `compute` has run.
        """
        if (stored := self._read()) is not None:
            return stored
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with TellingLock(f"{self.path}.lock", timeout=_LOCK_TIMEOUT):
                # Another process may have written it while this one waited for the lock.
                stored = self._read()
                return self._write(compute) if stored is None else stored
        except Timeout as error:
            raise OSError(str(error)) from error

    def _read(self) -> Tensor | None:
        """The tensor, or None if the file is missing or damaged."""
        try:
            with self.path.open("rb") as file:
                header = json.loads(file.read(_HEADER_BYTES).rstrip(b"\0"))
                size = os.fstat(file.fileno()).st_size
            if {name: header[name] for name in self.facts} != self.facts:
                raise ValueError("its header does not match")
            if size != _HEADER_BYTES + self.num_bytes:
                raise ValueError(f"it has {size:,} bytes instead of {_HEADER_BYTES + self.num_bytes:,}")
            if self.is_mapped:
                values = self._map(self.path, "c")
            else:
                values = np.fromfile(self.path, self.dtype, offset=_HEADER_BYTES).reshape(self.shape)
            if zlib.crc32(_bytes(values)) != header["crc32"]:
                raise ValueError("its numbers do not match their checksum")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s is damaged and is computed again: %s", self.path, error)
            return None
        return torch.from_numpy(values)

    def _write(self, compute: Callable[[Tensor | None], Tensor]) -> Tensor:
        """Write to a temporary file and rename it; the caller holds the lock."""
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            with part.open("w+b") as file:
                _reserve(file.fileno(), _HEADER_BYTES + self.num_bytes)
                if self.is_mapped:
                    result = None
                    values = self._map(part, "r+")
                    compute(torch.from_numpy(values))
                else:
                    result = compute(None)
                    values = result.cpu().contiguous().numpy()
                    file.seek(_HEADER_BYTES)
                    file.write(_bytes(values))
                checksum = zlib.crc32(_bytes(values))
                file.seek(0)
                file.write(json.dumps({**self.facts, "crc32": checksum}).encode().ljust(_HEADER_BYTES, b"\0"))
                file.flush()
                # also writes the mapped pages to disk
                os.fsync(file.fileno())
            os.replace(part, self.path)
        finally:
            part.unlink(missing_ok=True)
        return torch.from_numpy(self._map(self.path, "c")) if result is None else result

    def _map(self, path: Path, mode: Literal["c", "r+"]) -> np.ndarray[Any, Any]:
        return np.memmap(path, self.dtype, mode, _HEADER_BYTES, self.shape)


def _bytes(values: np.ndarray[Any, Any]) -> memoryview:
    return values.data.cast("B")


def _reserve(descriptor: int, num_bytes: int) -> None:
    """Allocate the file on disk now: the system kills a process that writes a mapped page to a full disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:
        os.truncate(descriptor, num_bytes)
