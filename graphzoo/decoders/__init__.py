"""Decoders turn states into scores (logits)."""

from graphzoo.decoders.entity import EntityDecoder
from graphzoo.decoders.node import NodeDecoder
from graphzoo.decoders.pair import PairDecoder

__all__ = ["EntityDecoder", "NodeDecoder", "PairDecoder"]
