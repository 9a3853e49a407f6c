"""Keep what `graphzoo reproduce` found: one CSV and one picture of the curves per row of results.

    graphzoo reproduce knowformer umls --seeds 0,1,2
    python -m benchmarks.training_curves runs/reproduce/knowformer-umls

Writes results/training/<row>.csv (a line per seed and epoch, the test figures in the line of the best epoch)
and
docs/figures/<row>.png. Needs matplotlib.
"""

import argparse
import csv
import json
from pathlib import Path

from benchmarks.common import RESULTS, machine

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
KEPT = ("train/loss", "val/mrr", "val/hits@1", "val/hits@10", "train/seconds")
TESTED = ("test/mrr", "test/hits@1", "test/hits@3", "test/hits@10")


def read_seed(folder: Path) -> list[dict[str, object]]:
    """One row per epoch: the mean training loss, and the last value of everything else."""
    result = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    epochs: dict[int, dict[str, object]] = {}
    losses: dict[int, list[float]] = {}
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["epoch"] == "" or int(line["epoch"]) >= result["epochs"]:
                continue
            epoch = int(line["epoch"])
            row = epochs.setdefault(epoch, {"seed": result["seed"], "epoch": epoch + 1})
            if line["train/loss"]:
                losses.setdefault(epoch, []).append(float(line["train/loss"]))
            row |= {name: float(line[name]) for name in KEPT if line[name] and name != "train/loss"}
    for epoch, row in epochs.items():
        if epoch in losses:  # an epoch of few steps may have logged none
            row["train/loss"] = sum(losses[epoch]) / len(losses[epoch])
        if epoch == result["best_epoch"]:
            row |= {name: result["metrics"][name] for name in TESTED}
    return [epochs[epoch] for epoch in sorted(epochs)]


def plot(rows: list[dict[str, object]], name: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
    for seed in sorted({int(str(row["seed"])) for row in rows}):
        for axis, metric in zip(axes, ("train/loss", "val/mrr"), strict=True):
            own = [row for row in rows if row["seed"] == seed and metric in row]
            axis.plot([r["epoch"] for r in own], [r[metric] for r in own], marker=".", label=f"seed {seed}")
            axis.set_xlabel("epoch")
            axis.set_title(metric)
            axis.grid(alpha=0.3)
    axes[1].legend()
    figure.suptitle(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", type=Path, nargs="+", help="folder of a reproduced row, with seed-N inside")
    for folder in parser.parse_args().row:
        seeds = sorted(path.parent for path in folder.glob("seed-*/results.json"))
        if not seeds:
            parser.error(f"{folder}: no finished seed inside")
        rows = [row for seed in seeds for row in read_seed(seed)]
        target = RESULTS / "training" / f"{folder.name}.csv"
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", newline="", encoding="utf-8") as file:
            columns = ["seed", "epoch", *KEPT, *TESTED, "machine"]
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                writer.writerow(shown | {"machine": machine()})
        plot(rows, folder.name, FIGURES / f"{folder.name}.png")
        print(f"{target} and {FIGURES / (folder.name + '.png')}: {len(seeds)} seeds")


if __name__ == "__main__":
    main()
