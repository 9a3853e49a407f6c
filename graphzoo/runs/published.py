"""Means of several runs, the published scores, and how they compare."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from graphzoo.catalog.presets import Preset, find_preset
from graphzoo.catalog.settings import flatten, read_settings
from graphzoo.catalog.tasks import is_error

_HITS = [f"hits@{k}" for k in (1, 3, 10, 20, 50, 100)]
PROTOCOLS = {"whole_graph": "on the whole graph", "neighbourhood": "in neighbourhoods"}
"""Protocols in words, by the prefix of metrics that are not of the run's own one: test/whole_graph/mrr."""
# How links are split and which negatives they have: scores under two of these are not compared.
_LINKS = ("original", "ogb", "heart", "heart-ours", "ours", "vgae", "nbfnet")
_USUAL = (None, "original", "ogb")  # what recipes of links with a published score mean, if they name none
_OTHERS = [f"{protocol}/{name}" for protocol in PROTOCOLS for name in ("mrr", *_HITS[:3], "mr")]
SHOWN = tuple(f"test/{name}" for name in ("mrr", *_HITS, "mr", "acc", "auroc", "ap", "rmse", *_OTHERS))


VERDICTS = (
    "One run is never called better than the paper. Above or below: differs by more than the paper's "
    "standard deviation or, if it gives none, our standard error (for one run: that of the test set)."
)
"""The rule of `compare` for readers of a table."""

_LONGEST_NAME = 255  # like that of a file, after which own data are named
_LARGEST = 1e100
_ROUNDING = 1e-9  # of a sum of decimal figures


class Published(NamedTuple):
    """A score of a paper: the mean, and its standard deviation where the paper gives one."""

    value: float
    deviation: float | None = None


def split_protocol(metric: str) -> tuple[str, str]:
    """A metric without `test/`, and in words the protocol that its name begins with, if it is not the run's.

    >>> split_protocol("test/whole_graph/mrr"), split_protocol("test/mrr")
    (('mrr', 'on the whole graph'), ('mrr', ''))
    """
    metric = metric.removeprefix("test/")
    protocol, _, name = metric.partition("/")
    return (name, PROTOCOLS[protocol]) if protocol in PROTOCOLS else (metric, "")


def shown_metrics(names: Collection[str]) -> list[str]:
    """The names of `SHOWN`, and behind them each Hits@K of another K; all names without any of these.

    >>> shown_metrics(["test/hits@5", "test/mrr", "test/tie_share"])
    ['test/mrr', 'test/hits@5']
    """
    others = sorted(name for name in names if name not in SHOWN and name.startswith("test/hits@"))
    return [name for name in SHOWN if name in names] + others or sorted(names)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for the latter with a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def average_metrics(
    tested: Sequence[Mapping[str, float]], published: Mapping[str, Published]
) -> dict[str, dict[str, Any]]:
    """Mean, deviation, the paper's score and all values of every metric that all runs have."""
    common = set.intersection(*(set(metrics) for metrics in tested))
    rows = {}
    for name in shown_metrics(common):
        values = [metrics[name] for metrics in tested]
        mean, deviation = mean_and_deviation(values)
        paper = published.get(name)
        value, spread = paper or (None, None)
        rows[name] = {"mean": mean, "std": deviation, "paper": value, "paper_std": spread, "values": values}
    return rows


def parse_published(text: str) -> dict[str, Published]:
    """Figures as recipes write them, as `test/<metric>`.

    >>> parse_published("acc=0.851±0.006 mrr=0.5")["test/acc"]
    Published(value=0.851, deviation=0.006)
    """
    figures: dict[str, Published] = {}
    for pair in text.split():
        name, _, figure = pair.partition("=")
        value, _, deviation = figure.partition("±")
        figures[f"test/{name}"] = Published(float(value), float(deviation) if deviation else None)
    return figures


def find_recipe(model: str, recipe: str, data: str) -> Preset | None:
    """The recipe `<model>/<name>`, if it is one of graphzoo's for these data."""
    if not recipe.startswith(f"{model}/"):
        return None
    name = recipe.rpartition("/")[2]
    recipe_preset = find_preset("recipe", name, model=model)
    return recipe_preset if recipe_preset.header.get("data", name) == data else None


def published_values(model: str, recipe: str, data: str) -> dict[str, Published]:
    """The published scores in a recipe's header, as `test/<metric>`; see `find_recipe`."""
    preset = find_recipe(model, recipe, data)
    return {} if preset is None else parse_published(preset.header.get("paper", ""))


