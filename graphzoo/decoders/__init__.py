"""States -> logits."""

from graphzoo.decoders.entity import EntityDecoder

__all__ = ["EntityDecoder"]
