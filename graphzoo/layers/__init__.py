"""Modules that two or more encoders share: `from graphzoo.layers import SparseLinear`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.layers.attention import masked_attention as masked_attention
    from graphzoo.layers.entropy import row_entropy as row_entropy
    from graphzoo.layers.feature_rows import FeatureRows as FeatureRows
    from graphzoo.layers.layer_norm import LayerNorm as LayerNorm
    from graphzoo.layers.messages import RecordedMessages as RecordedMessages
    from graphzoo.layers.messages import recorded_messages as recorded_messages
    from graphzoo.layers.noise import NoiseStream as NoiseStream
    from graphzoo.layers.noise import dropout as dropout
    from graphzoo.layers.noise import seeded_noise as seeded_noise
    from graphzoo.layers.relation_graph import RelationGraph as RelationGraph
    from graphzoo.layers.relation_graph import compare_relations as compare_relations
    from graphzoo.layers.sparse_linear import SparseLinear as SparseLinear
    from graphzoo.ops.last_result import LastResult as LastResult

__getattr__, __dir__, __all__ = attach(__name__)
