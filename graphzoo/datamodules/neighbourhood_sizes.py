"""Sizes of the neighbourhoods that queries are asked in, what they are in words, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from graphzoo.errors import UsageError, check_whole
from graphzoo.types import NeighbourhoodSpec, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from graphzoo.ops import RelationalGraph
    from graphzoo.sampling import NeighbourhoodSampler

# "auto": entities in training and in evaluation (also the size above which it applies)
_AUTO, _EVAL_AUTO = 300, 1000
# for `query_cost`
_COUNTED_QUERIES, _FACTS_OF_A_STATE, _COST_NEAR = 32, 20, 2


@dataclass(frozen=True)
class NeighbourhoodSizes:
    """Sizes of neighbourhoods as a user asks for them. What they come to depends on the size of the graph.

    The methods take `num_entities`, the size of the graph that is trained on.

    Args:
        trained: Entities K in training; None is the whole graph, "auto" decides by the size of the graph.
        later: Other sizes from later epochs on, {epoch: K}, epochs counted from 0.
        evaluated: Entities K in evaluation; None takes `trained`.
        relation_share: See `NeighbourhoodSpec`, like `protocol`.
        protocol: How a model with neighbourhoods is evaluated.

    Raises:
        UsageError: if a value is out of its range, or `evaluated` or `later` is given without `trained`.
    """

    trained: int | Literal["auto"] | None
    later: dict[int, int]
    evaluated: int | None
    relation_share: float
    protocol: Protocol

    def __post_init__(self) -> None:
        if isinstance(self.trained, str) and self.trained != "auto":
            raise UsageError(f"neighbourhood must be a number of entities or 'auto', got {self.trained!r}")
        check_neighbourhoods(self.trained, self.evaluated)
        _check_later(self.later, self.trained)
        NeighbourhoodSpec(_EVAL_AUTO, self.relation_share, self.protocol)  # checks these two

    @property
    def is_auto(self) -> bool:
        """Whether the size of the graph decides."""
        return self.trained == "auto"

    def in_training(self, num_entities: int) -> int | None:
        """Entities of a training query's neighbourhood in the first epoch; None for the whole graph."""
        size = self.trained
        if size == "auto":
            size = _AUTO if num_entities > _EVAL_AUTO else None
        return None if size is None or size >= num_entities else size

    def by_epoch(self, num_entities: int) -> dict[int, int]:
        """Sizes in training by the first epoch of their use; empty for the whole graph."""
        first = self.in_training(num_entities)
        return {} if first is None else {0: first, **self.later}

    def in_evaluation(self, num_entities: int) -> NeighbourhoodSpec | None:
        """How evaluated queries get their neighbourhoods; None for the whole graph."""
        trained = self.in_training(num_entities)
        if trained is None:
            return None
        usual = _EVAL_AUTO if self.is_auto else trained
        return NeighbourhoodSpec(self.evaluated or usual, self.relation_share, self.protocol)

    def in_words(self, num_entities: int) -> str:
        """Where training queries are asked."""
        if (first := self.in_training(num_entities)) is not None:
            later = "".join(
                f", {'the whole graph' if size >= num_entities else f'{size:,}'} from epoch {epoch + 1} on"
                for epoch, size in sorted(self.later.items())
            )
            return f"trained {near_in_words(first, 'entities')}{later}"
        others = {"eval_neighbourhood": self.evaluated, "later_neighbourhoods": self.later}
        unused = [name for name, value in others.items() if value]
        unused_words = f"; {' and '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used"
        return whole_in_words(self.trained, "entities") + (unused_words if unused else "")


def check_neighbourhoods(neighbourhood: int | str | None, eval_neighbourhood: int | None) -> None:
    """Check the sizes of neighbourhoods in training and evaluation."""
    size = None if isinstance(neighbourhood, str) else neighbourhood
    check_whole(at_least=2, neighbourhood=size, eval_neighbourhood=eval_neighbourhood)
    if eval_neighbourhood is not None and neighbourhood is None:
        raise UsageError(
            f"eval_neighbourhood {eval_neighbourhood} is for models that train in neighbourhoods: "
            "give --data.neighbourhood too, or leave it out"
        )


def _check_later(sizes: dict[int, int], neighbourhood: int | str | None) -> None:
    for epoch, size in sizes.items():
        if epoch < 1 or size < 2:
            raise UsageError(
                f"later_neighbourhoods take epochs from 1 on and sizes from 2 on, got {epoch}: {size}"
            )
    if sizes and neighbourhood is None:
        raise UsageError("later_neighbourhoods follow a first one: give --data.neighbourhood too")


def near_in_words(size: int, what: str, num_nodes: int | None = None) -> str:
    """Where queries are asked, for neighbourhoods of this size in a graph of `num_nodes`.

    >>> near_in_words(1000, "entities"), near_in_words(1000, "entities", 800)
    ('in neighbourhoods of 1,000 entities', 'on the whole graph')
    """
    if num_nodes is not None and size >= num_nodes:
        return "on the whole graph"
    return f"in neighbourhoods of {size:,} {what}"


def whole_in_words(asked: int | str | None, what: str) -> str:
    """Where queries are asked if there are no neighbourhoods, though a size may have been asked for.

    >>> whole_in_words(1000, "nodes")
    'in the whole graph, which has no more than 1,000 nodes'
    """
    few = f", which has no more than {asked:,} {what}" if isinstance(asked, int) else ""
    return f"in the whole graph{few}"


def query_cost(triples: Tensor, graph: RelationalGraph, sampler: NeighbourhoodSampler | None) -> float:
    """Estimate the cost of the first queries of `triples` [n, 3] together.

    Passing a message along a fact counts 1, and the state of an entity 20. A neighbourhood counts twice,
    because it has to be chosen, and small graphs are less efficient.

    Args:
        triples: Their heads and relations are asked, at most 32.
        graph: The graph without neighbourhoods.
        sampler: Its neighbourhoods; None for the whole graph.
    """
    head, relation, _ = triples[:_COUNTED_QUERIES].unbind(1)
    if sampler is None:
        return len(head) * (graph.num_edges + _FACTS_OF_A_STATE * graph.num_nodes)
    near = sampler(head, relation)[0]
    return _COST_NEAR * (near.num_edges + _FACTS_OF_A_STATE * near.nodes.numel())