def is_comparable(model: str, recipe: str, data: str, result: Mapping[str, Any]) -> bool:
    """Whether a run evaluated its links under the protocol of the published scores that its recipe names."""
    protocol = (result.get("split") or {}).get("name")
    preset = find_recipe(model, recipe, data)
    if protocol not in _LINKS or preset is None:
        return True
    published = flatten(read_settings(preset.path)).get("data.protocol")
    return protocol == published or (protocol in _USUAL and published in _USUAL)


def compare(
    metric: str,
    mean: float,
    paper: float | None,
    paper_std: float | None,
    *,
    std: float | None = None,
    runs: int = 1,
    tested: int | None = None,
) -> str:
    """How a mean compares with the published one.

    "above" and "below" are beyond the margin, "met" is within: the paper's standard deviation; where it gives
    none, the standard error of our runs, std / sqrt(runs); for a single run that of the test set, at most
    sqrt(m (1 - m) / tested) for a mean m of scores between 0 and 1. One run is never better: "above", or
    "below" for a metric that `is_error`. It is "" where nothing is published and where our mean is NaN.
    `tested` are queries, nodes or pairs.

    >>> [compare("acc", mean, 0.851, 0.006, runs=3) for mean in (0.85, 0.84, 0.86)]
    ['met', 'below', 'above']
    >>> compare("mrr", 0.45, 0.466, None, tested=410), compare("mrr", 0.74, 0.827, None, tested=200)
    ('met', 'below')
    >>> [compare("mrr", mean, 0.1402, None) for mean in (0.14023, 0.14017, 0.14014)]
    ['met', 'met', 'below']
    >>> compare("acc", 0.70951, 0.709, None, std=0.0016, runs=3)
    'met'
    >>> compare("mr", 200.0, 100.0, None), compare("mr", 50.0, 100.0, None)
    ('above', 'met')
    """
    if paper is None or math.isnan(mean):
        return ""
    # Papers give three or four digits, without trailing zeros: differences beyond these digits do not count.
    rounded = round(mean, max(3, len(repr(paper).partition(".")[2])))
    margin = _ROUNDING
    if paper_std is not None:
        margin += paper_std
    elif std is not None and runs > 1:
        margin += std / math.sqrt(runs)
    elif tested and 0 <= mean <= 1 and not is_error(metric):
        margin += math.sqrt(mean * (1 - mean) / tested)
    if max(mean, rounded) < paper - margin:
        verdict, is_better = "below", is_error(metric)
    elif min(mean, rounded) > paper + margin:
        verdict, is_better = "above", not is_error(metric)
    else:
        return "met"
    return "met" if is_better and runs == 1 else verdict


def check_figures(figures: Iterable[Any]) -> None:
    """Check that scores are numbers; NaN stands for a missing one.

    Raises:
        ValueError: for a number that is too large.
        TypeError: for anything that is not a number.
    """
    for figure in figures:
        if not (math.isnan(value := float(figure)) or abs(value) <= _LARGEST):
            raise ValueError(f"{value} is not a score of a test")


def check_names(content: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for names, notes, seeds, counts or facts that a table cannot show."""
    for key in ("model", "data", "data_name", "recipe", "name"):
        if not isinstance(named := content.get(key), str | None) or len(named or "") > _LONGEST_NAME:
            raise ValueError(f"{key} is not a name of at most {_LONGEST_NAME} letters")
    for key in ("differs", "command", "protocol"):
        if not isinstance(content.get(key), str | None):
            raise ValueError(f"{key} is not text")
    for key in ("seeds", "splits"):
        listed = content.get(key)
        if listed is not None and not (isinstance(listed, list) and all(map(_is_seed, listed))):
            raise ValueError(f"{key} is not a list of whole numbers")
    for key in ("split", "validation", "versions"):
        if not isinstance(content.get(key), Mapping | None):
            raise ValueError(f"{key} is not a table of names and values")
    for key in ("tested", "num_parameters"):
        if (number := content.get(key)) is not None and not (_is_seed(number) and number >= 0):
            raise ValueError(f"{key} is not a whole number of at least 0")
    if any(len(name) > _LONGEST_NAME for name in content["metrics"]):
        raise ValueError(f"the name of a metric has more than {_LONGEST_NAME} letters")


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
