"""The result of a test in a plain sentence, from the tables of its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

    from graphzoo.analysis import Evaluation


_FIRST = {1: "first", 10: "among the first ten"}
# If the share is smaller, the sentence is about a longer list of answers.
_SMALL = 0.01


def learned(evaluations: Sequence[Evaluation]) -> str:
    """A sentence about the answers of a model; "" if no table fits. Shares are means over the evaluations."""
    for name, columns, tell in _TOLD:
        tables = [table.data for one in evaluations if (table := one.table(name)) is not None]
        tables = [data for data in tables if columns <= set(data.columns) and len(data)]
        if tables and (text := tell(tables)):
            return text
    return ""


def _of_ranks(tables: Sequence[DataFrame]) -> str:
    """How often the right tail and the right head are ranked first."""
    shares: dict[str, float] = {}
    for k in _FIRST:
        counted = {side: [data for data in tables if data[side].sum()] for side in ("tail", "head")}
        shares = {
            side: fmean([data.loc[data["to"] <= k, side].sum() / data[side].sum() for data in kept])
            for side, kept in counted.items()
            if kept
        }
        if max(shares.values(), default=1.0) >= _SMALL:
            break
    if not shares:
        return ""
    side, *others = shares
    text = f"The right {side} is {_FIRST[k]} in {_of_100(shares[side])} of 100 queries"
    for other in others:
        share, before = _of_100(shares[other]), _of_100(shares[side])
        how = "as hard" if share == before else "harder" if shares[other] < shares[side] else "easier"
        text += f"; {other}s are {how} ({share})"
    return f"{text}."


def _of_classes(tables: Sequence[DataFrame]) -> str:
    """How many nodes get their class, and which class has the lowest recall."""
    right = [(data["recall"] * data["support"]).sum() / data["support"].sum() for data in tables]
    overall, by_class = fmean(right), _by_class(tables, "recall")
    text = f"{_of_100(overall)} of 100 test nodes get the right class"
    return text + _hardest(by_class, overall, "") if by_class else ""


def _of_labels(tables: Sequence[DataFrame]) -> str:
    """How often a node with a yes-no label scores above one without it."""
    by_label = _by_class(tables, "auroc")
    if not by_label:
        return ""
    overall = fmean(list(by_label.values()))
    text = f"A node with a label scores above one without it in {_of_100(overall)} of 100 cases"
    return text + _hardest(by_label, overall, " label")


def _of_hits(tables: Sequence[DataFrame]) -> str:
    """How often a true link is among the first ten, or among more if that is very rare."""
    shared = set.intersection(*(set(data["k"]) for data in tables))
    shares = {k: fmean([data.set_index("k")["hits"][k] for data in tables]) for k in sorted(shared)}
    if not shares:
        return ""
    long = [k for k in shares if k >= 10] or [max(shares)]
    k = next((k for k in long if shares[k] >= _SMALL), long[-1])
    where = _FIRST.get(k, f"among the first {k}")
    return f"A true link is {where} in {_of_100(shares[k])} of 100 cases."


_TOLD: tuple[tuple[str, set[str], Callable[[Sequence[DataFrame]], str]], ...] = (
    ("ranks", {"to", "tail", "head"}, _of_ranks),
    ("classes", {"class", "support", "recall"}, _of_classes),
    ("classes", {"class", "support", "auroc"}, _of_labels),
    ("hits", {"k", "hits"}, _of_hits),
)


def _by_class(tables: Sequence[DataFrame], column: str) -> dict[str, float]:
    """The mean value of a column for each class that has nodes."""
    by_class: dict[str, list[float]] = {}
    for data in tables:
        for name, support, value in zip(data["class"], data["support"], data[column], strict=True):
            if support > 0 and not math.isnan(value):
                by_class.setdefault(str(name), []).append(float(value))
    return {name: fmean(values) for name, values in by_class.items()}


def _hardest(by_class: dict[str, float], overall: float, what: str) -> str:
    name = min(by_class, key=by_class.__getitem__)
    if _of_100(by_class[name]) == _of_100(overall):
        return "."
    return f"; '{name}' is the hardest{what} ({_of_100(by_class[name])})."


def _of_100(share: float) -> str:
    """A share per hundred, with a decimal if it would otherwise be rounded to 0 or 100."""
    whole = f"{100 * share:.0f}"
    return f"{100 * share:.1f}" if whole in ("0", "100") and 0 < share < 1 else whole
