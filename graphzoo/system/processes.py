"""Runs of several processes: which of them talks, whose fault it was, and how they part."""

from __future__ import annotations

import atexit
import logging
import re

import torch
from lightning.pytorch.utilities import rank_zero_only

log = logging.getLogger(__name__)

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


def abort_group() -> None:
    """Let go of the other processes after a failure, for NCCL alone; without it, or without a group, nothing.

    A kernel of NCCL that has begun waits on the GPU for the others, and what this process does there next
    waits behind it: to move the weights away, or to end. Torch would abort it when its watchdog's time is up,
    after ten minutes. The others are told at once that this process is gone. In a gloo group the host waits,
    not a device, and a connection that is closed ends it.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if "nccl" not in str(torch.distributed.get_backend()):
        return
    try:
        torch.distributed.distributed_c10d._abort_process_group()
    except Exception as error:  # of any kind: the run says why it failed, not how it parted
        log.warning("the group of processes cannot be aborted: %s", error)


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
