"""A tensor that is expensive to compute, kept in a file: written whole or not at all, checked when read."""

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
# One page, so that the numbers after it are aligned.
_HEADER_BYTES = 4096
_LOCK_TIMEOUT = 3600.0


class TensorFile:
    """One result and the file it is kept in: a JSON header, then the numbers, row by row.

    The header tells key (what the result depends on), shape, type (float32 or float64) and a checksum of the
    numbers. A file that does not fit, is too short or fails its checksum is never used but made anew. With
    `is_mapped` the tensor is mapped from the file, copy on write, instead of read into memory.
    """

    def __init__(
        self, path: Path, key: str, shape: torch.Size, dtype: torch.dtype, *, is_mapped: bool
    ) -> None:
        self.path, self.shape, self.is_mapped = path, tuple(shape), is_mapped
        self.dtype = np.dtype(str(dtype).removeprefix("torch."))
        self.num_bytes = shape.numel() * self.dtype.itemsize
        self.facts = {"key": key, "shape": list(shape), "dtype": self.dtype.name}

    def provide(self, compute: Callable[[Tensor | None], Tensor]) -> Tensor:
        """The tensor, from the file or by `compute(room)`, which fills the room if it is given one.

        A file that can be neither read nor made is an `OSError`; `compute` may have run in vain then.
        """
        if (stored := self._read()) is not None:
            return stored
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with TellingLock(f"{self.path}.lock", timeout=_LOCK_TIMEOUT):
                # another process may have made it while this one waited
                stored = self._read()
                return self._write(compute) if stored is None else stored
        except Timeout as error:
            raise OSError(str(error)) from error

    def _read(self) -> Tensor | None:
        """The tensor, or None where there is no sound file."""
        try:
            with self.path.open("rb") as file:
                header = json.loads(file.read(_HEADER_BYTES).rstrip(b"\0"))
                size = os.fstat(file.fileno()).st_size
            if {name: header[name] for name in self.facts} != self.facts:
                raise ValueError("its header belongs to something else")
            if size != _HEADER_BYTES + self.num_bytes:
                raise ValueError(f"it has {size:,} of {_HEADER_BYTES + self.num_bytes:,} bytes")
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
        """Fill a file of another name and let it take this one's; the caller holds the lock."""
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
                # takes the mapped pages along
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
    """Give the file its size now: where a mapped page finds the disk full, the process is killed."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:
        os.truncate(descriptor, num_bytes)
