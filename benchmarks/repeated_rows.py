"""Train and test the first run of each kept row again, to compare the kept figures with the current code.

    python -m benchmarks.repeated_rows --seconds 900

The command is that of the row, with its first seed and split. Rows that were trained on a GPU are left out,
and rows whose first run took longer than `--seconds`. Each finished row is added to
results/repeated_rows.csv, and the next call continues with the rows that are not in the file.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, commit, machine
from benchmarks.fine_tuning import Line, others, write
from graphzoo.cli import main as graphzoo
from graphzoo.runs.row import main_metric, read_row

TABLE = RESULTS / "repeated_rows.csv"
COLUMNS = ("row", "seed", "split", "metric", "kept", "repeated", "validation kept", "validation repeated",
           "epoch kept", "epoch repeated", "kept on", "repeated on", "commit")  # fmt: skip


def first_run(row: Mapping[str, Any]) -> list[str]:
    """Words of the command for the first run of the row."""
    words = [*shlex.split(row["command"])[1:], "--in-process"]  # of a repeated option, the last one counts
    words += ["--seeds", str(row["seeds"][0])]
    return [*words, "--splits", str(row["splits"][0])] if row["splits"] else words


def seconds(row: Mapping[str, Any]) -> float:
    """Training time of the first run; infinite if the row does not have it."""
    run = row["runs"][0]
    return 0.0 if not run["num_parameters"] else run["fit_seconds"] or float("inf")


def is_of_a_gpu(row: Mapping[str, Any]) -> bool:
    return "NVIDIA" in row.get("machine", "")


def validation(run: Mapping[str, Any]) -> float | None:
    """The validation score that chose the epoch."""
    return next((value for name, value in run["validation"].items() if name.startswith("best ")), None)


def line_of(name: str, kept: Mapping[str, Any], repeated: Mapping[str, Any]) -> Line:
    metric = main_metric(kept)
    old, new = kept["runs"][0], repeated["runs"][0]

    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    return {
        "row": name,
        "seed": kept["seeds"][0],
        "split": kept["splits"][0] if kept["splits"] else "",
        "metric": metric,
        "kept": shown(kept["metrics"][metric]["values"][0]),
        "repeated": shown(repeated["metrics"][metric]["values"][0]),
        "validation kept": shown(validation(old)),
        "validation repeated": shown(validation(new)),
        "epoch kept": "" if old["best_epoch"] is None else old["best_epoch"],
        "epoch repeated": "" if new["best_epoch"] is None else new["best_epoch"],
        "kept on": kept.get("machine", ""),
        "repeated on": machine(),
        "commit": commit(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="longest first run to repeat")
    parser.add_argument("--rows", nargs="*", help="names of rows; default: all that are not in the file")
    args = parser.parse_args()
    rows = {path.parent.name: read_row(path) for path in (RESULTS / "rows").glob("*/row.json")}
    if unknown := sorted({*(args.rows or ())} - {*rows}):
        near = get_close_matches(unknown[0], rows) or ["results/rows lists them"]
        parser.error(f"no kept row is called {unknown[0]!r}: {', '.join(near)}")
    done = {str(line["row"]) for line in others(TABLE, row="")}
    for name in sorted(rows, key=lambda name: (seconds(rows[name]), name)):
        row = rows[name]
        wanted = name in args.rows if args.rows else name not in done
        if not wanted or is_of_a_gpu(row) or seconds(row) > args.seconds:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            status = graphzoo([*first_run(row), "--out", str(Path(scratch) / "row")])
            if status:
                raise SystemExit(f"{name}: ended with {status}")
            line = line_of(name, row, read_row(Path(scratch) / "row" / "row.json"))
        print(*line.values(), flush=True)
        write(TABLE, COLUMNS, [*others(TABLE, row=name), line])


if __name__ == "__main__":
    main()
