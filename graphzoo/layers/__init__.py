"""Modules that two or more encoders share: `from graphzoo.layers import SparseLinear`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.layers.attention import masked_attention as masked_attention
    from graphzoo.layers.entropy import row_entropy as row_entropy
    from graphzoo.layers.feature_rows import FeatureRows as FeatureRows
    from graphzoo.layers.last_result import LastResult as LastResult
    from graphzoo.layers.messages import RecordedMessages as RecordedMessages
    from graphzoo.layers.messages import recorded_messages as recorded_messages
    from graphzoo.layers.noise import NoiseStream as NoiseStream
    from graphzoo.layers.noise import dropout as dropout
    from graphzoo.layers.noise import seeded_noise as seeded_noise
    from graphzoo.layers.sparse_linear import SparseLinear as SparseLinear

_LAZY = {
    "FeatureRows": "feature_rows",
    "LastResult": "last_result",
    "NoiseStream": "noise",
    "RecordedMessages": "messages",
    "SparseLinear": "sparse_linear",
    "dropout": "noise",
    "masked_attention": "attention",
    "recorded_messages": "messages",
    "row_entropy": "entropy",
    "seeded_noise": "noise",
}

__all__ = [
    "FeatureRows",
    "LastResult",
    "NoiseStream",
    "RecordedMessages",
    "SparseLinear",
    "dropout",
    "masked_attention",
    "recorded_messages",
    "row_entropy",
    "seeded_noise",
]

__getattr__, __dir__ = attach(__name__, _LAZY)
