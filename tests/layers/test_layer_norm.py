"""`LayerNorm`, compared with torch's, which on CPUs sums the gradients of its weights in bfloat16."""

import pytest
import torch
from torch import nn

from graphzoo.encoders import PENCIL, NodeFormer, SGFormer
from graphzoo.layers import LayerNorm
from graphzoo.ops.message_update import message_update
from graphzoo.ops.prototype_layer import prototype_layer
from graphzoo.types import GraphSpec


def test_it_equals_torchs_in_float32():
    torch.manual_seed(0)
    ours, torchs = LayerNorm(8, eps=1e-3), nn.LayerNorm(8, eps=1e-3)
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 3, 8)
    assert torch.equal(ours(x), torchs(x))
    for settings in ({"bias": False}, {"elementwise_affine": False}):
        assert torch.equal(LayerNorm(8, **settings)(x), nn.LayerNorm(8, **settings)(x))


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_gradients_of_many_rows_in_half_precision(weights):
    torch.manual_seed(0)
    x, upstream = torch.randn(50_000, 16), torch.randn(50_000, 16)
    exact, found = LayerNorm(16), LayerNorm(16).to(weights)
    exact(x).mul(upstream).sum().backward()
    out = found(x.bfloat16())
    assert out.dtype == weights
    out.float().mul(upstream).sum().backward()
    for one, other in zip(found.parameters(), exact.parameters(), strict=True):
        error = (one.grad.float() - other.grad).norm() / other.grad.norm()
        assert error < 0.03  # 0.2 with torch's LayerNorm on a CPU


@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_ops_of_rows_have_the_gradients_of_float32_under_autocast(norm):
    torch.manual_seed(0)
    nodes, width = 4000, 16
    rows = [torch.randn(nodes, 2, width) for _ in range(3)]
    maps = [torch.randn(n, width) / 4 for n in (width, width, 2 * width)]
    one, zero = torch.ones(width), torch.zeros(width)
    feed_forward = (one, zero, maps[0], zero, maps[1], zero, one, zero)
    update = (one, maps[0], zero, maps[1], zero, one, zero)
    upstream = torch.randn(nodes, 2, width)

    def gradients(enabled):
        leaves = [x.clone().requires_grad_() for x in (*feed_forward, *update)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            layer = prototype_layer(
                rows[0], rows[1], rows[2], (maps[2], torch.zeros(2 * width)), tuple(leaves[:8]), num_heads=2,
                norm=norm, backend="naive",
            )  # fmt: skip
            updated = message_update(rows[0], rows[1], tuple(leaves[8:]), backend="naive")
        (layer.float() * upstream + updated.float() * upstream).sum().backward()
        return [leaf.grad.float() for leaf in leaves]

    norms = [0, 1, 6, 7, 13, 14]  # weights and biases of the three LayerNorms
    for place, (found, exact) in enumerate(zip(gradients(True), gradients(False), strict=True)):
        if place in norms:
            assert (found - exact).norm() < 0.1 * exact.norm(), place


def test_encoders_use_it():
    spec = GraphSpec(30, in_channels=8, max_subgraph_nodes=8)
    small = {"hidden_channels": 8, "num_layers": 1}
    for encoder in (
        PENCIL(spec, **small, num_heads=2, ffn_channels=8),
        NodeFormer(spec, **small),
        SGFormer(spec),
    ):
        norms = [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)]
        assert norms and all(isinstance(module, LayerNorm) for module in norms)
