"""Test results beside the paper's: a dot with its deviation, and the published value as a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from graphzoo.catalog.tasks import PERCENT, is_error
from graphzoo.report.content import Picture, slug
from graphzoo.report.results import shown_name
from graphzoo.report.style import FAINT, INK, color, fitted, new_figure
from graphzoo.runs.groups import Group
from graphzoo.runs.published import Published
from graphzoo.runs.tables import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Heights in inches of a row with its name above it, of a panel's axis, and of a panel's heading.
_ROW, _AXIS, _HEADING = 0.42, 0.3, 0.22
# The least range of an axis relative to its values, so that it does not magnify rounding errors.
_LEAST_WIDTH = 0.02
_COLUMNS = 46
_BAND: Any = {"color": FAINT, "alpha": 0.35, "linewidth": 0}


class _Row(NamedTuple):
    """One line of a panel, in the unit of the axis."""

    label: str
    tone: str
    mean: float
    deviation: float | None
    runs: int
    paper: Published | None


def paper_pictures(groups: Sequence[Group]) -> list[Picture]:
    """Pictures of results beside the paper's, for metrics with a published value.

    One setting has a picture per unit, with a row per metric. Several settings have a picture per metric,
    with a panel per data set and a row per setting. Settings without a published value are shown, too, if
    another one on the same data has it.
    """
    finished = [(number, group) for number, group in enumerate(groups) if group.figures()]
    if len(groups) == 1:
        return _of_one(groups[0]) if finished else []
    pictures = []
    for name in dict.fromkeys(name for _, group in finished for name in _compared(group)):
        panels: dict[str, list[_Row]] = {}
        for number, group in finished:
            if _can_be_drawn(group, name):
                label = group.short or group.label.replace(f" on {group.first.data_name}", "", 1)
                panels.setdefault(group.first.data_name, []).append(_row(group, name, label, color(number)))
        kept = {data: rows for data, rows in panels.items() if any(row.paper for row in rows)}
        pictures.append(_picture(name.removeprefix("test/"), kept))
    return pictures


def _of_one(group: Group) -> list[Picture]:
    units: dict[str, list[str]] = {}
    for name in _compared(group):
        short = name.removeprefix("test/")
        unit = "%" if short in PERCENT else short if is_error(short) else ""
        units.setdefault(unit, []).append(name)
    pictures = []
    for names in units.values():
        rows = [_row(group, name, shown_name(name), color(0)) for name in names]
        short = names[0].removeprefix("test/")
        pictures.append(_picture(short, {group.first.data_name: rows}, several=False, alone=len(units) == 1))
    return pictures


def _compared(group: Group) -> list[str]:
    """Metrics that both the paper and the runs have, in the order of tables."""
    published = group.published()
    return [name for name in group.figures() if name in published and _can_be_drawn(group, name)]


def _can_be_drawn(group: Group, name: str) -> bool:
    figures = group.figures()
    return name in figures and math.isfinite(figures[name][0])


def _scale(short: str) -> int:
    return 100 if short in PERCENT else 1


def _row(group: Group, name: str, label: str, tone: str) -> _Row:
    mean, deviation, count = group.figures()[name]
    paper, scale = group.published().get(name), _scale(name.removeprefix("test/"))
    if paper is not None:
        paper = Published(scale * paper.value, None if paper.deviation is None else scale * paper.deviation)
    return _Row(label, tone, scale * mean, None if deviation is None else scale * deviation, count, paper)


def _picture(
    short: str, panels: dict[str, list[_Row]], *, several: bool = True, alone: bool = False
) -> Picture:
    texts = []
    scale = _scale(short)
    for data, rows in panels.items():
        for row in rows:
            ours = spread(short, row.mean / scale, None if row.deviation is None else row.deviation / scale)
            runs = f"{row.runs} runs" if row.runs > 1 else "one run"
            text = f"{row.label} on {data}, {runs}: {ours}"
            if row.paper:
                value, deviation = row.paper
                paper = spread(short, value / scale, None if deviation is None else deviation / scale)
                text += f"; the paper: {paper}"
            texts.append(f"{text}.")
    what = "results" if alone else shown_name(short)
    title = f"Test {what} beside the paper's"
    better = "lower is better" if is_error(short) else "higher is better"
    draw = partial(_draw, panels, f"{shown_name(short)}, {better}" if several else better, headings=several)
    name = "paper" if alone else f"paper-{slug(short)}"
    return Picture(name, title, f"{title}. {' '.join(texts)}", draw, _caption(panels))


def _caption(panels: dict[str, list[_Row]]) -> str:
    rows = [row for panel in panels.values() for row in panel]
    sentences = []
    if any(row.deviation is not None for row in rows):
        sentences.append("Bars are one standard deviation over the runs.")
    if any(row.paper is None for row in rows):
        sentences.append("Rows without a line have no published value.")
    return " ".join(sentences)


def _draw(panels: dict[str, list[_Row]], label: str, *, headings: bool) -> Figure:
    heights = [_ROW * len(rows) + _AXIS + _HEADING * headings for rows in panels.values()]
    figure = new_figure(sum(heights) + 0.5)
    every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (data, rows) in zip(every, panels.items(), strict=True):
        _panel(axes, rows)
        if headings:
            axes.set_title(fitted(data, _COLUMNS), loc="left", fontweight="bold")
    every[-1].set_xlabel(label)
    _legend(figure, [row for rows in panels.values() for row in rows])
    return figure


def _panel(axes: Axes, rows: Sequence[_Row]) -> None:
    from matplotlib.ticker import MaxNLocator

    for place, row in enumerate(rows):
        if row.paper is not None:
            value, deviation = row.paper
            if deviation:
                low, high = value - deviation, value + deviation
                axes.fill_betweenx([place - 0.22, place + 0.22], low, high, **_BAND)
            axes.vlines(value, place - 0.22, place + 0.22, color=INK, linewidth=1.6)
        axes.errorbar(
            row.mean, place, xerr=row.deviation or None, color=row.tone, marker="o", markersize=5.5,
            capsize=3, elinewidth=1.6, clip_on=False,
        )  # fmt: skip
        # The name is above its row: beside it, it would leave no room on a phone.
        label = fitted(row.label, _COLUMNS)
        axes.text(0, place - 0.32, label, transform=axes.get_yaxis_transform(), va="bottom")
    axes.set_ylim(len(rows) - 0.6, -0.85)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlim(*_limits(rows))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")


def _limits(rows: Sequence[_Row]) -> tuple[float, float]:
    """The limits of an axis: the range of all values, with a margin."""
    pairs = [(row.mean, row.deviation or 0.0) for row in rows]
    pairs += [(row.paper.value, row.paper.deviation or 0.0) for row in rows if row.paper]
    low, high = min(value - by for value, by in pairs), max(value + by for value, by in pairs)
    least = _LEAST_WIDTH * (max(abs(low), abs(high)) or 1)
    missing = max(0.0, least - (high - low)) / 2
    low, high = low - missing, high + missing
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def _legend(figure: Figure, rows: Sequence[_Row]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    tones = {row.tone for row in rows}
    tone = tones.pop() if len(tones) == 1 else INK
    ours = Line2D([], [], color=tone, marker="o", markersize=5.5, linestyle="none")
    line = Line2D([], [], color=INK, marker="|", markersize=9, markeredgewidth=1.6, linestyle="none")
    named = "mean ± std of the runs" if any(row.runs > 1 for row in rows) else "result"
    entries: list[tuple[Line2D | Patch, str]] = [(ours, named), (line, "paper")]
    if any(row.paper and row.paper.deviation for row in rows):
        entries.append((Patch(**_BAND), "paper ± std"))
    handles, names = zip(*entries, strict=True)
    figure.legend(handles, names, loc="outside upper left", ncols=3, borderaxespad=0, handlelength=1.2)
