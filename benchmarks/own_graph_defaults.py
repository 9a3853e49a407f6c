"""Search for better defaults on graphs with unlike neighbours, and check the choice on other graphs.

    python -m benchmarks.own_graph_defaults

Each model is trained with one changed setting at a time on the graphs for the choice. Changes that are
better on all of these graphs, in the mean over splits, are taken, also all together. The best of them is
compared with the preset on the other graphs. Test nodes are not used. Writes
results/own_graph_defaults.csv, the best validation metric of each run. Rows in the file are not computed
again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from statistics import mean

from benchmarks.common import RESULTS
from benchmarks.standardized_features import best_on_validation

COLUMNS = ("data", "split", "model", "change", "metric", "best_validation")
CHOOSE = {"squirrel": (0, 1, 2), "chameleon": (0, 1, 2)}
CHECK = {"actor": (0, 1, 2)}
EPOCHS = 100
WIDE = "hidden_channels=128"
CHANGES = {
    "sage": (WIDE, "dropout=0.2", "dropout=0.8"),
    "galit": (WIDE, "dropout=0.2", "alpha=0.9", "alpha=0.1"),
    "gcn": (WIDE, "dropout=0.2", "input_dropout=0.0"),
}
PATH = RESULTS / "own_graph_defaults.csv"
Key = tuple[str, str, str, str]


def words_of(data: str, split: int, model: str, change: str) -> list[str]:
    words = [f"--model={model}", f"--data={data}", f"--data.split_index={split}"]
    words += [f"--model.encoder.{each}" for each in change.split()]
    return [*words, f"--trainer.max_epochs={EPOCHS}"]


class Table:
    """The rows of the file; a new row is written at once."""

    def __init__(self) -> None:
        rows = list(csv.reader(PATH.open(encoding="utf-8")))[1:] if PATH.exists() else []
        self.rows: dict[Key, list[str]] = {(row[0], row[1], row[2], row[3]): row for row in rows}

    def value(self, data: str, split: int, model: str, change: str) -> float:
        key = (data, str(split), model, change)
        if key not in self.rows:
            metric, value = best_on_validation(words_of(data, split, model, change))
            self.rows[key] = [*key, metric, f"{value:.4f}"]
            print(*self.rows[key], flush=True)
            with PATH.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(self.rows.values())
        return float(self.rows[key][-1])

    def gains(self, model: str, change: str, graphs: dict[str, tuple[int, ...]]) -> Iterator[float]:
        """Gain of a change on each graph, in the mean over its splits."""
        for data, splits in graphs.items():
            yield mean(self.value(data, s, model, change) - self.value(data, s, model, "") for s in splits)


def chosen(table: Table, model: str) -> str:
    """The change that is better on all graphs for the choice; empty if there is none."""
    gains = {change: [*table.gains(model, change, CHOOSE)] for change in CHANGES[model]}
    better: dict[str, str] = {}  # the best value of each option
    for change in sorted(gains, key=lambda change: mean(gains[change])):
        if min(gains[change]) > 0:
            better[change.partition("=")[0]] = change
    if len(better) > 1:
        both = " ".join(sorted(better.values()))
        gains[both] = [*table.gains(model, both, CHOOSE)]
    good = {change: mean(gain) for change, gain in gains.items() if min(gain) > 0}
    return max(good, key=lambda change: good[change], default="")


def main() -> None:
    table = Table()
    taken = {model: chosen(table, model) for model in CHANGES}
    print(*(f"{model}: {change or 'no change is better on every graph'}" for model, change in taken.items()))
    for data, splits in CHECK.items():
        for model, change in taken.items():
            if change:
                (gain,) = table.gains(model, change, {data: splits})
                print(f"{model} with {change} on {data}, where it was not chosen: {gain:+.4f}", flush=True)


if __name__ == "__main__":
    main()
