"""`reset_parameters`, `save_pretrained` and `from_pretrained` of every kind of encoder."""

import numpy as np
import pytest
import torch
from helpers.node_cases import CASES
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

from graphzoo.encoders import PENCIL, GALiT, KnowFormer, KnowFormerAny
from graphzoo.errors import UsageError
from graphzoo.types import GraphSpec

SMALL = {"hidden_channels": 8, "num_layers": 2, "num_heads": 2}
NODES = GraphSpec(30, in_channels=9, num_classes=4)
KINDS = {name: (cls, NODES, settings) for name, (cls, settings) in CASES.items()} | {
    "with an output layer": (GALiT, NODES, {"out_channels": 4}),
    "KnowFormer": (KnowFormer, GraphSpec(14, 4), SMALL),
    "KnowFormerAny": (KnowFormerAny, GraphSpec(14, 4), SMALL),
    "PENCIL": (PENCIL, GraphSpec(14, max_subgraph_nodes=10), SMALL),
}


@pytest.mark.parametrize("name", KINDS)
def test_reset_parameters_gives_the_weights_of_a_new_encoder_in_place(name):
    cls, spec, settings = KINDS[name]
    encoder = cls(spec, **settings).double()
    parameters = list(encoder.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(1.0)
        for buffer in encoder.buffers():
            buffer.add_(1)
    torch.manual_seed(7)
    encoder.reset_parameters()
    torch.manual_seed(7)
    expected = cls(spec, **settings).double()
    assert all(own is parameter for own, parameter in zip(encoder.parameters(), parameters, strict=True))
    for own, new in ((encoder.parameters(), expected.parameters()), (encoder.buffers(), expected.buffers())):
        for value, wanted in zip(own, new, strict=True):
            assert value.dtype == wanted.dtype and torch.equal(value, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_saved_encoder_keeps_its_precision_and_has_plain_settings(tmp_path, dtype):
    encoder = GALiT(NODES, hidden_channels=np.int64(8), num_layers=np.int64(2)).to(dtype)
    assert type(encoder.init_args["num_layers"]) is int
    encoder.save_pretrained(tmp_path / "shared")
    state = torch.get_rng_state()
    again = GALiT.from_pretrained(tmp_path / "shared")
    assert torch.equal(torch.get_rng_state(), state) and not again.training
    for saved, read in zip(encoder.parameters(), again.parameters(), strict=True):
        assert read.dtype == dtype and torch.equal(saved, read)


def test_a_saved_encoder_in_two_precisions_keeps_both(tmp_path):
    encoder = GALiT(NODES, hidden_channels=8, num_layers=2).bfloat16()
    next(encoder.parameters()).data = next(encoder.parameters()).data.double() / 3
    encoder.save_pretrained(tmp_path / "mixed")
    again = GALiT.from_pretrained(tmp_path / "mixed")
    assert {value.dtype for value in again.parameters()} == {torch.float64, torch.bfloat16}
    for saved, read in zip(encoder.parameters(), again.parameters(), strict=True):
        assert saved.dtype == read.dtype and torch.equal(saved, read)


def test_an_encoder_that_could_not_be_loaded_again_is_not_saved(tmp_path):
    encoder = GALiT(NODES, hidden_channels=8, num_layers=2)
    name, linear = next((name, part) for name, part in encoder.named_modules() if isinstance(part, nn.Linear))
    weight_norm(linear)
    with pytest.raises(UsageError, match=f"{name}.*\nUndo changes of its modules first"):
        encoder.save_pretrained(tmp_path / "normed")
    remove_parametrizations(linear, "weight")
    assert GALiT.from_pretrained(encoder.save_pretrained(tmp_path / "normed")).out_channels == 8
