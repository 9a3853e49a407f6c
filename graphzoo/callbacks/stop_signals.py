"""Handles SIGINT and SIGTERM, so that a run can save its state before it stops."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException


class StopSignals:
    """Notes a signal that asks the run to stop. A second one ends the run at once.

    Attributes:
        noted: The signal that came, until `forget`.
        at_once: Whether the first signal, too, ends the run at once. `handle` sets it; set it to False when
            there is something to save.
    """

    def __init__(self) -> None:
        self.noted: int | None = None
        self.at_once = False
        self._earlier: dict[int, Any] = {}  # handlers, by signal

    def handle(self, *, at_once: bool) -> None:
        """Handle the signals from now on, until `restore`. Only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.at_once = at_once
        if not self._earlier:
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._earlier[signum] = signal.signal(signum, self.note)

    def note(self, signum: int, frame: FrameType | None = None) -> None:
        """Note a signal, or end the run.

        Raises:
            KeyboardInterrupt: if the run ends at once by SIGINT.
            SIGTERMException: if it ends at once by SIGTERM.
        """
        at_once = self.at_once or self.noted is not None
        self.noted = signum
        if signum == signal.SIGTERM:
            signal.signal(signum, signal.SIG_DFL)  # the next one ends the process
        if at_once:
            raise KeyboardInterrupt if signum == signal.SIGINT else SIGTERMException

    def restore(self) -> None:
        """Give the signals back to the handlers that they had before."""
        while self._earlier:
            signum, handler = self._earlier.popitem()
            # After a successful run Lightning has restored the earlier handlers. The one saved here is its
            # own: restored, it would keep the whole trainer alive, and the next trainer's would call it.
            if signal.getsignal(signum) == self.note:
                signal.signal(signum, handler)

    def forget(self) -> None:
        """Forget the signal, which has been answered."""
        self.noted = None
