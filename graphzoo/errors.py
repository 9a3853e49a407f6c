"""Errors that a user can correct, shown by the commands without a traceback, and checks of settings."""

from __future__ import annotations

import errno
import math
import os
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, get_args

_LONGEST = 1000  # characters of a line
_MOST_CHOICES = 20_000  # longer lists are not searched for similar names
_LONGEST_REASON = 200  # characters
_WRONG_PATH = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
    *(errno.ELOOP, errno.EEXIST, errno.EINVAL),
}


class UsageError(ValueError):
    r"""A wrong command line, file or setting. The message names the value and the remedy.

    The middle of a very long line is left out, since the file is named at its beginning and the remedy at its
    end. Control characters, which could change the state of a terminal, are shown as escapes such as `\x1b`.
    """

    def __init__(self, text: str = "") -> None:
        lines = (
            line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
            for line in text.split("\n")
        )
        super().__init__("\n".join("".join(map(_escape_control, line)) for line in lines))


def _escape_control(character: str) -> str:
    # Format characters (Cf) include those that change the direction of writing.
    is_control = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character != "\t"
    return character.encode("unicode_escape").decode("ascii") if is_control else character


class DataError(UsageError):
    """A file or table cannot be used; the message names file, line, value and remedy."""


class DownloadError(DataError):
    """A file could not be fetched; the message names the address and where to put the file by hand."""


class GraphzooDataWarning(UserWarning):
    """The data can be used, but some of it is unusual or was left out."""


def check_choice(name: str, value: object, choices: Any) -> None:
    """Require that a setting is one of the choices.

    Args:
        name: Name of the setting, for the message.
        value: Its value.
        choices: A `Literal`, or an iterable of strings.

    Raises:
        UsageError: if it is none of them.

    >>> check_choice("norm", "l2", ("l2", "fro"))
    """
    allowed = get_args(choices) or tuple(choices)
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_range(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    **values: float | None,
) -> None:
    """Require that settings are numbers within the given limits.

    Args:
        above: Limit below all values, itself excluded; None for no such limit, here and below.
        at_least: Limit below all values, itself included.
        below: Limit above all values, itself excluded; infinity requires finite values.
        at_most: Limit above all values, itself included.
        **values: Settings by name; None means not set and is not checked.

    Raises:
        UsageError: if one is not a real number, is NaN or lies outside.

    >>> check_range(above=0, at_most=1, gamma=0.5, alpha=None)
    """
    bounds = [("above", above), ("at least", at_least), ("below", below), ("at most", at_most)]
    given = [(word, bound) for word, bound in bounds if bound is not None]
    limits = " and ".join(f"{word} {bound:,}" if math.isfinite(bound) else "finite" for word, bound in given)
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, Real):  # values from a checkpoint can be of any type
            kind = type(value).__name__
            raise UsageError(f"{name} must be a number, {limits}, got {kind}: {str(value)[:_LONGEST_REASON]}")
        inside = (
            (above is None or value > above)
            and (at_least is None or value >= at_least)
            and (below is None or value < below)
            and (at_most is None or value <= at_most)
        )
        if not inside:  # NaN is never inside
            raise UsageError(f"{name} must be {limits}, got {value}")


def check_whole(
    *, at_least: int, at_most: int | None = None, below: int | None = None, **values: Any
) -> None:
    """`check_range` for counts: values must also be integers, and not bools.

    Raises:
        UsageError: if one is not an integer or lies outside.

    >>> check_whole(at_least=0, num_nodes=3, num_relations=None)
    """
    check_range(at_least=at_least, at_most=at_most, below=below, **values)
    for name, value in values.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
            raise UsageError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


class NonFiniteError(ArithmeticError, ValueError):
    """A loss, gradient, weight or score is NaN or infinite."""


class OutOfMemoryError(MemoryError):
    """Memory ran out, and the computation cannot be split further. The message ends with the remedy."""


def normalise(name: str) -> str:
    """Bring a name into the form in which names are compared: lower case, without `-`, `_` and spaces.

    >>> normalise("Countries_S1") == normalise("countries-s1")
    True
    """
    return "".join(character for character in name.lower() if character not in "-_ ")


def nearest(name: str, choices: Iterable[str], *, count: int = 3) -> list[str]:
    """The choices that are similar to `name` or begin with it, at most `count`, the most similar first.

    >>> nearest("knowfromer", ["knowformer", "nodeformer", "pencil"])
    ['knowformer', 'nodeformer']
    """
    choices = list(dict.fromkeys(choices))
    by_form = {normalise(choice): choice for choice in reversed(choices)}
    close = [by_form[form] for form in get_close_matches(normalise(name), list(by_form), n=count, cutoff=0.6)]
    # An abbreviation such as `fb15k` is not similar to the full name by edit distance.
    prefixed = [
        choice for choice in choices if len(name) > 1 and normalise(choice).startswith(normalise(name))
    ]
    return list(dict.fromkeys([*close, *prefixed]))[:count]


def suggestion(name: str, choices: Iterable[str], *, prefix: str = "") -> str:
    """The question `Did you mean: a, b?`, or an empty string.

    Args:
        name: The unknown name.
        choices: Known names. More than 20,000 are not searched.
        prefix: Put before every suggested name, such as `--`.
    """
    choices = list(choices)
    close = nearest(name, choices) if len(choices) <= _MOST_CHOICES else []
    return f"Did you mean: {', '.join(prefix + choice for choice in close)}?" if close else ""


def shorten(text: str, *, lines: int = 6, width: int = 400) -> str:
    """Shorten a text to `lines` non-empty lines of `width` characters, with `...` for what is left out."""
    kept = [line.rstrip() for line in text.split("\n") if line.strip()]
    if len(kept) > lines:
        kept = [*kept[: lines - 1], "..."]
    return "\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in kept)


def of_system(error: OSError) -> tuple[str, int]:
    """The one-line message of an error of the operating system, and the exit status of the command.

    The status is 2 for a wrong path (such as one that does not exist) and 1 for other errors. An error that
    names no file comes from writing to standard output.
    """
    where = "the output" if error.filename is None else os.fsdecode(error.filename)
    text = UsageError(f"{shorten_path(where)}: {error.strerror or str(error) or type(error).__name__}")
    return str(text), 2 if error.errno in _WRONG_PATH else 1


def shorten_path(path: str, *, width: int = 200) -> str:
    """A path of at most `width` characters: the middle of a longer one is left out.

    >>> shorten_path("a" * 300, width=11)
    'aaaa...aaaa'
    """
    return path if len(path) <= width else f"{path[: (width - 3) // 2]}...{path[-((width - 3) // 2) :]}"


def reason(error: BaseException) -> str:
    r"""The first line of an error of another library, at most 200 characters, to quote in a message.

    >>> reason(ValueError("bad header\nat line 1"))
    'bad header'
    """
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
