"""Hiding the facts of a training batch from message passing over the whole graph.

In neighbourhoods the sampler hides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from graphzoo.errors import check_choice
from graphzoo.system.tensors import check_index

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph


RemoveFacts = Literal["exact", "one_hop", "none"]
# So many questions, at least, would be linked if they were drawn like the facts; a share of these of at most
# so much is rare. In 23 public graphs it is 0, or 0.9 and more.
_EXPECTED, _RARE = 10, 0.25


def edges_of_fact(graph: RelationalGraph, head: int, relation: int, tail: int) -> Tensor:
    """A mask of the edges of a fact and its inverse.

    Args:
        graph: Graph with edge types 0..2R-1, inverses included.
        head: Head entity of the fact.
        relation: Relation of the fact, in 0..2R-1.
        tail: Tail entity of the fact.

    Returns:
        True for the edges of the fact and of its inverse, [E], bool; all False if the graph does not have it.
    """
    source, target = graph.edge_index
    inverse = (relation + graph.num_relations // 2) % graph.num_relations
    forward = (source == head) & (target == tail) & (graph.edge_type == relation)
    backward = (source == tail) & (target == head) & (graph.edge_type == inverse)
    is_fact: Tensor = forward | backward
    return is_fact


@dataclass(frozen=True)
class Linked:
    """How many facts and questions join two entities that another fact joins, in either direction."""

    facts: float  # share
    questions: float  # share
    num_questions: int

    @classmethod
    def among(cls, facts: Tensor, questions: Tensor, known: Tensor) -> Linked:
        """Count them.

        Args:
            facts: Training triples, [n, 3]; repetitions count once.
            questions: Validation triples, [m, 3].
            known: The facts that the questions see, [k, 3]: the training triples, or those of another graph.
        """
        _, pair = torch.unique(_pairs(facts), return_inverse=True)
        # One number for each fact: to compare the rows themselves takes 20 times as long.
        num_kinds = 2 * (int(facts[:, 1].max()) + 1) if len(facts) else 1
        kind = 2 * facts[:, 1].long() + (facts[:, 0] > facts[:, 2])
        distinct = torch.unique(pair * num_kinds + kind) // num_kinds
        times = torch.bincount(distinct)
        flags = times[distinct] > 1, torch.isin(_pairs(questions), _pairs(known))
        shares = [float(flag.double().mean()) if flag.numel() else 0.0 for flag in flags]
        return cls(shares[0], shares[1], len(questions))

    @property
    def removal(self) -> Literal["exact", "one_hop"]:
        """What to hide from a training query, so that it sees as much as a question does.

        "one_hop" if hardly any question joins entities that a fact joins, though many facts do, as in
        FB15k-237. Trained with "exact", a model would rely on the other facts of the two entities.
        """
        is_rare = self.questions <= _RARE * self.facts and self.facts * self.num_questions >= _EXPECTED
        return "one_hop" if is_rare else "exact"


def _pairs(triples: Tensor) -> Tensor:
    """A number for the two entities of each triple, the same in both directions, [n], int64."""
    low, high = triples[:, ::2].long().aminmax(dim=1)
    return low * 2**31 + high


class FactRemover:
    """Edge masks that hide the facts of a batch, so that the graph need not be built again.

    It is built once for the graph of the training split, in which edge i is fact i and edge i + n its
    inverse. A mask takes O(E) time.

    Args:
        triples: All facts (head, relation, tail) of the graph, [n, 3], int64 or int32.
        num_entities: N.
        mode: "exact" hides the batch's facts, their inverses, and repetitions of both. "one_hop" hides all
            edges between the two entities of a batch's fact, of any relation and in both directions. "none"
            hides nothing.

    Raises:
        ValueError: for an unknown mode, another shape or dtype, or entities outside 0..N-1.
    """

    def __init__(self, triples: Tensor, num_entities: int, mode: RemoveFacts = "exact") -> None:
        check_choice("remove_facts", mode, RemoveFacts)
        check_index("triples", triples)
        if triples.dim() != 2 or triples.shape[1] != 3:
            raise ValueError(f"triples must have shape [n, 3], got {list(triples.shape)}")
        self.mode = mode
        self.num_facts = triples.shape[0]
        self._group: Tensor | None = None  # for each fact, its group; facts of a group are hidden together
        self._num_groups = 0
        if mode == "none":
            return
        ends = triples[:, ::2].long()  # the product below would overflow in int32
        if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < num_entities:
            raise ValueError(
                f"entities must be in 0..{num_entities - 1}, got {int(ends.min())}..{int(ends.max())}"
            )
        low, high = ends.aminmax(dim=1) if mode == "one_hop" else ends.unbind(1)
        groups, group = torch.unique(low * num_entities + high, return_inverse=True)
        if mode == "exact":
            keys = triples[:, 1].long() * groups.numel() + group
            groups, group = torch.unique(keys, return_inverse=True)
            if groups.numel() == self.num_facts:  # no fact is repeated
                return
        self._group, self._num_groups = group, groups.numel()

    def to(self, device: torch.device | str) -> FactRemover:
        """Move the lookup table, in place."""
        if self._group is not None:
            self._group = self._group.to(device)
        return self

    def edge_mask(self, removed: Tensor) -> Tensor | None:
        """A mask of the edges that are not hidden.

        Args:
            removed: Positions of the batch's facts, [G], int64 or int32.

        Returns:
            True for edges that are not hidden, [2n], bool; None if the mode is "none".

        Raises:
            ValueError: if `removed` is not integers, or, on the CPU, has positions outside 0..n-1.
        """
        check_index("removed", removed)
        if self.mode == "none":
            return None
        if removed.device.type == "cpu" and removed.numel():
            least, most = int(removed.min()), int(removed.max())
            if least < 0 or most >= self.num_facts:
                raise ValueError(f"removed has {least}..{most}: facts are 0..{self.num_facts - 1}")
        if self._group is None:
            keep = torch.ones(self.num_facts, dtype=torch.bool, device=removed.device)
            keep.index_fill_(0, removed.long(), False)  # `keep[removed] = False` would copy a scalar
        else:
            if self._group.device != removed.device:
                self.to(removed.device)
            hidden = torch.zeros(self._num_groups, dtype=torch.bool, device=removed.device)
            hidden.index_fill_(0, self._group[removed], True)
            keep = ~hidden[self._group]
        return torch.cat([keep, keep])
