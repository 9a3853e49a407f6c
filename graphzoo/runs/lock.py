"""Allows one writer for each run directory; a second one gets an error that names the first.

The lock is the kernel's (`flock`) on `RUN/run.lock`, so it always ends with its process. The file says who
holds it. Locks work between machines if the file system supports that: NFS with its lock service, CephFS,
GPFS, and Lustre mounted with `flock`. On others (FUSE, shares mounted with local locks) the file itself is
the lock between machines, and it remains when a machine dies. Without any locks, the process that has created
the file owns the run; the file of a dead process is removed by one process at a time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import socket
import stat
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from graphzoo.errors import UsageError, shorten

try:
    import fcntl
except ImportError:  # Windows, where nobody has run this yet
    fcntl = None  # type: ignore[assignment]


LOCK = "run.lock"
_MOST_BYTES = 4096
_SECONDS_TO_WRITE = 2.0
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_MOUNTS = Path("/proc/self/mountinfo")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# File systems of several machines, and the options with which they pass locks on (None: always) or do not.
_SHARED: dict[str, tuple[set[str] | None, set[str]]] = {
    "nfs": (None, {"nolock", "local_lock=flock", "local_lock=all"}),
    "nfs4": (None, {"nolock", "local_lock=flock", "local_lock=all"}),
    "ceph": (None, set()),
    "gpfs": (None, set()),
    "lustre": ({"flock"}, {"localflock"}),
    "cifs": (None, {"nobrl"}),
    "smb3": (None, {"nobrl"}),
}
_LOCAL_ONLY = ("fuse", "9p", "virtiofs", "afs", "beegfs")


class RunLock:
    """The lock of one run directory. `take` creates the directory; errors name the `option` that set it."""

    def __init__(self, run: Path, option: str = "--run_dir") -> None:
        self.path = run.absolute() / LOCK
        self._shown, self._option = run, option
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock; do nothing if this object holds it already."""
        if self._descriptor is not None:
            return
        for _ in range(10):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                descriptor, is_new = self._open()
            except FileNotFoundError:
                continue  # the previous holder has just removed its file
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                remedy = f"Give another folder: {self._option} NEW"
                if self._option == "--run_dir":
                    remedy += f"; a run is resumed there with --ckpt_path {self._shown}"
                message = f"{self._shown / LOCK} cannot be written ({error.strerror})"
                raise UsageError(f"{message}\n{remedy}") from error
            try:
                if not self._lock(descriptor, is_new=is_new) or not self._is_there(descriptor):
                    continue  # the previous holder has removed the file that was locked here
                self._write_record(descriptor)
                self._descriptor, descriptor = descriptor, -1
                _held.add(self)
                return
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        raise UsageError(f"{self.path} appears and disappears: several processes are starting to write it")

    def _write_record(self, descriptor: int) -> None:
        """Write who holds the lock; if that fails, remove the file."""
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_own_record()).encode(), 0)
        except OSError as error:
            self.path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self._shown / LOCK)) from error

    def is_held(self) -> bool:
        """Whether a process writes the run, this one or another."""
        if self._descriptor is not None:
            return True
        try:
            self.take()
        except UsageError as error:
            return not isinstance(error.__cause__, OSError)  # a folder that cannot be written has no writer
        self.release()
        return False

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):  # the directory may be gone
            if self._is_there(self._descriptor):
                self.path.unlink()
        self._forget()

    def _forget(self) -> None:
        _held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> tuple[int, bool]:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        with contextlib.suppress(FileExistsError):
            return os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        if not stat.S_ISREG(os.lstat(self.path).st_mode):
            raise UsageError(f"{self.path} is not a file that a run writes\nCheck it, then remove it")
        return os.open(self.path, flags), False

    def _lock(self, descriptor: int, *, is_new: bool) -> bool:
        """Whether this process now holds the lock; if not, the file has to be opened again."""
        before = None if is_new else _record(descriptor)
        try:
            if fcntl is None:
                raise OSError(errno.ENOSYS, "no locks")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows EACCES too, and some shares answer with it
            raise UsageError(self._in_use(before or {})) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if not is_new:
                self._remove_dead(descriptor)
            return is_new  # without locks, the process that created the file owns it
        elsewhere = before is not None and before.get("boot") not in (None, _boot())
        if before is not None and elsewhere and not _passes_locks_on(self.path.parent):
            raise UsageError(self._in_use(before))
        return True

    def _remove_dead(self, descriptor: int) -> None:
        """Without locks: remove the file if the process that created it is dead."""
        until = time.monotonic() + _SECONDS_TO_WRITE
        while (record := _record(descriptor)) is None and time.monotonic() < until:
            time.sleep(0.05)  # its creator has not yet written who it is
        if record is None or _may_live(record):
            raise UsageError(self._in_use(record or {}))
        # Another process may have removed it and created its own file meanwhile: that one has to stay.
        guard, age = self.path.with_name(f"{LOCK}.removing"), 0.0
        try:
            os.close(os.open(guard, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                age = time.time() - guard.stat().st_mtime
            if age > _SECONDS_TO_WRITE:
                raise UsageError(
                    f"{guard} was left by a process that died\nRemove it: rm {shlex.quote(str(guard))}"
                ) from None
            time.sleep(0.1)
            return
        try:
            if self._is_there(descriptor):
                self.path.unlink()
        finally:
            guard.unlink()

    def _is_there(self, descriptor: int) -> bool:
        try:
            return bool(os.path.samestat(os.fstat(descriptor), os.stat(self.path)))
        except FileNotFoundError:
            return False

    def _in_use(self, record: dict[str, Any]) -> str:
        number, host, since = (record.get(key, "unknown") for key in ("process", "host", "since"))
        began = shorten(str(record.get("command", "")), lines=1, width=120)
        return (
            f"{self._shown} is being written by process {number} on {host}, since {since}: {began}\n"
            f"Only one process may write a run. Wait for it, or write elsewhere with {self._option} DIR\n"
            f"If it died together with its machine: rm {shlex.quote(str(self.path))}"
        )


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    """Close the locks in a forked worker, which could outlive its run and would keep them."""
    for lock in list(_held):
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _own_record() -> dict[str, Any]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": " ".join(["graphzoo", *sys.argv[1:]])[:1000],
        "boot": _boot(),
        "started": _started(os.getpid()),
    }


def _record(descriptor: int) -> dict[str, Any] | None:
    """The content of a lock file; None if it is empty."""
    try:
        data = os.pread(descriptor, _MOST_BYTES, 0)
        record = json.loads(data) if data else None
    except (ValueError, RecursionError):
        record = ""  # incomplete: its writer has died, or is still writing
    if record is None:
        return None
    return {key: str(value)[:1000] for key, value in record.items()} if isinstance(record, dict) else {}


def _may_live(record: dict[str, Any]) -> bool:
    """Whether the process of a record may still run; on other machines this is always assumed."""
    if record.get("boot") != _boot() or not record.get("process", "").isdecimal():
        return True
    return bool(_started(int(record["process"])) == record.get("started", ""))


def _boot() -> str:
    """An id of this start of this machine; the machine's name if the system has none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _started(process: int) -> str:
    """Start time of a process, in ticks since the machine started: process numbers are reused."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _passes_locks_on(folder: Path) -> bool:
    """Whether a lock taken here is seen by every machine that can see the folder."""
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).split("\n")
    except OSError:
        return True  # not Linux: most folders are on a local disk
    where = os.path.realpath(folder)
    best, kind, options = "", "", set[str]()
    for line in lines:
        before, dash, after = line.partition(" - ")
        if not dash:
            continue
        # spaces and the like are written as \040
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        inside = where == place or where.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, after.split(" ")[0]
            options = {*before.split(" ")[5].split(","), *after.split(" ")[-1].split(",")}
    if kind.startswith(_LOCAL_ONLY):
        return False
    needed, harmful = _SHARED.get(kind, (None, set()))
    return not options & harmful and (needed is None or bool(options & needed))
