"""The next batch is made in a thread while the current one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_END = object()


def prefetch(items: Iterable[Any], size: int = 1) -> Iterator[Any]:
    """The same items in the same order, up to `size` of them made ahead in a thread, which begins one more.

    It pays where making an item leaves the interpreter free, as compiled samplers do. What the thread raises
    is raised here, in its place; a consumer that stops early stops the thread.
    """
    iterator = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix="graphzoo-prefetch")
    try:
        ahead = deque(thread.submit(next, iterator, _END) for _ in range(size + 1))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(thread.submit(next, iterator, _END))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
