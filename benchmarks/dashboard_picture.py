"""A picture of the dashboard's panels for docs/wandb.md, without an account or a network.

    graphzoo fit --model knowformer --data umls --recipe umls-demo --run_dir runs/dashboard
    python -m benchmarks.dashboard_picture runs/dashboard

Draws the panels of `graphzoo.report.dashboard.panels` for knowledge graphs: curves, figures and tables of the
run, and panels over seeds from results/training/knowformer-umls.csv and results/rows/knowformer-umls. Writes
docs/figures/dashboard.svg.
"""

import argparse
import csv
import json
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.common import RESULTS
from benchmarks.training_curves import FIGURES
from graphzoo.datasets.kg.table import find_source
from graphzoo.report.dashboard import SECTIONS, Panel, panels
from graphzoo.report.style import COLORS, FAINT, INK, drawing, new_figure, save_figure
from graphzoo.runs.published import published_values

TASK, MODEL, DATA = "kg", "knowformer", "umls"
COLUMNS, WIDTH, HEIGHT, HEADING, GAP = 4, 2.4, 1.75, 0.4, 0.08  # the last four are in inches
LEFT = {"line": 0.45, "seeds": 0.45, "bars": 0.85, "seed bars": 0.85}
MOST_ROWS, MOST_CELLS, LETTERS = 6, 3, 14  # of a table


class Shown:
    """The data to draw, from one run and from the kept runs with three seeds."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.curves = pd.read_csv(run / "metrics.csv")
        result = json.loads((run / "results.json").read_text(encoding="utf-8"))
        source = find_source(DATA)
        sizes = dict(zip(("nodes", "relations"), source.counts(), strict=True))
        sizes |= {part: source.file(part).num_triples for part in ("train", "valid", "test")}
        self.figures = result["metrics"] | {f"data/{name}": value for name, value in sizes.items()}
        self.figures["model/parameters"] = result["num_parameters"]
        arguments = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["model"]["init_args"]
        self.settings = arguments | {f"encoder.{k}": v for k, v in arguments["encoder"]["init_args"].items()}
        self.settings["model"] = result["model"]
        self.seeds = pd.read_csv(RESULTS / "training" / f"{MODEL}-{DATA}.csv")
        row = json.loads((RESULTS / "rows" / f"{MODEL}-{DATA}" / "row.json").read_text(encoding="utf-8"))
        self.over_seeds = {name: metric["values"] for name, metric in row["metrics"].items()}
        paper = published_values(MODEL, f"{MODEL}/{DATA}", DATA)
        self.paper = {name.replace("test/", "paper/"): figure.value for name, figure in paper.items()}


def draw_lines(axes: Any, panel: Panel, shown: Shown) -> None:
    """A line per metric over steps; the paper's value is a horizontal line."""
    for number, name in enumerate(name for name in panel.metrics if name not in shown.paper):
        line = shown.curves[["step", name]].dropna()
        axes.plot(line["step"], line[name], color=COLORS[number], linewidth=1, label=name.partition("/")[2])
    draw_paper(axes, panel, shown)
    if len(panel.metrics) - len(set(panel.metrics) & set(shown.paper)) > 1:
        axes.legend(fontsize=5.5, handlelength=1)


def draw_seeds(axes: Any, panel: Panel, shown: Shown) -> None:
    """Mean and deviation over seeds."""
    table = shown.seeds.pivot(index="epoch", columns="run", values=panel.metrics[0])
    mean, std = table.mean(axis=1), table.std(axis=1)
    axes.plot(table.index, mean, color=COLORS[0], linewidth=1)
    axes.fill_between(table.index, mean - std, mean + std, color=COLORS[0], alpha=0.25, linewidth=0)
    draw_paper(axes, panel, shown)


def draw_paper(axes: Any, panel: Panel, shown: Shown) -> None:
    for name in panel.metrics:
        if name in shown.paper:
            axes.axhline(shown.paper[name], color=FAINT, linestyle="--", linewidth=0.9)


def draw_bars(axes: Any, panel: Panel, shown: Shown) -> None:
    """A bar per metric; over seeds the mean with its deviation."""
    figures = shown.figures if panel.kind == "bars" else shown.over_seeds | shown.paper
    values = [pd.Series(figures[name], dtype=float) for name in panel.metrics]
    names = [name.partition("/")[2] if panel.kind == "bars" else name for name in panel.metrics]
    error = [0.0 if len(value) == 1 else value.std() for value in values]
    axes.barh(names, [value.mean() for value in values], xerr=error, color=COLORS[0], height=0.6)
    axes.invert_yaxis()


