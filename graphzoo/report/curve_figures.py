"""Learning curves of one or several settings, and results over the number of layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from math import isnan
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from graphzoo.catalog.settings import flatten
from graphzoo.catalog.tasks import PERCENT
from graphzoo.report.content import Block, Note, Picture, slug
from graphzoo.report.results import lead_metric
from graphzoo.report.style import FAINT, INK, color, fitted, new_figure, plain_ticks
from graphzoo.runs.curves import Points, mean_curve, thin
from graphzoo.runs.groups import Group
from graphzoo.runs.record import Record
from graphzoo.runs.results_file import config_hash

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MAIN_METRICS = ("mrr", "acc", "auroc", "rmse")
_RATE = "train/lr"
# Up to this number, points that are far apart get a mark: a line alone would suggest values between them.
_FEW_POINTS = 80
# Metrics that have a picture, in this order; those that end in _per_s are added.
_WANTED = {
    "train/loss": "Training loss",
    "train/auxiliary_loss": "Auxiliary loss",
    _RATE: "Learning rate",
    "train/grad_norm": "Gradient norm",
    "train/attention_entropy": "Attention entropy",
    "train/step_seconds": "Seconds per step",
    "train/data_seconds": "Seconds waiting for data",
    "train/peak_memory_gib": "Peak memory, GiB",
}
_LOG = ("train/grad_norm", _RATE)


class _Lines(NamedTuple):
    """The curves of one group: one per run, the points of their best checkpoints, and their mean."""

    label: str
    runs: list[Points]
    best: Points
    mean: Points


def curve_blocks(groups: Sequence[Group], *, speed: bool = False) -> list[Block]:
    """Pictures of the logged metrics, validation first: times and memory if `speed`, else all others.

    Metrics with a single value in every run are in a sentence instead.
    """
    pictures: list[Block] = []
    alone = []
    for name, title in _metrics(groups).items():
        lines = [(number, _lines(group, name)) for number, group in enumerate(groups)]
        lines = [(number, line) for number, line in lines if line.runs]
        values = {y for _, line in lines for run in line.runs for _, y in run}
        # A constant learning rate is in the table of settings.
        if _is_speed(name) != speed or not lines or (name == _RATE and len(values) == 1):
            continue
        if all(len(run) == 1 for _, line in lines for run in line.runs):
            alone.append(_tell_alone(title, [line for _, line in lines], several=len(groups) > 1))
            continue
        alt = f"{title} over epochs. " + " ".join(_tell(line) for _, line in lines)
        draw = partial(_draw, lines, name, several=len(groups) > 1)
        pictures.append(Picture(slug(name), title, alt, draw))
    note = _curve_note(groups) if pictures and not speed else ""
    single = f"Metrics with a single value have no curve. {'; '.join(alone)}." if alone else ""
    return [*([Note(note)] if note else []), *pictures, *([Note(single)] if single else [])]


def _tell_alone(title: str, lines: Sequence[_Lines], *, several: bool) -> str:
    starts = []
    for line in lines:
        of = [line.label] if several else []
        of += [f"mean of {len(line.runs)} runs"] if len(line.runs) > 1 else []
        mean = fmean(run[0][1] for run in line.runs)
        starts.append(f"{mean:,.4g}" + (f" ({', '.join(of)})" if of else ""))
    return f"{title}: {', '.join(starts)}"


def _curve_note(groups: Sequence[Group]) -> str:
    """A note that explains the curves."""
    notes = []
    if any(len(group.records) > 1 for group in groups):
        notes.append("Thin lines are runs, the thick one their mean.")
    records = [record for group in groups for record in group.records if record.best_epoch is not None]
    if any(name.startswith("val/") for record in records for name in record.curves.values):
        notes.append("A dot marks the validation whose checkpoint was tested.")
    curves = (points for group in groups for one in group.records for points in one.curves.values.values())
    if any(len(points) > len(thin(points)) for points in curves):
        notes.append("Long curves show the highest and lowest values of each segment.")
    return " ".join(notes)


def _is_speed(metric: str) -> bool:
    return metric.endswith(("_per_s", "_seconds", "_gib"))


def _metrics(groups: Sequence[Group]) -> dict[str, str]:
    records = [record for group in groups for record in group.records]
    logged = list(dict.fromkeys(name for record in records for name in record.curves.values))
    titles: dict[str, str] = {}
    # Settings of different tasks have different main metrics.
    main = {name for group in groups if (name := _main_metric(group))}
    for metric in sorted(main, key=lambda name: (*_MAIN_METRICS, name).index(name)):
        titles[f"val/{metric}"] = f"Validation {_name(metric)}"
    if "val/loss" in logged:
        titles["val/loss"] = "Validation loss"
    titles |= {name: title for name, title in _WANTED.items() if name in logged}
    if any(name.startswith("lr-") for name in logged):
        titles[_RATE] = "Learning rate"
    for name in logged:
        if name.endswith("_per_s"):
            unit = name.removeprefix("train/").removesuffix("_per_s")
            titles[name] = f"{unit.capitalize()} per second"
    return titles


def _main_metric(group: Group) -> str:
    """The validation metric that chose the group's checkpoints, or the usual one; "" if there is none."""
    logged = {name for record in group.records for name in record.curves.values}
    for record in group.records:
        for monitored in record.result.get("validation") or {}:
            name = str(monitored).removeprefix("best val/")
            if name not in (monitored, "loss") and f"val/{name}" in logged:
                return name
    return next((name for name in _MAIN_METRICS if f"val/{name}" in logged), "")


