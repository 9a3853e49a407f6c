"""Pretrained models: train missing runs, export the best run by validation, keep its scores.

    python -m benchmarks.pretrained                       # all MODELS, in runs/ and pretrained/
    python -m benchmarks.pretrained galit-cora --rows runs/reproduce --out pretrained

Each model has two folders: `NAME` (safetensors, JSON and a model card, for graphzoo.load) and
`NAME-program` (torch.export). benchmarks/results/pretrained.csv lists them. The seed is chosen by
validation; test figures are those of its results.json.
"""

import argparse
import csv
import hashlib
import io
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import RESULTS, machine
from graphzoo.cli import main as graphzoo
from graphzoo.encoders.pretrained import CARD, SETTINGS
from graphzoo.errors import UsageError
from graphzoo.inference import export_run
from graphzoo.inference.checkpoint import find_checkpoint, read_checkpoint
from graphzoo.inference.program import DESCRIPTION

MADE = (SETTINGS, DESCRIPTION)


@dataclass(frozen=True)
class Model:
    """A model to train and export.

    Args:
        row: Name of the row's folder from `graphzoo reproduce`.
        metric: The validation metric that chooses the run.
        licence: Licence of the weights, as allowed by the terms of the data.
    """

    row: str
    command: tuple[str, ...]
    metric: str
    licence: str


MODELS = {
    "knowformer-umls": Model(
        "knowformer-umls", ("knowformer", "umls", "--seeds", "0,1,2"), "best val/mrr", "apache-2.0"
    ),
    "knowformer-wn18rr-v1": Model(
        "knowformer-wn18rr-v1-wn18rr-v1-cpu",
        ("knowformer", "wn18rr-v1", "--recipe", "wn18rr-v1-cpu", "--seeds", "0,1,2"),
        "best val/mrr",
        "apache-2.0",
    ),
    "galit-cora": Model(
        "galit-cora", ("galit", "cora", "--seeds", "0-9", "--in-process"), "best val/acc", "apache-2.0"
    ),
}


def best_run(row: Path, metric: str) -> Path:
    """The run of a row with the best validation metric; the first one if several are equal."""
    runs = sorted(row.glob("s*-*/results.json"))
    if not runs:
        raise UsageError(f"{row}: no finished run inside")

    def judged(path: Path) -> float:
        return float(json.loads(path.read_text(encoding="utf-8"))["validation"][metric])

    return max(runs, key=judged).parent


def _asks_from_both_ends(run: Path) -> bool:
    """Whether the task uses reversed queries, which an exported program cannot."""
    settings = read_checkpoint(find_checkpoint(run)[0]).get("hyper_parameters") or {}
    return bool(settings.get("reverse_weight"))


def replace_model(run: Path, folder: Path, form: str, licence: str) -> None:
    """Export a run and replace an earlier export, which is kept until the new one is complete."""
    earlier = folder.is_dir() and any(folder.iterdir())
    if earlier and not ((folder / CARD).is_file() and any((folder / file).is_file() for file in MADE)):
        raise UsageError(f"{folder} holds no exported model and is left as it is\nGive another --out")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        weight = 0.0 if form == "torch.export" and _asks_from_both_ends(run) else None
        made = export_run(run, Path(scratch) / folder.name, to=form, licence=licence, reverse_weight=weight)
        if earlier:
            folder.rename(Path(scratch) / "earlier")
        made.rename(folder)


def make(name: str, model: Model, rows: Path, out: Path, extra: list[str]) -> dict[str, object]:
    """Train and export a model; return its line of the table."""
    row = rows / model.row
    if status := graphzoo(["reproduce", *model.command, "--out", str(row), *extra]):
        sys.exit(status)
    run = best_run(row, model.metric)
    folders = {"": out / name, "torch.export": out / f"{name}-program"}
    for form, folder in folders.items():
        replace_model(run, folder, form or "safetensors", model.licence)
    found = json.loads((run / "results.json").read_text(encoding="utf-8"))
    weights = (out / name / "model.safetensors").read_bytes()
    metrics = {key: value for key, value in found["metrics"].items() if key in ("test/mrr", "test/acc")}
    ((metric, value),) = metrics.items()
    return {
        "model": name,
        "command": f"graphzoo reproduce {' '.join(model.command)}",
        "run": run.name,
        "metric": metric,
        "test": f"{value:.4f}",
        "validation": f"{found['validation'][model.metric]:.4f}",
        "parameters": found["num_parameters"],
        "megabytes": f"{len(weights) / 1e6:.2f}",
        "sha256": hashlib.sha256(weights).hexdigest(),
        "machine": machine(),
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--rows", type=Path, default=Path("runs/reproduce"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("pretrained"), help="folder of the exported models")
    parser.add_argument("--table", type=Path, default=RESULTS / "pretrained.csv")
    arguments, extra = parser.parse_known_args(argv)
    if unknown := [name for name in arguments.name if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.name or MODELS:
        made = make(name, MODELS[name], arguments.rows, arguments.out, extra)
        print(f"{name}: {made['metric']} {made['test']}, {made['megabytes']} MB", flush=True)
        keep(made, arguments.table)


def keep(made: dict[str, object], table: Path) -> None:
    """Write a model's figures to the table, in place of earlier ones."""
    rows = (
        {row["model"]: row for row in csv.DictReader(table.open(encoding="utf-8"))} if table.is_file() else {}
    )
    rows[str(made["model"])] = {name: str(value) for name, value in made.items()}
    order = [name for name in MODELS if name in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(made), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[name] for name in order)
    table.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
