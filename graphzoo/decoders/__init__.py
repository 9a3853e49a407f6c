"""States -> logits."""

from graphzoo.decoders.entity import EntityDecoder
from graphzoo.decoders.node import NodeDecoder

__all__ = ["EntityDecoder", "NodeDecoder"]
