"""MR, MRR and Hits@k of a set of ranks, and tables of them by relation and direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphzoo.metrics.ranks import Ties, combine_ties


def summarize_ranks(
    optimistic: Tensor, pessimistic: Tensor, *, ties: Ties = "realistic", hits: Sequence[int] = (1, 3, 10)
) -> dict[str, float]:
    r"""Mean rank, mean reciprocal rank and Hits@k: `mr`, `mrr`, `hits@<k>` for each k of `hits`.

    .. math:: \mathrm{MR} = \tfrac1T \sum_i \rho_i, \quad \mathrm{MRR} = \tfrac1T \sum_i \rho_i^{-1}, \quad
              \mathrm{Hits@}k = \tfrac1T |\{i : \rho_i \le k\}|

    Sums are exact and rounded once, so the order of the ranks does not matter.

    Args:
        optimistic: Best one-based rank of each target, [T].
        pessimistic: Worst one-based rank of each target, [T].
        ties: Tie rule: "optimistic" or "pessimistic" ranks, or "realistic" for their mean.
        hits: Values of k for Hits@k.

    Raises:
        ValueError: for shapes that differ, no ranks, or an unknown tie rule.
    """
    if optimistic.shape != pessimistic.shape:
        raise ValueError(
            f"optimistic {list(optimistic.shape)} and pessimistic {list(pessimistic.shape)} differ"
        )
    if not optimistic.numel():
        raise ValueError("no ranks to average: the split is empty or no batch was evaluated")
    ranks = combine_ties(optimistic.cpu(), pessimistic.cpu(), ties)
    count = ranks.numel()
    values = {"mr": math.fsum(ranks.tolist()) / count, "mrr": math.fsum((1 / ranks).tolist()) / count}
    return values | {f"hits@{k}": int((ranks <= k).sum()) / count for k in hits}


def tie_share(optimistic: Tensor, pessimistic: Tensor) -> float:
    """Share of targets that tie with another candidate, for which the tie rule matters; NaN without ranks."""
    return float((pessimistic > optimistic).double().mean())


def group_table(
    optimistic: Tensor,
    pessimistic: Tensor,
    index: Tensor,
    triples: Tensor,
    relations: Sequence[str],
    *,
    ties: Ties = "realistic",
    hits: Sequence[int] = (1, 3, 10),
) -> list[dict[str, Any]]:
    """Metrics by relation and direction, one row for each group, for `pandas.DataFrame(rows)`.

    Args:
        optimistic: Best rank of each target, [T].
        pessimistic: Worst rank of each target, [T].
        index: i for the tail query of triple i, i + n for its head query, [T], int64.
        triples: (head, relation, tail) of the split, [n, 3], int64.
        relations: Names of the forward relations.
        ties: Tie rule, see `summarize_ranks`.
        hits: Values of k for Hits@k.

    Returns:
        Rows with the keys `relation`, `direction`, `count`, `mr`, `mrr`, `hits@<k>` and `tie_share`. Relation
        "all" is first, then those that occur, in the order of `relations`. The directions are "both", "tail"
        (queries for the tail) and "head". Groups without ranks are left out.

    Raises:
        ValueError: for shapes that differ, or an index outside 0..2n-1.
    """
    num_triples = triples.shape[0]
    index = index.cpu()
    _check_ranks(optimistic, pessimistic, index, num_triples)
    best, worst = optimistic.cpu(), pessimistic.cpu()
    relation, asks_head = triples.cpu()[index % max(1, num_triples), 1], index >= num_triples
    everything = torch.ones_like(asks_head)
    directions = {"both": everything, "tail": ~asks_head, "head": asks_head}
    groups = [("all", everything)]
    groups += [(relations[r], relation == r) for r in torch.unique(relation).tolist()]
    rows: list[dict[str, Any]] = []
    for name, of_relation in groups:
        for direction, of_direction in directions.items():
            chosen = of_relation & of_direction
            if not bool(chosen.any()):
                continue
            row = {"relation": name, "direction": direction, "count": int(chosen.sum())}
            figures = summarize_ranks(best[chosen], worst[chosen], ties=ties, hits=hits)
            rows.append({**row, **figures, "tie_share": tie_share(best[chosen], worst[chosen])})
    return rows


def _check_ranks(optimistic: Tensor, pessimistic: Tensor, index: Tensor, num_triples: int) -> None:
    """Require one shape, and an index of these triples."""
    if not optimistic.shape == pessimistic.shape == index.shape:
        raise ValueError(
            f"optimistic {list(optimistic.shape)}, pessimistic {list(pessimistic.shape)} and index "
            f"{list(index.shape)} must have one shape"
        )
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= 2 * num_triples):
        raise ValueError(
            f"index must lie in 0..{2 * num_triples - 1} for {num_triples} triples, "
            f"got {int(index.min())}..{int(index.max())}"
        )
