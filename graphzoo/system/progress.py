"""A bar with the time left, for work that turns out to take longer than two seconds.

Only where somebody looks: on a terminal or in a notebook, and not after `--quiet` or with `GRAPHZOO_QUIET=1`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

__all__ = ["progress", "set_quiet"]

DELAY = 2.0
"""Seconds of work before a bar appears."""
_quiet = threading.Event()
_one = threading.Lock()


def set_quiet(quiet: bool) -> bool:
    """Show no bars in this process, or show them again.

    Args:
        quiet: Whether to show none.

    Returns:
        What held before.
    """
    before = _quiet.is_set()
    (_quiet.set if quiet else _quiet.clear)()
    return before


@contextmanager
def progress(
    what: str, total: float | None = None, *, unit: Literal["", "bytes"] = ""
) -> Iterator[Callable[[float], None]]:
    """Show how far the work inside has come, once it has taken `DELAY` seconds; the bar vanishes at its end.

    Args:
        what: What is done, "denoising".
        total: Steps, or bytes; None where nobody knows: then a moving bar and the time passed.
        unit: "bytes" shows sizes and a rate.

    Yields:
        A function that is told how many more steps are done; it costs next to nothing where no bar is shown.
    """
    if not _is_watched() or not _one.acquire(blocking=False):  # two bars would write over each other
        yield _ignore
        return
    try:
        bar = _LateBar(what, total, unit)
        try:
            yield bar.advance
        finally:
            bar.close()
    finally:
        _one.release()


def _ignore(steps: float) -> None:
    """No one looks."""


def _nothing() -> None:
    """There is nothing to stop."""


def _is_watched() -> bool:
    if _quiet.is_set() or os.environ.get("GRAPHZOO_QUIET", "0") not in ("", "0"):
        return False
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    if rank.isdecimal() and int(rank):  # of several processes the first one shows
        return False
    return (sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules


class _LateBar:
    """Counts from the beginning, is drawn from `DELAY` on."""

    def __init__(self, what: str, total: float | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0.0
        self._draw: Callable[[float], None] = _ignore
        self._stop: Callable[[], None] = _nothing
        self._lock = threading.Lock()
        self._closed = False
        self._timer = threading.Timer(DELAY, self._show)
        self._timer.daemon = True
        try:
            self._timer.start()
            self._started = True
        except RuntimeError:  # no room for another thread: the work goes on without a bar
            self._started = False

    def advance(self, steps: float) -> None:
        """Count steps."""
        self._done += steps
        self._draw(self._done)

    def close(self) -> None:
        """Take the bar away, or see that it does not appear."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._stop()
        if self._started:
            self._timer.join()

    def _show(self) -> None:
        from rich import get_console
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
        if self._unit == "bytes":
            columns += [DownloadColumn(), TransferSpeedColumn()]
        elif self._total is not None:
            columns.append(MofNCompleteColumn())
        columns.append(TimeElapsedColumn())
        if self._total is not None:
            columns += [TextColumn("left"), TimeRemainingColumn()]
        with self._lock:
            # Lightning's bar lives on rich's own console, which tells of it in private only.
            shared = get_console()
            if self._closed or getattr(shared, "_live", None) or getattr(shared, "_live_stack", None):
                return
            shown = Progress(*columns, console=Console(file=sys.stderr), transient=True)
            task = shown.add_task(self._what, total=self._total)
            # before it is seen, or steps in between would be lost
            self._draw = lambda done: shown.update(task, completed=done)
            self._draw(self._done)
            shown.start()
            self._stop = shown.stop