def _points(record: Record, metric: str) -> Points:
    """The points of a metric; for the learning rate, those of the column with the most rows."""
    if metric != _RATE:
        return record.curves.of(metric)
    # One group of parameters is enough. The rows of progress may be far apart.
    columns = [name for name in record.curves.values if name.startswith("lr-")][:1]
    columns_of_points = [record.curves.values.get(name, []) for name in (*columns, _RATE)]
    return max(columns_of_points, key=len)


def _name(metric: str) -> str:
    return {"mrr": "MRR", "rmse": "RMSE"}.get(metric, PERCENT.get(metric, metric))


def _lines(group: Group, metric: str) -> _Lines:
    scale = 100 if metric.removeprefix("val/") in PERCENT else 1
    runs: list[Points] = []
    best: Points = []
    for record in group.records:
        points = [(x, scale * y) for x, y in _points(record, metric)]
        if not points:
            continue
        runs.append(points)
        if metric.startswith("val/") and (place := _tested_at(record)) is not None:
            value = dict(record.curves.values[metric]).get(place)
            best += [] if value is None else [(place, scale * value)]
    return _Lines(group.short or group.label, runs, best, mean_curve(runs))


def _tested_at(record: Record) -> float | None:
    """Epochs at the validation of the tested checkpoint; of several in its epoch, the best one."""
    if record.best_epoch is None:
        return None
    end = record.best_epoch + 1.0
    for monitored, best in (record.result.get("validation") or {}).items():
        if not monitored.startswith("best ") or not isinstance(best, int | float):
            continue
        points = record.curves.values.get(monitored.removeprefix("best "), [])
        inside = [(abs(y - best), x) for x, y in points if end - 1 < round(x, 6) <= end and not isnan(y)]
        if inside:
            return min(inside)[1]
    return end


def _tell(line: _Lines) -> str:
    points = line.mean or line.runs[0]
    count = f"{len(line.runs)} runs, mean" if len(line.runs) > 1 else "one run"
    first, last = points[0], points[-1]
    text = (
        f"{line.label}, {count}: from {first[1]:.4g} at epoch {first[0]:.4g} "
        f"to {last[1]:.4g} at epoch {last[0]:.4g}"
    )
    if line.best:
        mean = fmean(y for _, y in line.best)
        text += f", {mean:.4g} at the best epoch ({', '.join(f'{x:.4g}' for x, _ in line.best[:5])})"
    return text + "."


def _draw(lines: Sequence[tuple[int, _Lines]], metric: str, *, several: bool) -> Figure:
    figure = new_figure(2.45 + 0.17 * (len(lines) if several else 0))
    axes = figure.add_subplot()
    style = "steps-post" if metric == _RATE else "default"  # a learning rate is constant until it changes
    for number, line in lines:
        tone = color(number)
        alone = len(line.runs) == 1
        curves = [(run, *((1.6, 1.0) if alone else (0.7, 0.45))) for run in line.runs]
        if not alone and line.mean:
            curves.append((line.mean, 2.2, 1.0))
        for points, width, alpha in curves:
            x, y = zip(*thin(points), strict=True)
            (drawn,) = axes.plot(x, y, drawstyle=style, color=tone, linewidth=width, alpha=alpha)
            drawn.set(marker=_mark(points), markersize=3)
        if line.best:
            across, up = zip(*line.best, strict=True)
            size = 26 if alone else 12
            axes.scatter(across, up, s=size, color=tone, edgecolors=INK, linewidths=0.6, zorder=3)
    _finish(axes, log=metric in _LOG)
    if _is_speed(metric) and axes.get_yscale() == "linear":
        # Start at 0, so that a small increase does not look large.
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.08 * axes.dataLim.y1))
    if metric == "train/attention_entropy":
        axes.set_ylim(0, 1.02)
    axes.set_xlabel("epoch")
    if several:
        _legend(figure, [(color(number), line.label) for number, line in lines])
    return figure


def _mark(points: Points) -> str:
    """The marker of a curve: points get one if there are few of them, or less than one per epoch."""
    apart = len(points) < min(_FEW_POINTS, 0.9 * (points[-1][0] - points[0][0]))
    return "o" if len(points) < 3 or apart else "None"


