"""CPU time of a training step of the checkout in PYTHONPATH; run two checkouts in turns to compare them.

    PYTHONPATH=CHECKOUT python benchmarks/step_cpu_seconds.py NAME FILE knowformer fb15k237 fb15k237-local

Adds a line to the file: NAME, the recipe, the median CPU time of a step in ms (user time of all threads),
and the loss of the last step. On busy cores, CPU time is more reliable than wall-clock time.
"""

import argparse
import os
import resource
import statistics
import tempfile
from dataclasses import replace
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from graphzoo.training.launch import run_plan
from graphzoo.training.plan import make_plan

WARM_UP, STEPS = 3, 20


class Clock(Callback):
    """User time between the starts of steps: loader, loss, gradients and optimizer."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        self.loss = 0.0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.marks.append(1000 * resource.getrusage(resource.RUSAGE_SELF).ru_utime)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.loss = float(outputs["loss"])
        trainer.should_stop = len(self.marks) > WARM_UP + STEPS


def main() -> None:
    """Run the steps and add the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for word in ("name", "file", "model", "data", "recipe"):
        parser.add_argument(word)
    name, path, model, data, recipe = vars(parser.parse_args()).values()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--model={model}", f"--data={data}", f"--recipe={recipe}", f"--run_dir={folder}/run"]
        plan = make_plan("fit", [*words, "--quiet", "--trainer.limit_val_batches=0"])
        if status := run_plan(replace(plan, tests=False, leaves_graph=False, callbacks=(clock,))):
            raise SystemExit(status)
    spent = [after - before for before, after in zip(clock.marks, clock.marks[1:], strict=False)][WARM_UP:]
    is_new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write("checkout,recipe,cpu_ms,loss\n" * is_new)
        file.write(f"{name},{model}/{recipe},{statistics.median(spent):.0f},{clock.loss!r}\n")


if __name__ == "__main__":
    main()
