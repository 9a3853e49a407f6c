"""Keeping freed memory in the process, where large activations would be mapped afresh in every step."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

__all__ = ["keep_freed_memory"]

log = logging.getLogger(__name__)

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to reuse freed blocks instead of handing them back to the system.

    A training step allocates and frees the same tens of large tensors every time. By default glibc maps each
    of them afresh, and the kernel zeroes and faults in every page again; on KnowFormer's WN18RR-v1 step that
    was up to a third of the time. The price is that the process keeps its peak memory until it ends. It
    changes the whole process, so the `graphzoo` command does it for its own runs and the library never does;
    call it at the start of a script of your own if you train on the CPU there. `GRAPHZOO_KEEP_MEMORY=0`
    switches it off.

    Returns:
        Whether the allocator took the settings; False on other systems than Linux with glibc.
    """
    if os.environ.get("GRAPHZOO_KEEP_MEMORY") == "0" or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        log.debug("this C library has no mallopt: freed memory goes back to the system")
        return False
    # One arena, or worker threads would give their own back; no mmap, whose pages are always returned; no
    # trimming.
    return all(mallopt(name, value) == 1 for name, value in (
        (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1),
    ))  # fmt: skip
