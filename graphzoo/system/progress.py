"""A bar with the time left, for work that turns out to take longer than two seconds.

Only where somebody looks: on a terminal or in a notebook, and not after `--quiet` or with `GRAPHZOO_QUIET=1`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

DELAY = 2.0
"""Seconds of work before a bar appears."""
_quiet = threading.Event()
_one = threading.Lock()


def set_quiet(quiet: bool) -> bool:
    """Show no bars in this process, or show them again; what held before."""
    before = _quiet.is_set()
    (_quiet.set if quiet else _quiet.clear)()
    return before


@contextmanager
def progress(
    what: str, total: float | None = None, *, unit: Literal["", "bytes"] = ""
) -> Iterator[Callable[..., None]]:
    """Show how far the work inside has come, once it has taken `DELAY` seconds; the bar vanishes at its end.

    The total is of steps or bytes; None where nobody knows: then a moving bar and the time passed. With the
    unit "bytes" sizes and a rate are shown. What it yields is told how many more steps are done, which costs
    next to nothing where no bar is shown, and as a second argument what is being done from now on.
    """
    if not is_watched() or not _one.acquire(blocking=False):  # two bars would write over each other
        yield lambda steps, what="": None
        return
    try:
        with closing(_LateBar(what, total, unit)) as bar:
            yield bar.advance
    finally:
        _one.release()


def is_watched() -> bool:
    """Whether a bar would be seen."""
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
        self._draw: Callable[[float], None] = lambda done: None
        self._stop: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._closed = False
        self._timer = threading.Timer(DELAY, self._show)
        self._timer.daemon = True
        with suppress(RuntimeError):  # no room for another thread: the work continues without a bar
            self._timer.start()

    def advance(self, steps: float, what: str = "") -> None:
        """Count steps; say what comes next."""
        self._done += steps
        self._what = what or self._what
        self._draw(self._done)

    def close(self) -> None:
        """Take the bar away, or see that it does not appear."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._stop()
        if self._timer.ident is not None:  # it was started
            self._timer.join()

    def _show(self) -> None:
        from rich import get_console
        from rich import progress as bars
        from rich.console import Console

        columns: list[bars.ProgressColumn] = [bars.TextColumn("{task.description}"), bars.BarColumn()]
        if self._unit == "bytes":
            columns += [bars.DownloadColumn(), bars.TransferSpeedColumn()]
        elif self._total is not None:
            columns.append(bars.MofNCompleteColumn())
        columns.append(bars.TimeElapsedColumn())
        if self._total is not None:
            columns += [bars.TextColumn("left"), bars.TimeRemainingColumn()]
        with self._lock:
            # Lightning's bar lives on rich's own console, which tells of it in private only.
            shared = get_console()
            if self._closed or getattr(shared, "_live", None) or getattr(shared, "_live_stack", None):
                return
            shown = bars.Progress(*columns, console=Console(file=sys.stderr), transient=True)
            task = shown.add_task(self._what, total=self._total)
            # before it is seen, or steps in between would be lost
            self._draw = lambda done: shown.update(task, completed=done, description=self._what)
            self._draw(self._done)
            shown.start()
            self._stop = shown.stop
