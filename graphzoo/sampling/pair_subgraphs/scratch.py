"""Scratch arrays of the sampling threads, which are reused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# For more nodes, a table over all of them would exceed the caches, and a hash table is as fast.
_MAX_TABLE = 1 << 21


class ScratchPool:
    """A pool of scratch arrays for `kernels`, which makes new ones only if all are in use.

    Args:
        num_nodes: N.
        capacity: Largest number of nodes in a subgraph, before it is cut to `max_nodes`.
        max_degree: Largest number of neighbours of a node.
        num_chosen: Largest number of neighbours that are drawn for a node.
        dtype: Dtype of node numbers.
    """

    def __init__(
        self, num_nodes: int, capacity: int, max_degree: int, num_chosen: int, dtype: np.dtype[Any]
    ) -> None:
        self.num_nodes, self.capacity, self.dtype = num_nodes, capacity, dtype
        self.max_degree, self.num_chosen = max_degree, min(num_chosen, max_degree)
        # The table is at most a quarter full, so that a lookup rarely needs a second step.
        self.hash_size = 1 << (4 * capacity - 1).bit_length()
        self.is_hashed = num_nodes > _MAX_TABLE and self.hash_size * 4 < num_nodes
        self._free: deque[tuple[Any, ...]] = deque()

    @contextmanager
    def borrow(self) -> Iterator[tuple[Any, ...]]:
        """Lend arrays (keys, places, slots, nodes, seen, queue, taken, chosen) to the calling thread.

        After an error they may not be reset, and are not used again.
        """
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = self._make()
        yield scratch
        self._free.append(scratch)

    def __getstate__(self) -> dict[str, Any]:
        # Another process makes its own arrays.
        return {**vars(self), "_free": deque()}

    def _make(self) -> tuple[Any, ...]:
        n, table = self.capacity, self.hash_size if self.is_hashed else self.num_nodes
        return (
            np.full(table, -1, np.int64) if self.is_hashed else None,
            np.full(table, -1, np.int32),
            np.empty(n, np.int64),
            np.empty(n, self.dtype),
            np.empty(n, np.uint8),
            np.empty(n, np.int32),
            np.zeros(self.max_degree, np.bool_),
            np.empty(self.num_chosen, np.int64),
        )
