"""CPU time of a training step of UMLS, of the checkout that PYTHONPATH names: two of them are run in turns.

    PYTHONPATH=CHECKOUT python benchmarks/step_cpu_seconds.py NAME FILE

Adds a line to the file: NAME, the median CPU ms of a step (user time of all threads), and the loss after
them. CPU time says something on a machine whose cores are busy, where wall-clock time does not.
"""

import os
import resource
import statistics
import sys

from benchmarks.bench_training_step import setup_step

WARM_UP, STEPS = 3, 20


def main() -> None:
    """Take the steps, add the line."""
    name, path = sys.argv[1:]
    step, _ = setup_step("umls", "graphzoo")
    spent = []
    for _ in range(WARM_UP + STEPS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        loss = step()
        spent.append(1000 * (resource.getrusage(resource.RUSAGE_SELF).ru_utime - before))
    is_new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            "checkout,cpu_ms,loss\n" * is_new + f"{name},{statistics.median(spent[WARM_UP:]):.0f},{loss!r}\n"
        )


if __name__ == "__main__":
    main()
