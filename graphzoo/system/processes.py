"""Runs with several processes: their rank, errors about a lost process, and ending their group."""

from __future__ import annotations

import atexit
import logging
import re

import torch
from lightning.pytorch.utilities import rank_zero_only

log = logging.getLogger(__name__)

# Errors of gloo and NCCL in processes that waited for a process that has ended.
_LOST = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|nccl remote|remote process exited",
    re.IGNORECASE,
)


def rank() -> int:
    """Rank of this process in the run; 0 if it is the only one."""
    return int(getattr(rank_zero_only, "rank", None) or 0)


def lost_a_process(error: BaseException) -> bool:
    """Whether an error only says that another process has ended."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))


def abort_group() -> None:
    """Abort the group of processes after a failure, if it is one of NCCL.

    A started kernel of NCCL waits on the GPU for the other processes. All later work of this process on the
    GPU waits for it, even moving the weights to the host, or the end of the process. The watchdog of torch
    would abort it only after ten minutes. The other processes learn at once that this one has ended. In a
    group of gloo the host waits, not the GPU, and closing the connection ends the waiting.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if "nccl" not in str(torch.distributed.get_backend()):
        return
    try:
        torch.distributed.distributed_c10d._abort_process_group()
    except Exception as error:  # must not hide the error of the run
        log.warning("the group of processes cannot be aborted: %s", error)


def part_at_exit() -> None:
    """Destroy the group of processes before the interpreter ends; further calls change nothing.

    Lightning does this for NCCL only. Threads of a gloo group may still hold tensors when the interpreter
    ends. Releasing these needs the interpreter, so that the process would abort with exit status 134 after a
    successful run.
    """
    atexit.unregister(_part)
    atexit.register(_part)


def _part() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
