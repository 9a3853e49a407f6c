"""Memory: what there is, refusing what cannot fit, keeping what was freed where steps need it again."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from graphzoo.errors import DataError, OutOfMemoryError, UsageError, reason

if TYPE_CHECKING:
    import torch


log = logging.getLogger(__name__)

_T = TypeVar("_T")
# torch raises a plain RuntimeError for the CPU, and for libraries of the GPU: told apart by their texts only.
_TEXTS = ("out of memory", "allocate memory", "_status_alloc_failed")

# Not EINVAL: a damaged archive makes its reader seek before the first byte.
_DEVICE = ("EIO", "ENODEV", "ENXIO", "ESTALE", "EREMOTEIO", "ETIMEDOUT", "ENOTCONN")

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
# Controller, folder, limit, use and a part of it, files that the kernel keeps at hand: of control groups,
# version 2 and 1.
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
    """Tell glibc's allocator to reuse freed blocks instead of handing them back to the system.

    A training step allocates and frees the same tens of large tensors every time. By default glibc maps each
    of them afresh, and the kernel zeroes and faults in every page again; on KnowFormer's WN18RR-v1 step that
    was up to a third of the time. The price is that the process keeps its peak memory until it ends. It
    changes the whole process, so the `graphzoo` command does it for its own runs and the library never does;
    call it at the start of a script of your own if you train on the CPU there. `GRAPHZOO_KEEP_MEMORY=0`
    switches it off. It says whether the allocator took the settings: not on systems without glibc.
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

    Of a GPU: what is free, and what torch's allocator holds without use. Else what is free of the machine
    within the limit of a container, and what the process holds, for much of that may be freed blocks.
    """
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    free_here = free_bytes()
    return None if free_here is None else free_here + (_figure("/proc/self/status", "VmRSS:") or 0) * 1024


def free_bytes() -> int | None:
    """The free memory of the machine, within the limit of a container; None where the system does not say."""
    limits = []
    if (machine := _figure("/proc/meminfo", "MemAvailable:")) is not None:
        limits.append(machine * 1024)
    for controller, mount, limit, used, cached in _CGROUPS:
        for group in _groups(controller):  # a limit holds for all below it
            most, now = (_read(f"{mount}{group}/{name}").strip() for name in (limit, used))
            if most.isdecimal() and now.isdecimal():
                limits.append(int(most) - int(now) + (_figure(f"{mount}{group}/memory.stat", cached) or 0))
    return max(0, min(limits)) if limits else None


def _groups(controller: str) -> list[str]:
    """The group of this process and those above it, as `/a/b`, `/a` and the empty one at the top."""
    lines = (line.split(":", 2) for line in _read("/proc/self/cgroup").splitlines())
    own = next((path for _, named, path in lines if controller in named.split(",")), "/")
    parts = [part for part in own.split("/") if part]
    return ["".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def refuse_what_cannot_fit(num_bytes: int, device: torch.device, what: str, remedy: str) -> None:
    """Stop before an allocation that cannot succeed: a process that tries is killed without a word.

    The `UsageError` says how much `what` needs at the very least, how much there is, and the remedy.
    """
    available = available_bytes(device)
    if available is not None and num_bytes > available:
        raise UsageError(
            f"{what} needs at least {num_bytes / 2**30:,.1f} GiB of memory, {available / 2**30:,.1f} GiB are "
            f"available on {device}\n{remedy}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, that of the machine or that of a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    text = str(error).lower()
    return type(error).__name__ == "OutOfMemoryError" or any(part in text for part in _TEXTS)


def raise_if_not_the_file(error: Exception, path: str | os.PathLike[str]) -> None:
    """Raise what stopped a reader of `path` although that may be whole; return for all that damage explains.

    That is memory that ran out (`OutOfMemoryError`), or a device that failed.
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
    """Raise a `DataError` with the remedy where `path` turns out inside not to be `what` it should be."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        raise_if_not_the_file(error, path)
        raise DataError(f"{os.fspath(path)}: not {what} ({reason(error)}); {remedy}") from error


@contextlib.contextmanager
def explain_out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Raise `OutOfMemoryError` where memory runs out inside, "encoding the whole graph", with the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise _explained(what, remedy, error) from error


class Halves:
    """Work on a range in parts; when memory runs out the parts are halved, from then on, and it continues.

    It tells `what` is done, "scoring", and in which `units`, "pairs"; the remedy where one alone is too much.
    """

    def __init__(self, what: str, units: str, remedy: str) -> None:
        self.what, self.units, self.remedy = what, units, remedy
        self.most = sys.maxsize

    def __call__(self, work: Callable[[int, int], _T], total: int, size: int | None = None) -> list[_T]:
        """What `work(start, stop)` returns for parts of 0..total of at most `size`, in their order.

        It is called again for the same range, or its half, when memory ran out. Where one alone is too much,
        `OutOfMemoryError` is raised.
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
            self.halve(stop - start)  # here, behind the error, which holds on to the tensors of what failed
        return results

    def refuse(self, error: BaseException, count: int, total: int) -> None:
        """Raise an error of work on `count` of `total` units that halves do not help with."""
        if not is_out_of_memory(error):
            raise error
        if count <= 1:
            what = f"{self.what}, with one of {total:,} {self.units} at a time"
            raise _explained(what, self.remedy, error) from error

    def halve(self, count: int) -> None:
        """From now on no more than half of `count`."""
        self.most = count // 2
        going_on = "out of memory while %s: continuing with %d %s at a time"
        log.warning(going_on, self.what, self.most, self.units)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # lets freed blocks, which are too small each, be joined


def _explained(what: str, remedy: str, error: BaseException) -> OutOfMemoryError:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return OutOfMemoryError(f"out of memory while {what}: {cause}\n{remedy}")


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
