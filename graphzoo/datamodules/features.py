"""Treatment of node features before an encoder sees them: fitted to one graph, applied to any graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.system.files import write_atomically
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import open_regular

# Features with a larger share of values that are not 0, or with larger values, are taken for measurements,
# each on a scale of its own, and not for bags of words.
_FILLED, _UNITS = 0.25, 10.0


def check_scaling(normalize: bool, standardize: bool | None) -> None:
    """Refuse to both normalise and standardise features."""
    if normalize and standardize:
        raise UsageError(
            "features cannot be both normalised and standardised\n"
            "Leave out normalize_features or standardize_features"
        )


def _are_measurements(x: Tensor) -> bool:
    if x.layout is torch.sparse_csr or not x.numel() or bool(((x == 0) | (x == 1)).all()):
        return False
    return float((x != 0).float().mean()) > _FILLED or float(x.abs().max()) > _UNITS


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    """Row normalisation or standardised columns, then a projection onto the leading right singular vectors.

    Args:
        in_channels: F, the width of the features that it was fitted to.
        normalize: Whether each row is divided by the sum of its absolute values.
        projection: Matrix [F, K] that the features are multiplied by; None keeps the width.
        names: Names of the F features; empty if they have none.
        mean: Subtracted from each column, [F]; None leaves the columns as they are.
        scale: Divides each column after that, [F].
    """

    in_channels: int
    normalize: bool = False
    projection: Tensor | None = None
    names: tuple[str, ...] = ()
    mean: Tensor | None = None
    scale: Tensor | None = None

    @classmethod
    def fit(
        cls,
        x: Tensor,
        *,
        normalize: bool,
        reduce_channels: int | None,
        names: tuple[str, ...] = (),
        standardize: bool = False,
    ) -> FeatureTransform:
        """Fit a transform to features [N, F], dense or sparse CSR.

        Raises:
            UsageError: if `reduce_channels` is not below the rank that the features can have, or if sparse
                features are to be standardised.
        """
        columns: dict[str, Tensor] = {}
        if standardize:
            if x.layout is torch.sparse_csr:
                raise UsageError(
                    "sparse features cannot be standardised, as no zero would stay zero\n"
                    "Take --data.normalize_features true, or leave out --data.standardize_features"
                )
            std, mean = torch.std_mean(x.double(), dim=0, correction=0)
            columns = {"mean": mean.float(), "scale": _nonzero(std).float()}
        transform = cls(x.shape[1], normalize, names=names, **columns)
        if reduce_channels is None:
            return transform
        if not 0 < reduce_channels < min(x.shape):
            raise UsageError(
                f"reduce_channels {reduce_channels} must be from 1 to {min(x.shape) - 1} for {x.shape[0]} "
                f"nodes with {x.shape[1]} features; leave it out to keep the features as they are"
            )
        x = transform(x)
        if not (x.values() if x.layout is torch.sparse_csr else x).any():
            raise UsageError(
                "reduce_channels: every feature is 0 for every node\nLeave out --data.reduce_channels"
            )
        return replace(transform, projection=_singular_vectors(x, reduce_channels))

    def __call__(self, x: Tensor, names: tuple[str, ...] = ()) -> Tensor:
        """Transform raw features [N, F], dense or sparse CSR, to [N, F] or [N, K].

        If the `names` of the columns and those of the transform are known, columns are selected by name, and
        other columns are left out.

        Raises:
            UsageError: if a feature is missing, or the width differs.
        """
        if self.names and names and names != self.names:
            x = self._by_name(x, names)
        if x.shape[1] != self.in_channels:
            raise UsageError(
                f"the graph has {x.shape[1]} features per node, the model was trained with "
                f"{self.in_channels}: give the same features in the same order"
            )
        if self.normalize:
            x = normalize_rows(x)
        if self.mean is not None and self.scale is not None:
            x = (x - self.mean) / self.scale
        return x if self.projection is None else x @ self.projection

    def _by_name(self, x: Tensor, names: tuple[str, ...]) -> Tensor:
        place = {name: column for column, name in enumerate(names)}
        missing = [name for name in self.names if name not in place]
        if missing:
            raise UsageError(
                f"the graph has no feature {missing[0]!r}, which the model was trained with "
                f"({len(missing)} such features); it has {', '.join(names[:6])}"
                f"{', ...' if len(names) > 6 else ''}: add or rename the column"
            )
        columns = torch.tensor([place[name] for name in self.names])
        if x.layout is torch.sparse_csr:
            return x.to_sparse().index_select(1, columns).coalesce().to_sparse_csr()
        return x.index_select(1, columns)

    def as_trained(self, described: Mapping[str, Any]) -> FeatureTransform:
        """This transform with the means and deviations of a checkpoint; itself if nothing differs.

        It returns itself also if the checkpoint's transform is of another kind. `Task.check_data` refuses
        that later.
        """
        here = self.describe()
        if here.keys() != described.keys() or here["in_channels"] != described["in_channels"]:
            return self
        if "mean" not in here or {**here, "mean": described["mean"], "scale": described["scale"]} == here:
            return self
        trained = FeatureTransform.load({**described, "reduce_channels": None}, None)
        return replace(self, mean=trained.mean, scale=trained.scale)

    def describe(self) -> dict[str, Any]:
        """Plain values for a checkpoint; the projection itself is saved beside the run's graph."""
        width = None if self.projection is None else self.projection.shape[1]
        described: dict[str, Any] = {
            "in_channels": self.in_channels,
            "normalize": self.normalize,
            "reduce_channels": width,
        }
        if self.mean is not None and self.scale is not None:
            described |= {"mean": self.mean.tolist(), "scale": self.scale.tolist()}
        return described | ({"names": list(self.names)} if self.names else {})

    def save(self, path: Path) -> None:
        """Write the projection, if there is one, as a NumPy file."""
        if self.projection is None:
            return
        projection = self.projection.numpy()
        write_atomically(path, lambda file: np.save(file, projection, allow_pickle=False))

    @classmethod
    def load(cls, described: dict[str, Any], path: Path | None) -> FeatureTransform:
        """The transform of a checkpoint, from the result of `describe` and the file that `save` wrote.

        Raises:
            UsageError: if the projection is needed but missing, or the numbers do not fit the features.
        """
        projection = None
        if described["reduce_channels"] is not None:
            if path is None or not path.is_file():
                raise UsageError(
                    f"the model was trained on {described['in_channels']} features reduced to "
                    f"{described['reduce_channels']} by graph/projection.npy of its run directory: "
                    "give the run directory instead of a checkpoint alone"
                )
            try:
                with open_regular(path) as file:
                    projection = torch.from_numpy(np.load(file, allow_pickle=False))
            except Exception as error:  # a damaged header can raise anything
                raise_if_not_the_file(error, path)
                raise UsageError(
                    f"{path} is damaged ({str(error)[:200]}); copy it from the run again"
                ) from error
            wanted = (described["in_channels"], described["reduce_channels"])
            if tuple(projection.shape) != wanted:
                raise UsageError(
                    f"{path} has shape {tuple(projection.shape)}, but the checkpoint needs {wanted}"
                )
        names = tuple(described.get("names", ()))
        columns = {}
        for key in ("mean", "scale"):
            if key in described:
                columns[key] = torch.tensor(described[key], dtype=torch.float32)
                if columns[key].shape != (described["in_channels"],) or not columns[key].isfinite().all():
                    raise UsageError(f"the checkpoint's {key} is not one number for each feature")
        return cls(described["in_channels"], described["normalize"], projection, names, **columns)


