"""Available memory, and refusals of what does not fit into it."""

import errno
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphzoo.errors import OutOfMemoryError, UsageError
from graphzoo.system import memory

CPU = torch.device("cpu")
MEMINFO = "MemTotal:  8000 kB\nMemFree:  1 kB\nMemAvailable:    4000 kB\n"
STATUS = "Name:\tpython\nVmRSS:\t    1000 kB\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/meminfo": MEMINFO, "/proc/self/status": STATUS}, 5000 * 1024),
        (
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/status": STATUS,
                "/sys/fs/cgroup/memory.max": "2048000\n",
                "/sys/fs/cgroup/memory.current": "1024000\n",
                "/sys/fs/cgroup/memory.stat": "anon 900000\ninactive_file 100000\n",
            },
            1000 * 1024 + 1024000 + 100000,
        ),
        (  # no limit: cgroup version 2 says "max", version 1 gives a huge number
            {
                "/proc/meminfo": MEMINFO,
                "/sys/fs/cgroup/memory.max": "max\n",
                "/sys/fs/cgroup/memory.current": "1024000\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": "4096",
            },
            4000 * 1024,
        ),
        (  # a job of a cluster in a group with a higher limit
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                "/sys/fs/cgroup/slurm/memory.max": "3072000\n",
                "/sys/fs/cgroup/slurm/memory.current": "1024000\n",
                "/sys/fs/cgroup/slurm/job_7/memory.max": "2048000\n",
                "/sys/fs/cgroup/slurm/job_7/memory.current": "1024000\n",
                "/sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            },
            1024000,
        ),
        (
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/cgroup": "9:cpu,cpuacct:/other\n4:memory:/docker/abc\n",
                "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "2048000",
                "/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": "1024000",
            },
            1024000,
        ),
        ({}, None),
    ],
    ids=["machine", "container", "no limit", "cluster", "cluster, version 1", "unknown"],
)
def test_available_bytes(monkeypatch, files, expected):
    monkeypatch.setattr(memory, "_read", lambda path: files.get(path, ""))
    assert memory.available_bytes(CPU) == expected


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MemoryError(), OutOfMemoryError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), OutOfMemoryError),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), OutOfMemoryError),
        (OSError(errno.EIO, "Input/output error"), OSError),
        (OSError(errno.EINVAL, "Invalid argument"), None),
        (ValueError("negative seek"), None),
        (RuntimeError("unexpected end"), None),
    ],
)
def test_errors_that_are_not_due_to_the_file_are_raised(tmp_path, error, raised):
    path = tmp_path / "file"
    path.write_bytes(b"four")
    if raised is None:
        memory.raise_if_not_the_file(error, path)
        return
    with pytest.raises(raised) as caught:
        memory.raise_if_not_the_file(error, path)
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not Path("/proc/meminfo").is_file(), reason="only Linux has /proc/meminfo")
def test_this_machine_has_memory():
    assert 2**20 < memory.available_bytes(CPU) < 2**50


def test_a_size_above_the_available_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 3 * 2**30)
    memory.refuse_what_cannot_fit(3 * 2**30, CPU, "a table", "Take a smaller one")
    with pytest.raises(UsageError) as caught:
        memory.refuse_what_cannot_fit(5 * 2**30, CPU, "a table", "Take a smaller one")
    assert str(caught.value) == (
        "a table needs at least 5.0 GiB of memory, but 3.0 GiB are available on cpu\nTake a smaller one"
    )
    monkeypatch.setattr(memory, "available_bytes", lambda device: None)
    memory.refuse_what_cannot_fit(2**60, CPU, "a table", "Take a smaller one")


@pytest.fixture
def heap(monkeypatch):
    """Sizes that a process has, one a second, and how often memory was returned."""
    trimmed = []
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=trimmed.append))
    trimmer, clock = memory.HeapTrimmer(), iter(range(10**6))
    monkeypatch.setattr(memory.time, "monotonic", lambda: float(next(clock)))

    def look(*gib):
        sizes = iter(gib)
        monkeypatch.setattr(memory, "_figure", lambda *_: int(next(sizes) * 2**20))
        return [trimmer.look() for _ in gib]

    return look, trimmed


def test_memory_is_returned_once_a_process_has_grown_by_half(heap):
    look, trimmed = heap
    assert look(*[1] * 9, 2, 2.9, 3.1, 1, 1) == [False] * 11 + [True] + [False] * 2 and trimmed == [0]
    assert not any(look(*[2.5] * 30)), "its usual size is measured anew"
    assert look(3.7, 3.8) == [False, True]


def test_little_memory_is_not_worth_returning(heap):
    look, trimmed = heap
    assert not any(look(*[0.1] * 10, 0.3)) and not trimmed and look(0.4) == [True]


def test_the_size_is_not_read_after_every_batch(monkeypatch):
    read = []
    monkeypatch.setattr(memory, "_figure", lambda *_: read.append(1))
    monkeypatch.setattr(memory.time, "monotonic", iter([5.0, 5.0, 5.2, 5.9, 6.1, 6.1]).__next__)
    trimmer = memory.HeapTrimmer()
    assert not any(trimmer.look() for _ in range(4)) and len(read) == 2


_GROWS = """
import itertools
import numpy as np
from graphzoo.system import memory

kept = memory.keep_freed_memory()
memory.time.monotonic = itertools.count().__next__
size = lambda: memory._figure("/proc/self/status", "VmRSS:")
trimmer = memory.HeapTrimmer()
for _ in range(10):
    trimmer.look()
blocks = [(np.ones(2**20, np.uint8), np.ones(2**10, np.uint8)) for _ in range(400)]
small = [block[1] for block in blocks]  # between the large ones
del blocks
before = size()
print(kept, trimmer.look(), before - size() > 300_000)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_pieces_go_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", _GROWS], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"] * 3, done.stderr


def test_a_process_name_that_is_cut_inside_a_letter_is_read(tmp_path):
    path = tmp_path / "status"
    path.write_bytes(b"Name:\t" + "обучение".encode()[:15] + b"\nVmRSS:\t 1000 kB\n")
    assert memory._figure(str(path), "VmRSS:") == 1000
