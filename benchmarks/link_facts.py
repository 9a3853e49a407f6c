"""Facts about the link data that limit the scores of models.

    python -m benchmarks.link_facts

For Cora and CiteSeer with protocol `nbfnet`: the share of test pairs, of links and of others, without a
path of training links between them, the share of test links that are training links, and the AUROC of Katz
and of personalised PageRank. All are given for split 0, and as mean and standard deviation over ten splits.
For the regression of heuristics on CiteSeer: the test error of predicting the mean of the training targets
(of links and as many random pairs). Writes results/link_facts.csv within a minute. Reads GRAPHZOO_DATA or
the user's cache.
"""

import csv
import sys
from statistics import mean, stdev

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from benchmarks.common import RESULTS, commit
from graphzoo.datasets import LinkGraph, load_link_graph
from graphzoo.heuristics.adjacency import adjacency_matrix
from graphzoo.heuristics.scorer import HeuristicName, LinkHeuristic
from graphzoo.heuristics.targets import HeuristicTargets, TargetName
from graphzoo.metrics import roc_auc
from graphzoo.sampling import NegativePairs
from graphzoo.types import GraphSpec

NAMES: dict[TargetName, str] = {
    "cn": "common neighbours",
    "aa": "Adamic-Adar",
    "ra": "resource allocation",
    "katz": "Katz",
    "spd": "shortest path",
    "pagerank": "PageRank",
}
SPLITS = 10
COLUMNS = ("data", "protocol", "fact", "value", "commit")


def without_path(graph: LinkGraph, pairs: Tensor) -> float:
    """Share of pairs [B, 2] whose nodes are in different components of the training graph."""
    adjacency = adjacency_matrix(graph.edge_index("train").numpy(), graph.num_nodes)
    part = torch.from_numpy(connected_components(adjacency, directed=False)[1])
    return float((part[pairs[:, 0]] != part[pairs[:, 1]]).float().mean())


def recurring(graph: LinkGraph) -> float:
    """Share of the test links that are training links."""
    train = {frozenset(link) for link in graph.train.tolist()}
    found = [frozenset(link) in train for link in graph.test.positive.tolist()]
    return sum(found) / len(found)


def auroc(graph: LinkGraph, name: HeuristicName) -> float:
    """AUROC of a heuristic on the test pairs."""
    pairs = torch.cat([graph.test.positive, graph.test.negative])
    heuristic = LinkHeuristic(GraphSpec(graph.num_nodes), name=name)
    is_link = (torch.arange(len(pairs)) < len(graph.test.positive)).double()
    return float(roc_auc(heuristic(graph.edge_index("test"), pairs), is_link))


def rmse_of_mean(graph: LinkGraph, name: TargetName) -> float:
    """Root mean squared error on the test pairs of predicting the mean training target of a heuristic."""
    edges = graph.edge_index("train")
    targets = HeuristicTargets(edges, graph.num_nodes, name)
    negatives = NegativePairs(edges, graph.num_nodes)
    others = negatives.sample(torch.arange(len(graph.train)), seed=0, epoch=0).t()
    usual = targets(torch.cat([graph.train, others])).mean()
    tested = targets(torch.cat([graph.test.positive, graph.test.negative]))
    return float((tested - usual).square().mean().sqrt())


def main() -> int:
    revision = commit()  # before the file is changed, which would make it "dirty"
    rows: list[tuple[str, str, str, float]] = []
    for name in ("cora-link", "citeseer-link"):
        facts: dict[str, list[float]] = {}
        for split_index in range(SPLITS):
            graph = load_link_graph(name, protocol="nbfnet", split_index=split_index)
            for fact, value in {
                "test links without a path": without_path(graph, graph.test.positive),
                "other test pairs without a path": without_path(graph, graph.test.negative),
                "test links that are training links": recurring(graph),
                "AUROC of Katz": auroc(graph, "katz"),
                "AUROC of personalised PageRank": auroc(graph, "ppr"),
            }.items():
                facts.setdefault(fact, []).append(value)
        for fact, values in facts.items():
            rows.append((name, "nbfnet", f"{fact}, split 0", values[0]))
            rows.append((name, "nbfnet", f"{fact}, mean", mean(values)))
            rows.append((name, "nbfnet", f"{fact}, deviation", stdev(values)))
    graph = load_link_graph("citeseer-link")
    for target, words in NAMES.items():
        rows.append((graph.name, graph.protocol, f"RMSE of the mean, {words}", rmse_of_mean(graph, target)))
    with (RESULTS / "link_facts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for data, protocol, fact, value in rows:
            writer.writerow([data, protocol, fact, f"{value:.4f}", revision])
            sys.stdout.write(f"{data}, {protocol}, {fact}: {value:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
