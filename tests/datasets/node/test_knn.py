"""Nearest neighbours, compared with scikit-learn and for ties."""

import pytest
import torch
from sklearn.neighbors import kneighbors_graph

from graphzoo.datasets import knn_graph
from graphzoo.datasets.node import knn


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("chunk", [1, 70, 1 << 20])
def test_same_graph_as_scikit_learn(metric, chunk, monkeypatch):
    monkeypatch.setattr(knn, "_CHUNK", chunk)
    x = torch.randn(60, 7, generator=torch.Generator().manual_seed(1))
    found = knn_graph(x, 4, metric)
    expected = kneighbors_graph(x.double().numpy(), 4, metric=metric, include_self=True).tocoo()
    assert {tuple(edge) for edge in found.t().tolist()} == set(
        zip(expected.row.tolist(), expected.col.tolist(), strict=True)
    )
    assert found.shape == (2, 240) and found.dtype == torch.int64


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ties_are_broken_by_number_and_every_point_is_its_own_neighbour(metric):
    x = torch.ones(5, 2)
    found = knn_graph(x, 2, metric)
    assert found[0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert found[1].tolist() == [0, 1, 0, 1, 0, 2, 0, 3, 0, 4]


def test_zero_vector_and_all_neighbours():
    x = torch.tensor([[0.0, 0], [1, 0], [0, 1]])
    assert knn_graph(x, 1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert knn_graph(x, 3).shape == (2, 9)


@pytest.mark.parametrize(
    ("k", "metric", "problem"), [(0, "cosine", "1..5"), (6, "cosine", "1..5"), (2, "l1", "metric")]
)
def test_wrong_arguments_are_refused(k, metric, problem):
    with pytest.raises(ValueError, match=problem):
        knn_graph(torch.ones(5, 2), k, metric)
