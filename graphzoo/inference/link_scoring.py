"""Scores pairs of node numbers as in the run's evaluation, and finds the best partners of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphzoo.datamodules import LinkDataModule
from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import LinkGraph
from graphzoo.datasets.link.pairs import in_keys, pair_keys
from graphzoo.encoders.base import NodeEncoder, PairEncoder, QueryEncoder
from graphzoo.errors import UsageError, check_whole
from graphzoo.inference.names import NodeNames
from graphzoo.inference.scoring import Columns, FilterKnown, best_columns, check_finite
from graphzoo.layers.noise import in_evaluation
from graphzoo.ops import RelationalGraph
from graphzoo.ops.of_weights import OfWeights
from graphzoo.system.memory import Halves, explain_out_of_memory
from graphzoo.system.progress import progress
from graphzoo.tasks import LinkPrediction
from graphzoo.tasks.prepared_graph import PreparedGraph
from graphzoo.tasks.scores import NEAR_QUERIES, mean_of_draws
from graphzoo.types import PairBatch

# The split whose message graph and settings are those of `graphzoo test`.
_SPLIT = "test"
_NEAR = ("neighbourhood", "eval_neighbourhood")
_SETTINGS = ("depth", "num_neighbors", "num_relabelings", "both_directions")
# Pairs that are looked at together: their numbers, scores and order take some ten MB.
_PAIRS = 2**18
# Entries of the adjacency [B, S, S] of a batch of subgraphs; of states of pairs [B, D] or queries [N, B, D].
_ADJACENCY = 2**23
_STATES = 2**22


class _GivenGraph(LinkDataModule):
    """A DataModule with a run's settings for batches, on a graph in memory."""

    def __init__(self, graph: LinkGraph, x: Tensor | None, **settings: Any) -> None:
        super().__init__(**settings)
        self.name, self._graph, self._x = graph.name, graph, x


