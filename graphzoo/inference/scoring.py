"""Ids in, numbers out: the best answers to queries, and what a model thinks of given facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError, check_choice, check_whole
from graphzoo.inference.graphs import PredictionGraph
from graphzoo.layers.noise import in_evaluation
from graphzoo.metrics import rank_targets
from graphzoo.metrics.ranks import combine_ties
from graphzoo.tasks import KGCompletion
from graphzoo.tasks.scores import MARGIN
from graphzoo.types import QueryBatch

FilterKnown = Literal["mark", "drop", "keep"]
Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]

# Entries of a [B, N] table; scores, their order and masks of that size take about 100 MB.
_BATCH_ELEMENTS = 2**22


class Queries(NamedTuple):
    """Directed queries as ids, [Q] each, int64: a relation below R asks for tails, from R on for heads."""

    entity: Tensor
    relation: Tensor


def batches_of(queries: Queries, num_entities: int, batch_size: int | None) -> Iterator[Queries]:
    """Queries in batches of the given size or one that fits into memory; one empty batch without queries."""
    check_whole(at_least=1, batch_size=batch_size)
    size = batch_size or max(1, min(1024, _BATCH_ELEMENTS // max(1, num_entities)))
    starts = range(0, max(1, queries.entity.numel()), size)
    return (Queries(*(column[start : start + size] for column in queries)) for start in starts)


def check_known(name: str, value: str) -> None:
    """Refuse an option that is no `FilterKnown`."""
    check_choice(name, value, FilterKnown)


def check_finite(logits: Tensor) -> Tensor:
    """The logits, refused when some are NaN or infinite."""
    if not bool(torch.isfinite(logits).all()):
        raise UsageError(
            "the model gives NaN or infinite scores: its training failed, take another checkpoint"
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
    """The k best answers of each query, by query (0..B-1) and rank; see `KGModel.predict`.

    `allowed` is true for the entities that may answer, [N], bool. If the user has chosen them, the nearest
    outside of a neighbourhood have logits, too.
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
    # A stable sort, since top-k leaves the order of equal scores open.
    order = logits.masked_fill(~shown, -torch.inf).sort(dim=1, descending=True, stable=True).indices[:, :k]
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


@torch.no_grad()
def judge_facts(
    task: KGCompletion, place: PredictionGraph, triples: Tensor, *, batch_size: int | None = None
) -> Columns:
    """`score`, `probability`, `rank` (filtered and realistic) and `known` of triples [3, n], int64, [n] each.

    Each distinct (head, relation) is scored once.
    """
    head, relation, tail = triples
    num_relations = place.knowledge_graph.num_relations
    distinct, row = torch.unique(head * num_relations + relation, return_inverse=True)
    queries = Queries(distinct // num_relations, distinct % num_relations)
    order = torch.argsort(row, stable=True)
    real = torch.float32
    kinds = {"score": real, "probability": real, "rank": torch.float64, "known": torch.bool}
    columns = {name: torch.empty(tail.numel(), dtype=kind) for name, kind in kinds.items()}
    done, first = 0, 0
    for batch in batches_of(queries, place.knowledge_graph.num_entities, batch_size):
        # The facts of this batch's queries: a range of those sorted by query.
        last = int(torch.searchsorted(row[order], done + batch.entity.numel()))
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
    """Float32 scores [B, N], refused when they are NaN or infinite.

    Each query is asked once: rounding depends on its place in the batch, and decides between equal answers.
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
    """Scores [B, N] in which the nearest outside of each group of entities have logits, at most `most_far`.

    The others outside come behind all that have logits. Groups are [N] or [B, N], bool.
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
    """Score and probability of some answers, [n] each; see `KGCompletion.score_far` for those outside."""
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
