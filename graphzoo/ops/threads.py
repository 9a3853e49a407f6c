"""Pieces of work on the threads of this process.

Threads are Python's: kernels release the GIL. No threading layer has to be found, calls from several threads
are safe, and so is a fork. Their number is `torch.get_num_threads()` of the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch

_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked child gets its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid() or _pool[1] < num_threads:
        _pool = (os.getpid(), num_threads, ThreadPoolExecutor(num_threads, "graphzoo-ops"))
    return _pool[2]


def run_pieces(work: Callable[[int], None], num_pieces: int) -> None:
    """Call `work(0)`, ..., `work(num_pieces - 1)`, taken one by one by as many threads as torch has.

    A thread that is held up leaves its share to the others. What a piece computes must not depend on the
    thread that does it, nor on the others.
    """
    pieces = iter(range(num_pieces))

    def work_off() -> None:
        try:
            for piece in pieces:
                work(piece)
        finally:
            for _ in pieces:  # after an error nobody takes another one
                pass

    num_helpers = min(torch.get_num_threads(), num_pieces) - 1
    helpers = [_thread_pool(num_helpers).submit(work_off) for _ in range(num_helpers)]
    try:
        work_off()
    finally:
        # Who is at a piece holds memory until it is done; who has not started has nothing left to do.
        running = [helper for helper in helpers if not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()
