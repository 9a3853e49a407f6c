"""`graphzoo clean`: removes cached files, which are rebuilt when they are needed.

Files are recognised by their exact names in the cache's own folders; links are never followed. A file is
removed only while this process holds its lock, so files that another process is writing stay. Lock files
stay, too: they are empty, and if one were removed while a process waits for it, two could hold the lock.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import NamedTuple

from graphzoo.cli.options import Parser, at_least
from graphzoo.datasets.files.roots import cache_root
from graphzoo.system.shown import say, tell
from graphzoo.system.units import counted

MADE_AGAIN = {
    "parsed": r"[0-9a-f]{64}\.npz",
    "precomputed": r"denoised-[0-9a-f]{64}\.bin",
    "negatives": r"[0-9a-f]{64}\.npz",
    "pair-graphs": r"[0-9a-f]{64}\.graph",
}
"""Folders of the cache and patterns of their files. Unlike the downloads beside them, all can be rebuilt."""

# Files that a killed writer leaves behind: `.NAME.part` for tensors, `.NAME.PROCESS.tmp` for all others.
_PART = r"\.({name})\.(?:part|[0-9]+\.tmp)"
_DAY = 86400.0


class _File(NamedTuple):
    """A file that may be removed: its facts, and the name of the file whose lock protects it."""

    path: Path
    facts: os.stat_result
    locked_as: str

    @property
    def used(self) -> float:
        """When it was last read or written; some file systems record only writes."""
        return max(self.facts.st_atime, self.facts.st_mtime)


def clean_parser() -> Parser:
    """The options."""
    parser = Parser(
        "clean",
        "[--older-than DAYS] [--yes]",
        "List cached files and, after asking, remove them; they are rebuilt when needed. Without a terminal, "
        "files are removed only with --yes. Downloaded data are kept.",
    )
    unused = "only files that were not used for this many days"
    parser.add_argument("--older-than", type=at_least(0), default=0.0, metavar="DAYS", help=unused)
    parser.add_argument("--yes", action="store_true", help="remove the files without asking")
    return parser


def clean_main(argv: list[str]) -> int:
    """List the cached files, ask, and remove them; 1 when a file could not be removed."""
    args = clean_parser().read(argv)
    root = cache_root()
    files = _find(root, time.time() - _DAY * args.older_than)
    if not files:
        say(f"nothing to remove in {root}\n")
        return 0
    for file in files:
        age = max(0.0, time.time() - file.used) / _DAY
        about = f"{file.facts.st_size / 2**20:12,.1f} MiB  unused for {age:5,.1f} days  "
        say(f"{about}{file.path.relative_to(root)}\n")
    say(f"{_sum(files)} in {root}; they are rebuilt when needed\n")
    if not args.yes and not _agreed():
        return 0
    removed = []
    for file in files:
        try:
            _remove(file)
            removed.append(file)
        except OSError as error:
            tell(f"graphzoo clean: left {file.path}: {error.strerror or error}\n")
    say(f"removed {_sum(removed)}\n")
    return int(len(removed) < len(files))


def _find(root: Path, before: float) -> list[_File]:
    """Files that were last used before a time, the oldest first; folders that are links are skipped."""
    files = []
    for name, pattern in MADE_AGAIN.items():
        folder = root / name
        if not folder.is_dir():
            continue
        if link := next((path for path in (root, folder) if path.is_symlink()), None):
            tell(f"graphzoo clean: left {folder}: {link} is a link, and links are not followed\n")
            continue
        for entry in os.scandir(folder):
            named = re.fullmatch(pattern, entry.name) or re.fullmatch(_PART.format(name=pattern), entry.name)
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another process has just removed it
                continue
            if named and stat.S_ISREG(facts.st_mode):
                file = _File(Path(entry.path), facts, named[named.lastindex or 0])
                files += [file] if file.used <= before else []
    return sorted(files, key=lambda file: file.used)


def _agreed() -> bool:
    """Whether the user says yes; without a terminal, say which option to add."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        say("nothing removed: add --yes\n")
        return False
    say("Remove them? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing removed\n")
    return False


def _remove(file: _File) -> None:
    """Remove a file; an `OSError` if its lock is held, or it has changed since it was listed."""
    from filelock import FileLock, Timeout

    lock = file.path.with_name(f"{file.locked_as}.lock")
    if lock.is_symlink():
        raise OSError(f"{lock.name} is a link, and links are not followed")
    try:
        with FileLock(lock, timeout=0):
            facts = os.lstat(file.path)
            same = ("st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns")
            if any(getattr(facts, name) != getattr(file.facts, name) for name in same):
                raise OSError("it has changed since it was listed")
            file.path.unlink()
    except Timeout as error:
        raise OSError("another process is writing it") from error
    except NotImplementedError as error:  # a file system without locks
        raise OSError(f"it cannot be locked: {error}") from error


def _sum(files: list[_File]) -> str:
    size = sum(file.facts.st_size for file in files) / 2**20
    return f"{counted(len(files), 'file')}, {size:,.1f} MiB"
