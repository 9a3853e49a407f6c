"""Keep the row of `graphzoo reproduce` and, by default, its learning curves.

    graphzoo reproduce knowformer umls --seeds 0,1,2
    python -m benchmarks.training_curves runs/reproduce/knowformer-umls
    graphzoo results benchmarks/results/rows

Writes results/rows/<row>/row.json (means and the figures of every run, without full records),
results/training/<row>.csv (a line per run and epoch, about 50 epochs per run, with test figures in the line
of the best epoch) and docs/figures/<row>.png. With `--rows_only`, the last two are not written. The figure
needs matplotlib.

    graphzoo reproduce knowformer umls --seeds 1,2
    python -m benchmarks.training_curves --join --rows_only runs/reproduce/knowformer-umls

This adds runs to a kept row, if settings, data and versions are the same.

For an ablation (`graphzoo reproduce ... --ablation NAME`), only rows are kept, in
results/ablations/<ablation>/<row>/row.json.
"""

import argparse
import csv
import json
import shlex
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, machine
from graphzoo.errors import UsageError
from graphzoo.runs.published import Published, average_metrics
from graphzoo.runs.results_file import write_results

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
JUDGES = ("val/mrr", "val/acc", "val/auroc", "val/rmse")
KEPT = ("train/loss", *JUDGES, "val/hits@1", "val/hits@10", "train/seconds")
TESTED = tuple(f"test/{name}" for name in ("mrr", "hits@1", "hits@3", "hits@10", "acc", "auroc", "rmse"))
MOST_EPOCHS = 50


