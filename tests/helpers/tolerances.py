"""The table of tolerances between a kernel and a float64 reference with the same, rounded inputs.

Half-precision kernels sum in float32, so only the last rounding counts: 2**-11 for float16, and 2**-8 for
bfloat16, or 2**-7 in Triton's interpreter, which truncates.
"""

from typing import NamedTuple

import torch


class Tolerance(NamedTuple):
    atol: float
    rtol: float


# dtype: forward, backward
TOLERANCES = {
    torch.float64: (Tolerance(1e-12, 1e-12), Tolerance(1e-12, 1e-12)),
    torch.float32: (Tolerance(1e-5, 1e-5), Tolerance(2e-5, 2e-5)),
    torch.bfloat16: (Tolerance(1e-5, 8e-3), Tolerance(2e-5, 8e-3)),
    torch.float16: (Tolerance(1e-5, 1e-3), Tolerance(2e-5, 1e-3)),
}


def assert_close(actual: torch.Tensor, reference: torch.Tensor, *, backward: bool = False) -> None:
    """Compare with a float64 reference, with the tolerance for the dtype of `actual`."""
    atol, rtol = TOLERANCES[actual.dtype][backward]
    torch.testing.assert_close(actual.double(), reference.double(), atol=atol, rtol=rtol)
