"""Names in, ids out: exact names first, then labels that only one name has; the nearest names for any
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from graphzoo.errors import UsageError, nearest

__all__ = ["Vocabulary"]

_FEW = 2_000


class Vocabulary:
    """The entities or the relations of a graph.

    Args:
        kind: What the names are names of, "entity" or "relation", for messages.
        names: All names; the id is the position.
        labels: Readable text of some names.

    >>> Vocabulary("relation", ["interacts_with", "is_a"]).find("is_a")
    1
    """

    def __init__(self, kind: str, names: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.names = names
        self.labels = labels or {}

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def _by_label(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.names:
            if name in self.labels:
                found.setdefault(self.labels[name], []).append(name)
        return found

    def get(self, name: str) -> int | None:
        """The id of a name or of a label that is unique, else None."""
        position = self._ids.get(name)
        if position is None and len(self._by_label.get(name, ())) == 1:
            position = self._ids[self._by_label[name][0]]
        return position

    def find(self, name: str) -> int:
        """The id of a name or of a label that is unique.

        Raises:
            UsageError: naming the nearest names, or the names that share the label.
        """
        position = self.get(name)
        if position is None:
            raise UsageError(f"unknown {self.explain(name)}")
        return position

    def explain(self, name: str) -> str:
        """`entity 'x'; nearest: 'y', 'z'`: the end of a message about a name that has no id."""
        sharing = self._by_label.get(name, [])
        if sharing:
            shown = ", ".join(map(repr, sharing[:3])) + (", ..." if len(sharing) > 3 else "")
            return f"{self.kind} {name!r}: the label of {len(sharing)} names ({shown}); give the name"
        close = self.nearest(name)
        if close:
            return f"{self.kind} {name!r}; nearest: {', '.join(map(repr, close))}"
        examples = ", ".join(map(repr, self.names[:2]))
        return f"{self.kind} {name!r}; none of {len(self):,} is like it (they are {examples}, ...)"

    def nearest(self, name: str) -> list[str]:
        """Up to three names or labels like `name`, the best first."""
        choices = [*self.names, *self._by_label]
        if len(choices) > _FEW:
            # Comparing with a hundred thousand names takes seconds: take those that share most letter
            # triples.
            wanted = _triples(name)
            shared = Counter({choice: len(wanted & _triples(choice)) for choice in choices})
            choices = [choice for choice, count in shared.most_common(_FEW // 10) if count]
        return nearest(name, choices)

    def find_all(self, names: Iterable[str]) -> list[int]:
        """The ids of many names; see `find`."""
        ids = self._ids
        return [ids[name] if name in ids else self.find(name) for name in names]


def _triples(text: str) -> set[str]:
    text = f" {text.lower()} "
    return {text[i : i + 3] for i in range(len(text) - 2)}
