"""Feature transforms: row normalisation, projection, standardisation and columns by name."""

import json

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from graphzoo.datamodules.features import FeatureTransform, normalize_rows, select_rows
from graphzoo.errors import UsageError


@pytest.fixture
def x():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20, 9, generator=generator)
    x[torch.rand(20, 9, generator=generator) < 0.6] = 0.0
    x[4] = 0.0
    return x


def test_rows_sum_to_one_dense_and_sparse(x):
    dense = normalize_rows(x)
    filled = x.sum(1) > 0
    assert torch.allclose(dense.sum(1), filled.float())
    assert torch.allclose(normalize_rows(x.to_sparse_csr()).to_dense(), dense)
    signed = normalize_rows(torch.tensor([[-1.0, 1.0]]))
    assert torch.equal(signed, torch.tensor([[-0.5, 0.5]])), "a sum of zero divides nothing"


def test_rows_of_a_sparse_matrix(x):
    rows = torch.tensor([4, 0, 19, 4])
    assert torch.equal(select_rows(x.to_sparse_csr(), rows).to_dense(), x[rows])
    assert select_rows(x.to_sparse_csr(), rows[:0]).shape == (0, 9)


@pytest.mark.parametrize("sparse", [False, True])
def test_projection_is_the_truncated_svd(x, sparse):
    given = x.to_sparse_csr() if sparse else x
    transform = FeatureTransform.fit(given, normalize=False, reduce_channels=3)
    left, values, _ = np.linalg.svd(x.numpy().astype(np.float64), full_matrices=False)
    reduced = transform(given).numpy()
    assert reduced.shape == (20, 3)
    # The sign of a singular vector is arbitrary; we choose a positive largest entry.
    assert np.allclose(np.abs(reduced), np.abs(left[:, :3] * values[:3]), atol=1e-5)
    largest = transform.projection.abs().argmax(0, keepdim=True)
    assert (transform.projection.gather(0, largest) > 0).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_features_that_are_all_zero_are_not_projected(sparse):
    x = torch.zeros(6, 4)
    with pytest.raises(UsageError, match="every feature is 0"):
        FeatureTransform.fit(x.to_sparse_csr() if sparse else x, normalize=False, reduce_channels=2)


def test_projection_draws_nothing_from_global_generators(x):
    np.random.seed(3)
    state, before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = FeatureTransform.fit(x, normalize=True, reduce_channels=2).projection
    second = FeatureTransform.fit(x, normalize=True, reduce_channels=2).projection
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state) and (np.random.get_state()[1] == before).all()


def test_a_saved_transform_is_loaded(x, tmp_path):
    transform = FeatureTransform.fit(x, normalize=True, reduce_channels=4)
    transform.save(tmp_path / "projection.npy")
    loaded = FeatureTransform.load(transform.describe(), tmp_path / "projection.npy")
    assert torch.equal(loaded(x), transform(x))
    plain = FeatureTransform.fit(x, normalize=True, reduce_channels=None)
    plain.save(tmp_path / "none.npy")
    assert not (tmp_path / "none.npy").exists()
    assert torch.equal(FeatureTransform.load(plain.describe(), None)(x), normalize_rows(x))
    with pytest.raises(UsageError, match="9 features reduced to 4 by .* give the run directory"):
        FeatureTransform.load(transform.describe(), None)


@pytest.mark.fault(
    "the projection of a run's features is damaged or of another shape", "refused with both shapes"
)
def test_a_damaged_projection_is_refused(x, tmp_path):
    transform = FeatureTransform.fit(x, normalize=True, reduce_channels=2)
    path = tmp_path / "projection.npy"
    for content in (b"", b"\x93NUMPY", b"garbage"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"projection\.npy is damaged"):
            FeatureTransform.load(transform.describe(), path)
    np.save(path, np.zeros((3, 3)))
    with pytest.raises(UsageError, match=r"projection\.npy has shape \(3, 3\), but"):
        FeatureTransform.load(transform.describe(), path)


def test_columns_are_standardised(x, tmp_path):
    x[:, 3] = 7.0  # a constant column becomes zero
    transform = FeatureTransform.fit(x * 1000, normalize=False, reduce_channels=None, standardize=True)
    expected = StandardScaler().fit_transform(x.numpy() * 1000)
    assert np.allclose(transform(x * 1000), expected, atol=1e-4) and (expected[:, 3] == 0).all()
    other = torch.full((2, 9), 5.0)  # another graph, with means and scales of the first
    assert not torch.allclose(transform(other), torch.zeros(2, 9), atol=0.1)
    loaded = FeatureTransform.load(json.loads(json.dumps(transform.describe())), None)
    assert torch.equal(loaded(other), transform(other))
    reduced = FeatureTransform.fit(x, normalize=False, reduce_channels=4, standardize=True)
    reduced.save(tmp_path / "projection.npy")
    loaded = FeatureTransform.load(reduced.describe(), tmp_path / "projection.npy")
    assert torch.equal(loaded(x), reduced(x)) and reduced(x).shape == (20, 4)
    assert torch.linalg.norm(reduced(x)) <= torch.linalg.norm(
        FeatureTransform.fit(x, normalize=False, reduce_channels=None, standardize=True)(x)
    )


@pytest.mark.parametrize("scale", [[1.0], [1.0] * 8 + [float("nan")]])
def test_wrong_scales_in_a_checkpoint_are_refused(x, scale):
    described = FeatureTransform.fit(x, normalize=False, reduce_channels=None, standardize=True).describe()
    with pytest.raises(UsageError, match="scale is not one number for each feature"):
        FeatureTransform.load(described | {"scale": scale}, None)


def test_sparse_features_are_not_standardised(x):
    with pytest.raises(UsageError, match="no zero would stay zero"):
        FeatureTransform.fit(x.to_sparse_csr(), normalize=False, reduce_channels=None, standardize=True)


def test_other_widths_are_refused(x):
    with pytest.raises(UsageError, match="has 8 features per node, the model was trained with 9"):
        FeatureTransform.fit(x, normalize=False, reduce_channels=None)(x[:, :8])
    for width in (0, 9, 10):
        with pytest.raises(UsageError, match=f"reduce_channels {width} must be from 1 to 8"):
            FeatureTransform.fit(x, normalize=False, reduce_channels=width)


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_found_by_name(sparse):
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
    transform = FeatureTransform(2, names=("b", "a"))
    assert transform.describe()["names"] == ["b", "a"] and "names" not in FeatureTransform(2).describe()
    transform = FeatureTransform.load(transform.describe(), None)
    found = transform(x.to_sparse_csr() if sparse else x, ("a", "c", "b"))
    assert (found.layout is torch.sparse_csr) == sparse
    assert found.to_dense().tolist() == [[2, 1], [4, 0]]
    assert transform(x[:, :2]).tolist() == x[:, :2].tolist(), "columns without names stay as they are"
    with pytest.raises(UsageError, match="no feature 'b'"):
        transform(x[:, :2], ("a", "c"))
