"""Runs of several processes: which of them talks, and whose fault it was."""

from __future__ import annotations

import re

from lightning.pytorch.utilities import rank_zero_only

__all__ = ["lost_a_process", "rank"]

# What gloo and NCCL say in the processes that waited for one that is gone.
_LOST = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|nccl remote|remote process exited",
    re.IGNORECASE,
)


def rank() -> int:
    """Number of this process in the run, 0 for the only one."""
    return int(getattr(rank_zero_only, "rank", None) or 0)


def lost_a_process(error: BaseException) -> bool:
    """Whether an error only says that another process has ended."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))
