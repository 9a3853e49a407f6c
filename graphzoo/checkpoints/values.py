"""Check the content of a checkpoint file before it is loaded or shown.

A file may be malicious. torch trusts the sizes of storages that it names; one stored number can stand for a
tensor of 10**12; and lists that contain another list twice, nested sixty deep, expand to 2**60 values.
"""

from __future__ import annotations

import io
import math
import pickle
import sys
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

_MOST_DEPTH = 100
# Values may exceed the size of the file by this much, and by this factor, as tensors may share names.
_SPARE = 1_000_000
_GROWTH = 8
# Bytes of a number in each kind of storage that real tensors have.
_ITEM_BYTES = {
    "DoubleStorage": 8,
    "FloatStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "LongStorage": 8,
    "IntStorage": 4,
    "ShortStorage": 2,
    "CharStorage": 1,
    "ByteStorage": 1,
    "BoolStorage": 1,
    "UntypedStorage": 1,
}
_REBUILT = ("_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter")


class RefusedError(Exception):
    """The reason why a file is refused; the caller adds the file."""


class _Inert:
    """A stand-in for any class or function of a pickle: it accepts all arguments and does nothing."""

    named = ""

    def __new__(cls, *arguments: Any, **more: Any) -> _Inert:
        return object.__new__(cls)

    def __init__(self, *arguments: Any, **more: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = __init__


class _Scanner(pickle._Unpickler):
    """Reads a pickle without building objects, and compares the sizes of its storages with the archive.

    It is Python's unpickler: the one in C allocates a table of any size that a pickle asks for.
    """

    def __init__(self, data: bytes, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(data))
        self.sizes = sizes
        self.stubs: dict[str, type[_Inert]] = {}

    def find_class(self, module: str, name: str) -> type[_Inert]:
        full = f"{module}.{name}"
        if name.startswith("_rebuild") and name not in _REBUILT:
            raise RefusedError(f"it has tensors of an unusual kind ({full[:100]})")
        return self.stubs.setdefault(full, type("_Inert", (_Inert,), {"named": full}))

    def persistent_load(self, pid: Any) -> _Inert:
        match pid:
            case ("storage", kind, str(key), str(), int(count)):
                kind = getattr(kind, "named", "").rpartition(".")[2]
            case _:
                raise RefusedError("it refers to something other than its own tensors")
        if kind not in _ITEM_BYTES:
            raise RefusedError(f"it has numbers of an unusual kind ({kind[:100]})")
        if self.sizes.get(key) != count * _ITEM_BYTES[kind]:
            raise RefusedError(
                f"it describes {count:,} numbers, but has {self.sizes.get(key, 0):,} bytes for them"
            )
        return _Inert()


def check_archive(file: BinaryIO) -> None:
    """Refuse an archive whose description does not match its parts; no object of it is built.

    Raises:
        RefusedError: if a part has another size than described, or is of a kind that no training run writes.
        Exception: of any kind, if the description cannot be read.
    """
    with zipfile.ZipFile(file) as archive:
        parts = {member.filename: member.file_size for member in archive.infolist()}
        # torch ignores the case of names, and takes the first of several.
        if len({name.lower() for name in parts}) != len(archive.infolist()):
            raise RefusedError("two of its parts have the same name")
        described = [name for name in parts if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(described) != 1:
            raise RefusedError("it has no description of its tensors")
        prefix = described[0].removesuffix("data.pkl")
        order = f"{prefix}byteorder"
        if order in parts and archive.read(order) != sys.byteorder.encode():
            raise RefusedError("its numbers have another byte order than this machine")
        data = f"{prefix}data/"
        sizes = {name.removeprefix(data): size for name, size in parts.items() if name.startswith(data)}
        _Scanner(archive.read(described[0]), sizes).load()


def check_values(content: Any, num_bytes: int) -> None:
    """Refuse values that expand far beyond the size of their file, and unusual tensors.

    Raises:
        RefusedError: if so, or if values are nested too deeply or contain themselves.
    """
    if _unfolded(content, {}, "", 0) > _SPARE + _GROWTH * num_bytes:
        raise RefusedError(f"its values expand to far more than its {num_bytes:,} bytes")


def _unfolded(value: Any, known: dict[int, int], name: str, depth: int) -> int:
    """The number of characters and numbers of a value; a shared part counts each time."""
    if isinstance(value, str | bytes):
        return len(value) + 1
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise RefusedError(f"{name or 'a value'} is a number of {value.bit_length():,} bits")
        return 1
    if isinstance(value, Tensor):
        check_tensor(name or "a tensor", value)
        return 1
    if isinstance(value, Mapping):
        labels = [(str(key)[:100] if isinstance(key, str) else "", key) for key in value]
        children = [*labels, *((label, value[key]) for label, key in labels)]
    elif isinstance(value, list | tuple | set | frozenset):
        children = [("", item) for item in value]
    else:
        return 1
    if id(value) in known:
        if not known[id(value)]:
            raise RefusedError(f"{name or 'a value'} contains itself")
        return known[id(value)]
    if depth > _MOST_DEPTH:
        raise RefusedError(f"its values are nested more than {_MOST_DEPTH} deep")
    known[id(value)] = 0
    size = 1 + sum(_unfolded(item, known, label or name, depth + 1) for label, item in children)
    known[id(value)] = size
    return size


def check_tensor(name: str, value: Tensor) -> None:
    """Require a plain tensor of real numbers, each with its own place in memory.

    Args:
        name: Name of the tensor for the message.
        value: The tensor.

    Raises:
        RefusedError: for any other tensor.
    """
    if value.layout != torch.strided or value.is_quantized or value.is_nested or value.is_complex():
        raise RefusedError(f"{name} is not a plain tensor of real numbers ({value.dtype}, {value.layout})")
    if value.device.type == "meta":
        raise RefusedError(f"{name} has a shape, but no numbers")
    if math.prod(value.shape) * value.element_size() > value.untyped_storage().nbytes():
        shape = tuple(value.shape)
        raise RefusedError(f"{name} stores fewer numbers than its shape {shape} needs")


def check_numbers(values: Mapping[str, Any]) -> None:
    """Require counts that are whole numbers of at least 0, or None.

    Args:
        values: Counts by name.

    Raises:
        RefusedError: for the first wrong one.
    """
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise RefusedError(f"{name} is {str(value)[:100]!r}, not a whole number of at least 0")
