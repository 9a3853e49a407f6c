"""How products of float32 matrices are made: on CUDA in TF32, unless an option says otherwise."""

from __future__ import annotations

import torch


def set_matmul_precision(wanted: str | None, device: torch.device) -> None:
    """Set torch's own switch: as asked, or "high" for a run on CUDA; else it stays as it is.

    Tasks decode without TF32 all the same, see `Task.decode`.
    """
    if wanted is None and device.type != "cuda":
        return
    torch.set_float32_matmul_precision(wanted or "high")
