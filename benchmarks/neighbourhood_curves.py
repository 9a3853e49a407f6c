"""MRR over hours of a run in query neighbourhoods, compared with the first steps on the whole graph.

    graphzoo fit --model knowformer --data wn18rr --recipe wn18rr-local --run_dir runs/wn18rr-local
    python -m benchmarks.neighbourhood_curves runs/wn18rr-local --name wn18rr
    python -m benchmarks.neighbourhood_curves --name wn18rr  # redraws the figure from the kept lines

Writes results/neighbourhood_runs/<name>.csv, a line per validation: optimizer steps, queries, hours of steps
(without validation, and without steps that a stop has lost), MRR, Hits@1 and Hits@10 on the fixed validation
triples, peak memory. Draws docs/figures/neighbourhoods-<name>.png, with the kept curve of
results/first_steps/<name>.csv if there is one.
"""

import argparse
import csv
from pathlib import Path

import yaml

from benchmarks.common import RESULTS, machine
from benchmarks.training_curves import FIGURES
from graphzoo.runs.curves import read_rows

SHOWN = ("val/mrr", "val/hits@1", "val/hits@10")
Line = dict[str, float | str]


def read_curve(folder: Path) -> list[Line]:
    """One line per validation."""
    batch = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["data"]["init_args"][
        "batch_size"
    ]
    rows = read_rows(folder / "metrics.csv")
    hours, total = {}, 0.0
    for step, _, values in rows:  # an epoch's seconds are logged after its validation
        total += values.get("train/seconds", 0.0) / 3600
        hours[step] = total
    lines: list[Line] = []
    peak = 0.0
    for step, _, values in rows:
        peak = max(peak, values.get("train/peak_memory_gib", 0.0))
        if "val/mrr" in values:
            figures = {name: round(values[name], 4) for name in SHOWN}
            place = {"step": step + 1, "queries": (step + 1) * batch, "hours": round(hours[step], 3)}
            lines.append({**place, **figures})
    for line in lines:
        line |= {"peak_memory_gib": round(peak, 2), "machine": machine()}
    return lines


def kept(path: Path) -> list[Line]:
    """The lines of an earlier call, with numbers as floats."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: value if name == "machine" else float(value) for name, value in row.items()} for row in rows
    ]


def whole_graph(name: str) -> list[tuple[float, float]]:
    """Hours and MRR of the kept first steps on the whole graph."""
    path, points, hours = RESULTS / "first_steps" / f"{name}.csv", [], 0.0
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            hours += float(row["train/step_seconds"] or 0) / 3600
            if row["val/mrr"]:
                points.append((hours, float(row["val/mrr"])))
    return points


def draw(name: str, lines: list[Line]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    axes.plot(
        [line["hours"] for line in lines], [line["val/mrr"] for line in lines], "o-", label="neighbourhoods"
    )
    if whole := whole_graph(name):
        axes.plot(*zip(*whole, strict=True), "s--", label="whole graph, published batch")
    axes.set(xlabel="hours", ylabel="validation MRR", ylim=(0, None), title=name)
    axes.legend(loc="lower right")
    figure.savefig(FIGURES / f"neighbourhoods-{name}.png", dpi=130)


def main() -> None:
    """Parse the arguments, write table and figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--name", required=True)
    args = parser.parse_args()
    path = RESULTS / "neighbourhood_runs" / f"{args.name}.csv"
    if args.run is None and not path.is_file():
        raise SystemExit(f"{path} is not there: name the folder of a run")
    if args.run is None:
        lines = kept(path)
    elif lines := read_curve(args.run):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    else:
        raise SystemExit(f"{args.run}: no validation in metrics.csv")
    draw(args.name, lines)
    print(f"{args.name}: MRR {lines[-1]['val/mrr']} after {lines[-1]['hours']} hours")


if __name__ == "__main__":
    main()
