"""Makes the next batch in a thread while the current one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

_END = object()


def prefetch(items: Iterable[Any], size: int = 1) -> Iterator[Any]:
    """Yield the same items in the same order; a thread makes up to `size` of them in advance.

    This helps if making an item releases the GIL, as compiled samplers do. An error in the thread is raised
    here, at the item's place. A consumer that stops early also stops the thread.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=size)
    stopped = threading.Event()

    def hand_over(entry: tuple[Any, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                hand_over((item, None))
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the consumer, whatever it is
            hand_over((_END, error))
        else:
            hand_over((_END, None))

    thread = threading.Thread(target=work, name="graphzoo-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
