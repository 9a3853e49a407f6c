"""Reverse queries: combine the score of (h, r, t) with that of h as the answer of (t, r^-1, ?)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.errors import UsageError, check_range
from graphzoo.ops import RelationalGraph
from graphzoo.system.units import size

_ROWS = 256  # rows whose probabilities are computed at once


class ReversedQueries:
    r"""Joins the scores of a question with those of its reversals.

    With p the probability of t as the answer of (h, r, ?) and q that of h as the answer of
    :math:`(t, r^{-1}, ?)`, the joint score is that of their weighted geometric mean,
    :math:`\log\bar p = (\log p + w \log q) / (1 + w)`. The reversals of a relation are a question from every
    entity. They are asked once per relation and kept until `clear`, or until `join` gets another
    graph or `made_by`.

    Args:
        weight: w, at least 0.
        is_binary: Whether each score is the logit of a yes-no question; the joint score is one, too. If not,
            scores are logits over all entities, and the joint score is a log-probability, not normalised.
        max_bytes: Bound on the memory of the scores that are kept.
    """

    def __init__(self, weight: float, *, is_binary: bool, max_bytes: int) -> None:
        self.weight, self.is_binary, self.max_bytes = weight, is_binary, max_bytes
        self.clear()

    @property
    def weight(self) -> float:
        """w; scores that are kept do not depend on it."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        check_range(at_least=0, below=math.inf, reverse_weight=weight)
        self._weight = weight

    def clear(self) -> None:
        """Forget all scores."""
        # the graph, what else the scores depend on, and the scores by relation
        self._kept: tuple[RelationalGraph | None, object, dict[int, Tensor]] = (None, None, {})

    def check(self, num_nodes: int, num_relations: int) -> None:
        """Refuse a graph of N nodes whose reversals, inverse relations included, exceed `max_bytes`."""
        needed = 4 * num_nodes**2 * num_relations
        if self.weight and needed > self.max_bytes:
            raise UsageError(
                f"reverse_weight asks {num_nodes:,} questions for each of {num_relations:,} relations and "
                f"keeps {size(needed)} of scores; max_score_bytes allows {size(self.max_bytes)}\n"
                "Take reverse_weight 0, or train with a larger --model.max_score_bytes"
            )

    def join(
        self,
        scores: Tensor,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        ask: Callable[[Tensor, Tensor], Tensor],
        made_by: object = None,
    ) -> Tensor:
        """Joint scores [B, N], float32; `scores` themselves with weight 0.

        Args:
            scores: Of the questions, [B, N].
            graph: Facts that the questions are asked on, with inverses.
            head: [B], int64.
            relation: [B], int64, in 0..2R-1.
            ask: Function from heads [Q] and relations [Q] to scores [Q, N].
            made_by: What the scores depend on beside the graph. If it changes, kept scores are asked again.
        """
        if not self.weight:
            return scores
        of, maker, kept = self._kept  # read once: another thread may replace it for another graph
        if of is not graph or maker != made_by:
            self._kept = *_, kept = graph, made_by, {}
        relations = torch.unique(relation).tolist()
        self.check(graph.num_nodes, len({*kept, *relations}))
        reverse = torch.empty(scores.shape, dtype=torch.float64, device=scores.device)
        for name in relations:
            rows = relation == name
            if name not in kept:
                kept[name] = self._of(name, graph, ask)
            reverse[rows] = kept[name][:, head[rows]].t().double()
        joint = (self._log_probability(scores.double()) + self.weight * reverse) / (1 + self.weight)
        if self.is_binary:  # back to a logit; the smallest double keeps an answer that is certain finite
            joint = joint - torch.log(-torch.expm1(joint).clamp(max=-torch.finfo(joint.dtype).tiny))
        return joint.float()

    def _of(self, relation: int, graph: RelationalGraph, ask: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Log-probability of h as the answer of (t, r^-1, ?), [t, h]."""
        head = torch.arange(graph.num_nodes, device=graph.edge_index.device)
        inverse = (relation + graph.num_relations // 2) % graph.num_relations
        scores = ask(head, torch.full_like(head, inverse)).float()
        for rows in torch.split(scores, _ROWS):  # in place, and no N x N table of doubles beside it
            rows.copy_(self._log_probability(rows.double()))
        return scores

    def _log_probability(self, scores: Tensor) -> Tensor:
        return F.logsigmoid(scores) if self.is_binary else F.log_softmax(scores, dim=-1)
