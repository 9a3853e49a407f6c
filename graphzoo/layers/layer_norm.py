"""LayerNorm whose gradients are exact in half precision, on CPUs too."""

from __future__ import annotations

from torch import Tensor, nn

from graphzoo.ops.norms import layer_norm, wide


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` over the last dimension, computed in float32 at least; weights are the same.

    On CUDA autocast has it so. On CPUs torch sums the gradients of weight and bias over all rows in the
    precision of the rows: in bfloat16 they are a fifth and more off with some ten thousand rows.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Rows [..., D], the result in the dtype of the weights; without weights in that of the rows."""
        if self.weight is None:
            return super().forward(wide(x)).to(x.dtype)
        return layer_norm(x, self.weight, self.bias, self.eps)
