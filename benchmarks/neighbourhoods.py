"""Cost of a training query on the whole graph and in a neighbourhood, also for graphs of growing size.

    export GRAPHZOO_DATA=DIR OMP_NUM_THREADS=2
    python -m benchmarks.neighbourhoods [--data fb15k237,wn18rr,nell995] [--repeats 3] [--no-growth]

For each data set, steps (sampling of neighbourhoods, forward, backward, Adam) alternate between the whole
graph with the recipe's micro-batch, and neighbourhoods with the batch of the `-local` recipe; results are
ms per query and their ratio. Random graphs of 10,000 to 1,000,000 entities with ten facts each are measured
in neighbourhoods of 300 only, with every answer brought in; results are CPU time, which other jobs on the
machine hardly change, and the number of queries with their answer inside. Every figure is the median of
--repeats steps after one that compiles. Peak memory is measured in a separate process. Writes
results/neighbourhoods.csv, in which other rows are kept, and docs/figures/neighbourhoods.png.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch.nn import functional as F

from benchmarks.common import RESULTS, Row, peak_mib, read_rows, write_rows
from benchmarks.training_curves import FIGURES
from graphzoo.datamodules import KGDataModule
from graphzoo.decoders import EntityDecoder
from graphzoo.encoders import KnowFormer
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import FactRemover, NeighbourhoodSampler
from graphzoo.system.memory import keep_freed_memory
from graphzoo.types import GraphSpec

# micro-batch of the published recipe; batch and sizes of the local recipe
SETTINGS = {"fb15k237": (48, 64, 500), "wn18rr": (16, 64, 300), "nell995": (8, 16, 500)}
GROWTH = (10_000, 30_000, 100_000, 300_000, 1_000_000)
FACTS_PER_ENTITY, RELATIONS, GROWN = 10, 100, 64


class Steps:
    """Training steps on the whole graph and in neighbourhoods."""

    def __init__(self, triples: torch.Tensor, num_entities: int, num_relations: int, size: int) -> None:
        torch.manual_seed(0)
        head, relation, tail = triples.unbind(1)
        self.triples, self.num_entities = triples, num_entities
        self.graph = RelationalGraph(
            torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
            torch.cat([relation, relation + num_relations]),
            num_entities,
            2 * num_relations,
        )
        self.encoder = KnowFormer(GraphSpec(num_nodes=num_entities, num_relations=num_relations))
        self.decoder = EntityDecoder(self.encoder.out_channels)
        weights = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimizer = torch.optim.Adam(weights, fused=True)
        self.sampler = NeighbourhoodSampler(self.graph, size)
        self.remover: FactRemover | None = None

    def whole(self, size: int) -> int:
        """One step of `size` queries on the whole graph."""
        if self.remover is None:
            self.remover = FactRemover(self.triples, self.num_entities)
        place = torch.randint(len(self.triples), (size,))
        head, relation, tail = self.triples[place].unbind(1)
        states = self.encoder(self.graph, head, relation, edge_mask=self.remover.edge_mask(place))
        self._learn(states, tail)
        return size

    def near(self, size: int, outside: Literal["drop", "bring"] = "drop") -> int:
        """One step of `size` queries in neighbourhoods; returns the number with their answer inside."""
        head, relation, tail = self.triples[torch.randint(len(self.triples), (size,))].unbind(1)
        graph, kept = self.sampler(head, relation, tail, outside=outside)
        states = self.encoder(graph, graph.find(head[kept]), relation[kept])
        self._learn(states, graph.find(tail[kept]))
        return len(kept)

    def _learn(self, states: torch.Tensor, answer: torch.Tensor) -> None:
        F.cross_entropy(self.decoder(states), answer).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def timed(work: Callable[[], int], clock: Callable[[], float] = time.perf_counter) -> tuple[float, int]:
    """Seconds, and the number of queries with their answer inside."""
    began = clock()
    learned = work()
    return clock() - began, learned


def load(name: str) -> tuple[torch.Tensor, int, int]:
    data = KGDataModule(name=name)
    data.setup()
    return data.triples("train"), data.spec.num_nodes, data.spec.num_relations


def random_triples(num_entities: int) -> tuple[torch.Tensor, int, int]:
    """Random triples with skewed heads, in which every entity is a tail."""
    generator = torch.Generator().manual_seed(0)
    count = FACTS_PER_ENTITY * num_entities
    head = (torch.rand(count, generator=generator) ** 2 * num_entities).long()
    relation = torch.randint(RELATIONS, (count,), generator=generator)
    return torch.stack([head, relation, torch.arange(count) % num_entities], 1), num_entities, RELATIONS


def peak(name: str, way: str, size: int, neighbours: int, queue: "multiprocessing.Queue[float]") -> None:
    """Peak memory in GiB of a process with two steps of one kind."""
    steps = Steps(*load(name), neighbours)
    for _ in range(2):
        getattr(steps, way)(size)
    queue.put(peak_mib() / 1024)


def row(label: str, way: str, metric: str, unit: str, x: str, values: list[float], config: str) -> Row:
    middle = statistics.median(values)
    return Row(
        "neighbourhoods", way, label, metric, unit, "entities", x, middle, min(values), max(values), config
    )


def compared(names: list[str], repeats: int) -> Iterator[Row]:
    context = multiprocessing.get_context("spawn")
    for name in names:
        whole, near, size = SETTINGS[name]
        triples, num_entities, num_relations = load(name)
        steps = Steps(triples, num_entities, num_relations, size)
        seconds: dict[str, list[float]] = {"whole": [], "near": []}
        per_learned: dict[str, list[float]] = {"whole": [], "near": []}
        for turn in range(repeats + 1):
            for way, count in (("whole", whole), ("near", near)):
                taken, learned = timed(partial(getattr(steps, way), count))
                if turn:  # the first step compiles
                    seconds[way].append(1000 * taken / count)
                    per_learned[way].append(1000 * taken / max(1, learned))
        ratio, strict = (
            statistics.median(times["whole"]) / statistics.median(times["near"])
            for times in (seconds, per_learned)
        )
        config = f"{whole} queries at once, whole graph; {near} queries, neighbourhoods of {size}"
        entities = str(num_entities)
        for way, values in seconds.items():
            yield row(name, way, "time of a query", "ms", entities, values, config)
        yield row(name, "near", "times cheaper", "a query asked", entities, [ratio], config)
        yield row(name, "near", "times cheaper", "a query with its answer inside", entities, [strict], config)
        print(f"{name}: {seconds}, {ratio:.1f} times ({strict:.1f} by queries learned from)", flush=True)
        for way, count in (("whole", whole), ("near", near)):
            queue: multiprocessing.Queue[float] = context.Queue()
            process = context.Process(target=peak, args=(name, way, count, size, queue))
            process.start()
            found = queue.get(timeout=900)
            process.join()
            yield row(name, way, "peak memory", "GiB", entities, [found], config)
            print(f"{name}: {way}, peak {found:.2f} GiB", flush=True)


def grown(repeats: int) -> Iterator[Row]:
    for num_entities in GROWTH:
        steps = Steps(*random_triples(num_entities), 300)
        # in a random graph hardly any answer is inside unless it is brought in
        work = partial(steps.near, GROWN, outside="bring")
        taken = [timed(work, time.process_time) for _ in range(repeats + 1)][1:]
        values = [1000 * seconds / learned for seconds, learned in taken]
        config = (
            f"{FACTS_PER_ENTITY} facts an entity, {RELATIONS} relations, {GROWN} queries, neighbourhoods of "
            "300, answers brought in"
        )
        common = str(num_entities)
        yield row("random graph", "near", "processor time of a query", "ms", common, values, config)
        learned = [float(count) for _, count in taken]
        yield row("random graph", "near", "queries learned from", "queries", common, learned, config)
        print(f"{num_entities:,} entities: {statistics.median(values):.1f} ms, {learned}", flush=True)


def draw(rows: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    shown = [r for r in rows if r.mode == "random graph" and r.unit == "ms"]
    axes.plot(
        [int(r.x) for r in shown], [r.p50 for r in shown], "o-", label="neighbourhoods of 300, random graph"
    )
    for name in SETTINGS:
        for way, mark in (("whole", "s"), ("near", "^")):
            found = [r for r in rows if (r.mode, r.provider, r.unit) == (name, way, "ms")]
            axes.plot(
                [int(r.x) for r in found],
                [r.p50 for r in found],
                mark,
                color="C1" if way == "whole" else "C0",
            )
            for r in found:
                axes.annotate(f" {name}, {way}", (int(r.x), r.p50), fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="entities", ylabel="ms a training query")
    axes.legend()
    figure.savefig(FIGURES / "neighbourhoods.png", dpi=130)


def main() -> None:
    """Parse the arguments, measure, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(SETTINGS), help="data sets; empty for random graphs only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-growth", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    rows = list(compared([name for name in args.data.split(",") if name], args.repeats))
    if not args.no_growth:
        rows += grown(args.repeats)
    measured = {r.mode for r in rows}
    rows = [r for r in read_rows(RESULTS / "neighbourhoods.csv") if r.mode not in measured] + rows
    write_rows(RESULTS / "neighbourhoods.csv", rows)
    draw(rows)


if __name__ == "__main__":
    main()
