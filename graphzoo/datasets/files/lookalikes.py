"""Names that nobody can tell apart by looking at them, and that are different all the same."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

__all__ = ["lookalikes"]


def lookalikes(names: Iterable[str], kind: str) -> list[str]:
    r"""One line if names differ only in what cannot be seen, else nothing.

    That are characters without width (a zero-width space, marks of the direction), blanks at an end, and the
    two ways in which Unicode writes a letter with an accent.

    Args:
        names: Distinct names.
        kind: What has them, in the plural.

    >>> lookalikes(["ab", "a\u200bb", "c"], "entities")
    ["1 pair of entities looks the same, kept apart (first: 'ab' and 'a\\u200bb')"]
    """
    names = list(names)
    odd = [name for name in names if not name.isascii() or name[:1].isspace() or name[-1:].isspace()]
    if not odd:
        return []
    strange = set(odd)
    # what an odd name looks like may be a plain one, so those count as themselves
    plain = {name: name for name in names if name not in strange}
    pairs: list[tuple[str, str]] = []
    for name in odd:
        other = plain.setdefault(_seen(name), name)
        if other != name:
            pairs.append((other, name))
    if not pairs:
        return []
    one = len(pairs) == 1
    count = f"{len(pairs):,} pair{'' if one else 's'} of {kind} look{'s' if one else ''} the same, kept apart"
    return [f"{count} (first: {ascii(pairs[0][0])} and {ascii(pairs[0][1])})"]


def _seen(name: str) -> str:
    shown = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", shown).strip()
