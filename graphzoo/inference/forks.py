"""Forked processes: torch's other threads stay in the parent."""

from __future__ import annotations

import os
import warnings

import torch

_first: int | None = None  # the process that first used a model; forked ones inherit its number


def heed_fork(depth: int) -> None:
    """Make torch use one thread in a process that was forked after a model had been loaded.

    The threads of GNU OpenMP stay in the parent, and an operation that needs them would wait forever. Workers
    of PyTorch's DataLoader have one thread for the same reason.

    Args:
        depth: Calls between the caller's code and this function, for the place that the warning names.
    """
    global _first
    _first = _first or os.getpid()
    if _first == os.getpid() or torch.get_num_threads() == 1:
        return
    torch.set_num_threads(1)
    notice = (
        "this process was forked after a model was loaded, so torch now uses one thread in it: others do not "
        "survive a fork\nCall torch.set_num_threads(1) after the fork, or load all models there"
    )
    warnings.warn(notice, stacklevel=2 + depth)
