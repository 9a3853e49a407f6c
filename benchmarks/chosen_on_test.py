"""Test MRR of every epoch: the gain from choosing the epoch by the test triples, as some papers do.

    graphzoo fit --model knowformer --data wn18rr-v1 --recipe wn18rr-v1-local --seed 0 --run_dir RUN \\
        --trainer.callbacks+=ModelCheckpoint --trainer.callbacks.save_top_k=-1 \\
        --trainer.callbacks.dirpath=RUN/checkpoints
    python -m benchmarks.chosen_on_test RUN

The run itself chose its epoch by validation. Writes both choices to results/chosen_on_test.csv, in place of
an earlier line with the same data, recipe and seed.
"""

import argparse
import csv
import re
from pathlib import Path

from benchmarks.common import RESULTS, machine
from benchmarks.fine_tuning import Line, metric_of, others, write
from graphzoo.catalog.presets import read_header
from graphzoo.catalog.settings import read_settings

TABLE = RESULTS / "chosen_on_test.csv"
COLUMNS = ("data", "recipe", "seed", "epochs", "by validation", "epoch", "by test", "best epoch",
           "last epoch", "machine")  # fmt: skip


def checkpoints_of(run: Path) -> dict[int, Path]:
    """The checkpoint of each epoch, counted from 1."""
    found = {}
    for path in (run / "checkpoints").glob("epoch=*.ckpt"):
        if epoch := re.match(r"epoch=(\d+)", path.name):
            found[int(epoch[1]) + 1] = path
    if not found:
        raise SystemExit(f"{run}/checkpoints has no epoch=*.ckpt: keep all with a ModelCheckpoint")
    return dict(sorted(found.items()))


def validated(run: Path) -> dict[int, float]:
    """Validation MRR after each epoch."""
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["val/mrr"]]
    return {int(line["epoch"]) + 1: float(line["val/mrr"]) for line in lines}


def judge(run: Path) -> Line:
    """The line of the table for a run."""
    settings = read_settings(run / "config.yaml")
    tested = {
        epoch: metric_of(["test", "--ckpt_path", str(path)], "test/mrr")
        for epoch, path in checkpoints_of(run).items()
    }
    for epoch, value in tested.items():
        print(run.name, epoch, f"{value:.4f}", flush=True)
    by_validation = {epoch: value for epoch, value in validated(run).items() if epoch in tested}
    chosen, best = max(by_validation, key=by_validation.__getitem__), max(tested, key=tested.__getitem__)
    return {
        "data": settings["data"]["init_args"]["name"],
        "recipe": read_header(run / "config.yaml").get("recipe", "").rpartition("/")[2],
        "seed": settings["seed_everything"],
        "epochs": len(tested),
        "by validation": f"{tested[chosen]:.4f}",
        "epoch": chosen,
        "by test": f"{tested[best]:.4f}",
        "best epoch": best,
        "last epoch": f"{tested[max(tested)]:.4f}",
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of the runs")
    for run in parser.parse_args().runs:
        line = judge(run)
        print(line)
        same = {name: str(line[name]) for name in ("data", "recipe", "seed")}
        write(TABLE, COLUMNS, [*others(TABLE, **same), line])


if __name__ == "__main__":
    main()
