"""Keep the first steps of a run whose epochs take too long on a machine: losses, validation, speed, memory.

    export OMP_NUM_THREADS=2
    graphzoo fit --model knowformer --data wn18rr --no-test --trainer.max_steps 1 --model.lr 1e-30 \\
        --trainer.val_check_interval 1 --trainer.log_every_n_steps 1 --data.max_valid_triples 250 \\
        --run_dir runs/wn18rr-untrained
    graphzoo fit --model knowformer --data wn18rr --no-test --trainer.max_steps 200 \\
        --trainer.val_check_interval 50 --trainer.log_every_n_steps 1 --data.max_valid_triples 250 \\
        --run_dir runs/wn18rr-200
    python -m benchmarks.first_steps runs/wn18rr-200 --before runs/wn18rr-untrained --name wn18rr \\
        --epoch_steps 679

For knowledge graphs. Run it on the machine of the training, because it writes that machine's name. Writes
results/first_steps/<name>.csv (a line per step: loss over the whole batch, gradient norm, seconds, peak
memory of the process; step 0 is the untrained model) and docs/figures/first-steps-<name>.png, and prints
the figures that the docs cite. Needs matplotlib.
"""

import argparse
import csv
import json
import statistics
from pathlib import Path

from benchmarks.common import RESULTS, machine
from benchmarks.training_curves import FIGURES
from graphzoo.errors import UsageError
from graphzoo.runs.curves import read_rows

EVERY_STEP = ("train/loss", "train/grad_norm", "train/step_seconds", "train/peak_memory_gib")
KEPT = (*EVERY_STEP, "val/mrr", "val/hits@1", "val/hits@10")
Steps = dict[int, dict[str, float]]


def read_steps(folder: Path) -> Steps:
    """The figures of every step, counted from 1; if a resumed run repeated a step, the later ones.

    Raises:
        UsageError: for a damaged line, with its number.
        SystemExit: if there are no metrics, steps are missing, or a step has no loss.
    """
    rows = read_rows(folder / "metrics.csv")
    if not rows:
        raise SystemExit(f"{folder}: no metrics.csv with values\nGive a run directory of `graphzoo fit`")
    steps: Steps = {}
    for step, _, values in rows:
        if found := {name: value for name, value in values.items() if name in KEPT}:
            steps.setdefault(step + 1, {}).update(found)
    if sorted(steps) != list(range(1, len(steps) + 1)):
        raise SystemExit(f"{folder}: not every step was logged\nTrain with --trainer.log_every_n_steps 1")
    for step, row in steps.items():
        if missing := [name for name in EVERY_STEP if name not in row]:
            raise SystemExit(f"{folder}: step {step} has no {missing[0]}\nResume the run, or train again")
    return steps


def validated(steps: Steps) -> dict[int, float]:
    return {step: row["val/mrr"] for step, row in sorted(steps.items()) if "val/mrr" in row}


def summary(steps: Steps, epoch_steps: int) -> dict[str, float]:
    """Figures that the docs cite: mean losses of the first and last ten steps, the median time of a step."""
    trained = [steps[step] for step in sorted(steps) if step > 0]
    losses = [row["train/loss"] for row in trained]
    seconds = statistics.median(row["train/step_seconds"] for row in trained)
    return {
        "steps": len(trained),
        "loss, first ten": statistics.mean(losses[:10]),
        "loss, last ten": statistics.mean(losses[-10:]),
        **{f"val/mrr after {step}": value for step, value in validated(steps).items()},
        "seconds a step": seconds,
        "steps/s": 1 / seconds,
        "peak memory GiB": max(row["train/peak_memory_gib"] for row in trained),
        "hours an epoch": seconds * epoch_steps / 3600,
    }


def plot(steps: Steps, name: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
    trained = sorted(step for step in steps if step > 0)
    left.plot(trained, [steps[step]["train/loss"] for step in trained], lw=1)
    left.set_title("train/loss")
    judged = validated(steps)
    right.plot(list(judged), list(judged.values()), marker=".", lw=1)
    right.set_title("val/mrr")
    for axis in (left, right):
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    figure.suptitle(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--before", type=Path, help="folder of a run of one step that did not change weights")
    parser.add_argument("--name", required=True, help="name of the written files")
    parser.add_argument("--epoch_steps", type=int, required=True, help="steps per epoch, as printed by `fit`")
    arguments = parser.parse_args()
    steps = read_steps(arguments.run)
    if not validated(steps):
        raise SystemExit(f"{arguments.run}: was never validated\nTrain with a smaller val_check_interval")
    if arguments.before is not None:
        untrained = read_steps(arguments.before)[1]
        steps[0] = {name: value for name, value in untrained.items() if name.startswith("val/")}
    found = summary(steps, arguments.epoch_steps)  # before any file is written, because it may fail

    target = RESULTS / "first_steps" / f"{arguments.name}.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["step", *KEPT, "machine"], lineterminator="\n")
        writer.writeheader()
        for step in sorted(steps):
            shown = {name: f"{value:.6g}" for name, value in steps[step].items()}
            writer.writerow({"step": step} | shown | {"machine": machine()})
    plot(steps, arguments.name, FIGURES / f"first-steps-{arguments.name}.png")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        raise SystemExit(str(error)) from error
