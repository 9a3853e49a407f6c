"""Memory: how much is available, errors when it runs out, and reuse of freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from graphzoo.errors import DataError, OutOfMemoryError, UsageError, reason

if TYPE_CHECKING:
    import torch


log = logging.getLogger(__name__)

_T = TypeVar("_T")
# torch raises a plain RuntimeError for the CPU and for GPU libraries: only its text shows the cause.
_TEXTS = ("out of memory", "allocate memory", "_status_alloc_failed")

# Errors of a device. EINVAL is not one: a damaged archive makes its reader seek to a negative position.
_DEVICE = ("EIO", "ENODEV", "ENXIO", "ESTALE", "EREMOTEIO", "ETIMEDOUT", "ENOTCONN")

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_LOOKS = 10  # after which the size of a process is its usual one
_WORTH = 2**28  # least growth, in bytes, that is worth returning
# Files of control groups, version 2 and 1: controller, folder, limit, usage, and the entry for cached files,
# which are part of the usage.
_CGROUPS = (
    ("", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "memory",
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def keep_freed_memory() -> bool:
    """Make glibc's allocator reuse freed memory instead of returning it to the system.

    A training step allocates and frees the same large tensors every time. By default glibc maps each of them
    again, and the kernel has to zero every page; in a step of KnowFormer on WN18RR-v1 this took up to a third
    of the time. The disadvantage is that the process keeps its peak memory, and that freed pieces which no
    tensor fits into add up; see `HeapTrimmer`.

    The setting affects the whole process. The `graphzoo` command uses it for its own runs, the library never
    does. If you train on the CPU in a script of your own, call this at its start. `GRAPHZOO_KEEP_MEMORY=0`
    switches it off.

    Returns:
        Whether the allocator accepted the setting; False on systems without glibc.
    """
    if os.environ.get("GRAPHZOO_KEEP_MEMORY") == "0" or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        log.debug("this C library has no mallopt: freed memory goes back to the system")
        return False
    # One arena, as worker threads would return theirs; no mmap, as its pages are always returned; no trim.
    return all(mallopt(name, value) == 1 for name, value in (
        (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1),
    ))  # fmt: skip


class HeapTrimmer:
    """Returns freed memory to the system once the process has grown by half beyond its usual size.

    With `keep_freed_memory`, a large tensor gets new memory if all freed pieces are too small for it. In this
    way a test of FB15k-237 on the whole graph grew from 2 to 7 GiB. Returning them costs about a second,
    because the kernel zeroes pages that are used again, so it is done rarely.
    """

    def __init__(self) -> None:
        self._looked, self._seen, self._usual = -math.inf, 0, 0

    def look(self) -> bool:
        """Look at the size, at most once a second; True if memory was returned."""
        if time.monotonic() < self._looked + 1:
            return False
        self._looked = time.monotonic()
        size = (_figure("/proc/self/status", "VmRSS:") or 0) * 1024
        if self._seen < _LOOKS:
            self._seen, self._usual = self._seen + 1, max(self._usual, size)
            return False
        if size < 1.5 * self._usual or size < self._usual + _WORTH:
            return False
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):  # musl and other systems
            return False
        self._seen = self._usual = 0
        return True


def available_bytes(device: torch.device) -> int | None:
    """The most bytes of memory that this process can use on a device; None if the system does not say.

    On a GPU this is the free memory and the unused memory of torch's allocator. Elsewhere it is the free
    memory of the machine, within the limit of a container, and the memory of this process, because much of
    that may be freed blocks.
    """
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    free_here = free_bytes()
    return None if free_here is None else free_here + (_figure("/proc/self/status", "VmRSS:") or 0) * 1024


def free_bytes() -> int | None:
    """The free bytes of memory of the machine, within the limit of a container; None if unknown."""
    limits = []
    if (machine := _figure("/proc/meminfo", "MemAvailable:")) is not None:
        limits.append(machine * 1024)
    for controller, mount, limit, used, cached in _CGROUPS:
        for group in _groups(controller):  # the limit of a group also holds for the groups below it
            most, now = (_read(f"{mount}{group}/{name}").strip() for name in (limit, used))
            if most.isdecimal() and now.isdecimal():
                limits.append(int(most) - int(now) + (_figure(f"{mount}{group}/memory.stat", cached) or 0))
    return max(0, min(limits)) if limits else None


def _groups(controller: str) -> list[str]:
    """The control group of this process and those above it, such as `/a/b`, `/a` and ""."""
    lines = (line.split(":", 2) for line in _read("/proc/self/cgroup").splitlines())
    own = next((path for _, named, path in lines if controller in named.split(",")), "/")
    parts = [part for part in own.split("/") if part]
    return ["".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def refuse_what_cannot_fit(num_bytes: int, device: torch.device, what: str, remedy: str) -> None:
    """Refuse work that needs more memory than there is; the system would kill the process without a message.

    Args:
        num_bytes: Bytes that the work needs at least.
        device: Where it needs them.
        what: Name of the work, for the message.
        remedy: Last line of the message.

    Raises:
        UsageError: if less memory is available.
    """
    available = available_bytes(device)
    if available is not None and num_bytes > available:
        raise UsageError(
            f"{what} needs at least {num_bytes / 2**30:,.1f} GiB of memory, but {available / 2**30:,.1f} GiB "
            f"are available on {device}\n{remedy}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the machine or of a GPU ran out."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    text = str(error).lower()
    return type(error).__name__ == "OutOfMemoryError" or any(part in text for part in _TEXTS)


def raise_if_not_the_file(error: Exception, path: str | os.PathLike[str]) -> None:
    """Raise an error of reading `path` that a damaged file does not explain; return for any other error.

    Raises:
        OutOfMemoryError: if memory ran out.
        OSError: if a device failed.
    """
    name = os.fspath(path)
    if is_out_of_memory(error):
        remedy = "End other programs; if the file should be small, it is damaged"
        raise OutOfMemoryError(f"memory ran out while {name} was read\n{remedy}") from error
    if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in _DEVICE:
        raise OSError(error.errno, error.strerror, error.filename or name) from error


@contextlib.contextmanager
def reading(
    path: str | os.PathLike[str],
    what: str = "a readable data file",
    remedy: str = "fetch it again",
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,  # damage can raise anything
) -> Iterator[None]:
    """Turn errors in the block into a `DataError` that `path` is not `what` it should be, with a remedy."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        raise_if_not_the_file(error, path)
        raise DataError(f"{os.fspath(path)}: not {what} ({reason(error)}); {remedy}") from error


