"""The same models with standardised and with original features.

    python -m benchmarks.standardized_features tolokers,digits galit,nodeformer,gcn,sage --epochs 60

Test nodes are not used. Writes results/standardized_features.csv, the best validation metric with one seed.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from dataclasses import replace

from benchmarks.common import RESULTS
from graphzoo.search.trial import BestValue
from graphzoo.training.launch import run_plan
from graphzoo.training.plan import make_plan

COLUMNS = ("data", "model", "features", "epochs", "metric", "best_validation")
KINDS = {"as they are": "false", "standardised": "true"}


def best_on_validation(words: list[str]) -> tuple[str, float]:
    """Name and best value of the validation metric of a fit with these options."""
    best = BestValue()
    with tempfile.TemporaryDirectory() as folder:
        words = ["--quiet", "--recipe=none", f"--run_dir={folder}/run", *words]
        plan = replace(make_plan("fit", words), tests=False, leaves_graph=False, callbacks=(best,))
        if run_plan(plan) or best.value is None:
            raise SystemExit(f"{' '.join(words)}: failed")
    return best.monitor.removeprefix("val/"), best.value


def measure(data: str, model: str, features: str, epochs: int) -> tuple[object, ...]:
    words = [f"--model={model}", f"--data={data}", f"--data.standardize_features={KINDS[features]}"]
    metric, value = best_on_validation([*words, f"--trainer.max_epochs={epochs}"])
    return data, model, features, epochs, metric, f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="data sets, separated by commas")
    parser.add_argument("models", help="models, separated by commas")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", default="standardized_features.csv", help="file name below results/")
    args = parser.parse_args()
    path = RESULTS / args.out
    rows = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    for data in args.data.split(","):
        for model in args.models.split(","):
            for features in KINDS:
                row = [str(value) for value in measure(data, model, features, args.epochs)]
                rows = [other for other in rows if other[:3] != row[:3]] + [row]
                print(*row)
                with path.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(COLUMNS)
                    writer.writerows(rows)


if __name__ == "__main__":
    main()
