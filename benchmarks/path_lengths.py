"""Test MRR by the length of the shortest path, and with missing facts (KnowFormer's Fig. 3).

    python -m benchmarks.path_lengths RUN [--triples 250] [--dropped 0.1,0.3,0.5]

Ranks a sample of the run's test triples, which is the same for every run on the data, in both directions as
in `graphzoo test`: filtered, among all entities, in the run's neighbourhoods. A length is the number of
training facts on the shortest path between head and tail in either direction; 1 is another fact of the same
two. Then a random share of the training facts is hidden from the model when it answers, although it was
trained with all of them. A larger share hides all facts of a smaller one.

Writes results/path_lengths.csv, in place of earlier lines with the same data, and
docs/figures/path-lengths.png.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

import graphzoo
from benchmarks.common import RESULTS, machine
from benchmarks.fine_tuning import Line, others, write
from benchmarks.training_curves import FIGURES
from graphzoo.datamodules.batches import EvaluationBatches, permute
from graphzoo.datasets import AnswerIndex
from graphzoo.inference import KGModel
from graphzoo.metrics import rank_targets
from graphzoo.metrics.ranks import combine_ties
from graphzoo.ops import RelationalGraph

TABLE = RESULTS / "path_lengths.csv"
COLUMNS = ("data", "panel", "x", "mrr", "standard_error", "queries", "machine")
LONGEST = 7  # this length and longer ones
_AT_ONCE = 64


def path_lengths(facts: Tensor, num_entities: int, ends: Tensor) -> Tensor:
    """Number of facts on the shortest path between the entities of `ends` [n, 2]; -1 if there is none."""
    head, tail = np.concatenate([facts[:, [0, 2]], facts[:, [2, 0]]]).T
    joined = coo_array(
        (np.ones(len(head), np.float32), (head, tail)), shape=(num_entities, num_entities)
    ).tocsr()
    lengths = torch.full((len(ends),), -1)
    for chosen in torch.arange(len(ends)).split(_AT_ONCE):
        first, last = ends[chosen].T.numpy()
        column = np.arange(len(chosen))
        reached = np.zeros((num_entities, len(chosen)), bool)
        reached[first, column] = True
        frontier, hops = reached.copy(), 0
        while frontier.any():
            arrived = torch.from_numpy(frontier[last, column])
            lengths[chosen[arrived]] = hops
            frontier[:, arrived.numpy()] = False  # longer paths are not needed
            frontier = (joined @ frontier.astype(np.float32) > 0) & ~reached
            reached |= frontier
            hops += 1
    return lengths


@torch.no_grad()
def reciprocal_ranks(model: KGModel, facts: Tensor, chosen: Tensor) -> Tensor:
    """1 / rank of the chosen test triples with the given facts: tail queries, then head queries."""
    graph = model.graph
    seen = RelationalGraph.from_triples(facts, graph.num_entities, graph.num_relations)
    answers = AnswerIndex(graph.known_triples(), graph.num_entities, graph.num_relations)
    found = torch.zeros(2 * len(graph.test), dtype=torch.float64)
    batches = EvaluationBatches(graph.test, answers, 32, chosen)
    for batch in map(batches.__getitem__, range(len(batches))):
        scores = model.task.score_queries(seen, batch.head, batch.relation)
        found[batch.target_index] = 1 / combine_ties(*rank_targets(scores, batch), "realistic")
    return found[torch.cat([chosen, chosen + len(graph.test)])]


def measure(model: KGModel, num_triples: int, dropped: list[float]) -> Iterator[Line]:
    """A line per length and per share of missing facts."""
    graph = model.graph

    def line(panel: str, x: str, values: Tensor) -> Line:
        error = f"{float(values.std() / len(values) ** 0.5):.4f}" if len(values) > 1 else ""
        figures = {"mrr": f"{float(values.mean()):.4f}", "standard_error": error, "queries": len(values)}
        print(f"{panel} {x}: {figures['mrr']} ± {error}, {len(values)} queries", flush=True)
        return {"data": graph.name, "panel": panel, "x": x, **figures, "machine": machine()}

    chosen = permute(len(graph.test), "path lengths")[:num_triples].sort().values
    order = permute(len(graph.train), "dropped facts")
    values = reciprocal_ranks(model, graph.train, chosen)
    lengths = path_lengths(graph.train, graph.num_entities, graph.test[chosen][:, [0, 2]]).clamp(max=LONGEST)
    for length in sorted(lengths.unique().tolist(), key=lambda length: (length < 0, length)):
        name = {-1: "none", LONGEST: f"{LONGEST}+"}.get(length, str(length))
        yield line("length", name, values[(lengths == length).repeat(2)])
    yield line("missing", "0", values)
    for share in dropped:
        kept = graph.train[order[round(share * len(order)) :].sort().values]
        yield line("missing", f"{share:g}", reciprocal_ranks(model, kept, chosen))


def draw(lines: list[Line]) -> None:
    """Draw a column of two panels per data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted({str(line["data"]) for line in lines})
    figure, rows = pyplot.subplots(
        len(names), 2, figsize=(8, 3 * len(names)), layout="constrained", squeeze=False, sharey="row"
    )
    titles = {"length": "facts between head and tail", "missing": "share of facts that is missing"}
    for places, data in zip(rows, names, strict=True):
        for axes, (panel, title) in zip(places, titles.items(), strict=True):
            shown = [line for line in lines if (line["data"], line["panel"]) == (data, panel)]
            x = [str(line["x"]) for line in shown]
            y, error = ([float(line[name] or 0) for line in shown] for name in ("mrr", "standard_error"))
            axes.errorbar(x, y, error, fmt="o-", capsize=3)
            axes.set(title=data, xlabel=title, ylim=(0, None))
        places[0].set_ylabel("test MRR")
    figure.savefig(FIGURES / "path-lengths.png", dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--triples", type=int, default=250, help="size of the sample")
    parser.add_argument("--dropped", default="0.1,0.3,0.5", help="shares of facts to hide")
    arguments = parser.parse_args()
    try:
        dropped = [float(share) for share in arguments.dropped.split(",")]
        model = graphzoo.load(arguments.run)
    except ValueError as error:  # also raised for a missing run
        parser.error(str(error))
    if not isinstance(model, KGModel):
        parser.error(f"{arguments.run} is no run on a knowledge graph")
    if arguments.triples < 1 or not all(0 <= share < 1 for share in dropped):
        parser.error("--triples is at least 1, and each of --dropped a share from 0 to below 1")
    new = list(measure(model, arguments.triples, dropped))
    lines = [*others(TABLE, data=model.graph.name), *new]
    write(TABLE, COLUMNS, lines)
    draw(lines)


if __name__ == "__main__":
    main()
