"""Mistakes a user can mend: what the command answers in a few lines instead of a traceback."""

from __future__ import annotations

import errno
import math
import os
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, get_args

_LONGEST = 1000
_MOST_CHOICES = 20_000  # that are searched for the nearest
_LONGEST_REASON = 200
_WRONG_PATH = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
    *(errno.ELOOP, errno.EEXIST, errno.EINVAL),
}


class UsageError(ValueError):
    """A wrong command line, file or setting. The text names the value and the remedy.

    Of a line that a value of the user makes endless, the middle is left out: the file is named at its begin,
    the remedy at its end. Characters that would steer a terminal are written out.
    """

    def __init__(self, text: str = "") -> None:
        lines = (
            line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
            for line in text.split("\n")
        )
        super().__init__("\n".join("".join(map(_shown, line)) for line in lines))


def _shown(character: str) -> str:
    # control characters and those that change the direction of writing; spaces of any kind stay
    steers = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character != "\t"
    return character.encode("unicode_escape").decode("ascii") if steers else character


class DataError(UsageError):
    """A file or table cannot be used; the message names file, line, value and remedy."""


class DownloadError(DataError):
    """A file could not be fetched; the message names the address and where to put the file by hand."""


class GraphzooDataWarning(UserWarning):
    """The data can be used, but something was counted that the user should know of."""


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a setting that is not one of the choices, a `Literal` or names, by a `UsageError`.

    >>> check_choice("norm", "l2", ("l2", "fro"))
    """
    there_are = get_args(choices) or tuple(choices)
    if value not in there_are:
        raise UsageError(f"{name} must be one of {', '.join(there_are)}, got {value!r}")


def check_range(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    **values: float | None,
) -> None:
    """Refuse a setting that is out of its range, by a `UsageError` that names it; None is not set.

    >>> check_range(above=0, at_most=1, gamma=0.5, alpha=None)
    """
    bounds = [("above", above), ("at least", at_least), ("below", below), ("at most", at_most)]
    given = [(word, bound) for word, bound in bounds if bound is not None]
    limits = " and ".join(f"{word} {bound:,}" if math.isfinite(bound) else "finite" for word, bound in given)
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, Real):  # a checkpoint may hold anything
            kind = type(value).__name__
            raise UsageError(f"{name} must be a number, {limits}, got {kind}: {str(value)[:_LONGEST_REASON]}")
        inside = (
            (above is None or value > above)
            and (at_least is None or value >= at_least)
            and (below is None or value < below)
            and (at_most is None or value <= at_most)
        )
        if not inside:  # NaN is not either
            raise UsageError(f"{name} must be {limits}, got {value}")


def check_whole(
    *, at_least: int, at_most: int | None = None, below: int | None = None, **values: Any
) -> None:
    """`check_range` for a count: refuse what is no whole number, too.

    >>> check_whole(at_least=0, num_nodes=3, num_relations=None)
    """
    check_range(at_least=at_least, at_most=at_most, below=below, **values)
    for name, value in values.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
            raise UsageError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


class NonFiniteError(ArithmeticError, ValueError):
    """A loss, gradient, weight or score is NaN or infinite."""


class OutOfMemoryError(MemoryError):
    """Memory ran out where nothing can be computed in smaller parts. The text ends with the remedy."""


def normalise(name: str) -> str:
    """The form in which names are compared: `FB15k-237` and `fb15k237` are the same.

    >>> normalise("Countries_S1") == normalise("countries-s1")
    True
    """
    return "".join(character for character in name.lower() if character not in "-_ ")


def nearest(name: str, choices: Iterable[str], *, count: int = 3) -> list[str]:
    """The `count` choices most similar to `name`, the best first; empty when none comes near.

    >>> nearest("knowfromer", ["knowformer", "nodeformer", "pencil"])
    ['knowformer', 'nodeformer']
    """
    choices = list(dict.fromkeys(choices))
    by_form = {normalise(choice): choice for choice in reversed(choices)}
    close = [by_form[form] for form in get_close_matches(normalise(name), list(by_form), n=count, cutoff=0.6)]
    # A shortened name is not a close match by edit distance, yet what somebody who types `fb15k` means.
    begun = [choice for choice in choices if len(name) > 1 and normalise(choice).startswith(normalise(name))]
    return list(dict.fromkeys([*close, *begun]))[:count]


def suggestion(name: str, choices: Iterable[str], *, prefix: str = "") -> str:
    """`Did you mean: a, b?` or an empty string; a very long list is not searched."""
    choices = list(choices)
    close = nearest(name, choices) if len(choices) <= _MOST_CHOICES else []
    return f"Did you mean: {', '.join(prefix + choice for choice in close)}?" if close else ""


def shorten(text: str, *, lines: int = 6, width: int = 400) -> str:
    """At most `lines` non-empty lines of at most `width` characters."""
    kept = [line.rstrip() for line in text.split("\n") if line.strip()]
    if len(kept) > lines:
        kept = [*kept[: lines - 1], "..."]
    return "\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in kept)


def of_system(error: OSError) -> tuple[str, int]:
    """What an error of the system says on one line, and the exit status: 2 for a path that was named wrong.

    Without a file it is the output's, which alone is written to without a name.
    """
    where = "the output" if error.filename is None else os.fsdecode(error.filename)
    text = UsageError(f"{shorten_path(where)}: {error.strerror or str(error) or type(error).__name__}")
    return str(text), 2 if error.errno in _WRONG_PATH else 1


def shorten_path(path: str, *, width: int = 200) -> str:
    """A path of any length on one line, its begin and its end.

    >>> shorten_path("a" * 300, width=11)
    'aaaa...aaaa'
    """
    return path if len(path) <= width else f"{path[: (width - 3) // 2]}...{path[-((width - 3) // 2) :]}"


def reason(error: BaseException) -> str:
    r"""What an error of another library says, as part of a message: one line, and not the file's content.

    >>> reason(ValueError("bad header\nat line 1"))
    'bad header'
    """
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