def _finish(axes: Axes, *, log: bool) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator

    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    low, high = axes.dataLim.intervaly
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0  # infinite values give no limits
    if log and low > 0 and high / low > 30:
        axes.set_yscale("log")
        if high / low < 1e3:  # powers of ten alone may give a single tick
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        plain_ticks(axes, "y")
    elif not high - low > 1e-9 * max(abs(high), 1e-12):
        axes.set_ylim(0, 2 * high if high > 0 else 1)  # a constant: do not magnify rounding errors
    axes.ticklabel_format(axis="x", useOffset=False) if axes.get_xscale() == "linear" else None
    if axes.get_yscale() == "linear":
        axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        if 0 < max(abs(low), abs(high)) < 1e-3:
            plain_ticks(axes, "y")


def _legend(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=tone, linewidth=2.2) for tone, _ in entries]
    names = [fitted(name) for _, name in entries]
    figure.legend(handles, names, loc="outside upper left", borderaxespad=0, handlelength=1.4)


def depth_pictures(groups: Sequence[Group]) -> list[Picture]:
    """Test metrics over the number of layers, for settings that are otherwise the same (PENCIL's Fig. 5)."""
    metrics: dict[str, list[dict[int, Group]]] = {}
    for family in _depth_families(groups):
        metrics.setdefault(lead_metric(next(iter(family.values()))), []).append(family)
    pictures = []
    for metric, curves in metrics.items():
        name = metric.removeprefix("test/")
        depths = []
        for family in curves:
            means = {depth: group.figures().get(metric) for depth, group in family.items()}
            at = [f"{depth}: {mean[0]:.4g}" for depth, mean in means.items() if mean]
            record = next(iter(family.values())).first
            depths.append(f"{record.model} on {record.data_name}, layers and {name}: {', '.join(at)}.")
        caption = "The settings differ only in the number of layers."
        if any(len(group.records) > 1 for family in curves for group in family.values()):
            caption += " Points are means over the runs of a depth, bars are one standard deviation."
        pictures.append(
            Picture(
                "depth" if len(metrics) == 1 else f"depth-{slug(name)}",
                f"Test {_name(name)} over layers",
                " ".join(depths),
                partial(_draw_depth, curves, metric),
                caption,
            )
        )
    return pictures


def on_depth_curve(group: Group, groups: Sequence[Group]) -> bool:
    """Whether this setting is on a depth curve of these settings."""
    key, depth = _without_depth(group)
    others = {other for other_key, other in map(_without_depth, groups) if other_key == key}
    return depth is not None and bool(others - {None, depth})


def _depth_families(groups: Sequence[Group]) -> list[dict[int, Group]]:
    """Settings by depth, ascending, for each family of settings that differ only in depth."""
    families: dict[str, dict[int, Group]] = {}
    for group in groups:
        key, depth = _without_depth(group)
        if depth is not None:
            families.setdefault(key, {}).setdefault(depth, group)
    return [dict(sorted(family.items())) for family in families.values() if len(family) > 1]


def _without_depth(group: Group) -> tuple[str, int | None]:
    """A key of all of a setting but its depth, and the depth; None if it has none or was not tested."""
    record = group.first
    config = copy.deepcopy(record.config)
    depth = _take(config, "model", "encoder", "num_layers")
    path = flatten(record.config.get("data"), "data").get("data.path")
    key = f"{record.model} on {record.data_name} {path} {config_hash(config)} {record.apart}"
    return key, depth if isinstance(depth, int) and group.figures() else None


def _take(config: Any, *names: str) -> Any:
    """Remove a nested setting, skipping `init_args`, and return it; None if it is not set."""
    for name in names[:-1]:
        config = config.get(name) if isinstance(config, dict) else None
        if isinstance(config, dict) and "init_args" in config:
            config = config["init_args"]
    return config.pop(names[-1], None) if isinstance(config, dict) else None


def _draw_depth(curves: Sequence[dict[int, Group]], metric: str) -> Figure:
    figure = new_figure(2.45 + 0.17 * len(curves))
    axes = figure.add_subplot()
    scale = 100 if metric.removeprefix("test/") in PERCENT else 1
    entries = []
    for number, family in enumerate(curves):
        of_depth = {depth: group.figures().get(metric) for depth, group in family.items()}
        points = [(x, scale * one[0], scale * (one[1] or 0.0)) for x, one in of_depth.items() if one]
        depths, means, spreads = zip(*points, strict=True)
        axes.errorbar(depths, means, yerr=spreads, color=color(number), marker="o", capsize=3)
        record = next(iter(family.values())).first
        entries.append((color(number), f"{record.model} on {record.data_name}"))
    axes.grid(axis="y")
    axes.set_xlabel("layers")
    axes.set_ylabel(_name(metric.removeprefix("test/")))
    axes.set_xticks(sorted({depth for family in curves for depth in family}))
    axes.tick_params(colors=FAINT, labelcolor=INK)
    _legend(figure, entries)
    return figure