def normalize_rows(x: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values; rows of zeros stay.

    >>> normalize_rows(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    if x.layout is not torch.sparse_csr:
        return x / _nonzero(x.abs().sum(1, keepdim=True))
    counts = x.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(x.shape[0]), counts)
    total = torch.zeros(x.shape[0], dtype=x.dtype).index_add_(0, rows, x.values().abs())
    return _csr(x.crow_indices(), x.col_indices(), x.values() / _nonzero(total)[rows], x.shape)


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """`x[rows]` for dense and for sparse CSR matrices."""
    if x.layout is not torch.sparse_csr:
        return x[rows]
    start, counts = x.crow_indices()[rows], x.crow_indices().diff()[rows]
    pointer = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = torch.repeat_interleave(start - pointer[:-1], counts)
    place = torch.arange(int(pointer[-1])) + shift
    return _csr(pointer, x.col_indices()[place], x.values()[place], (rows.numel(), x.shape[1]))


def _csr(pointer: Tensor, column: Tensor, values: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
    return torch.sparse_csr_tensor(pointer, column, values, tuple(shape), check_invariants=False)


def _nonzero(total: Tensor) -> Tensor:
    return torch.where(total > 0, total, torch.ones_like(total))


def _singular_vectors(x: Tensor, count: int) -> Tensor:
    """Right singular vectors of the largest singular values, [F, count], largest entries positive."""
    from scipy import sparse
    from scipy.sparse.linalg import svds

    if x.layout is torch.sparse_csr:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        matrix: Any = sparse.csr_matrix(parts, shape=tuple(x.shape))
    else:
        matrix = x.numpy()
    # A start vector of its own: scipy would draw one from NumPy's global generator.
    start = np.random.default_rng(0).standard_normal(min(x.shape))
    _, values, vectors = svds(matrix.astype(np.float64), k=count, v0=start, return_singular_vectors="vh")
    vectors = vectors[np.argsort(-values)]
    largest = np.abs(vectors).argmax(axis=1)
    signs = np.sign(vectors[np.arange(count), largest])
    return torch.from_numpy((vectors * signs[:, None]).T.astype(np.float32).copy())


class TreatsFeatures:
    """A DataModule that treats node features by its own settings, or as in the training of a model."""

    is_named: bool
    normalize_features: bool
    standardize_features: bool | None
    _transform: FeatureTransform | None = None
    _own_transform: FeatureTransform | None = None  # fitted to this graph, not taken from a model

    def _treat(self, transform: FeatureTransform) -> None:
        """Apply the transform to this graph's features, for the encoder."""
        raise NotImplementedError

    def _standardizes(self, x: Tensor) -> bool:
        """Whether to standardise features [N, F]: as set, or else if own features look like measurements."""
        if self.standardize_features is not None or self.normalize_features or self.is_named:
            return bool(self.standardize_features)
        return _are_measurements(x)

    def take_features(self, described: Mapping[str, Any] | None) -> None:
        """Treat the features as in the training of a checkpoint, with its means and deviations.

        `described` is the result of `FeatureTransform.describe`. If it is None, or does not fit, the features
        are treated by this graph's own transform.
        """
        if (own := self._own_transform) is not None:
            self._take(own if described is None else own.as_trained(described))

    def _take(self, transform: FeatureTransform) -> None:
        # an equal transform keeps the tensor of features, by which caches recognise them
        if self._transform is None or transform.describe() != self._transform.describe():
            self._transform = transform
            self._treat(transform)

    @property
    def features_in_words(self) -> str:
        """The treatment that the user did not ask for, in words; empty for none."""
        if self.standardize_features is not None or self._transform is None or self._transform.mean is None:
            return ""
        return "standardised (--data.standardize_features false leaves them)"
