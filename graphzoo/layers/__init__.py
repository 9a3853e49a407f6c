"""Modules that two or more encoders share: `from graphzoo.layers import SparseLinear`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.layers.attention import masked_attention as masked_attention
    from graphzoo.layers.feature_rows import FeatureRows as FeatureRows
    from graphzoo.layers.last_result import LastResult as LastResult
    from graphzoo.layers.noise import NoiseStream as NoiseStream
    from graphzoo.layers.noise import dropout as dropout
    from graphzoo.layers.noise import seeded_noise as seeded_noise
    from graphzoo.layers.sparse_linear import SparseLinear as SparseLinear

_LAZY = {
    "FeatureRows": "feature_rows",
    "LastResult": "last_result",
    "NoiseStream": "noise",
    "SparseLinear": "sparse_linear",
    "dropout": "noise",
    "masked_attention": "attention",
    "seeded_noise": "noise",
}

__all__ = [
    "FeatureRows",
    "LastResult",
    "NoiseStream",
    "SparseLinear",
    "dropout",
    "masked_attention",
    "seeded_noise",
]

__getattr__, __dir__ = attach(__name__, _LAZY)
