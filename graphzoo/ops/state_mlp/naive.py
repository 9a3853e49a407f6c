"""The perceptron in plain torch operations, chunk by chunk."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from graphzoo.ops.map_rows import map_rows


def state_mlp(
    x: Tensor | None,
    extra: Tensor | None,
    weight: Tensor,
    extra_weight: Tensor | None,
    parameters: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """See `graphzoo.ops.state_mlp.state_mlp`."""
    has_extra = extra is not None

    def perceptron(rows: tuple[Tensor, ...], shared: tuple[Tensor, ...], start: int) -> tuple[Tensor, ...]:
        w, b1, w2, b2 = shared[:4]
        if not has_extra:
            hidden = F.linear(rows[0], w, b1)
        else:
            hidden = rows[0] * shared[4] + b1
            if len(rows) == 2:
                hidden = hidden + F.linear(rows[1], w)
        return (F.linear(hidden.relu(), w2, b2),)

    rows = tuple(t for t in (extra, x) if t is not None)
    shared = (weight, *parameters) if extra_weight is None else (weight, *parameters, extra_weight)
    (out,) = map_rows(perceptron, rows, shared)
    return out
