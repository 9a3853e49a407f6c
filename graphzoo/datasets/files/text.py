"""Warnings about data, and names that look alike."""

from __future__ import annotations

import contextlib
import os
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from graphzoo.errors import DataError, GraphzooDataWarning
from graphzoo.system.shown import visible
from graphzoo.system.units import counted

_in_a_command = ContextVar("_in_a_command", default=False)


def warn(notice: str, *, stacklevel: int = 2) -> None:
    """One line as a `GraphzooDataWarning`; see `as_a_command`."""
    shown = warnings.formatwarning
    if _in_a_command.get():
        # only now: Lightning brings a form of its own when it is imported
        warnings.formatwarning = _on_one_line  # type: ignore[assignment]  # takes less and asks for no more
    try:
        warnings.warn(visible(notice), GraphzooDataWarning, stacklevel=stacklevel + 1)
    finally:
        warnings.formatwarning = shown


@contextlib.contextmanager
def as_a_command() -> Iterator[None]:
    """Show warnings about data as `warning: ...`, without the place in Python code that they come from."""
    token = _in_a_command.set(True)
    try:
        yield
    finally:
        _in_a_command.reset(token)


def _on_one_line(message: Warning | str, *_: object) -> str:
    return f"warning: {message}\n"


def names_of(values: Sequence[object]) -> list[str]:
    """Values as names. Where all are numbers and whole, those that became floats are whole again.

    pandas makes such floats of a column of integers in which a value was missing. Bytes, which h5py and
    NumPy give for texts, are read as UTF-8.

    >>> names_of(["a", 1, 2.5]), names_of([1.0, 3]), names_of([b"a"])
    (['a', '1', '2.5'], ['1', '3'], ['a'])
    """
    whole = all(isinstance(v, int) or (isinstance(v, float) and v.is_integer()) for v in values)
    return [str(int(v)) if whole and isinstance(v, float) else _name_of(v) for v in values]


def _name_of(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"the name {bytes(value)!r} is not UTF-8; decode names before") from error


def is_missing(value: object) -> bool:
    """Whether a value of a table is None, NaN, NaT or pandas' NA, which refuses to be compared.

    >>> is_missing(None), is_missing(float("nan")), is_missing("nan"), is_missing(0)
    (True, True, False, False)
    """
    if value is None or type(value).__name__ == "NAType":
        return True
    return bool(value != value)


def paths_of(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], forms: str) -> list[Path]:
    """One path or several, all of which must be there; `forms` says what may be given."""
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(part) for part in path]
    for part in paths:
        if not part.exists():
            raise DataError(f"{part}: no such file or folder; give {forms}")
    return paths


def listing(folder: Path) -> str:
    """The first names in a folder, for messages."""
    return ", ".join(sorted(entry.name for entry in folder.iterdir())[:5]) or "nothing"


def ignored_columns(source: str, names: Sequence[str]) -> tuple[str, ...]:
    """One line that names the columns of a table that are not used, if there are any.

    >>> ignored_columns("edges.csv", ["weight"])
    ('edges.csv: column weight is ignored',)
    """
    shown = ", ".join(name or "one without a name" for name in names[:5]) + (
        ", ..." if len(names) > 5 else ""
    )
    several = f"columns {shown} are" if len(names) > 1 else f"column {shown} is"
    return (f"{source}: {several} ignored",) if names else ()


def lookalikes(names: Iterable[str], kind: str) -> list[str]:
    r"""A line if distinct names differ only in what cannot be seen, and one if only by ".0".

    Nobody sees characters without width (a zero-width space, marks of the direction), blanks at an end, and
    the two ways in which Unicode writes a letter with an accent.

    >>> lookalikes(["ab", "a\u200bb", "c"], "entities")
    ["1 pair of entities looks the same, kept apart (first: 'ab' and 'a\\u200bb')"]
    """
    names = list(names)
    return [*_unseen_differences(names, kind), *_floats(names, kind)]


def _floats(names: list[str], kind: str) -> list[str]:
    """Whole numbers that pandas has written as 1.0, since a column once had gaps, beside plain ones."""
    written = {name for name in names if name.endswith(".0") and name[:-2].isdecimal()}
    both = (
        sorted(name[:-2] for name in written.intersection(f"{name}.0" for name in names)) if written else []
    )
    if not both:
        return []
    differ = "differs" if len(both) == 1 else "differ"
    first = f"(first: {both[0]!r} and '{both[0]}.0')"
    return [f"{counted(len(both), 'pair')} of {kind} {differ} by .0 alone, kept apart {first}"]


def _unseen_differences(names: list[str], kind: str) -> list[str]:
    odd = [name for name in names if not name.isascii() or name[:1].isspace() or name[-1:].isspace()]
    strange = set(odd)
    # what an odd name looks like may be a plain one, so those count as themselves
    plain = {name: name for name in names if name not in strange} if odd else {}
    looks = ((plain.setdefault(_seen(name), name), name) for name in odd)
    pairs = [pair for pair in looks if pair[0] != pair[1]]
    if not pairs:
        return []
    look = "looks" if len(pairs) == 1 else "look"
    one, other = pairs[0]
    # `repr` spells out what has no width, and not a letter that is written in two ways
    spell = ascii if unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other) else repr
    first = f"(first: {spell(one)} and {spell(other)})"
    return [f"{counted(len(pairs), 'pair')} of {kind} {look} the same, kept apart {first}"]


def _seen(name: str) -> str:
    shown = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", shown).strip()
