"""A lock between processes that reports a long wait."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graphzoo.system.shown import tell

NOTICE = 5.0
"""Seconds of waiting until a line reports it."""


class TellingLock(FileLock):
    """A `FileLock` that reports a long wait: the process that has the lock may be stopped for hours."""

    def acquire(self, timeout: float | None = None, *args: Any, **options: Any) -> Any:
        """Take the lock like `FileLock.acquire`; after `NOTICE` seconds, a line says which process has it."""
        wanted = self.timeout if timeout is None else timeout
        if 0 <= wanted <= NOTICE or options.get("blocking") is False:
            return super().acquire(wanted, *args, **options)
        try:
            return super().acquire(NOTICE, *args, **options)
        except Timeout:
            limit = "" if wanted < 0 else f" (for at most {wanted / 60:.0f} minutes)"
            path = Path(self.lock_file)
            tell(f"graphzoo: waits for {_holder(path)}, which has the lock {path}{limit}\n")
        return super().acquire(wanted - NOTICE if wanted >= 0 else wanted, *args, **options)


def _holder(path: Path) -> str:
    """A text for the process that has a lock: its number, and whether it is stopped, if this is known."""
    try:
        facts = path.stat()
        wanted = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
        rows = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
        # A line is "1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF"; waiting processes have "->" after "1:".
        number = next(row[4] for row in rows if len(row) > 5 and row[5] == wanted and row[1] != "->")
        status = Path(f"/proc/{int(number)}/status").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, StopIteration):  # another system, or a process of another container
        return "another process"
    stopped = any(line.startswith("State:") and "stopped" in line for line in status.splitlines())
    return f"process {number}" + (f", stopped (kill -CONT {number} continues it)" if stopped else "")
