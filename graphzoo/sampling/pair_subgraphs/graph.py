"""The graph from which subgraphs around pairs are sampled, in memory or on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.sampling.pair_subgraphs.file import Array, from_portable, map_arrays, portable, write_arrays

# Positions in a subgraph are int32, and neighbours are drawn with 32 random bits.
_MAX_NODES = 2**31 - 1

_FAULTS = {
    1: "rowptr[{0}] .. rowptr[{1}] is not a range of col; rowptr must ascend from 0 to len(col)",
    2: "row {0} has a neighbour that is not in 0..N-1",
    3: "the neighbours in row {0} are not ascending, or one is repeated; sort each row, drop repeats",
    4: "row {0} has a self-loop; drop it",
}


@dataclass(frozen=True, eq=False)
class PairGraph:
    """The neighbours of every node in CSR form.

    The arrays may be memory-mapped, and are not copied. Another process gets the path of a mapped file; other
    arrays are moved to shared memory, once for all processes.

    The neighbours of node i are `col[rowptr[i]:rowptr[i + 1]]`. They are ascending, without repetitions and
    self-loops. Edges count in both directions: if j is a neighbour of i, then i is one of j.

    Args:
        rowptr: Position of each node's first neighbour, [N + 1], int64 or int32.
        col: Neighbours of all nodes, [E], int64 or int32.
        forward: For a directed graph, whether there is an edge from i to its neighbour j, [E], uint8 or bool;
            there may also be one from j to i. Empty for an undirected graph.
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
            edge_index: Edges, [2, E], int64 or int32; those of an undirected graph in one or both directions.
            num_nodes: N.
            directed: Whether edges keep their direction.

        Raises:
            ValueError: for edges of another shape or dtype, or nodes outside 0..N-1.
            UsageError: for more than 2^31 - 1 nodes.
        """
        from scipy.sparse import coo_array

        from graphzoo.ops.relational_spmm.graph import check_edges

        _check_size(num_nodes)
        source, target = (ends.cpu().numpy() for ends in check_edges(edge_index, num_nodes))
        is_kept = source != target
        ends = (source[is_kept], target[is_kept])
        pattern = coo_array((np.ones(ends[0].shape[0], np.uint8), ends), shape=(num_nodes, num_nodes)).tocsr()
        # Repeated edges are summed, and the sum may have overflowed to 0.
        pattern.data[:] = 1
        both = (pattern + 2 * pattern.T.tocsr()).tocsr()
        both.sort_indices()
        forward = (both.data & 1).astype(np.uint8) if directed else np.empty(0, np.uint8)
        # Fixed dtypes, since kernels are compiled for each combination; those of scipy depend on the sizes.
        return cls(both.indptr.astype(np.int64), both.indices.astype(np.int32), forward)

    @classmethod
    def from_csr(cls, rowptr: Any, col: Any, forward: Any = None, *, check: bool = True) -> PairGraph:
        """The graph of arrays or tensors in CSR form, which are not copied.

        Args:
            rowptr: See the class.
            col: See the class.
            forward: See the class; None for an undirected graph.
            check: Whether to check all rows, in O(N + E); without, wrong arrays may crash the process later.

        Raises:
            UsageError: if the arrays are not as the class requires.
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
                f"rowptr must ascend from 0 to the length of col, {len(col):,}; it has {ends}: "
                "the arrays are from different graphs, or one of them is cut off"
            )
        if forward.shape[0] not in ((0, len(col)) if len(col) else (0,)):
            raise UsageError(f"forward has {len(forward):,} entries and col {len(col):,}; they must be equal")
        graph = cls(rowptr, col, forward.view(np.uint8))
        _check_size(graph.num_nodes)
        if check:
            graph.check()
        return graph

    def check(self) -> None:
        """Check every row.

        Raises:
            UsageError: if a row is not as the class requires; the message names the first one.
        """
        from graphzoo.sampling.pair_subgraphs.kernels import check_rows, check_symmetry

        fault, row = check_rows(self.rowptr, self.col)
        if fault:
            raise UsageError(f"not a CSR graph to sample from: {_FAULTS[fault].format(row, row + 1)}")
        if (row := check_symmetry(self.rowptr, self.col)) >= 0:
            raise UsageError(
                f"row {row} has a neighbour whose own row does not have {row}: list every edge in the rows "
                "of both nodes, and give the directions of a directed graph as `forward`"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `open`, completely or not at all.

        Raises:
            OSError: if the file cannot be written.
        """
        write_arrays(Path(path), [self.rowptr, self.col, self.forward])

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, check: bool = True) -> PairGraph:
        """Map a file of `save` into memory; several processes share its pages.

        Args:
            path: The file.
            check: Whether to compare its checksum, which reads the file once.

        Raises:
            DataError: if the file cannot be read, is of another kind, cut off or damaged.
        """
        rowptr, col, forward = map_arrays(Path(path), check=check)
        return cls.from_csr(rowptr, col, forward, check=False)

    def __getstate__(self) -> dict[str, Any]:
        # Kept, so that arrays are moved to shared memory only once for all workers.
        state: dict[str, Any] = self.__dict__.setdefault("_portable", {})
        if not state:
            state.update({column.name: portable(getattr(self, column.name)) for column in fields(self)})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, from_portable(value))


def _check_size(num_nodes: int) -> None:
    if num_nodes > _MAX_NODES:
        raise UsageError(f"the graph has {num_nodes:,} nodes; at most {_MAX_NODES:,} are supported")
