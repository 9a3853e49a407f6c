"""Hiding a random share of a knowledge graph's facts from training queries, drawn anew in each epoch."""

from __future__ import annotations

from torch import Tensor

from graphzoo.errors import check_range
from graphzoo.ops.random import hash_integers, hash_numbers, uniform_from_hash
from graphzoo.ops.relational_spmm.graph import RelationalGraph
from graphzoo.sampling.neighbourhoods import NeighbourhoodSampler

_PURPOSE = 83


class FactDropout:
    """The facts of a graph that training queries see in an epoch.

    Like DropEdge (Rong et al., 2020), it removes random edges, drawn anew in each epoch. A fact is removed
    together with its inverse, and neighbourhoods are sampled from the remaining facts. Removed facts are
    still training queries.

    Args:
        triples: All facts (head, relation, tail), [n, 3], int64.
        num_entities: N.
        num_relations: R, without inverses.
        share: Probability of hiding a fact in an epoch, in [0, 1).
        seed: Seed of the draws; each is a function of seed, epoch and fact.

    Raises:
        UsageError: if `share` is out of range.
    """

    def __init__(
        self, triples: Tensor, num_entities: int, num_relations: int, share: float, seed: int = 0
    ) -> None:
        check_range(at_least=0, below=1, share=share)
        self.triples, self.share, self.seed = triples, share, seed
        self.num_entities, self.num_relations = num_entities, num_relations
        self._kept: tuple[int, Tensor] | None = None
        self._sampler: tuple[tuple[float, ...], NeighbourhoodSampler] | None = None

    def kept(self, epoch: int) -> Tensor:
        """True for facts that the queries of an epoch see, [n], bool; kept until the next epoch."""
        known = self._kept  # read once, since another thread may be an epoch ahead
        if known is None or known[0] != epoch:
            bits = hash_integers(hash_numbers(_PURPOSE, self.seed, epoch), *self.triples.long().unbind(1))
            self._kept = known = epoch, uniform_from_hash(bits) >= self.share
        return known[1]

    def sampler(self, epoch: int, like: NeighbourhoodSampler) -> NeighbourhoodSampler:
        """A sampler of neighbourhoods from an epoch's facts, with the settings of `like`."""
        key = epoch, like.num_nodes, like.relation_share, like.teleport, like.tolerance
        known = self._sampler
        if known is None or known[0] != key:
            facts = self.triples[self.kept(epoch)]
            graph = RelationalGraph.from_triples(facts, self.num_entities, self.num_relations)
            made = NeighbourhoodSampler(
                graph,
                like.num_nodes,
                relation_share=like.relation_share,
                teleport=like.teleport,
                tolerance=like.tolerance,
            )
            made.graph = None  # encoders that need the whole graph take that of all facts
            self._sampler = known = key, made
        return known[1]
