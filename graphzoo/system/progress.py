"""A progress bar with the time left, for work that takes longer than two seconds.

It is shown only on a terminal or in a notebook, and not with `--quiet` or `GRAPHZOO_QUIET=1`. Elsewhere, as
in the log of a batch system, the command prints a line once a minute.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

from graphzoo.system.shown import visible
from graphzoo.system.units import duration

DELAY = 2.0
"""Seconds of work until a bar appears."""
INTERVAL = 60.0
"""Seconds between two lines where no bar can be drawn."""
_quiet = threading.Event()
_lines = threading.Event()
_one = threading.Lock()


def set_quiet(quiet: bool) -> bool:
    """Switch bars of this process off or on; returns whether they were off before."""
    before = _quiet.is_set()
    (_quiet.set if quiet else _quiet.clear)()
    return before


@contextmanager
def with_lines() -> Iterator[None]:
    """Print lines where no bar can be drawn. Only the command asks for them; the library stays silent."""
    before = _lines.is_set()
    _lines.set()
    try:
        yield
    finally:
        if not before:
            _lines.clear()


@contextmanager
def progress(
    what: str, total: float | None = None, *, unit: Literal["", "bytes"] = ""
) -> Iterator[Callable[..., None]]:
    """Show the progress of the block after `DELAY` seconds; the bar disappears at its end.

    Args:
        what: Description of the work.
        total: Number of steps or bytes; None if unknown, which shows a moving bar and the elapsed time.
        unit: With "bytes", sizes and a rate are shown.

    Yields:
        A function `advance(steps, what="")` that adds finished steps, and may change the description. It is
        cheap if no bar is shown.
    """
    if not is_watched():
        yield _Lines(what, total).advance if _lines.is_set() and _may_show() else _say_nothing
        return
    if not _one.acquire(blocking=False):  # two bars would write over each other
        yield _say_nothing
        return
    try:
        with closing(_LateBar(what, total, unit)) as bar:
            yield bar.advance
    finally:
        _one.release()


def is_watched() -> bool:
    """Whether a bar would be visible."""
    return _may_show() and ((sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules)


def _say_nothing(steps: float, what: str = "") -> None:
    pass


def _may_show() -> bool:
    if _quiet.is_set() or os.environ.get("GRAPHZOO_QUIET", "0") not in ("", "0"):
        return False
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    return not (rank.isdecimal() and int(rank))  # of several processes, only the first one shows a bar


class _Lines:
    """A line every `INTERVAL` seconds, at the end of a step."""

    def __init__(self, what: str, total: float | None) -> None:
        self._what, self._total, self._done = what, total, 0.0
        self._began = self._last = time.monotonic()

    def advance(self, steps: float, what: str = "") -> None:
        """Add finished steps, and print a line if the last one is old."""
        self._done += steps
        self._what = what or self._what
        now = time.monotonic()
        if now - self._last < INTERVAL or not self._done:
            return
        self._last = now
        passed = now - self._began
        if self._total:
            left = duration(max(0.0, passed * (self._total / self._done - 1)))
            far = f"{100 * min(1.0, self._done / self._total):.0f} %, about {left} to go"
        else:
            far = f"{self._done:,.0f} after {duration(passed)}"
        with suppress(OSError, ValueError):  # a log that cannot be written does not end the work
            print(visible(f"{self._what}: {far}"), file=sys.stderr, flush=True)


class _LateBar:
    """A bar that counts from the beginning, but is drawn only after `DELAY` seconds."""

    def __init__(self, what: str, total: float | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0.0
        self._draw: Callable[[float], None] = lambda done: None
        self._stop: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._closed = False
        self._timer = threading.Timer(DELAY, self._show)
        self._timer.daemon = True
        with suppress(RuntimeError):  # if no thread can be started, the work continues without a bar
            self._timer.start()

    def advance(self, steps: float, what: str = "") -> None:
        """Add finished steps, and change the description if one is given."""
        self._done += steps
        self._what = what or self._what
        self._draw(self._done)

    def close(self) -> None:
        """Remove the bar, or keep it from appearing."""
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
            # Lightning's bar uses rich's own console, which has only private attributes about it.
            shared = get_console()
            if self._closed or getattr(shared, "_live", None) or getattr(shared, "_live_stack", None):
                return
            shown = bars.Progress(*columns, console=Console(file=sys.stderr), transient=True)
            task = shown.add_task(self._what, total=self._total)
            # Set before the bar starts, so that no steps are lost.
            self._draw = lambda done: shown.update(task, completed=done, description=self._what)
            self._draw(self._done)
            shown.start()
            self._stop = shown.stop
