"""Decoders: what they refuse when they are made, not in the first step of a training."""

import pytest

from graphzoo.decoders import NodeDecoder, PairDecoder
from graphzoo.errors import UsageError


@pytest.mark.parametrize(
    "made", [lambda p: NodeDecoder(4, 2, dropout=p), lambda p: PairDecoder(4, dropout=p)]
)
@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_a_share_out_of_range_is_refused_when_the_decoder_is_made(made, share):
    with pytest.raises(UsageError, match=f"dropout must be at least 0 and below 1, got {share}"):
        made(share)