def draw_number(axes: Any, panel: Panel, shown: Shown) -> None:
    value = shown.figures[panel.metrics[0]]
    axes.axis("off")
    text = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
    axes.text(0.5, 0.5, text, fontsize=17, color=COLORS[0], ha="center", va="center")


def draw_table(axes: Any, panel: Panel, shown: Shown) -> None:
    """The first rows and columns of a logged table."""
    name = panel.metrics[0].rpartition("/")[2]
    with (shown.run / "evaluation" / "test" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = [row[:MOST_CELLS] for row in csv.reader(file)][: MOST_ROWS + 1]
    axes.axis("off")
    for place, row in enumerate(rows):
        for column, cell in enumerate(row):
            tone = INK if place == 0 else FAINT
            axes.text(column / MOST_CELLS, 1 - place / MOST_ROWS, cell[:LETTERS], fontsize=5.5, color=tone)


def draw_parallel(axes: Any, panel: Panel, shown: Shown) -> None:
    """Parallel coordinates: a line through the settings of the run and its figure."""
    axes.axis("off")
    axes.plot(range(len(panel.metrics)), [0.55] * len(panel.metrics), color=COLORS[0], linewidth=1)
    for place, metric in enumerate(panel.metrics):
        setting = metric.removeprefix("config:")
        value = shown.settings[setting] if setting != metric else round(shown.figures[metric], 3)
        axes.plot([place, place], [0.2, 1], color=FAINT, linewidth=0.7)
        axes.text(place, 0.6, str(value), fontsize=5, ha="center", color=INK)
        words = textwrap.fill(setting.rpartition(".")[2].replace("_", " "), 8)
        axes.text(place, 0.12, words, fontsize=5, ha="center", va="top", color=FAINT)


DRAW = {
    "line": draw_lines, "seeds": draw_seeds, "bars": draw_bars, "seed bars": draw_bars, "number": draw_number,
    "table": draw_table, "parallel": draw_parallel,
}  # fmt: skip


def picture(shown: Shown, task: str = TASK) -> Any:
    """A heading per section with rows of panels; the title of each panel is an SVG group."""
    chosen = [(section, [p for p in panels(task) if p.section == section]) for section in SECTIONS]
    lines = {section: -(-len(found) // COLUMNS) for section, found in chosen}
    width, height = COLUMNS * WIDTH, sum(lines.values()) * HEIGHT + len(SECTIONS) * HEADING
    figure = new_figure(height, width=width)
    figure.set_layout_engine("none")
    top, number = height, 0
    for section, found in chosen:
        top -= HEADING
        heading = f"{section}  {len(found)}"
        figure.text(GAP / width, (top + 0.15) / height, heading, fontsize=10, weight="bold", color=INK)
        for index, panel in enumerate(found):
            row, column = divmod(index, COLUMNS)
            x, y = column * WIDTH, top - (row + 1) * HEIGHT
            frame = figure.add_axes(((x + GAP) / width, (y + GAP) / height,
                                     (WIDTH - 2 * GAP) / width, (HEIGHT - GAP) / height))  # fmt: skip
            frame.set(xticks=[], yticks=[])
            frame.spines[:].set(visible=True, linewidth=0.5)
            middle, title = (x + WIDTH / 2) / width, textwrap.fill(panel.title, 38)
            figure.text(middle, (y + HEIGHT - 0.08) / height, title, fontsize=7.5, ha="center", va="top",
                        color=INK, gid=f"title-{number}")  # fmt: skip
            left = LEFT.get(panel.kind, 0.2)
            axes = figure.add_axes(((x + left) / width, (y + 0.3) / height, (WIDTH - left - 0.2) / width,
                                    (HEIGHT - 0.75) / height))  # fmt: skip
            axes.tick_params(labelsize=6, length=2)
            DRAW[panel.kind](axes, panel, shown)
            number += 1
        top -= lines[section] * HEIGHT
    return figure


def main() -> None:
    """Parse the arguments and draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run of KnowFormer on UMLS")
    with drawing():
        save_figure(picture(Shown(parser.parse_args().run)), FIGURES / "dashboard.svg")


if __name__ == "__main__":
    main()
