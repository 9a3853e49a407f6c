"""The one table of tolerances: how far a kernel may be from a float64 reference of the same, rounded inputs.

Half-precision kernels sum in float32, so that the last rounding alone counts: 2**-11 for float16; 2**-8 for
bfloat16, but 2**-7 in Triton's interpreter, which truncates.
"""

from typing import NamedTuple

import torch


class Tolerance(NamedTuple):
    atol: float
    rtol: float


# dtype -> (forward, backward)
TOLERANCES = {
    torch.float64: (Tolerance(1e-12, 1e-12), Tolerance(1e-12, 1e-12)),
    torch.float32: (Tolerance(1e-5, 1e-5), Tolerance(2e-5, 2e-5)),
    torch.bfloat16: (Tolerance(1e-5, 8e-3), Tolerance(2e-5, 8e-3)),
    torch.float16: (Tolerance(1e-5, 1e-3), Tolerance(2e-5, 1e-3)),
}


def assert_close(actual: torch.Tensor, reference: torch.Tensor, *, backward: bool = False) -> None:
    """Compare with a float64 reference, within the table's tolerance for the dtype of `actual`."""
    atol, rtol = TOLERANCES[actual.dtype][backward]
    torch.testing.assert_close(actual.double(), reference.double(), atol=atol, rtol=rtol)
