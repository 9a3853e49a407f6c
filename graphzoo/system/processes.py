"""Runs of several processes: which of them talks, whose fault it was, and how they part."""

from __future__ import annotations

import atexit
import re

import torch
from lightning.pytorch.utilities import rank_zero_only

__all__ = ["lost_a_process", "part_at_exit", "rank"]

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


def part_at_exit() -> None:
    """Have the group of processes destroyed before the interpreter goes; calling it again changes nothing.

    Lightning does so for NCCL alone. The threads of a gloo group may still hold tensors when the interpreter
    is taken down; to let go of one they need it, and abort the process: exit status 134 after a good run.
    """
    atexit.unregister(_part)
    atexit.register(_part)


def _part() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
