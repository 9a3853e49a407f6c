"""Tables of a knowledge graph's test: metrics per relation, a histogram of ranks, worst and best triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphzoo.analysis.bins import steps_up_to
from graphzoo.analysis.evaluation import Table
from graphzoo.metrics.ranks import Ties, combine_ties
from graphzoo.metrics.summary import group_table

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["categories", "triple_tables"]

_FEW = 20
# Mean number of tails per (head, relation), or heads per (relation, tail), from which a side counts as "N".
_MANY = 1.5


def categories(triples: Tensor, num_relations: int) -> list[str]:
    """1-1, 1-N, N-1 or N-N for every relation (Bordes et al., 2013), from the mean number of its answers.

    Args:
        triples: All known facts, [n, 3], int64.
        num_relations: R.

    Returns:
        A category per relation; "" for those without a fact.

    >>> categories(torch.tensor([[0, 0, 1], [0, 0, 2], [3, 1, 4]]), 3)
    ['1-N', '1-1', '']
    """
    facts = torch.unique(triples.cpu(), dim=0)
    count = torch.bincount(facts[:, 1], minlength=num_relations).double()
    kinds = []
    per_head = count / _distinct(facts[:, [1, 0]], num_relations)
    per_tail = count / _distinct(facts[:, [1, 2]], num_relations)
    for tails, heads in zip(per_head.tolist(), per_tail.tolist(), strict=True):
        if tails != tails:  # 0 / 0
            kinds.append("")
            continue
        kinds.append(f"{'N' if heads >= _MANY else '1'}-{'N' if tails >= _MANY else '1'}")
    return kinds


def _distinct(pairs: Tensor, num_relations: int) -> Tensor:
    return torch.bincount(torch.unique(pairs, dim=0)[:, 0], minlength=num_relations).double()


def triple_tables(
    ranks: tuple[Tensor, Tensor, Tensor],
    triples: Tensor,
    facts: Tensor,
    entities: Sequence[str],
    relations: Sequence[str],
    *,
    ties: Ties = "realistic",
    labels: Mapping[str, str] | None = None,
) -> tuple[Table, ...]:
    """The tables `relations`, `ranks`, `worst` and `best`.

    Memory grows with the targets, not with the entities.

    Args:
        ranks: Optimistic and pessimistic ranks and index of all targets, as `RankingMetric.ranks` gives
            them, [T] each.
        triples: (head, relation, tail) of the split, [n, 3].
        facts: All known triples, that say how many answers a relation has, [m, 3].
        entities: Names of entities.
        relations: Names of forward relations.
        ties: Tie rule.
        labels: Readable text of some entities; then worst and best have columns for it.

    Returns:
        The tables, none of them without a rank.
    """
    import pandas

    optimistic, pessimistic, index = (part.cpu() for part in ranks)
    if not index.numel():
        return ()
    triples = triples.cpu()
    rank = combine_ties(optimistic, pessimistic, ties)
    groups = group_table(optimistic, pessimistic, index, triples, relations, ties=ties, hits=(1, 10))
    by_relation = pandas.DataFrame(_relation_rows(groups, facts, relations))
    asks_head = index >= len(triples)
    order = torch.argsort(rank, stable=True)
    worst = torch.argsort(rank, stable=True, descending=True)[:_FEW]

    def named(chosen: Tensor) -> DataFrame:
        return _named(chosen, rank, index, triples, entities, relations, labels or {})

    return (
        Table(
            "relations", "MRR of each relation", "bars", by_relation, x="relation", y=("mrr",),
            label="direction",
        ),
        Table(
            "ranks", "Ranks of the answers: above `from`, up to `to`", "histogram",
            pandas.DataFrame(_histogram(rank, asks_head)), x="from", y=("head", "tail"),
        ),
        Table("worst", "Triples ranked last", "table", named(worst)),
        Table("best", "Triples ranked first", "table", named(order[:_FEW])),
    )  # fmt: skip


def _relation_rows(
    groups: list[dict[str, Any]], facts: Tensor, relations: Sequence[str]
) -> list[dict[str, Any]]:
    """Figures of each relation and direction, with the relation's category."""
    category = dict(zip(relations, categories(facts, len(relations)), strict=True))
    figures = ("mrr", "hits@1", "hits@10")
    return [
        {
            "relation": row["relation"],
            "direction": row["direction"],
            "category": category[row["relation"]],
            "triples": row["count"],
            **{figure: row[figure] for figure in figures},
        }
        # The first three rows are of all relations together; a relation may itself be called "all".
        for row in _of_relations(groups)
    ]


def _of_relations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    overall = set()
    kept = []
    for row in rows:
        if row["relation"] == "all" and row["direction"] not in overall:
            overall.add(row["direction"])
            continue
        kept.append(row)
    return kept


def _histogram(rank: Tensor, asks_head: Tensor) -> dict[str, list[int]]:
    steps = steps_up_to(int(rank.max().ceil()))
    edges = torch.tensor(steps, dtype=rank.dtype)
    place = torch.searchsorted(edges, rank)  # the first edge that is not below the rank
    counts = {
        name: torch.bincount(place[chosen], minlength=len(steps)).tolist()
        for name, chosen in (("head", asks_head), ("tail", ~asks_head))
    }
    return {"from": [0, *steps[:-1]], "to": steps, **counts}


def _named(
    chosen: Tensor,
    rank: Tensor,
    index: Tensor,
    triples: Tensor,
    entities: Sequence[str],
    relations: Sequence[str],
    labels: Mapping[str, str],
) -> DataFrame:
    import pandas

    rows = []
    for place in chosen.tolist():
        number, asks_head = int(index[place]) % len(triples), int(index[place]) >= len(triples)
        head, relation, tail = triples[number].tolist()
        row: dict[str, Any] = {
            "head": entities[head],
            "relation": relations[relation],
            "tail": entities[tail],
            "direction": "head" if asks_head else "tail",
            "rank": float(rank[place]),
        }
        if labels:
            row["head_label"] = labels.get(entities[head], "")
            row["tail_label"] = labels.get(entities[tail], "")
        rows.append(row)
    return pandas.DataFrame(rows)
