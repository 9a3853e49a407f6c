"""Link prediction by boosted trees on structural features of pairs, to compare with KnowFormer.

    python -m benchmarks.link_trees

For Cora, CiteSeer and PubMed (a sixth of its links, one split) with protocol `nbfnet`: trees learn to
distinguish training links from twice as many random pairs by 26 features (degrees, components, common
neighbours, distance, random walks of up to six steps), and score the test pairs. A training link is hidden
for its own features. A test link that is also a training link is not hidden, as with KnowFormer. Writes
results/link_trees.csv within minutes, one line per split. Reads GRAPHZOO_DATA or the user's cache.
"""

import csv
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, shortest_path
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.common import RESULTS, commit
from graphzoo.datamodules.batches import permute
from graphzoo.datasets import LinkSplit, load_link_graph
from graphzoo.heuristics.adjacency import adjacency_matrix
from graphzoo.sampling import NegativePairs

COLUMNS = ("data", "split_index", "val/auroc", "test/auroc", "test/ap", "commit")
SPLITS = {"cora-link": (0, 1, 2), "citeseer-link": (0, 1, 2), "pubmed-link": (0,)}
MOST_LINKS = 6_000  # random sample to train on, because the features of a pair take some 20 ms on PubMed
FAR = 50.0  # distance between components
# Sizes are clipped here: that of the largest component would reveal whether a link was left out.
LARGE = 30
STEPS = 6

Array = NDArray[np.float64]


def structure(adjacency: Any, pairs: NDArray[np.int64], *, hides_links: bool) -> Array:
    """Features of each pair, [B, 26]; with `hides_links`, of the graph without the pair's link.

    They do not depend on the order of u and v.
    """
    return np.array([_numbers(adjacency, int(u), int(v), hides_links) for u, v in pairs])


def _numbers(adjacency: Any, u: int, v: int, hides_links: bool) -> list[float]:
    if hides_links and adjacency[u, v]:
        adjacency = adjacency.copy()
        adjacency[u, v] = adjacency[v, u] = 0
        adjacency.eliminate_zeros()
    degree = np.diff(adjacency.indptr)
    component = connected_components(adjacency, directed=False)[1]
    size = np.bincount(component)
    distance = float(shortest_path(adjacency, unweighted=True, indices=u)[v])
    near_u, near_v = _neighbors(adjacency, u), _neighbors(adjacency, v)
    common = degree[np.intersect1d(near_u, near_v)]
    ends = sorted(
        (degree[node], min(size[component[node]], LARGE), *_spread(degree[near]))
        for node, near in ((u, near_u), (v, near_v))
    )
    there, back = _walks(adjacency, degree, u)[:, v], _walks(adjacency, degree, v)[:, u]
    return [
        len(common),
        float((1 / np.log(np.maximum(common, 2))).sum()),
        float((1 / common).sum()),
        min(distance, FAR),
        *np.minimum(there, back),
        *np.maximum(there, back),
        *ends[0],
        *ends[1],
    ]


def _neighbors(adjacency: Any, node: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
    return found


def _spread(degree: NDArray[np.int64]) -> tuple[float, float, float]:
    return (float(degree.max()), float(degree.mean()), float(degree.min())) if degree.size else (0.0,) * 3


def _walks(adjacency: Any, degree: NDArray[np.int64], start: int) -> Array:
    """Probabilities of random walks from a node after 1, 2, ... steps, [STEPS, N]."""
    place = np.zeros(len(degree))
    place[start] = 1
    places = []
    for _ in range(STEPS):
        place = adjacency.T @ (place / np.maximum(degree, 1))
        places.append(place)
    return np.stack(places)


def judge(name: str, split_index: int) -> tuple[float, float, float]:
    """Validation AUROC, test AUROC and test AP."""
    graph = load_link_graph(name, protocol="nbfnet", split_index=split_index)
    edges = graph.edge_index("train")
    adjacency = adjacency_matrix(edges.numpy(), graph.num_nodes)
    negatives = NegativePairs(edges, graph.num_nodes)
    chosen = permute(len(graph.train), "links to learn from")[:MOST_LINKS].sort().values
    others = negatives.sample(chosen, num_negatives=2, seed=0, epoch=0).t()
    x, y = _table(adjacency, LinkSplit(graph.train[chosen], others), hides_links=True)
    trees = HistGradientBoostingClassifier(
        learning_rate=0.03, max_iter=150, min_samples_leaf=40, l2_regularization=1.0, random_state=0
    ).fit(x, y)
    x, y = _table(adjacency, graph.valid)
    val_auroc = roc_auc_score(y, trees.predict_proba(x)[:, 1])
    x, y = _table(adjacency, graph.test)
    score = trees.predict_proba(x)[:, 1]
    return float(val_auroc), float(roc_auc_score(y, score)), float(average_precision_score(y, score))


def _table(adjacency: Any, split: LinkSplit, *, hides_links: bool = False) -> tuple[Array, Array]:
    pairs = torch.cat([split.positive, split.negative]).numpy()
    label = np.zeros(len(pairs))
    label[: len(split.positive)] = 1
    return structure(adjacency, pairs, hides_links=hides_links), label


def main() -> int:
    revision = commit()  # before the file is changed, which would make it "dirty"
    with (RESULTS / "link_trees.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for name, splits in SPLITS.items():
            for split_index in splits:
                scores = [f"{score:.4f}" for score in judge(name, split_index)]
                writer.writerow([name, split_index, *scores, revision])
                sys.stdout.write(f"{name} {split_index}: {' '.join(scores)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
