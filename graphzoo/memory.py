"""Memory: what there is, refusing what cannot fit, keeping what was freed where steps need it again."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from graphzoo.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["available_bytes", "keep_freed_memory", "refuse_what_cannot_fit"]

log = logging.getLogger(__name__)

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
# limit, use and its parts of a container, version 2 and 1; the use includes files the kernel keeps at hand
_CGROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


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


def available_bytes(device: torch.device) -> int | None:
    """The most memory that this process can have on a device; None where the system does not say.

    Args:
        device: For a GPU its free memory and what torch's allocator holds without use; else the free memory
            of the machine, within the limit of a container, and what the process holds, for much of that may
            be freed blocks that it has kept.
    """
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    found = []
    if (machine := _figure("/proc/meminfo", "MemAvailable:")) is not None:
        found.append(machine * 1024)
    for limit, used, parts, cached in _CGROUPS:
        most, now = (_read(f"/sys/fs/cgroup/{name}").strip() for name in (limit, used))
        if most.isdecimal() and now.isdecimal():
            found.append(int(most) - int(now) + (_figure(f"/sys/fs/cgroup/{parts}", cached) or 0))
    held = (_figure("/proc/self/status", "VmRSS:") or 0) * 1024
    return max(0, min(found)) + held if found else None


def refuse_what_cannot_fit(num_bytes: int, device: torch.device, what: str, remedy: str) -> None:
    """Stop before an allocation that cannot succeed; a process that tries is killed without a word.

    Args:
        num_bytes: What is needed at the very least.
        device: Where.
        what: What needs it, for the message.
        remedy: The line that says what to do.

    Raises:
        UsageError: with both numbers.
    """
    available = available_bytes(device)
    if available is not None and num_bytes > available:
        raise UsageError(
            f"{what} needs at least {num_bytes / 2**30:,.1f} GiB of memory, {available / 2**30:,.1f} GiB are "
            f"available on {device}\n{remedy}"
        )


def _figure(path: str, name: str) -> int | None:
    """A figure of a table of the kernel, `MemAvailable:  123 kB` or `inactive_file 123`."""
    for line in _read(path).splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:  # another system, or no such limit
        return ""
