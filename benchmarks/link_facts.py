"""Facts of the link tables that bound what a model can reach there.

    python -m benchmarks.link_facts

For Cora and CiteSeer under the protocol `nbfnet`, split 0: the share of test pairs, links and others, that no
path of training links joins, and of test links that are training links; the AUROC of Katz and of personalised
PageRank. For the regression of heuristics on CiteSeer: the error on the test pairs of answering
each with the mean of the training targets (those of links and of as many drawn pairs). Writes
results/link_facts.csv within seconds. Reads GRAPHZOO_DATA or the user's cache.
"""

import csv
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.common import RESULTS, commit
from graphzoo.datasets import LinkGraph, load_link_graph
from graphzoo.heuristics import katz, personalized_pagerank
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


def recurring(graph: LinkGraph) -> float:
    """Share of the test links that are training links."""
    train = {frozenset(link) for link in graph.train.tolist()}
    found = [frozenset(link) in train for link in graph.test.positive.tolist()]
    return sum(found) / len(found)


def auroc(graph: LinkGraph, heuristic: Callable[..., Any]) -> float:
    """Of a heuristic on the test pairs."""
    adjacency = adjacency_matrix(graph.edge_index("test").numpy(), graph.num_nodes)
    pairs = torch.cat([graph.test.positive, graph.test.negative]).numpy()
    # scores of pairs that are alike differ in their last bits
    score = np.array([float(f"{value:.9g}") for value in heuristic(adjacency, pairs)])
    return float(roc_auc_score(np.arange(len(pairs)) < len(graph.test.positive), score))


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
    revision = commit()  # before the file changes
    rows: list[tuple[str, str, str, float]] = []
    for name in ("cora-link", "citeseer-link"):
        graph = load_link_graph(name, protocol="nbfnet")
        facts = {
            "test links without a path": without_path(graph, graph.test.positive),
            "other test pairs without a path": without_path(graph, graph.test.negative),
            "test links that are training links": recurring(graph),
            "AUROC of Katz": auroc(graph, katz),
            "AUROC of personalised PageRank": auroc(graph, personalized_pagerank),
        }
        rows += [(name, graph.protocol, fact, value) for fact, value in facts.items()]
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
