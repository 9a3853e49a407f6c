"""Work in pieces on the threads of this process.

These are Python threads; kernels release the GIL. Unlike numba's own threads they need no threading layer,
and they are safe after a fork and if several threads call kernels. Their number is `torch.get_num_threads()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch

_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """The thread pool of this process; a forked child gets its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid() or _pool[1] < num_threads:
        _pool = (os.getpid(), num_threads, ThreadPoolExecutor(num_threads, "graphzoo-ops"))
    return _pool[2]


def run_pieces(work: Callable[[int], None], num_pieces: int) -> None:
    """Call `work(0)`, ..., `work(num_pieces - 1)` on as many threads as torch uses.

    Each thread takes one piece after another, so a delayed thread does fewer of them. The result of a piece
    must not depend on the thread or on other pieces. An error in a piece is raised here.
    """
    pieces = iter(range(num_pieces))

    def work_off() -> None:
        try:
            for piece in pieces:
                work(piece)
        finally:
            for _ in pieces:  # after an error, no thread starts another piece
                pass

    num_helpers = min(torch.get_num_threads(), num_pieces) - 1
    helpers = [_thread_pool(num_helpers).submit(work_off) for _ in range(num_helpers)]
    try:
        work_off()
    finally:
        # A running helper uses the caller's arrays until it is done. One that has not started is not needed.
        running = [helper for helper in helpers if not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()
