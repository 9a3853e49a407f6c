"""Fine-tuning of the pretrained weights, compared with training from scratch: MRR over time, test scores.

    D="--data wn18rr-v1 --data.neighbourhood 500"
    graphzoo validate --ckpt_path knowformer-any $D --run_dir start
    graphzoo fit --ckpt_path knowformer-any $D --recipe kg --data.eval_neighbourhood 500 --run_dir tuned
    graphzoo fit --model knowformer $D --recipe wn18rr-v1-cpu --run_dir scratch
    python -m benchmarks.fine_tuning wn18rr-v1 start tuned scratch

`scratch` may also be the folder of a kept row, with the curve of another run (`--curve`). It may be left out,
and then only the paper's score is given. Writes results/fine_tuning.csv, a line per run and validation, at 0
minutes for the pretrained weights; results/fine_tuned.csv, a line per data set; and
docs/figures/fine-tuning.png. Minutes are those of steps and loading, without validation. Lines of other data
sets are kept. Scores without training come from results/zero_shot.csv.
"""

import argparse
import contextlib
import csv
import io
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import RESULTS, machine
from benchmarks.neighbourhood_curves import read_curve
from benchmarks.training_curves import FIGURES
from graphzoo.system.json_file import read_json
from graphzoo.training.start import run_here

MARKS = (0, 1, 5, 10, 30)
TABLE = RESULTS / "fine_tuning.csv"
SCORES = RESULTS / "fine_tuned.csv"
COLUMNS = ("data", "run", "minutes", "val/mrr", "machine")
SCORE_COLUMNS = ("data", "start_mrr", "start_hits@10", "tuned_mrr", "tuned_hits@10", "tuned_minutes",
                 "scratch_mrr", "scratch_hits@10", "scratch_minutes", "scratch_seeds", "paper_mrr",
                 "ultra_mrr", "machine")  # fmt: skip
Line = dict[str, str | float]


def lines_of(data: str, name: str, folder: Path) -> list[Line]:
    """A line per validation of a run; a kept row has none."""
    if not (folder / "metrics.csv").is_file():
        return []
    return [
        {
            "data": data,
            "run": name,
            "minutes": round(60 * float(line["hours"]), 2),
            "val/mrr": line["val/mrr"],
            "machine": machine(),
        }
        for line in read_curve(folder)
    ]


def scores_of(folder: Path) -> tuple[str, str, str, str]:
    """Test MRR, Hits@10, minutes and number of seeds of a run or a kept row, as text."""
    if (folder / "row.json").is_file():
        row = read_json(folder / "row.json")
        mrr, hits = (row["metrics"][f"test/{name}"] for name in ("mrr", "hits@10"))
        seconds = [run["fit_seconds"] for run in row["runs"] if run["fit_seconds"]]
        spread = f" ± {mrr['std']:.4f}" if mrr["std"] is not None else ""
        minutes = f"{sum(seconds) / len(seconds) / 60:.0f}" if seconds else ""
        return f"{mrr['mean']:.4f}{spread}", f"{hits['mean']:.4f}", minutes, str(len(row["seeds"]))
    run = read_json(folder / "results.json")
    mrr, hits = (f"{run['metrics'][f'test/{name}']:.4f}" for name in ("mrr", "hits@10"))
    return mrr, hits, f"{run['fit_seconds'] / 60:.0f}", "1"


def scores(data: str, tuned: Path, scratch: Path | None) -> Line:
    """The line of the table for a data set."""
    with (RESULTS / "zero_shot.csv").open(newline="", encoding="utf-8") as file:
        (start,) = (row for row in csv.DictReader(file) if row["data"] == data)
    of_tuned = scores_of(tuned)
    of_scratch = ("", "", "", "") if scratch is None else scores_of(scratch)
    values = (
        data,
        start["mrr"],
        start["hits@10"],
        *of_tuned[:3],
        *of_scratch,
        start["trained_mrr"],
        machine(),
    )
    return dict(zip(SCORE_COLUMNS, values, strict=True))


def others(path: Path, **same: str) -> list[Line]:
    """The lines of a file that differ from `same` in one of its columns, such as `data`."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [dict(row) for row in csv.DictReader(file) if any(row[name] != same[name] for name in same)]


def metric_of(words: list[str], name: str) -> float:
    """A metric of `graphzoo WORDS`, run in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*words, "--run_dir", f"{folder}/run", "--quiet"]
        with contextlib.redirect_stdout(io.StringIO()):
            status = run_here(words)
        if status:
            raise SystemExit(f"graphzoo {' '.join(words)} ended with {status}")
        return float(read_json(Path(folder, "run/results.json"))["metrics"][name])


def write(path: Path, columns: tuple[str, ...], lines: list[Line]) -> None:
    """Write all lines, sorted by the first column."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: str(line[columns[0]])))


def draw(rows: list[Line]) -> None:
    """Draw a panel per data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [{**row, "minutes": float(row["minutes"]), "val/mrr": float(row["val/mrr"])} for row in rows]
    names = sorted({str(row["data"]) for row in rows if row["run"] == "scratch"})
    figure, places = pyplot.subplots(
        1, len(names), figsize=(4 * len(names), 3), layout="constrained", squeeze=False
    )
    for axes, data in zip(places[0], names, strict=True):
        for name, style in (("tuned", "o-"), ("scratch", "s--")):
            points = [
                (row["minutes"], row["val/mrr"]) for row in rows if (row["data"], row["run"]) == (data, name)
            ]
            label = "knowformer-any, fine-tuned" if name == "tuned" else "knowformer, from scratch"
            axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
        longest = max(row["minutes"] for row in rows if row["data"] == data)
        axes.set_xscale("function", functions=(np.log1p, np.expm1))
        axes.set_xticks([minutes for minutes in MARKS if minutes <= 1.1 * longest], minor=False)
        axes.set_xlim(left=-0.05)
        axes.grid(axis="x", alpha=0.4)
        axes.set(title=data, xlabel="minutes", ylabel="validation MRR")
    places[0][-1].legend(loc="lower right")
    figure.savefig(FIGURES / "fine-tuning.png", dpi=130)


def main() -> None:
    """Parse the arguments, write tables and figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("start", type=Path)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("scratch", type=Path, nargs="?")
    parser.add_argument("--curve", type=Path, help="the run to draw if `scratch` is a kept row")
    args = parser.parse_args()
    validated = read_json(args.start / "results.json")["metrics"]["val/mrr"]
    start: Line = {
        "data": args.data,
        "run": "tuned",
        "minutes": 0.0,
        "val/mrr": round(validated, 4),
        "machine": machine(),
    }
    lines = [start, *lines_of(args.data, "tuned", args.tuned)]
    if (curve := args.curve or args.scratch) is not None:
        lines += lines_of(args.data, "scratch", curve)
    curves = [*others(TABLE, data=args.data), *lines]
    write(TABLE, COLUMNS, curves)
    tuned = scores(args.data, args.tuned, args.scratch)
    write(SCORES, SCORE_COLUMNS, [*others(SCORES, data=args.data), tuned])
    draw(curves)


if __name__ == "__main__":
    main()
