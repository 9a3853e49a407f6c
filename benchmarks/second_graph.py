"""Validation MRR of a run on an inductive pair by the size of neighbourhoods, on both graphs of the pair.

    python -m benchmarks.second_graph RUN [--sizes 50,100,200,300,500,2000]

The second graph is the test graph. All of its validation triples are ranked; its test triples are not used.
Of the first graph, at most 250 validation triples are ranked. A size of 0 is the whole graph.

Writes results/second_graph.csv, in place of earlier lines with the same data.
"""

import argparse
from pathlib import Path

from benchmarks.common import RESULTS, machine
from benchmarks.fine_tuning import Line, metric_of, others, write
from graphzoo.catalog.settings import read_settings
from graphzoo.errors import UsageError
from graphzoo.runs.series import whole_numbers

TABLE = RESULTS / "second_graph.csv"
COLUMNS = ("data", "seed", "entities", "first graph", "second graph", "machine")


def validation_mrr(run: Path, size: int, graph: str) -> float:
    """Validation MRR of the run's best checkpoint in neighbourhoods of a size; 0 is the whole graph."""
    near = [f"--data.eval_neighbourhood={size}"] if size else ["--data.protocol=whole_graph"]
    words = ["validate", "--ckpt_path", str(run), *near, f"--data.validate_on={graph}"]
    most = 250 if graph == "training" else 10**9
    return metric_of([*words, f"--data.max_valid_triples={most}"], "val/mrr")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--sizes", default="50,100,200,300,500,2000")
    asked = parser.parse_args()
    try:
        trained = read_settings(asked.run / "config.yaml")
        sizes = whole_numbers(asked.sizes, "--sizes")
    except UsageError as error:
        parser.error(str(error))
    name, seed = trained["data"]["init_args"]["name"], trained["seed_everything"]
    lines: list[Line] = []
    for size in sizes:
        figures = {f"{place} graph": f"{validation_mrr(asked.run, size, graph):.4f}"
                   for place, graph in (("first", "training"), ("second", "inference"))}  # fmt: skip
        lines.append({"data": name, "seed": seed, "entities": size, **figures, "machine": machine()})
        print(size, figures)
    write(TABLE, COLUMNS, [*others(TABLE, data=name), *lines])


if __name__ == "__main__":
    main()
