"""Scores of queries, on the whole graph or in their neighbourhoods, in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from graphzoo.encoders.base import QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.ops import QueryGraph, RelationalGraph
from graphzoo.sampling import NeighbourhoodSampler, edges_of_fact, hash_numbers
from graphzoo.system.memory import Halves
from graphzoo.tasks.base import SMALLER, Task
from graphzoo.tasks.scores import (
    MARGIN,
    NEAR_QUERIES,
    mean_of_draws,
    outside_near,
    score_far,
    score_near,
)
from graphzoo.types import GraphSpec, NeighbourhoodSpec, Protocol

# Noise of evaluation; training steps count from 1, so that no step shares it.
EVALUATION_STEP = 0
# States, their update, aggregation and attention temporaries alive at once, in [N, B, D] tensors, while
# scoring.
_LIVE_STATES = 8


class QueryScoring(Task):
    """What a task with a `QueryEncoder` needs to answer queries of a knowledge graph.

    Args:
        encoder: `GraphSpec -> QueryEncoder`.
        start_from: See `KGCompletion`.
        num_draws: See `KGCompletion`.
        max_score_bytes: See `KGCompletion`.
        seed: Seed of noise.
    """

    def __init__(
        self,
        encoder: Callable[[GraphSpec], QueryEncoder] | None,
        start_from: str | None,
        *,
        num_draws: int,
        max_score_bytes: int,
        seed: int,
    ) -> None:
        super().__init__(encoder, start_from)
        self.num_draws, self.max_score_bytes, self.seed = num_draws, max_score_bytes, seed
        self._near: tuple[RelationalGraph, NeighbourhoodSpec, NeighbourhoodSampler] | None = None
        self._halves = Halves("scoring", "queries", SMALLER)

    def __getstate__(self) -> dict[str, Any]:
        """Copies also leave out the graph that neighbourhoods are sampled from."""
        return {**super().__getstate__(), "_near": None}

    @property
    def query_encoder(self) -> QueryEncoder:
        """The built encoder; an error that says what to do before it is built."""
        if not isinstance(self.encoder, QueryEncoder):
            raise UsageError("the model is not built yet: fit it, or load a checkpoint")
        return self.encoder

    @property
    def neighbourhoods(self) -> NeighbourhoodSpec | None:
        """How queries get their neighbourhoods: as in the data, or without data as in the checkpoint."""
        if self._has_data():
            spec: NeighbourhoodSpec | None = self._datamodule().neighbourhoods
            return spec
        stored = self._loaded_data.get("data", {}).get("neighbourhoods")
        return None if stored is None else NeighbourhoodSpec.from_dict(stored)

    def _sampler(
        self, graph: RelationalGraph, protocol: Protocol | None = None
    ) -> NeighbourhoodSampler | None:
        """The sampler of a graph; None where queries reason over all of it."""
        spec = self.neighbourhoods
        if spec is None or spec.num_nodes >= graph.num_nodes:
            return None
        if (protocol or spec.protocol) != "neighbourhood":
            return None
        near = self._near  # read once: another thread may replace it for another graph
        if near is None or near[0] is not graph or near[1] != spec:
            sampler = NeighbourhoodSampler(graph, spec.num_nodes, relation_share=spec.relation_share)
            self._near = near = graph, spec, sampler
        return near[2]

    def _score_in_parts(
        self, graph: RelationalGraph, head: Tensor, relation: Tensor, protocol: Protocol | None = None
    ) -> Tensor:
        self.questions_asked += head.numel()
        sampler = self._sampler(graph, protocol)
        size = self._most_at_once(graph, sampler)
        if sampler is not None:
            size = max(1, min(NEAR_QUERIES, size))
        elif not size:  # one query is the least there is
            self.check_memory(1, graph.num_nodes, option="--model.max_score_bytes")

        def score(start: int, stop: int) -> Tensor:
            asked = head[start:stop], relation[start:stop]
            if sampler is None:
                return self._drawn_logits(graph, *asked)
            return score_near(sampler, *asked, self._drawn_logits, margin=MARGIN)[0]

        scores = self._halves(score, head.numel(), size)
        return torch.cat(scores) if scores else torch.empty(0, graph.num_nodes, device=head.device)

    def outside(self, graph: RelationalGraph, head: Tensor, relation: Tensor) -> Tensor | None:
        """Which entities lie outside the neighbourhood of each query, [B, N], bool.

        Queries are `head` [B] and `relation` [B], as in `score_queries`; None if they see the whole graph.
        """
        if (sampler := self._sampler(graph)) is None:
            return None
        return outside_near(sampler, head, relation)

    @torch.no_grad()
    def score_far(self, graph: RelationalGraph, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Logits of entities outside their query's neighbourhood, [P], for `head`, `relation`, `tail` [P].

        Each has a neighbourhood of its own, see `graphzoo.tasks.scores.score_far`.
        """
        sampler = self._sampler(graph)
        assert sampler is not None

        def score(start: int, stop: int) -> Tensor:
            part = slice(start, stop)
            return score_far(sampler, head[part], relation[part], tail[part], self._drawn_logits)

        scores = self._halves(
            score, head.numel(), max(1, min(NEAR_QUERIES, self._most_at_once(graph, sampler)))
        )
        return torch.cat(scores) if scores else torch.empty(0, device=head.device)

    @property
    def most_far(self) -> int:
        """How many entities outside its neighbourhood a query may be scored for: as many as are inside."""
        spec = self.neighbourhoods
        return 0 if spec is None else spec.num_nodes

    def _most_at_once(self, graph: RelationalGraph, sampler: NeighbourhoodSampler | None) -> int:
        """Queries whose states fit into `max_score_bytes`."""
        channels = self.query_encoder.out_channels
        num_nodes = graph.num_nodes if sampler is None else sampler.num_nodes
        return int(self.max_score_bytes // max(1, num_nodes * channels * 4 * _LIVE_STATES))

    def _drawn_logits(self, graph: RelationalGraph | QueryGraph, head: Tensor, relation: Tensor) -> Tensor:
        return mean_of_draws(lambda seed: self._logits(graph, head, relation, None, seed), self.num_draws)

    def edge_gradients(
        self, graph: RelationalGraph, head: Tensor, relation: Tensor, tail: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logit of one answer and its gradient for every edge's weight; see `QueryEncoder.edge_gradients`.

        Args:
            graph: Facts to reason over, with inverses; the fact itself and its inverse are hidden.
            head: [1], int64.
            relation: [1], int64, in 0..2R-1.
            tail: The answer, [1], int64; if it lies outside the neighbourhood, it is brought in.

        Returns:
            The logit, a scalar, and the gradients [E].
        """
        near, head, node, mask = self._around(graph, head, relation, tail)

        def score(states: Tensor) -> Tensor:
            return self.decode(states)[0, node[0]]

        values, gradients = zip(
            *(
                self.query_encoder.edge_gradients(
                    near, head, relation, score, edge_mask=mask, noise_seed=seed
                )
                for seed in range(self.num_draws)
            ),
            strict=True,
        )
        value, gradient = torch.stack(values).mean(0), torch.stack(gradients).mean(0)
        if isinstance(near, QueryGraph):
            assert near.edge is not None
            gradient = gradient.new_zeros(graph.num_edges).index_put_((near.edge,), gradient)
        return value, gradient

    def attention(self, graph: RelationalGraph, head: Tensor, relation: Tensor, node: Tensor) -> Tensor:
        """Attention of the answer `node` of one query, [L, N, 1]; see `QueryEncoder.attention`.

        The fact itself is hidden, as in `edge_gradients`; entities outside a neighbourhood have weight 0.
        """
        near, head, place, mask = self._around(graph, head, relation, node)
        weights = mean_of_draws(
            lambda seed: self.query_encoder.attention(
                near, head, relation, place, edge_mask=mask, noise_seed=seed
            ),
            self.num_draws,
        )
        if isinstance(near, QueryGraph):
            whole = weights.new_zeros(weights.shape[0], graph.num_nodes, 1)
            weights = whole.index_copy_(1, near.nodes[0], weights)
        return weights

    def _around(
        self, graph: RelationalGraph, head: Tensor, relation: Tensor, node: Tensor
    ) -> tuple[RelationalGraph | QueryGraph, Tensor, Tensor, Tensor | None]:
        """The graph that one query sees, its head and a node there, and a mask that hides their fact."""
        hidden = edges_of_fact(graph, int(head), int(relation), int(node))
        if (sampler := self._sampler(graph)) is None:
            return graph, head, node, ~hidden if bool(hidden.any()) else None
        # If the answer is not a fact, nothing is hidden: the neighbourhood is that of the prediction.
        hides: Literal["exact", "none"] = "exact" if hidden.any() else "none"
        near = sampler(head, relation, node, hides=hides, outside="bring", with_edges=True)[0].to(head.device)
        return near, near.find(head), near.find(node), None

    def _logits(
        self,
        graph: RelationalGraph | QueryGraph,
        head: Tensor,
        relation: Tensor,
        edge_mask: Tensor | None,
        noise_seed: int,
    ) -> Tensor:
        states = self.query_encoder(graph, head, relation, edge_mask=edge_mask, noise_seed=noise_seed)
        return self.decode(states)

    def _noise_seed(self, step: int) -> int:
        # Evaluation does not depend on the run's seed: a checkpoint has one result.
        return 0 if step == EVALUATION_STEP else hash_numbers(self.seed, step)

    def _graph(self, split: str, source: int = 0) -> RelationalGraph:
        whole = self._datamodule().graph(split, source)
        graph: RelationalGraph = self.to_device_once(f"graph/{split}/{source}", whole)
        return graph
