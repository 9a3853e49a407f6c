"""How often a query's neighbourhood contains its answer, by the choice of neighbourhood.

    export GRAPHZOO_DATA=DIR OMP_NUM_THREADS=1
    python -m benchmarks.neighbourhood_answers [--data fb15k237,wn18rr,nell995] [--triples 250]

Uses both directions of a sample of validation triples. For each size K, gives the share of queries with their
answer inside, and the share of the graph's facts inside:

- `pagerank`: the K entities of highest personalised PageRank from the head;
- `relation`: half of K are known answers of the relation (the default of `graphzoo.sampling`);
- `distance`: the K entities with the fewest hops from the head, and among equals those with most facts;
- `pagerank` and `distance`, `hubs cut`: the same, but with at most 50 facts leaving each entity.

Nothing is trained. An answer outside cannot be ranked well; one inside must still be learned. Writes
results/neighbourhood_answers.csv.
"""

import argparse
import statistics
from collections.abc import Iterator

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array

from benchmarks.common import RESULTS, Row, write_rows
from graphzoo.datamodules import KGDataModule
from graphzoo.datamodules.batches import permute
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import NeighbourhoodSampler

SIZES = (250, 500, 1000, 2000, 4000)
HUB = 50
TELEPORT = 0.15


def nearest(adjacency: csr_array, degree: np.ndarray, head: int, most: int) -> np.ndarray:
    """The first `most` entities by hops from the head, then by number of facts."""
    reached = np.zeros(len(degree), bool)
    frontier = np.array([head])
    reached[head] = True
    order = [frontier]
    found = 1
    while found < most and frontier.size:
        around = np.unique(np.concatenate([_neighbours(adjacency, node) for node in frontier]))
        frontier = around[~reached[around]]
        frontier = frontier[np.argsort(-degree[frontier], kind="stable")]
        reached[frontier] = True
        order.append(frontier)
        found += frontier.size
    return np.concatenate(order)[:most]


def _neighbours(adjacency: csr_array, node: int) -> np.ndarray:
    return adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]


def cut(graph: RelationalGraph) -> csr_array:
    """The graph with at most HUB facts, drawn at random, leaving each entity."""
    generator = np.random.default_rng(0)
    source, target = (row.numpy() for row in graph.edge_index)
    order = generator.permutation(source.size)
    source, target = source[order], target[order]
    by_source = np.argsort(source, kind="stable")
    source, target = source[by_source], target[by_source]
    first = np.searchsorted(source, source)
    kept = np.arange(source.size) - first < HUB
    return _adjacency(source[kept], target[kept], graph.num_nodes)


def walked(adjacency: csr_array, heads: np.ndarray, most: int) -> np.ndarray:
    """The `most` entities of highest personalised PageRank from each head, [heads, most]; 10 iterations."""
    count = adjacency.sum(1)
    step = (adjacency / np.maximum(count, 1)[:, None]).T.tocsr()
    start = np.zeros((adjacency.shape[0], heads.size))
    start[heads, np.arange(heads.size)] = 1
    score = start
    for _ in range(10):
        score = TELEPORT * start + (1 - TELEPORT) * (step @ score)
    return np.argpartition(-score, most, axis=0)[:most].T


def _adjacency(source: np.ndarray, target: np.ndarray, size: int) -> csr_array:
    return coo_array((np.ones(source.size, np.int8), (source, target)), shape=(size, size)).tocsr()


def measure(name: str, num_triples: int) -> Iterator[Row]:
    data = KGDataModule(name=name)
    data.setup()
    graph, triples = data.graph("train"), data.triples("valid")
    head, relation, tail = triples[permute(triples.size(0), "evaluation sample", "valid")[:num_triples]].T
    num_relations = data.spec.num_relations
    heads, relations = torch.cat([head, tail]), torch.cat([relation, relation + num_relations])
    answers = torch.cat([tail, head])
    source, target = (row.numpy() for row in graph.edge_index)
    degree = np.bincount(source, minlength=graph.num_nodes)
    plain, bounded = _adjacency(source, target, graph.num_nodes), cut(graph)

    def facts_among(nodes: np.ndarray) -> int:
        member = np.zeros(graph.num_nodes, bool)
        member[nodes] = True
        return int((member[source] & member[target]).sum())

    def row(way: str, size: int, inside: list[bool], facts: list[int]) -> Iterator[Row]:
        share = statistics.fmean(inside)
        spread = (share * (1 - share) / len(inside)) ** 0.5
        config = f"{len(inside)} queries of validation; p20, p80: one standard error"
        common = "entities inside", str(size)
        yield Row("neighbourhood_answers", way, name, "answer inside", "share", *common,
                  share, share - spread, share + spread, config)  # fmt: skip
        middle = [float(np.quantile(facts, q)) / graph.num_edges for q in (0.5, 0.2, 0.8)]
        yield Row("neighbourhood_answers", way, name, "facts inside", "share of the graph's", *common,
                  *middle, f"{len(facts)} queries of validation")  # fmt: skip

    for size in SIZES:
        if size >= graph.num_nodes:
            continue
        for way, share in (("pagerank", 0.0), ("relation", 0.5)):
            sampler = NeighbourhoodSampler(graph, size, relation_share=share)
            inside, facts = [], []
            for start in range(0, heads.numel(), 20):
                part = slice(start, start + 20)
                near = sampler(heads[part], relations[part])[0]
                found = near.nodes == answers[part, None]
                inside += found.any(1).tolist()
                facts.append(near.num_edges // found.shape[0])
            yield from row(way, size, inside, facts)
        for way, adjacency in (("distance", plain), (f"distance, hubs cut at {HUB}", bounded)):
            inside, facts = [], []
            for start, answer in zip(heads.tolist(), answers.tolist(), strict=True):
                nodes = nearest(adjacency, degree, start, size)
                inside.append(bool((nodes == answer).any()))
                facts.append(facts_among(nodes))
            yield from row(way, size, inside, facts)
        inside, facts = [], []
        for start in range(0, heads.numel(), 20):
            part = slice(start, start + 20)
            for nodes, answer in zip(
                walked(bounded, heads[part].numpy(), size), answers[part].tolist(), strict=True
            ):
                inside.append(bool((nodes == answer).any()))
                facts.append(facts_among(nodes))
        yield from row(f"pagerank, hubs cut at {HUB}", size, inside, facts)
        print(f"{name} K = {size} done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="fb15k237,wn18rr,nell995")
    parser.add_argument("--triples", type=int, default=250)
    arguments = parser.parse_args()
    rows = [row for name in arguments.data.split(",") for row in measure(name, arguments.triples)]
    write_rows(RESULTS / "neighbourhood_answers.csv", rows)
    for row in rows:
        if row.metric == "answer inside":
            print(f"{row.mode:10}{row.provider:26}{row.x:>6}  {row.p50:.2f}")


if __name__ == "__main__":
    main()
