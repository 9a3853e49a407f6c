"""Tables of a test of KG completion: metrics per relation, histogram of ranks, worst and best triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphzoo.analysis.bins import steps_up_to
from graphzoo.analysis.evaluation import Table
from graphzoo.metrics.ranks import Ties, combine_ties
from graphzoo.metrics.summary import group_table

_FEW = 20
# A side counts as "N" from this mean number of tails per (head, relation), or heads per (relation, tail).
_MANY = 1.5


def categories(triples: Tensor, num_relations: int) -> list[str]:
    """The category of every relation, 1-1, 1-N, N-1 or N-N (Bordes et al., 2013); "" for one without facts.

    It comes from the mean number of heads and tails in all known facts `triples` [n, 3].

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
    relation_labels: Mapping[str, str] | None = None,
) -> tuple[Table, ...]:
    """Make the tables `relations`, `ranks`, `worst` and `best`.

    Args:
        ranks: Optimistic and pessimistic ranks and indices of all targets, as from `RankingMetric.ranks`,
            each [T].
        triples: Triples (head, relation, tail) of the split, [n, 3].
        facts: All known triples, [m, 3], from which the categories of relations come.
        entities: Names of entities.
        relations: Names of forward relations.
        ties: Rule for ties, "optimistic", "realistic" or "pessimistic".
        labels: Readable text of some entities, which adds columns to `worst` and `best`.
        relation_labels: Readable text of some relations, which adds a column to `relations`, `worst` and
            `best`.

    Returns:
        The tables; none if there are no ranks.
    """
    optimistic, pessimistic, index = (part.cpu() for part in ranks)
    if not index.numel():
        return ()
    triples = triples.cpu()
    rank = combine_ties(optimistic, pessimistic, ties)
    groups = group_table(optimistic, pessimistic, index, triples, relations, ties=ties, hits=(1, 10))
    by_relation = _relation_rows(groups, facts, relations, relation_labels)
    asks_head = index >= len(triples)
    best = torch.argsort(rank, stable=True)[:_FEW]
    worst = torch.argsort(rank, stable=True, descending=True)[:_FEW]

    def named(place: int) -> dict[str, Any]:
        triple, direction = triples[int(index[place]) % len(triples)], "head" if asks_head[place] else "tail"
        head, relation, tail = triple.tolist()
        row = {"head": entities[head], "relation": relations[relation], "tail": entities[tail]}
        row |= {"direction": direction, "rank": float(rank[place])}
        if labels:
            row |= {f"{end}_label": labels.get(row[end], "") for end in ("head", "tail")}
        if relation_labels:
            row["relation_label"] = relation_labels.get(row["relation"], "")
        return row

    title = "Ranks of the answers: above `from`, up to `to`"
    bins = _histogram(rank, asks_head)
    of_relations = {"x": "relation", "y": ("mrr",), "label": "direction"}
    return (
        Table.of("relations", "MRR of each relation", "bars", by_relation, **of_relations),
        Table.of("ranks", title, "histogram", bins, x="from", y=("head", "tail")),
        Table.of("worst", "Triples ranked last", "table", [named(place) for place in worst.tolist()]),
        Table.of("best", "Triples ranked first", "table", [named(place) for place in best.tolist()]),
    )


def _relation_rows(
    groups: list[dict[str, Any]], facts: Tensor, relations: Sequence[str], labels: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Metrics of each relation and direction, with the relation's category."""
    category = dict(zip(relations, categories(facts, len(relations)), strict=True))
    # The first rows, one per direction, are for all relations. A relation may also be called "all".
    overall = len({row["direction"] for row in groups})
    return [
        {
            "relation": row["relation"],
            "direction": row["direction"],
            "category": category[row["relation"]],
            "triples": row["count"],
            **{figure: row[figure] for figure in ("mrr", "hits@1", "hits@10")},
            **({"relation_label": labels.get(row["relation"], "")} if labels else {}),
        }
        for row in groups[overall:]
    ]


def _histogram(rank: Tensor, asks_head: Tensor) -> dict[str, list[int]]:
    steps = steps_up_to(int(rank.max().ceil()))
    edges = torch.tensor(steps, dtype=rank.dtype)
    place = torch.searchsorted(edges, rank)  # the first edge that is not below the rank
    counts = {
        name: torch.bincount(place[chosen], minlength=len(steps)).tolist()
        for name, chosen in (("head", asks_head), ("tail", ~asks_head))
    }
    return {"from": [0, *steps[:-1]], "to": steps, **counts}
