"""The graph that pairs are sampled from: ascending neighbours of every node, in memory or on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.sampling.pair_subgraphs.file import Array, from_portable, map_arrays, portable, write_arrays

# Places in a subgraph are int32, and neighbours are drawn with 32 random bits.
_MAX_NODES = 2**31 - 1

_FAULTS = {
    1: "rowptr[{0}] .. rowptr[{1}] is not a part of col; it starts with 0, ascends and ends with len(col)",
    2: "row {0} has a neighbour that is not in 0..N-1",
    3: "the neighbours in row {0} are not ascending, or one is repeated; sort each row, drop repeats",
    4: "row {0} has a self-loop; drop it",
}


@dataclass(frozen=True, eq=False)
class PairGraph:
    """Neighbours in CSR form; the arrays may be memory-mapped files and are never copied.

    Other processes are sent the name of a mapped file, and other arrays in shared memory, once for all.

    Node i is joined to `col[rowptr[i]:rowptr[i + 1]]`, ascending, without repeats and self-loops, whatever
    the direction of the edge: if j is among the neighbours of i, then i is among those of j.

    Args:
        rowptr: [N + 1], int64 or int32.
        col: [E], int64 or int32.
        forward: Of a directed graph: whether there is an edge i -> j, besides or instead of j -> i, [E],
            uint8 or bool. Empty for an undirected graph.
    """

    rowptr: Array
    col: Array
    forward: Array

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.rowptr) - 1

    @property
    def is_directed(self) -> bool:
        """Whether edges have a direction."""
        return len(self.forward) > 0

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> PairGraph:
        """The graph of an edge list; self-loops and repeated edges are dropped.

        Args:
            edge_index: Edges, [2, E], int64 or int32. Of an undirected graph each in one or both directions.
            num_nodes: N.
            directed: Whether edges keep their direction.
        """
        from scipy.sparse import coo_array

        from graphzoo.ops.relational_spmm.graph import check_edges

        _check_size(num_nodes)
        source, target = (ends.cpu().numpy() for ends in check_edges(edge_index, num_nodes))
        is_kept = source != target
        ends = (source[is_kept], target[is_kept])
        pattern = coo_array((np.ones(ends[0].shape[0], np.uint8), ends), shape=(num_nodes, num_nodes)).tocsr()
        # the sum of repeats may wrap around to 0
        pattern.data[:] = 1
        both = (pattern + 2 * pattern.T.tocsr()).tocsr()
        both.sort_indices()
        forward = (both.data & 1).astype(np.uint8) if directed else np.empty(0, np.uint8)
        # the same types for every graph, since every other one is compiled anew; scipy's depend on the sizes
        return cls(both.indptr.astype(np.int64), both.indices.astype(np.int32), forward)

    @classmethod
    def from_csr(cls, rowptr: Any, col: Any, forward: Any = None, *, check: bool = True) -> PairGraph:
        """The graph of given arrays or tensors, which are used as they are.

        Args:
            rowptr: See the class.
            col: See the class.
            forward: See the class; None for an undirected graph.
            check: Whether all rows are looked at once, O(N + E); a fault that goes unnoticed can crash.

        Raises:
            UsageError: if the arrays are not what the class says.
        """
        given = [np.empty(0, np.uint8) if array is None else array for array in (rowptr, col, forward)]
        rowptr, col, forward = (x.numpy() if isinstance(x, Tensor) else np.asanyarray(x) for x in given)
        for name, array, kinds in (
            ("rowptr", rowptr, ("int32", "int64")),
            ("col", col, ("int32", "int64")),
            ("forward", forward, ("uint8", "bool")),
        ):
            if array.ndim != 1 or array.dtype.name not in kinds or not array.flags.c_contiguous:
                raise UsageError(
                    f"{name} must be a contiguous array with one dimension, {' or '.join(kinds)}; "
                    f"got {array.dtype} {list(array.shape)}"
                )
        if not len(rowptr) or rowptr[0] != 0 or rowptr[-1] != len(col):
            ends = "nothing" if not len(rowptr) else f"{rowptr[0]} .. {rowptr[-1]}"
            raise UsageError(
                f"rowptr has to go from 0 to the length of col, {len(col):,}; it has {ends}: "
                "the arrays belong to different graphs, or one of them is cut off"
            )
        if forward.shape[0] not in ((0, len(col)) if len(col) else (0,)):
            raise UsageError(f"forward has {len(forward):,} entries, col {len(col):,}; they must be as many")
        graph = cls(rowptr, col, forward.view(np.uint8))
        _check_size(graph.num_nodes)
        if check:
            graph.check()
        return graph

    def check(self) -> None:
        """Look at every row.

        Raises:
            UsageError: naming the first row that is not as the class says.
        """
        from graphzoo.sampling.pair_subgraphs.kernels import check_rows, check_symmetry

        fault, row = check_rows(self.rowptr, self.col)
        if fault:
            raise UsageError(f"not a CSR graph to sample from: {_FAULTS[fault].format(row, row + 1)}")
        if (row := check_symmetry(self.rowptr, self.col)) >= 0:
            raise UsageError(
                f"row {row} has a neighbour in whose row {row} is missing: list every edge in both rows, and "
                "give a directed graph's directions as `forward`"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that `open` maps; nobody ever sees half of it.

        Raises:
            OSError: if the file cannot be written.
        """
        write_arrays(Path(path), [self.rowptr, self.col, self.forward])

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, check: bool = True) -> PairGraph:
        """Map a file of `save` without reading it into memory; processes that do so share its pages.

        Args:
            path: The file.
            check: Whether its checksum is compared, which reads the file once.

        Raises:
            DataError: if it is no such file, too short, or damaged.
        """
        rowptr, col, forward = map_arrays(Path(path), check=check)
        return cls.from_csr(rowptr, col, forward, check=False)

    def __getstate__(self) -> dict[str, Any]:
        # Kept: what moves into shared memory for the first worker is there for the others.
        state: dict[str, Any] = self.__dict__.setdefault("_portable", {})
        if not state:
            state.update({column.name: portable(getattr(self, column.name)) for column in fields(self)})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, from_portable(value))


def _check_size(num_nodes: int) -> None:
    if num_nodes > _MAX_NODES:
        raise UsageError(f"{num_nodes:,} nodes; pairs are sampled from {_MAX_NODES:,} at most")
