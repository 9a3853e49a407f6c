"""Looks up ids by name or by unique label; messages about unknown names list the nearest ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError, nearest

_FEW = 2_000


class Vocabulary:
    """The entities or the relations of a graph.

    Args:
        kind: "entity" or "relation", for messages.
        names: Names; the id of a name is its position.
        labels: Name -> readable text, for names that have one.

    >>> Vocabulary("relation", ["interacts_with", "is_a"]).find("is_a")
    1
    """

    def __init__(self, kind: str, names: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
        self.kind, self.names, self.labels = kind, names, labels or {}

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def _by_label(self) -> dict[str, list[str]]:
        by_label = defaultdict(list)
        for name in self.names:
            if name in self.labels:
                by_label[self.labels[name]].append(name)
        return by_label

    def get(self, name: object) -> int | None:
        """The id of a name or of a unique label; None for any other value.

        Names may be numbers; 2.0 also stands for 2, see `_whole`.
        """
        text = str(name)
        position = self._ids.get(text)
        if position is None and len(self._by_label.get(text, ())) == 1:
            position = self._ids[self._by_label[text][0]]
        if position is None and (number := _whole(name)) is not name:
            position = self.get(number)
        return position

    def find(self, name: object) -> int:
        """As `get`, but any other value is a `UsageError` with the nearest names."""
        position = self.get(name)
        if position is None:
            raise UsageError(f"unknown {self.explain(str(_whole(name)))}")
        return position

    def explain(self, name: str) -> str:
        """The end of a message about an unknown name, such as `entity 'x'; nearest: 'y', 'z'`."""
        sharing = self._by_label.get(name, [])
        if sharing:
            shown = ", ".join(map(repr, sharing[:3])) + (", ..." if len(sharing) > 3 else "")
            return f"{self.kind} {name!r}: {len(sharing)} names have this label ({shown}); give the name"
        close = self.nearest(name)
        if close:
            return f"{self.kind} {name!r}; nearest: {', '.join(map(repr, close))}"
        examples = ", ".join(map(repr, self.names[:2]))
        return f"{self.kind} {name!r}; none of the {len(self):,} names is similar (examples: {examples})"

    def shown(self, position: int) -> str:
        """The text shown for an id: its label, or else its name."""
        name = self.names[position]
        return self.labels.get(name) or name

    def nearest(self, name: str) -> list[str]:
        """Up to three names or labels similar to `name`, the best first."""
        choices = [*self.names, *self._by_label]
        if len(choices) > _FEW:
            # Comparing 100,000 names takes seconds: compare only those that share most letter triples.
            wanted = _triples(name)
            shared = Counter({choice: len(wanted & _triples(choice)) for choice in choices})
            choices = [choice for choice, count in shared.most_common(_FEW // 10) if count]
        return nearest(name, choices)

    def find_all(self, names: Iterable[object]) -> list[int]:
        """The ids of several names; see `find`."""
        ids = self._ids
        return [ids[name] if isinstance(name, str) and name in ids else self.find(name) for name in names]


class NodeNames:
    """The nodes of a graph, by name, or by number if they have no names.

    >>> NodeNames((), 3).find([2, "0"])
    tensor([2, 0])
    """

    kind = "node"

    def __init__(self, names: Sequence[str], num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._vocabulary = Vocabulary(self.kind, names) if names else None

    @cached_property
    def _array(self) -> np.ndarray[Any, np.dtype[Any]]:
        assert self._vocabulary is not None
        return np.array(self._vocabulary.names, dtype=object)

    @property
    def are_numbers(self) -> bool:
        """Whether the nodes have no names."""
        return self._vocabulary is None

    def get(self, name: object) -> int | None:
        """The number of a node; None if it is unknown."""
        if self._vocabulary is not None:
            return self._vocabulary.get(name)
        text = str(_whole(name))
        # int() refuses texts of thousands of digits.
        number = int(text) if text.isdecimal() and len(text) < 20 else self.num_nodes
        # 007 is not node 7: the answer would have another name than the query
        return number if number < self.num_nodes and text == str(number) else None

    def explain(self, name: object) -> str:
        """The end of a message about an unknown node."""
        if self._vocabulary is not None:
            return self._vocabulary.explain(str(_whole(name)))
        return f"node {_whole(name)!r}: nodes have the numbers 0 to {self.num_nodes - 1}"

    def find(self, nodes: str | int | Iterable[str | int]) -> Tensor:
        """Numbers [n], int64, of one node, of several, or of those in a mask [N] (array or tensor of bool).

        Raises:
            UsageError: for an unknown node, with the nearest names, and for a mask of another size.
        """
        numbers = []
        if str(getattr(nodes, "dtype", "")).rpartition(".")[2] == "bool":  # a mask, as in PyG
            mask = torch.as_tensor(nodes)
            if mask.shape != (self.num_nodes,):
                raise UsageError(f"a mask of nodes must be [{self.num_nodes}], got {list(mask.shape)}")
            return mask.cpu().nonzero().squeeze(1)
        given: Any = nodes.tolist() if hasattr(nodes, "tolist") else nodes  # an array, a tensor, a Series
        if not isinstance(given, Iterable) and not isinstance(_whole(given), int):
            raise UsageError(f"nodes must be a name, a number, or several of them, got {given!r}")
        for node in [given] if isinstance(given, str | int | float) else given:
            number = self.get(plain_item(node))
            if number is None:
                raise UsageError(f"unknown {self.explain(plain_item(node))}")
            numbers.append(number)
        return torch.tensor(numbers, dtype=torch.int64)

    def of(self, index: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
        """Names of the nodes `index` [n]; the numbers themselves if the nodes have no names."""
        numbers: np.ndarray[Any, np.dtype[Any]] = index.numpy()
        return numbers if self.are_numbers else self._array[numbers]


def plain_item(value: Any) -> Any:
    """The number or name in a tensor or array without dimensions; other values as they are."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _whole(name: object) -> object:
    """2 for 2.0, which pandas makes of 2 beside a missing number; other values as they are."""
    return int(name) if isinstance(name, float) and name.is_integer() else name


def _triples(text: str) -> set[str]:
    text = f" {text.lower()} "
    return {text[i : i + 3] for i in range(len(text) - 2)}
