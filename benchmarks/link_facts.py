"""Facts of the link tables that bound what a model can reach there.

    python -m benchmarks.link_facts

For Cora and CiteSeer under the protocol `vgae`: the share of test pairs, links and others, that no path of
training links joins. For the regression of heuristics on CiteSeer: the error on the test pairs of answering
each with the mean of the training targets (those of links and of as many drawn pairs). Writes
results/link_facts.csv within seconds. Reads GRAPHZOO_DATA or the user's cache.
"""

import csv
import sys

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from benchmarks.common import RESULTS, commit
from graphzoo.datasets import LinkGraph, load_link_graph
from graphzoo.heuristics.adjacency import adjacency_matrix
from graphzoo.heuristics.targets import HeuristicTargets, TargetName
from graphzoo.sampling import NegativePairs

NAMES: dict[TargetName, str] = {
    "cn": "common neighbours",
    "aa": "Adamic-Adar",
    "ra": "resource allocation",
    "katz": "Katz",
    "spd": "shortest path",
    "pagerank": "PageRank",
}
COLUMNS = ("data", "protocol", "fact", "value", "commit")


def without_path(graph: LinkGraph, pairs: Tensor) -> float:
    """Share of pairs [B, 2] whose nodes lie in two components of the training links."""
    adjacency = adjacency_matrix(graph.edge_index("train").numpy(), graph.num_nodes)
    part = torch.from_numpy(connected_components(adjacency, directed=False)[1])
    return float((part[pairs[:, 0]] != part[pairs[:, 1]]).float().mean())


def rmse_of_mean(graph: LinkGraph, name: TargetName) -> float:
    """Root mean squared error, on the test pairs, of the mean target of a heuristic in training."""
    edges = graph.edge_index("train")
    targets = HeuristicTargets(edges, graph.num_nodes, name)
    negatives = NegativePairs(edges, graph.num_nodes)
    others = negatives.sample(torch.arange(len(graph.train)), seed=0, epoch=0).t()
    mean = targets(torch.cat([graph.train, others])).mean()
    tested = targets(torch.cat([graph.test.positive, graph.test.negative]))
    return float((tested - mean).square().mean().sqrt())


def main() -> int:
    rows: list[tuple[str, str, str, float]] = []
    for name in ("cora-link", "citeseer-link"):
        graph = load_link_graph(name, protocol="vgae")
        rows.append((name, "vgae", "test links without a path", without_path(graph, graph.test.positive)))
        rows.append(
            (name, "vgae", "other test pairs without a path", without_path(graph, graph.test.negative))
        )
    graph = load_link_graph("citeseer-link")
    for target, words in NAMES.items():
        rows.append((graph.name, graph.protocol, f"RMSE of the mean, {words}", rmse_of_mean(graph, target)))
    with (RESULTS / "link_facts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for *words, value in rows:
            writer.writerow([*words, f"{value:.4f}", commit()])
            sys.stdout.write(f"{', '.join(words)}: {value:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