@contextlib.contextmanager
def explain_out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Raise `OutOfMemoryError` if memory runs out in the block.

    Args:
        what: The work of the block, such as "encoding the whole graph".
        remedy: Last line of the message.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise _explained(what, remedy, error) from error


class Halves:
    """Work on a range in parts; if memory runs out, this and all later parts are halved.

    Args:
        what: The work, for messages, such as "scoring".
        units: What is counted, for messages, such as "pairs".
        remedy: Last line of the error if even a single unit needs too much memory.
    """

    def __init__(self, what: str, units: str, remedy: str) -> None:
        self.what, self.units, self.remedy = what, units, remedy
        self.most = sys.maxsize

    def __call__(self, work: Callable[[int, int], _T], total: int, size: int | None = None) -> list[_T]:
        """Call `work(start, stop)` for parts of 0..total of at most `size` units, and return the results.

        If memory runs out, it is called again for half of the part.

        Raises:
            OutOfMemoryError: if memory runs out for a single unit.
        """
        results: list[_T] = []
        start, size = 0, max(1, total if size is None else size)
        while start < total:
            stop = min(start + min(size, self.most), total)
            try:
                results.append(work(start, stop))
                start = stop
                continue
            except (MemoryError, RuntimeError, OSError) as error:
                self.refuse(error, stop - start, total)
            self.halve(stop - start)  # outside of `except`: the error holds the tensors of the failed part
        return results

    def refuse(self, error: BaseException, count: int, total: int) -> None:
        """Raise an error of work on `count` of `total` units if smaller parts would not help."""
        if not is_out_of_memory(error):
            raise error
        if count <= 1:
            what = f"{self.what}, with one of {total:,} {self.units} at a time"
            raise _explained(what, self.remedy, error) from error

    def halve(self, count: int) -> None:
        """Limit all later parts to half of `count` units."""
        self.most = count // 2
        going_on = "out of memory while %s: continuing with %d %s at a time"
        log.warning(going_on, self.what, self.most, self.units)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # freed blocks that are too small can then be joined


def _explained(what: str, remedy: str, error: BaseException) -> OutOfMemoryError:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return OutOfMemoryError(f"out of memory while {what}: {cause}\n{remedy}")


def _figure(path: str, name: str) -> int | None:
    """The number in a line of a kernel file, such as `MemAvailable:  123 kB`; None if it is missing."""
    for line in _read(path).splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    return None


def _read(path: str) -> str:
    try:
        # Linux cuts the name of a process at 15 bytes, also inside a letter.
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system, or no such limit
        return ""