class LinkPlace:
    """A graph with what scoring its pairs needs, each made at its first use; arguments as of `LinkModel`."""

    def __init__(
        self,
        task: LinkPrediction,
        graph: LinkGraph,
        transform: FeatureTransform | None,
        settings: Mapping[str, Any],
        cache: Path | None = None,
    ) -> None:
        self._cache = cache
        assert task.spec is not None
        if task.batching == "whole":
            raise UsageError(
                f"{type(task.encoder).__name__} is a heuristic without weights: score pairs with "
                "graphzoo.heuristics"
            )
        x = None
        if transform is not None and task.batching != "sources":  # query encoders read no features
            if graph.x is None:
                raise UsageError(
                    f"{graph.name}: its nodes have no features, but the model was trained with "
                    f"{transform.in_channels}: give a graph with the same features"
                )
            x = transform(graph.x, graph.feature_names)
        self.graph = graph
        self.names = NodeNames(graph.node_names, graph.num_nodes)
        self._task = task
        # The budget is the model's: without one of its own, the data's would follow the size of their graph.
        self._data = _GivenGraph(
            graph,
            x,
            max_nodes=task.spec.max_subgraph_nodes or None,
            **{name: settings[name] for name in _SETTINGS},
            **{name: settings.get(name) for name in _NEAR},  # older checkpoints know of none
        )
        self._data.batching = task.batching
        self._encoded: OfWeights[Tensor] = OfWeights()
        units = "nodes" if task.batching == "sources" else "pairs"
        self._halves = Halves("scoring", units, "Take another --device, or a model with fewer channels")

    def graph_inputs(self) -> tuple[Tensor | None, Tensor]:
        """Features as the encoder sees them, [N, F], and the edges along which messages pass, [2, E]."""
        return self._data.x, self._data.edge_index(_SPLIT)

    def relational_graph(self) -> RelationalGraph:
        """Edges as query encoders take them: links are of relation 0, and inverses of directed ones of 1."""
        return self._data.relational_graph(_SPLIT)

    @property
    def pairs_at_once(self) -> int:
        """The best number of pairs for a call of `score`."""
        # One query answers all pairs of a source, so these should stay together.
        return max(_PAIRS, self.graph.num_nodes) if self._task.batching == "sources" else _PAIRS

    @cached_property
    def _known_keys(self) -> Tensor:
        graph = self.graph
        links = torch.cat([graph.positive(split) for split in ("train", "valid", "test")])
        keys: Tensor = torch.unique(pair_keys(links, graph.num_nodes, is_directed=graph.is_directed))
        return keys

    def is_known(self, pairs: Tensor) -> Tensor:
        """Which pairs [..., 2] are links of the training, validation or test split, [...], bool."""
        graph = self.graph
        keys = pair_keys(pairs, graph.num_nodes, is_directed=graph.is_directed)
        return in_keys(keys, self._known_keys)

    @torch.no_grad()
    def score(
        self,
        pairs: Tensor,
        batch_size: int | None = None,
        *,
        brings: bool = False,
        advance: Callable[[float], None] = lambda pairs: None,
    ) -> Tensor:
        """Logits of pairs [M, 2] of different nodes, means over the run's directions and relabelings.

        Args:
            pairs: Numbers of nodes.
            batch_size: Pairs (queries of a `QueryEncoder`) that are scored at once; None chooses by memory.
            brings: Whether a model with neighbourhoods also computes logits for pairs of distant nodes, each
                at the cost of a query. If not, their scores only order them, as in the test.
            advance: Told the number of pairs after each batch.

        Returns:
            [M], float32; NaN and infinity are a `UsageError`.
        """
        check_whole(at_least=1, batch_size=batch_size)
        with in_evaluation(self._task):
            return self._score(pairs, batch_size, brings, advance)

    def _score(
        self, pairs: Tensor, batch_size: int | None, brings: bool, advance: Callable[[float], None]
    ) -> Tensor:
        total = torch.zeros(pairs.shape[0], dtype=torch.float64)
        if self._task.batching == "sources":
            parts, num_copies = self._answers(pairs, batch_size, brings), 1 + self._data.both_directions
        else:
            self._data.eval_batch_size = batch_size or self._batch_size
            batches = self._data.scoring_batches(pairs, _SPLIT)
            num_copies = batches.num_copies
            parts = (
                (batch.index, self._logits(batch)) for batch in map(batches.__getitem__, range(len(batches)))
            )
        for index, logits in parts:
            total.index_add_(0, index, check_finite(logits.float()).double().cpu())
            advance(index.numel() / num_copies)
        return (total / num_copies).float()

    @property
    def _batch_size(self) -> int:
        if self._task.batching == "subgraphs":
            return max(1, min(1024, _ADJACENCY // self._data.subgraph_budget**2))
        assert self._task.encoder is not None
        states_each = self.graph.num_nodes if self._task.batching == "sources" else 1
        return max(1, min(_PAIRS, _STATES // (states_each * self._task.encoder.out_channels)))

    def _logits(self, batch: PairBatch) -> Tensor:
        task, device = self._task, self._task.device
        pairs = isinstance(task.encoder, PairEncoder)
        x = task.to_device_once("x", self._data.x) if pairs and self._data.x is not None else None
        states = None if pairs else self._states

        def score(start: int, stop: int) -> Tensor:
            part = batch.part(start, stop).to(device)
            if states is None:
                source, target = task.encoder(part.subgraphs, x).chunk(2, dim=-1)  # type: ignore[misc]
            else:
                source, target = (states[nodes] for nodes in part.edge_label_index)
            logits = task.decode(source, target)
            return logits

        return torch.cat([torch.empty(0, device=device), *self._halves(score, len(batch))])

    @property
    def _states(self) -> Tensor:
        """States of all nodes, [N, D], computed anew when the weights have changed."""
        return self._encoded.get(self._task, self._encode)

    def _encode(self) -> Tensor:
        encoder, data = self._task.encoder, self._data
        assert isinstance(encoder, NodeEncoder) and data.x is not None
        prepared = PreparedGraph(encoder, data.x, data.edge_index(_SPLIT), self._task.device, self._cache)
        with explain_out_of_memory("encoding the whole graph", self._halves.remedy):
            return encoder.forward_with_auxiliary(prepared.x, prepared.edge_index, **prepared.precomputed)[0]

    def _answers(
        self, pairs: Tensor, batch_size: int | None, brings: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Places of pairs and their logits, every distinct source once."""
        for u, v in [pairs.t(), pairs.t().flip(0)][: 1 + self._data.both_directions]:
            yield from self._answers_from(u, v, batch_size or self._batch_size, brings)

    def _answers_from(self, u: Tensor, v: Tensor, size: int, brings: bool) -> list[tuple[Tensor, Tensor]]:
        encoder, device = self._task.encoder, self._task.device
        assert isinstance(encoder, QueryEncoder)
        sampler = self._data.neighbourhoods(_SPLIT)
        graph = self._task.to_device_once("relational", self.relational_graph())
        heads, row = torch.unique(u, return_inverse=True)
        order = row.argsort(stable=True)
        first_of = torch.searchsorted(row[order], torch.arange(heads.numel() + 1))

        def answer(start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
            """Places of the pairs of some heads, their logits, and which are far."""
            head = heads[start:stop].to(device)
            index = order[first_of[start] : first_of[stop]]
            node, place = v[index].to(device), (row[index] - start).to(device)
            if sampler is not None:
                scores, far = self._task.score_near(sampler, head)
                return index, scores[place, node], far[place, node].cpu()

            def score(seed: int) -> Tensor:
                states = encoder(graph, head, torch.zeros_like(head), noise_seed=seed)
                return self._task.decode(states[node, place][:, None]).squeeze(0)

            logits = mean_of_draws(score, self._task.num_draws)
            return index, logits, torch.zeros(index.numel(), dtype=torch.bool)

        if sampler is None:
            return [found[:2] for found in self._halves(answer, heads.numel(), size)]
        size = min(size, NEAR_QUERIES)
        found = self._halves(answer, heads.numel(), size)
        if not brings:
            return [(index, logits) for index, logits, _ in found]
        far = torch.cat([torch.empty(0, dtype=torch.int64), *(index[far] for index, _, far in found)])

        def bring(start: int, stop: int) -> tuple[Tensor, Tensor]:
            index = far[start:stop]
            return index, self._task.score_far(sampler, u[index].to(device), v[index].to(device))

        near = [(index[~far], logits[~far.to(device)]) for index, logits, far in found]
        return [*near, *self._halves(bring, far.numel(), size)]


def best_partners(
    place: LinkPlace,
    nodes: Tensor,
    candidates: Tensor,
    *,
    k: int,
    known: FilterKnown,
    batch_size: int | None = None,
) -> Iterator[Columns]:
    """The k best partners of each of the nodes [n], some nodes at a time; see `LinkModel.predict`.

    The candidates [C] ascend; no node is its own.

    Yields:
        One entry per partner, by node and rank; one table without entries if there are no nodes.
    """
    limit = place.pairs_at_once
    with progress("scoring pairs", nodes.numel() * candidates.numel()) as advance:
        for group in torch.split(nodes, max(1, limit // candidates.numel())):
            partner = torch.empty(group.numel(), 0, dtype=torch.int64)
            score = torch.empty(partner.shape, dtype=torch.float32)
            is_known = torch.empty(partner.shape, dtype=torch.bool)
            for piece in torch.split(candidates, limit):
                shape = (group.numel(), piece.numel())
                pairs = torch.stack([group[:, None].expand(shape), piece.expand(shape)], dim=-1)
                are_known = torch.zeros(shape, dtype=torch.bool) if known == "keep" else place.is_known(pairs)
                shown = pairs[..., 0] != pairs[..., 1]
                if known == "drop":
                    shown &= ~are_known
                scores = torch.full(shape, -torch.inf, dtype=torch.float32)
                scores[shown] = place.score(pairs[shown], batch_size, advance=advance)
                # The best so far come first, and candidates ascend: equal ones stay in order.
                score, partner = torch.cat([score, scores], 1), torch.cat([partner, pairs[..., 1]], 1)
                is_known = torch.cat([is_known, are_known], 1)
                order = best_columns(score, k)
                score, partner, is_known = (table.gather(1, order) for table in (score, partner, is_known))
            kept = score > -torch.inf
            rank = torch.arange(1, score.shape[1] + 1).expand_as(score)
            picked = {
                "node": group[:, None].expand_as(score),
                "partner": partner,
                "rank": rank,
                "score": score,
                "probability": score.sigmoid(),
                "known": is_known,
            }
            yield {name: value[kept].numpy() for name, value in picked.items()}
