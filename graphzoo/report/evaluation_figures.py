"""Pictures and tables of an evaluation in RUN/evaluation/<split>."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.report.content import Block, Picture, TableBlock, slug
from graphzoo.report.style import (
    FAINT,
    INK,
    MEANING,
    STEADY,
    color,
    colors_of,
    name_rows,
    new_figure,
    plain_ticks,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from graphzoo.analysis import Table


MOST_ROWS, MOST_BARS, _FEW_ROWS = 20, 20, 8
_MOST_WRITTEN_CELLS, _MOST_NAMED, _MOST_COLOURS = 12, 40, 10


def prediction_blocks(tables: Sequence[Table], folder: Path) -> list[Block]:
    """The first rows of the tables `worst` and `best`; triples are shown as a query and its right answer."""
    shown = [_asked(table) for table in tables if table.name in ("worst", "best") and len(table.data)]
    return [replace(_rows(table, folder, _FEW_ROWS, folded=False), beside=True) for table in shown]


def _asked(table: Table) -> Table:
    data = table.shown()
    if not {"head", "relation", "tail", "direction", "rank"} <= set(data.columns):
        return table
    heads = data["direction"] == "head"
    head, tail = data["head"].mask(heads, "?"), data["tail"].where(heads, "?")
    asked = "(" + head + ", " + data["relation"] + ", " + tail + ")"
    columns = {"asked": asked, "right answer": data["head"].where(heads, data["tail"]), "rank": data["rank"]}
    return replace(table, data=type(data)(columns))


def evaluation_blocks(tables: Sequence[Table], folder: Path, prefix: str) -> list[Block]:
    """Pictures of the tables of an evaluation, followed by tables of their rows.

    Args:
        tables: Tables of the evaluation.
        folder: Folder of their CSV files, for notes.
        prefix: What names of pictures begin with.
    """
    pictures: list[Block] = []
    rows: list[Block] = []
    for table in tables:
        if not len(table.data):
            continue
        draw = _DRAWN.get(table.kind)
        if draw is not None and table.x and table.y:
            pictures += draw(table, prefix)
        if table.kind in ("table", "bars") or draw is None:
            rows.append(_rows(table, folder, MOST_ROWS, folded=table.kind != "table"))
    return [*pictures, *rows]


def _rows(table: Table, folder: Path, most: int, *, folded: bool) -> TableBlock:
    data = table.shown()
    shown = data.head(most)
    kinds = [data[name].dtype.kind for name in data.columns]
    numeric = frozenset(place for place, kind in enumerate(kinds) if kind in "iuf" and place)
    cells = [[_cell(value) for value in row] for row in shown.itertuples(index=False)]
    path = folder / f"{table.name}.csv"
    left = len(data) - len(shown)
    more = "In full precision" if len(data.columns) == len(table.data.columns) else "With identifiers"
    note = f"{left:,} more rows are in {path}" if left else f"{more}: {path}"
    return TableBlock(table.title, [str(name) for name in data.columns], cells, numeric, note, folded)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        if value != value:
            return ""
        return f"{value:g}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _bars(table: Table, prefix: str) -> list[Picture]:
    data = table.shown()
    names = list(dict.fromkeys(data[table.x].astype(str)))
    weight = next((name for name in ("triples", "support", "nodes", "count") if name in data.columns), "")
    if weight and len(names) > MOST_BARS:
        sizes = data.groupby(data[table.x].astype(str))[weight].sum()
        names = sorted(names, key=lambda name: -sizes[name])
    left = len(names) - MOST_BARS
    chosen = set(names[:MOST_BARS])
    kept = data[data[table.x].astype(str).isin(chosen)]
    series: list[tuple[str, dict[str, float]]] = []
    for column in table.y:
        parts = kept.groupby(kept[table.label].astype(str), sort=False) if table.label else [("", kept)]
        for group, part in parts:
            values = dict(zip(part[table.x].astype(str), part[column].astype(float), strict=True))
            title = " ".join(filter(None, [group, column if len(table.y) > 1 or not group else ""]))
            series.append((title, values))
    if {"both", "head", "tail"} == {title for title, _ in series}:
        series = [one for one in series if one[0] != "both"]  # their mean
    series.sort(key=lambda one: MEANING.get(one[0], len(MEANING)))  # head before tail, as elsewhere
    most = f"The {MOST_BARS} with the most {weight or 'rows'}"
    caption = f"{most}; the table has {left:,} more." if left > 0 else ""
    first = {name: value for name, value in series[0][1].items() if not math.isnan(value)} or series[0][1]
    low, high = min(first, key=first.__getitem__), max(first, key=first.__getitem__)
    titles = [title or table.y[0] for title, _ in series]
    alt = (
        f"{table.title}. Bars of {', '.join(titles)} for {len(chosen)} names. Highest {titles[0]}: "
        f"{short_name(high)} with {first[high]:.3g}; lowest: {short_name(low)} with {first[low]:.3g}."
    )
    draw = partial(_draw_bars, names[:MOST_BARS], series)
    return [Picture(f"{prefix}-{slug(table.name)}", table.title, alt, draw, caption)]


def _draw_bars(names: Sequence[str], series: Sequence[tuple[str, dict[str, float]]]) -> Figure:
    count = len(series)
    each = 0.19 if count == 1 else 0.13 * count + 0.07
    figure = new_figure(0.75 + each * len(names))
    axes = figure.add_subplot()
    thick = 0.8 / count
    tones = colors_of([title for title, _ in series])
    for number, (title, values) in enumerate(series):
        places = [place + (number - (count - 1) / 2) * thick for place in range(len(names))]
        heights = [values.get(name, float("nan")) for name in names]
        axes.barh(places, heights, thick * 0.92, color=tones[number], label=title)
    name_rows(axes, [short_name(name) for name in names])
    axes.margins(y=0.01)
    highest = max((value for _, values in series for value in values.values() if value == value), default=1)
    if 0 <= highest <= 1:
        axes.set_xlim(0, 1)
    if count > 1:
        figure.legend(loc="outside upper left", ncols=3, borderaxespad=0, handlelength=1)
    return figure


def _histogram(table: Table, prefix: str) -> list[Picture]:
    data = table.data
    totals = ", ".join(f"{float(data[name].sum()):,.0f} {name}" for name in table.y)
    top = data.iloc[int(data[list(table.y)].sum(axis=1).to_numpy().argmax())]
    alt = f"{table.title}. {totals}. Most lie from {float(top['from']):.4g} to {float(top['to']):.4g}."
    ranks = table.name == "ranks"  # whole numbers in growing bins: the axis has names of bins
    title = table.title.partition(": above `")[0]  # the axis has the bins
    uneven = float(data[list(table.y)].sum().max()) > 20 * max(1.0, float(data[list(table.y)].sum().min()))
    caption = "Bars are shares of each group's total." if uneven and not ranks else ""
    label = {"ranks": "rank", "scores": "score"}.get(table.name, "value")
    draw = partial(_draw_histogram, data, table.y, label, ranks=ranks, share=uneven and not ranks)
    return [Picture(f"{prefix}-{slug(table.name)}", title, alt, draw, caption)]


def _draw_histogram(
    data: DataFrame, columns: Sequence[str], label: str, *, ranks: bool, share: bool
) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(2.6)
    axes = figure.add_subplot()
    starts, ends = data["from"].astype(float), data["to"].astype(float)
    tones = colors_of(columns)
    for number, name in enumerate(columns):
        heights = data[name].astype(float)
        if share:
            heights = 100 * heights / max(1.0, float(heights.sum()))
        if not ranks:
            edges = [*starts, float(ends.iloc[-1])]
            axes.stairs(heights, edges, fill=True, alpha=0.35, color=tones[number])
            axes.stairs(heights, edges, color=tones[number], linewidth=1.4, label=name)
        else:
            thick = 0.8 / len(columns)
            shift = (number - (len(columns) - 1) / 2) * thick
            places = [place + shift for place in range(len(heights))]
            axes.bar(places, heights, thick, color=tones[number], label=name)
    if ranks:
        # A bin has the whole numbers above its start, up to its end.
        bins = [(start + 1, end) for start, end in zip(starts, ends, strict=True)]
        names = [f"{end:g}" if end <= first else f"{first:g}–{end:g}" for first, end in bins]
        axes.set_xticks(range(len(names)), names, rotation=55, ha="right", rotation_mode="anchor")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))  # more labels would overlap
    axes.set_xlabel(label)
    axes.set_ylabel("share, %" if share else "count")
    axes.grid(axis="y")
    if len(columns) > 1:
        figure.legend(loc="outside upper left", ncols=3, borderaxespad=0, handlelength=1.2)
    return figure


def _curve(table: Table, prefix: str) -> list[Picture]:
    data = table.data
    first, last = data.iloc[0], data.iloc[-1]
    ends = [
        f"{name}: {float(first[name]):.3g} at {table.x} {first[table.x]:g}, "
        f"{float(last[name]):.3g} at {last[table.x]:g}."
        for name in table.y
    ]
    draw = partial(_draw_curve, data, table.x, table.y)
    return [Picture(f"{prefix}-{slug(table.name)}", table.title, f"{table.title}. {' '.join(ends)}", draw)]


def _draw_curve(data: DataFrame, x: str, columns: Sequence[str]) -> Figure:
    figure = new_figure(2.5)
    axes = figure.add_subplot()
    places = data[x].astype(float)
    for number, name in enumerate(columns):
        values = data[name].astype(float)
        axes.plot(places, values, color=color(number), label=name, marker="o", markersize=2.5)
    if places.min() > 0 and places.max() / places.min() > 30:
        axes.set_xscale("log")
        plain_ticks(axes, "x")
    axes.set_xlabel(x)
    if len(columns) == 1:
        axes.set_ylabel(columns[0])
    else:
        figure.legend(loc="outside upper left", ncols=3, borderaxespad=0, handlelength=1.4)
    axes.grid()
    return figure


def _matrix(table: Table, prefix: str) -> list[Picture]:
    data, value = table.data, table.label or str(table.data.columns[-1])
    rows = list(dict.fromkeys(data[table.x].astype(str)))
    columns = list(dict.fromkeys(data[table.y[0]].astype(str)))
    cells = list(
        zip(data[table.x].astype(str), data[table.y[0]].astype(str), data[value].astype(float), strict=True)
    )
    grid = [[0.0] * len(columns) for _ in rows]
    for row, column, count in cells:
        grid[rows.index(row)][columns.index(column)] = count
    total = sum(map(sum, grid)) or 1.0
    off = [(count, row, column) for row, column, count in cells if row != column]
    right = total - sum(count for count, _, _ in off)
    agree = f"{100 * right / total:.1f}% are in cells where both agree"
    alt = f"{table.title}. {len(rows)} by {len(columns)} cells; {agree}."
    if off and (worst := max(off))[0] > 0:
        met = f"{table.x} {worst[1]}, {table.y[0]} {worst[2]}, {worst[0]:g} {value}"
        alt += f" The most frequent difference: {met}."
    caption = "Colours are shares of a row."
    draw = partial(_draw_matrix, grid, rows, columns, table.x, table.y[0])
    return [Picture(f"{prefix}-{slug(table.name)}", table.title, alt, draw, caption)]


def _draw_matrix(
    grid: list[list[float]], rows: Sequence[str], columns: Sequence[str], x: str, y: str
) -> Figure:
    shares = [[cell / (sum(row) or 1.0) for cell in row] for row in grid]
    figure = new_figure(3.6)
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if len(rows) * len(columns) > 400:
        image.set_rasterized(True)
    for names, axis, most in ((rows, axes.yaxis, _MOST_NAMED), (columns, axes.xaxis, 24)):
        every = -(-len(names) // most)
        places = range(0, len(names), every)
        axis.set_ticks(list(places), [short_name(names[place], 16) for place in places])
    long = max(map(len, columns)) > 3 or len(columns) > 12
    if long:
        axes.tick_params(axis="x", rotation=60)
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")
    if len(rows) > 24:
        axes.tick_params(axis="y", labelsize=6.5)
    if max(len(rows), len(columns)) <= _MOST_WRITTEN_CELLS:
        for i, row in enumerate(grid):
            for j, cell in enumerate(row):
                if cell:
                    # A colour that contrasts with the cell, whatever the page: light on dark, dark on light.
                    tone = "#0b0b0c" if shares[i][j] > 0.55 else "#fbfbfc"
                    axes.text(j, i, f"{cell:g}", ha="center", va="center", color=tone, fontsize=8)
    axes.set_xlabel(y)
    axes.set_ylabel(x)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _scatter(table: Table, prefix: str) -> list[Picture]:
    data, y = table.data, table.y[0]
    names = sorted(set(data[table.label].astype(str))) if table.label else []
    if len(names) > _MOST_COLOURS:
        frequent = data[table.label].astype(str).value_counts().index.tolist()
        names = [*frequent[: _MOST_COLOURS - 1], "others"]
    colours = f" in {len(names)} colours: {', '.join(names)}" if names else ""
    alt = f"{table.title}. {len(data):,} points{colours}."
    diagonal = {table.x, y} == {"target", "predicted"}
    caption = "On the line, the predicted and the true value are equal." if diagonal else ""
    draw = partial(_draw_scatter, data, table.x, y, table.label, names, diagonal=diagonal)
    return [Picture(f"{prefix}-{slug(table.name)}", table.title, alt, draw, caption)]


def _draw_scatter(
    data: DataFrame, x: str, y: str, label: str, names: Sequence[str], *, diagonal: bool
) -> Figure:
    figure = new_figure(3.1 + 0.16 * ((len(names) + 1) // 2))
    axes = figure.add_subplot()
    marks = "osD^vP"
    groups = data[label].astype(str) if label else None
    for number, name in enumerate(names or [""]):
        part = data if groups is None else data[groups == name]
        if groups is not None and name == "others" and name not in set(groups):
            part = data[~groups.isin(list(names))]
        axes.scatter(
            part[x].astype(float), part[y].astype(float), s=9, alpha=0.7, linewidths=0,
            color=STEADY[number % len(STEADY)], marker=marks[(number // len(STEADY)) % len(marks)],
            label=short_name(name, 22),
            # Thousands of points are one image, which keeps the file small; texts stay texts.
            rasterized=True,
        )  # fmt: skip
    if diagonal:
        both = [*axes.get_xlim(), *axes.get_ylim()]
        axes.plot([min(both), max(both)], [min(both), max(both)], color=FAINT, linewidth=1)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
    else:
        # The values on the axes of a projection have no meaning.
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.spines[:].set(visible=True, color=FAINT)
    if len(names) > 1:
        room = {"borderaxespad": 0, "handletextpad": 0.2, "columnspacing": 1, "markerscale": 2}
        legend = figure.legend(loc="outside lower left", ncols=2, **room)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set(alpha=1, rasterized=False)
    axes.tick_params(labelcolor=INK)
    return figure


_DRAWN: dict[str, Any] = {
    "bars": _bars,
    "histogram": _histogram,
    "curve": _curve,
    "matrix": _matrix,
    "scatter": _scatter,
}
