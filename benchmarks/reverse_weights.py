"""Validation MRR of a row's checkpoints by the weight of the reversed query, `--model.reverse_weight`.

    graphzoo reproduce knowformer umls --seeds 0,1,2
    python -m benchmarks.reverse_weights runs/reproduce/knowformer-umls

For each run, the same as `graphzoo validate --ckpt_path RUN --model.reverse_weight W` on the CPU.
`--test_one_end` adds the test MRR at weight 0, which shows the gain from the reversed query. Writes lines to
results/reverse_weights.csv, in place of earlier ones of the same row.
"""

import argparse
import csv
import statistics
from pathlib import Path

from lightning import Trainer

import graphzoo
from benchmarks.common import RESULTS, machine
from graphzoo.catalog.settings import read_settings
from graphzoo.datamodules import KGDataModule
from graphzoo.inference import KGModel

WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
COLUMNS = ("row", "run", "split", "reverse_weight", "mrr", "machine")


Line = dict[str, object]


def judge(run: Path, *, test: bool, weights: tuple[float, ...] = WEIGHTS) -> list[Line]:
    """Lines of one run: validation MRR for every weight and, with `test`, test MRR for weight 0."""
    model = graphzoo.load(run)
    if not isinstance(model, KGModel):
        raise SystemExit(f"{run} is no run on a knowledge graph: it has no reversed questions")
    settings = read_settings(run / "config.yaml")["data"]["init_args"]
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", devices=1, **silent)  # type: ignore[arg-type]
    lines: list[Line] = []
    for split, weight in [*(("val", weight) for weight in weights), *([("test", 0.0)] if test else [])]:
        model.task.reverse_weight = weight
        start = trainer.validate if split == "val" else trainer.test
        (found,) = start(model.task, datamodule=KGDataModule(**settings), verbose=False)
        names = {"row": run.parent.name, "run": run.name, "split": split, "machine": machine()}
        lines.append({**names, "reverse_weight": f"{weight:g}", "mrr": f"{found[f'{split}/mrr']:.6f}"})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", type=Path, help="folder of a reproduced row")
    parser.add_argument("--test_one_end", action="store_true")
    arguments = parser.parse_args()
    runs = sorted(path.parent for path in arguments.row.glob("seed-*/results.json"))
    if not runs:
        parser.error(f"{arguments.row}: no finished run inside")
    target = RESULTS / "reverse_weights.csv"
    lines: list[Line] = []
    if target.is_file():
        with target.open(newline="", encoding="utf-8") as file:
            lines += [line for line in csv.DictReader(file) if line["row"] != arguments.row.name]
    new = [line for run in runs for line in judge(run, test=arguments.test_one_end)]
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*lines, *new])
    judged: dict[str, list[float]] = {}
    for line in new:
        judged.setdefault(f"{line['split']} {line['reverse_weight']}", []).append(float(str(line["mrr"])))
    for name, values in judged.items():
        deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        print(f"{name}: {statistics.mean(values):.4f}{deviation} over {len(values)} runs")


if __name__ == "__main__":
    main()
