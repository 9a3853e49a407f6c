"""Warnings about data, and helpers for names: their text, missing ones, and names that look alike."""

from __future__ import annotations

import contextlib
import os
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from numbers import Integral
from pathlib import Path
from typing import Any

from graphzoo.errors import DataError, GraphzooDataWarning
from graphzoo.system.shown import visible
from graphzoo.system.units import counted

_in_a_command = ContextVar("_in_a_command", default=False)


def warn(notice: str, *, stacklevel: int = 2) -> None:
    """Issue a `GraphzooDataWarning`; within `as_a_command` it is shown as one line."""
    shown = warnings.formatwarning
    if _in_a_command.get():
        # Set for this warning only, because importing Lightning replaces the format.
        warnings.formatwarning = _on_one_line  # type: ignore[assignment]  # it ignores the other arguments
    try:
        warnings.warn(visible(notice), GraphzooDataWarning, stacklevel=stacklevel + 1)
    finally:
        warnings.formatwarning = shown


@contextlib.contextmanager
def as_a_command() -> Iterator[None]:
    """Show warnings about data as `warning: ...`, without the line of Python code that issued them."""
    token = _in_a_command.set(True)
    try:
        yield
    finally:
        _in_a_command.reset(token)


def _on_one_line(message: Warning | str, *_: object) -> str:
    return f"warning: {message}\n"


def as_row(row: object) -> object:
    """A tuple of the values of a row, or the row itself if it is a single value or has no order.

    >>> as_row(["a", 1]), as_row("ab"), as_row({1, 2}), as_row(3)
    (('a', 1), 'ab', {1, 2}, 3)
    """
    if isinstance(row, str | bytes | set | frozenset | Mapping) or not isinstance(row, Iterable):
        return row
    return tuple(row) if getattr(row, "ndim", 1) else row


def names_of(values: Sequence[object]) -> list[str]:
    """Convert values to names.

    If all values are whole numbers, floats such as 1.0 become "1": pandas turns integers into floats if a
    value of their column is missing. Bytes, which h5py and NumPy use for texts, are decoded as UTF-8. Tensors
    of one number become this number.

    Raises:
        DataError: if bytes are not UTF-8.

    >>> names_of(["a", 1, 2.5]), names_of([1.0, 3]), names_of([b"a"])
    (['a', '1', '2.5'], ['1', '3'], ['a'])
    """
    values = [_number_of(v) if type(v).__module__ == "torch" else v for v in values]
    whole = all(isinstance(v, Integral) or (isinstance(v, float) and v.is_integer()) for v in values)
    return [str(int(v)) if whole and isinstance(v, float) else _name_of(v) for v in values]


def _number_of(value: Any) -> object:
    return value.item() if not getattr(value, "ndim", 1) else value


def _name_of(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"the name {bytes(value)!r} is not UTF-8; give names as str") from error


def is_missing(value: object) -> bool:
    """Whether a value of a table is None, NaN, NaT or pandas' NA, which cannot be compared.

    >>> is_missing(None), is_missing(float("nan")), is_missing("nan"), is_missing(0)
    (True, True, False, False)
    """
    if value is None or type(value).__name__ == "NAType":
        return True
    return bool(value != value)


def paths_of(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], forms: str) -> list[Path]:
    """One or several paths as a list; each must exist. The error lists the accepted `forms`."""
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(part) for part in path]
    for part in paths:
        if not part.exists():
            raise DataError(f"{part}: no such file or folder; give {forms}")
    return paths


def listing(folder: Path) -> str:
    """The first five names in a folder, for messages."""
    return ", ".join(sorted(entry.name for entry in folder.iterdir())[:5]) or "nothing"


def ignored_columns(source: str, names: Sequence[str]) -> tuple[str, ...]:
    """A notice that names the unused columns of a table; empty if there are none.

    >>> ignored_columns("edges.csv", ["weight"])
    ('edges.csv: column weight is ignored',)
    """
    shown = ", ".join(name or "one without a name" for name in names[:5]) + (
        ", ..." if len(names) > 5 else ""
    )
    several = f"columns {shown} are" if len(names) > 1 else f"column {shown} is"
    return (f"{source}: {several} ignored",) if names else ()


def lookalikes(names: Iterable[str], kind: str) -> list[str]:
    r"""Notices about distinct names that look the same, or are the same number, such as 7, 007 and 7.0.

    Names look the same if they differ in characters without width (such as a zero-width space), in spaces at
    the ends, or in the two forms in which Unicode writes an accented letter.

    >>> lookalikes(["ab", "a\u200bb", "c"], "entities")
    ["1 pair of entities looks the same, kept apart (first: 'ab' and 'a\\u200bb')"]
    """
    names = list(names)
    return [*_unseen_differences(names, kind), *_same_numbers(names, kind)]


def _plain_number(name: str) -> str:
    """A whole number without zeros at its beginning and without ".0"; "" if a name is no such number.

    pandas writes 1.0 for an integer if a value of its column was missing, and reads 007 as 7, as Excel does.
    """
    digits = name.removesuffix(".0")
    return digits.lstrip("0") or "0" if digits.isdecimal() else ""


def _same_numbers(names: list[str], kind: str) -> list[str]:
    """A notice if some names are the same whole numbers as others."""
    odd = [name for name in names if name.endswith(".0") or (name[:1] == "0" and name != "0")]
    known = set(names) if odd else set()
    both = sorted((plain, name) for name in odd if (plain := _plain_number(name)) in known)
    if not both:
        return []
    are = "is the same number" if len(both) == 1 else "are the same numbers"
    first = f"(first: {both[0][0]!r} and {both[0][1]!r})"
    return [f"{counted(len(both), 'pair')} of {kind} {are}, kept apart {first}"]


def same_number(name: str, names: Iterable[str]) -> str:
    """A remedy if one of `names` is the same whole number as the unknown `name`; else "".

    >>> same_number("7", ["006", "007"])
    "There is '007': write it in the same way in all files (pandas keeps zeros with dtype=str)."
    """
    number = _plain_number(name)
    same = next((other for other in names if number and _plain_number(other) == number), None)
    how = "write it in the same way in all files (pandas keeps zeros with dtype=str)"
    return f"There is {same!r}: {how}." if same is not None else ""


def _unseen_differences(names: list[str], kind: str) -> list[str]:
    odd = [name for name in names if not name.isascii() or name[:1].isspace() or name[-1:].isspace()]
    strange = set(odd)
    # An odd name may look like a plain one, so plain names are entered as themselves.
    plain = {name: name for name in names if name not in strange} if odd else {}
    looks = ((plain.setdefault(_seen(name), name), name) for name in odd)
    pairs = [pair for pair in looks if pair[0] != pair[1]]
    if not pairs:
        return []
    look = "looks" if len(pairs) == 1 else "look"
    one, other = pairs[0]
    # `repr` escapes characters without width, but shows both forms of an accented letter alike.
    spell = ascii if unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other) else repr
    first = f"(first: {spell(one)} and {spell(other)})"
    return [f"{counted(len(pairs), 'pair')} of {kind} {look} the same, kept apart {first}"]


def _seen(name: str) -> str:
    shown = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", shown).strip()