def read_run(folder: Path) -> list[dict[str, object]]:
    """One row per epoch: the mean training loss, and the last value of other metrics."""
    result = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    epochs: dict[int, dict[str, object]] = {}
    losses: dict[int, list[float]] = {}
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["epoch"] == "" or int(line["epoch"]) >= result["epochs"]:
                continue
            epoch = int(line["epoch"])
            row = epochs.setdefault(epoch, {"run": folder.name, "epoch": epoch + 1})
            if line.get("train/loss"):
                losses.setdefault(epoch, []).append(float(line["train/loss"]))
            row |= {name: float(line[name]) for name in KEPT if line.get(name) and name != "train/loss"}
    best = result["best_epoch"]
    every = -(-len(epochs) // MOST_EPOCHS)
    for epoch, row in epochs.items():
        if epoch in losses:  # an epoch of few steps may have no logged loss
            row["train/loss"] = sum(losses[epoch]) / len(losses[epoch])
        if epoch == best:
            row |= {name: result["metrics"][name] for name in TESTED if name in result["metrics"]}
    return [epochs[epoch] for epoch in sorted(epochs) if (epoch + 1) % every == 0 or epoch == best]


def judge_of(folder: Path, rows: list[dict[str, object]]) -> str:
    """The metric that chose the run's checkpoint."""
    result = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    best = (name.removeprefix("best ") for name in result["validation"] if name.startswith("best "))
    return next(name for name in (*best, *JUDGES) if any(name in row for row in rows))


def plot(rows: list[dict[str, object]], judge: str, name: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = list(dict.fromkeys(str(row["run"]) for row in rows))
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
    for run in runs:
        for axis, metric in zip(axes, ("train/loss", judge), strict=True):
            own = [row for row in rows if row["run"] == run and metric in row]
            label = run.replace("-", " ")
            axis.plot([r["epoch"] for r in own], [r[metric] for r in own], marker=".", lw=1, label=label)
            axis.set_xlabel("epoch")
            axis.set_title(metric)
            axis.grid(alpha=0.3)
    if len(runs) <= 5:  # a longer legend would hide the curves
        axes[1].legend()
    figure.suptitle(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def keep_row(folder: Path, target: Path, on: str, *, join: bool = False) -> None:
    """Write the row to the target folder without full records of its runs; `on` is the machine."""
    content = json.loads((folder / "row.json").read_text(encoding="utf-8"))
    kept = ("seed", "best_epoch", "epochs", "fit_seconds", "validation", "num_parameters")
    shared = ("config_hash", "data_fingerprint", "versions")
    content |= {key: content["runs"][0].get(key) for key in shared} | {"machine": on}
    content["runs"] = [{key: run.get(key) for key in kept} for run in content["runs"]]
    path = target / folder.name / "row.json"
    if join:
        content = join_rows(json.loads(path.read_text(encoding="utf-8")), content)
    write_results(path, content)


def join_rows(kept: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """A row with the runs of two rows, sorted by seed; other fields are those of the added row.

    Two commits may have the same version of graphzoo. Repeat a seed to check that they train equally.

    Raises:
        UsageError: if the rows differ in settings, data or versions, have several splits, or share a seed.
    """
    for what in ("model", "recipe", "name", "config_hash", "data_fingerprint", "versions"):
        if kept.get(what) != added.get(what):
            raise _no_mean(what, kept.get(what), added.get(what))
    for what in ("config_hash", "data_fingerprint", "versions"):
        if kept.get(what) is None:
            raise UsageError(f"the rows do not say their {what}: no mean")
    for what in ("data_name", "tested", "evaluated", "negatives", "protocol"):
        if what in kept and what in added and kept[what] != added[what]:  # older rows lack some fields
            raise _no_mean(what, kept[what], added[what])
    if kept["splits"] or added["splits"]:
        raise UsageError("rows of several splits are not joined")
    if shared := sorted({*kept["seeds"]} & {*added["seeds"]}):
        raise UsageError(f"both rows have a run of seed {shared[0]}")
    runs = []
    for row in (kept, added):
        for place, run in enumerate(row["runs"]):
            runs.append((run, {name: of["values"][place] for name, of in row["metrics"].items()}))
    runs.sort(key=lambda each: each[0]["seed"])
    published = {
        name: Published(of["paper"], of["paper_std"])
        for name, of in added["metrics"].items()
        if of["paper"] is not None
    }
    words = shlex.split(added["command"])
    if "--seeds" in words:
        place = words.index("--seeds")
        del words[place : place + 2]
    seeds = [run["seed"] for run, _ in runs]
    words += [] if seeds == [0, 1, 2] else ["--seeds", ",".join(map(str, seeds))]
    machines = {name for row in (kept, added) for name in row["machine"].split(" and ")}
    return added | {
        "command": shlex.join(words),
        "seeds": seeds,
        "metrics": average_metrics([tested for _, tested in runs], published),
        "runs": [run for run, _ in runs],
        "machine": " and ".join(sorted(machines)),
    }


def _no_mean(what: str, kept: object, added: object) -> UsageError:
    return UsageError(f"{what}: {kept} in the kept row, {added} in the added one: no mean")


def keep_curves(folder: Path, runs: list[Path], on: str) -> None:
    rows = [row for run in runs for row in read_run(run)]
    target = RESULTS / "training" / f"{folder.name}.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        wanted = ["run", "epoch", *KEPT, *TESTED]
        columns = [name for name in wanted if any(name in row for row in rows)]
        writer = csv.DictWriter(file, [*columns, "machine"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
            writer.writerow(shown | {"machine": on})
    plot(rows, judge_of(runs[0], rows), folder.name, FIGURES / f"{folder.name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", type=Path, nargs="+", help="folder of a reproduced row or ablation")
    parser.add_argument("--rows_only", action="store_true", help="keep no curves")
    parser.add_argument("--join", action="store_true", help="add the runs to the kept row")
    parser.add_argument("--machine", default=machine(), help="machine of the runs (default: this one)")
    arguments = parser.parse_args()
    if arguments.join and not arguments.rows_only:
        parser.error("--join takes --rows_only: the curves of the runs that are kept are not there")
    for folder in arguments.row:
        if rows := sorted(path.parent for path in folder.glob("*/row.json")):
            if arguments.join:
                parser.error(f"{folder} is an ablation: its rows are not joined")
            for row in rows:
                keep_row(row, RESULTS / "ablations" / folder.name, arguments.machine)
            print(f"{folder.name}: an ablation of {len(rows)} rows")
            continue
        runs = sorted(path.parent for path in folder.glob("s*-*/results.json"))
        if not runs or not (folder / "row.json").is_file():
            parser.error(f"{folder}: no finished row inside")
        if arguments.join and not (RESULTS / "rows" / folder.name / "row.json").is_file():
            parser.error(f"no row {folder.name} is kept: leave --join out")
        try:
            keep_row(folder, RESULTS / "rows", arguments.machine, join=arguments.join)
        except UsageError as error:
            parser.error(f"{folder}: {error}")
        if not arguments.rows_only:
            keep_curves(folder, runs, arguments.machine)
        print(f"{folder.name}: {len(runs)} runs")


if __name__ == "__main__":
    main()
