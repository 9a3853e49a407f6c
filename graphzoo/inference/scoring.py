"""Scores by id: the best answers to queries, and the score and rank of given facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_whole
from graphzoo.inference.graphs import PredictionGraph
from graphzoo.layers.noise import in_evaluation
from graphzoo.metrics import rank_targets
from graphzoo.metrics.ranks import combine_ties
from graphzoo.tasks import KGCompletion
from graphzoo.tasks.scores import MARGIN
from graphzoo.types import QueryBatch

FilterKnown = Literal["mark", "drop", "keep"]
Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]

# Entries of a [B, N] tensor; the scores, their order and the masks then take about 100 MB.
_BATCH_ELEMENTS = 2**22


class Queries(NamedTuple):
    """Queries as ids, [Q] each, int64; a relation below R asks for tails, and one from R on for heads."""

    entity: Tensor
    relation: Tensor


def batches_of(queries: Queries, num_entities: int, batch_size: int | None) -> Iterator[Queries]:
    """Queries in batches, by default as large as memory allows; without queries, one empty batch."""
    check_whole(at_least=1, batch_size=batch_size)
    size = batch_size or max(1, min(1024, _BATCH_ELEMENTS // max(1, num_entities)))
    starts = range(0, max(1, queries.entity.numel()), size)
    return (Queries(*(column[start : start + size] for column in queries)) for start in starts)


def check_finite(logits: Tensor) -> Tensor:
    """The logits themselves; a `UsageError` if some are NaN or infinite."""
    if not bool(torch.isfinite(logits).all()):
        raise UsageError(
            "the model gives NaN or infinite scores, so its training failed; take another checkpoint"
        )
    return logits


@torch.no_grad()
def top_answers(
    task: KGCompletion,
    place: PredictionGraph,
    batch: Queries,
    *,
    allowed: Tensor,
    k: int,
    filter_known: FilterKnown,
    is_chosen: bool,
) -> Columns:
    """The k best answers to each query, ordered by query (0..B-1) and rank; see `KGModel.predict`.

    Args:
        task: The trained task.
        place: The graph that it answers on.
        batch: Queries.
        allowed: True for entities that may be answers, [N], bool.
        k: Number of answers.
        filter_known: Whether known answers are marked, dropped or kept.
        is_chosen: Whether the user chose `allowed`. The best of these outside of a query's neighbourhood are
            then scored, too.
    """
    logits = _logits(task, place, batch)  # [B, N]
    known = torch.zeros_like(logits, dtype=torch.bool)
    if filter_known != "keep":
        row, entity = place.answers.lookup(batch.entity, batch.relation)
        known[row.to(known.device), entity.to(known.device)] = True
    shown = allowed & ~known if filter_known == "drop" else allowed.expand_as(known)
    if is_chosen:
        logits = _with_far(task, place, batch, (allowed, shown), logits)
    probability = _probability(task, logits.masked_fill(~allowed, -torch.inf))
    order = best_columns(logits.masked_fill(~shown, -torch.inf), k)
    kept = shown.gather(1, order)
    picked = {
        "query": torch.arange(order.shape[0], device=order.device)[:, None].expand_as(order),
        "answer": order,
        "rank": torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order),
        "score": logits.gather(1, order),
        "probability": probability.gather(1, order),
        "known": known.gather(1, order),
    }
    return {name: value[kept].cpu().numpy() for name, value in picked.items()}


def best_columns(scores: Tensor, k: int) -> Tensor:
    """Columns of the k highest scores of each row of [B, N], [B, k]; of equal ones, the first columns.

    The result is that of a stable sort of whole rows, which takes much longer; topk does not define the order
    of equal scores. There must be no NaN.
    """
    k = min(k, scores.shape[1])
    if not scores.numel() or not k:
        return scores.new_empty(scores.shape[0], k, dtype=torch.int64)
    least = scores.topk(k, dim=1).values[:, -1:]  # [B, 1]
    above, level = scores > least, scores == least
    still = k - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= still))
    columns = chosen.nonzero()[:, 1].view(-1, k)  # ascending in each row
    order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    return columns.gather(1, order)


@torch.no_grad()
def judge_facts(
    task: KGCompletion, place: PredictionGraph, triples: Tensor, *, batch_size: int | None = None
) -> Columns:
    """`score`, `probability`, `rank` (filtered, realistic) and `known`, [n] each, of triples [3, n], int64.

    Each distinct (head, relation) is scored once.
    """
    head, relation, tail = triples
    num_relations = place.knowledge_graph.num_relations
    distinct, row = torch.unique(head * num_relations + relation, return_inverse=True)
    queries = Queries(distinct // num_relations, distinct % num_relations)
    row_of, order = row.sort(stable=True)  # facts by query, so that those of a batch are a range
    real = torch.float32
    kinds = {"score": real, "probability": real, "rank": torch.float64, "known": torch.bool}
    columns = {name: torch.empty(tail.numel(), dtype=kind) for name, kind in kinds.items()}
    done, first = 0, 0
    for batch in batches_of(queries, place.knowledge_graph.num_entities, batch_size):
        last = int(torch.searchsorted(row_of, done + batch.entity.numel()))
        chosen = order[first:last]
        target, target_row = tail[chosen], row[chosen] - done
        done, first = done + batch.entity.numel(), last
        logits = _logits(task, place, batch)
        known_row, known_entity = place.answers.lookup(batch.entity, batch.relation)
        best, worst = rank_targets(
            logits,
            QueryBatch(
                *batch,
                target=target,
                target_row=target_row,
                target_index=chosen,
                known_row=known_row,
                known_entity=known_entity,
            ).to(logits.device),
        )
        known = torch.zeros(logits.shape, dtype=torch.bool)
        known[known_row, known_entity] = True
        columns["rank"][chosen] = combine_ties(best.cpu(), worst.cpu(), "realistic")
        columns["known"][chosen] = known[target_row, target]
        score, probability = _judged(task, place, batch, logits, target_row, target)
        columns["score"][chosen] = score.cpu()
        columns["probability"][chosen] = probability.cpu()
    return {name: column.numpy() for name, column in columns.items()}


def _logits(task: KGCompletion, place: PredictionGraph, batch: Queries) -> Tensor:
    """Scores [B, N], float32; NaN and infinite ones are refused.

    A repeated query is scored once: rounding depends on its position in the batch, and could order equal
    answers differently.
    """
    asked = torch.stack(batch).to(task.device)
    distinct, place_of = torch.unique(asked, dim=1, return_inverse=True)
    repeats = distinct.shape[1] < asked.shape[1]
    with in_evaluation(task):
        logits = check_finite(task.score_queries(place.messages, *(distinct if repeats else asked)).float())
    return logits[place_of] if repeats else logits


def _with_far(
    task: KGCompletion, place: PredictionGraph, batch: Queries, groups: tuple[Tensor, ...], logits: Tensor
) -> Tensor:
    """Scores [B, N] with logits for entities outside of the queries' neighbourhoods, too.

    Of each group ([N] or [B, N], bool), the `most_far` best entities outside get logits. All others outside
    get lower scores than every entity with a logit.
    """
    head, relation = (ids.to(task.device) for ids in batch)
    far = task.outside(place.messages, head, relation)
    if far is None:
        return logits
    asked = torch.zeros_like(far)
    for group in groups:
        nearest = far & group
        if nearest.shape[1] > task.most_far:
            order = logits.masked_fill(~nearest, -torch.inf).topk(task.most_far, dim=1).indices
            nearest &= torch.zeros_like(nearest).scatter_(1, order, True)
        asked |= nearest
    row, tail = asked.nonzero(as_tuple=True)
    with in_evaluation(task):
        found = task.score_far(place.messages, head[row], relation[row], tail)
    scores = logits.index_put((row, tail), check_finite(found))
    lowest = scores.masked_fill(far & ~asked, torch.inf).amin(1, keepdim=True)
    highest = scores.masked_fill(~far | asked, -torch.inf).amax(1, keepdim=True)
    lower = (highest - lowest + MARGIN).clamp(min=0).ceil().nan_to_num(neginf=0.0, posinf=0.0)
    return torch.where(far & ~asked, scores - lower, scores)


def _judged(
    task: KGCompletion, place: PredictionGraph, batch: Queries, logits: Tensor, row: Tensor, tail: Tensor
) -> tuple[Tensor, Tensor]:
    """Score and probability, [n] each, of given answers; `KGCompletion.score_far` scores those outside."""
    row, tail = row.to(logits.device), tail.to(logits.device)
    score, probability = logits[row, tail], _probability(task, logits)[row, tail]
    head, relation = (ids.to(task.device) for ids in batch)
    far = task.outside(place.messages, head, relation)
    if far is None or not bool((is_far := far[row, tail]).any()):
        return score, probability
    row, tail = row[is_far], tail[is_far]
    with in_evaluation(task):
        found = check_finite(task.score_far(place.messages, head[row], relation[row], tail))
    score[is_far] = found
    others = logits.logsumexp(1)[row]
    share = torch.exp(found - torch.logaddexp(others, found))
    probability[is_far] = torch.sigmoid(found) if task.loss == "bce" else share
    return score, probability


def _probability(task: KGCompletion, logits: Tensor) -> Tensor:
    return torch.sigmoid(logits) if task.loss == "bce" else torch.softmax(logits, dim=1)
