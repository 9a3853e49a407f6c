"""A progress bar with the time left, for work that takes longer than two seconds.

It is shown only on a terminal or in a notebook, and not with `--quiet` or `GRAPHZOO_QUIET=1`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

DELAY = 2.0
"""Seconds of work until a bar appears."""
_quiet = threading.Event()
_one = threading.Lock()


def set_quiet(quiet: bool) -> bool:
    """Switch bars of this process off or on; returns whether they were off before."""
    before = _quiet.is_set()
    (_quiet.set if quiet else _quiet.clear)()
    return before


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
    if not is_watched() or not _one.acquire(blocking=False):  # two bars would write over each other
        yield lambda steps, what="": None
        return
    try:
        with closing(_LateBar(what, total, unit)) as bar:
            yield bar.advance
    finally:
        _one.release()


def is_watched() -> bool:
    """Whether a bar would be visible."""
    if _quiet.is_set() or os.environ.get("GRAPHZOO_QUIET", "0") not in ("", "0"):
        return False
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    if rank.isdecimal() and int(rank):  # of several processes, only the first one shows a bar
        return False
    return (sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules


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
