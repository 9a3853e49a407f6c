"""What a checkpoint file may hold, looked at before anything is made of it or shown.

A file is data of a stranger: torch takes its word for the sizes of storages, one number can stand for a
tensor of a million million, and a list that holds another twice, sixty times over, has 2**60 letters.
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
# Values beyond a file's size that are no reason to look closer: names that many tensors share, and the like.
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
    """Why a file is not read; the caller names it."""


class _Inert:
    """Stands for whatever a pickle names: takes everything, does nothing."""

    named = ""

    def __new__(cls, *arguments: Any, **more: Any) -> _Inert:
        return object.__new__(cls)

    def __init__(self, *arguments: Any, **more: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = __init__


class _Scanner(pickle._Unpickler):
    """Reads a pickle without making anything, and compares the storages it speaks of with the archive.

    Not the unpickler in C, whose table of back references grows to whatever size a pickle names.
    """

    def __init__(self, data: bytes, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(data))
        self.sizes = sizes
        self.stubs: dict[str, type[_Inert]] = {}

    def find_class(self, module: str, name: str) -> type[_Inert]:
        full = f"{module}.{name}"
        if name.startswith("_rebuild") and name not in _REBUILT:
            raise RefusedError(f"it holds tensors of an unusual kind ({full[:100]})")
        return self.stubs.setdefault(full, type("_Inert", (_Inert,), {"named": full}))

    def persistent_load(self, pid: Any) -> _Inert:
        match pid:
            case ("storage", kind, str(key), str(), int(count)):
                kind = getattr(kind, "named", "").rpartition(".")[2]
            case _:
                raise RefusedError("it refers to something other than its own tensors")
        if kind not in _ITEM_BYTES:
            raise RefusedError(f"it holds numbers of an unusual kind ({kind[:100]})")
        if self.sizes.get(key) != count * _ITEM_BYTES[kind]:
            raise RefusedError(
                f"it speaks of {count:,} numbers where it holds {self.sizes.get(key, 0):,} bytes"
            )
        return _Inert()


def check_archive(file: BinaryIO) -> None:
    """Refuse an archive whose description does not match its parts. Nothing is made of what it describes.

    Parts of other sizes than described, and of kinds that no training run writes, are a `RefusedError`; what
    is no description at all raises anything.
    """
    with zipfile.ZipFile(file) as archive:
        parts = {member.filename: member.file_size for member in archive.infolist()}
        # torch looks names up without regard to case, and takes the first of several
        if len({name.lower() for name in parts}) != len(archive.infolist()):
            raise RefusedError("two of its parts have one name")
        described = [name for name in parts if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(described) != 1:
            raise RefusedError("it holds no description of its tensors")
        prefix = described[0].removesuffix("data.pkl")
        order = f"{prefix}byteorder"
        if order in parts and archive.read(order) != sys.byteorder.encode():
            raise RefusedError("its numbers are written in the byte order of another kind of machine")
        data = f"{prefix}data/"
        sizes = {name.removeprefix(data): size for name, size in parts.items() if name.startswith(data)}
        _Scanner(archive.read(described[0]), sizes).load()


def check_values(content: Any, num_bytes: int) -> None:
    """Refuse (`RefusedError`) values that are larger than their file, and tensors that are not plain ones."""
    if _unfolded(content, {}, "", 0) > _SPARE + _GROWTH * num_bytes:
        raise RefusedError(f"its values, written out, are far larger than its {num_bytes:,} bytes")


def _unfolded(value: Any, known: dict[int, int], name: str, depth: int) -> int:
    """Letters and numbers that a value stands for, what is shared counted each time."""
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
            raise RefusedError(f"{name or 'a value'} holds itself")
        return known[id(value)]
    if depth > _MOST_DEPTH:
        raise RefusedError(f"its values are nested more than {_MOST_DEPTH} deep")
    known[id(value)] = 0
    size = 1 + sum(_unfolded(item, known, label or name, depth + 1) for label, item in children)
    known[id(value)] = size
    return size


def check_tensor(name: str, value: Tensor) -> None:
    """Refuse what is not a plain tensor of real numbers with a place in memory for each of them."""
    if value.layout != torch.strided or value.is_quantized or value.is_nested or value.is_complex():
        raise RefusedError(f"{name} is not a plain tensor of real numbers ({value.dtype}, {value.layout})")
    if value.device.type == "meta":
        raise RefusedError(f"{name} has a shape, but no numbers")
    if math.prod(value.shape) * value.element_size() > value.untyped_storage().nbytes():
        shape = tuple(value.shape)
        raise RefusedError(f"{name} repeats fewer numbers than its shape {shape} speaks of")


def check_numbers(values: Mapping[str, Any]) -> None:
    """Refuse a count that is no whole number of at least 0; those that are None are passed over."""
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise RefusedError(f"{name} is {str(value)[:100]!r}, not a whole number of at least 0")
