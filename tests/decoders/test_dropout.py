"""Decoders refuse wrong settings when they are built, not in the first training step."""

import pytest

from graphzoo.decoders import NodeDecoder, PairDecoder
from graphzoo.errors import UsageError


@pytest.mark.parametrize(
    "build", [lambda p: NodeDecoder(4, 2, dropout=p), lambda p: PairDecoder(4, dropout=p)]
)
@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_a_dropout_out_of_range_is_refused_when_the_decoder_is_built(build, rate):
    with pytest.raises(UsageError, match=f"dropout must be at least 0 and below 1, got {rate}"):
        build(rate)
