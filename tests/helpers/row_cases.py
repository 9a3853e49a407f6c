"""KnowFormer's row operations with arguments for each, and a function for `map_rows`."""

import pytest
import torch
from torch.nn import functional as F

from graphzoo.ops.message_update import message_update
from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
from graphzoo.ops.state_mlp import state_mlp
from helpers.spmm_cases import backend_device


def draw(*shape, dtype):
    return torch.randn(*shape, dtype=dtype) / (3 if len(shape) == 2 else 1)


def update_arguments(shape, dtype):
    d = shape[-1]
    parameters = [draw(*s, dtype=dtype) for s in ((d,), (d, d), (d,), (d, d), (d,), (d,), (d,))]
    return [draw(*shape, dtype=dtype), draw(*shape, dtype=dtype), *parameters]


def run_update(arguments, backend, **_):
    return message_update(arguments[0], arguments[1], tuple(arguments[2:]), backend=backend)


def layer_arguments(shape, dtype):
    d = shape[-1]
    sizes = (shape, shape, shape, (2 * d, d), (2 * d,), (d,), (d,), (d, d), (d,), (d, d), (d,), (d,), (d,))
    return [draw(*s, dtype=dtype) for s in sizes]


def run_layer(arguments, backend, *, skip=True, p=0.3):
    states, value, given = arguments[:3]
    dropout = RowDropout(p, torch.arange(states.shape[1], device=states.device) * 12345) if p else None
    return prototype_layer(
        states, value, given if skip else None, (arguments[3], arguments[4]), tuple(arguments[5:]),
        num_heads=2, dropout=dropout, backend=backend,
    )  # fmt: skip


def mlp_arguments(shape, dtype):
    d = shape[-1]
    # The weight is a view, as in the encoder.
    sizes = (shape, (d, d + 1), (d,), (d,), (d, d), (d,))
    drawn = [draw(*s, dtype=dtype) for s in sizes]
    return [drawn[0], drawn[1][:, :-1], *drawn[2:]]


def run_mlp(arguments, backend, *, has_x=True, has_extra=True):
    x, weight, extra_weight, b1, w2, b2 = arguments
    extra = torch.linspace(-2, 2, x.shape[0] * x.shape[1], dtype=x.dtype, device=x.device)
    extra = extra.view(*x.shape[:2], 1)
    return state_mlp(
        x if has_x else None, extra if has_extra else None, weight, extra_weight if has_extra else None,
        (b1, w2, b2), backend=backend,
    )  # fmt: skip


CASES = [
    pytest.param(update_arguments, run_update, {}, id="update"),
    pytest.param(layer_arguments, run_layer, {}, id="layer"),
    pytest.param(layer_arguments, run_layer, {"skip": False, "p": 0.0}, id="layer-first"),
    pytest.param(mlp_arguments, run_mlp, {}, id="mlp"),
    pytest.param(mlp_arguments, run_mlp, {"has_extra": False}, id="mlp-states"),
    pytest.param(mlp_arguments, run_mlp, {"has_x": False}, id="mlp-extra"),
]


def output(arguments, run, backend, **options):
    """The output, moved to the CPU if the backend ran on a GPU."""
    return run([x.to(backend_device(backend)) for x in arguments], backend, **options).cpu()


def outputs_and_gradients(arguments, run, backend, **options):
    """Output and gradients, moved to the CPU if the backend ran on a GPU."""
    leaves = [x.clone().to(backend_device(backend)).requires_grad_() for x in arguments]
    out = run(leaves, backend, **options)
    torch.manual_seed(1)
    out.backward(torch.randn(out.shape, dtype=torch.float64).to(out))  # the same in every dtype
    return [out.detach().cpu(), *(None if leaf.grad is None else leaf.grad.cpu() for leaf in leaves)]


def row_function(rows, shared, start):
    x, y = rows
    weight, bias = shared
    hidden = torch.tanh(F.linear(x, weight, bias)) * y
    position = torch.arange(start, start + x.shape[0], dtype=x.dtype)[:, None, None]
    return hidden + position, hidden.sum(0)
