"""Validation MRR of the recipe `kg` for own triples, and of changes to it.

    graphzoo fit --model knowformer --data wn18rr --recipe kg --no-test --run_dir RUN
    python -m benchmarks.kg_defaults "the recipe" RUN OTHER_RUN

Writes results/kg_defaults.csv, a line per graph and settings: the epochs of the run, and its best MRR on the
fixed validation triples. A line with the same graph and settings is replaced.
"""

import argparse
import csv
from pathlib import Path

import yaml

from benchmarks.common import RESULTS, machine
from graphzoo.runs.curves import read_rows

PATH = RESULTS / "kg_defaults.csv"
COLUMNS = ("data", "settings", "epochs", "val/mrr", "machine")


def line_of(run: Path, settings: str) -> dict[str, str]:
    """The line of a finished run."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    scores = [values["val/mrr"] for _, _, values in read_rows(run / "metrics.csv") if "val/mrr" in values]
    values = (config["data"]["init_args"]["name"], settings, len(scores), f"{max(scores):.4f}", machine())
    return dict(zip(COLUMNS, map(str, values), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", help="name of the settings in the table")
    parser.add_argument("run", nargs="+", type=Path, help="folder of a run")
    arguments = parser.parse_args()
    lines = {}
    if PATH.exists():
        with PATH.open(newline="", encoding="utf-8") as file:
            lines = {(line["data"], line["settings"]): line for line in csv.DictReader(file)}
    for run in arguments.run:
        line = line_of(run, arguments.settings)
        lines[line["data"], line["settings"]] = line
    with PATH.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines[key] for key in sorted(lines))


if __name__ == "__main__":
    main()
