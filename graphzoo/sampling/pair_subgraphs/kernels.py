"""Compiled loops of the pair-subgraph sampler: node lists of pairs, and their induced adjacency matrices.

The scratch arrays of a thread (see `scratch.py`) have a table from a node to its position in the current
subgraph. The table is an array over all nodes or, if `keys` is not None, a hash table with linear probing.
`slots` has the entries that were written, so that the table is reset in time for the nodes of the subgraph.

Missing arguments are None, not empty arrays: numba compiles a separate kernel for them, without the branch.
Indices are unsigned, since numba would test each signed one for counting from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.ops.row_kernels import jit

# splitmix64, as in graphzoo.ops.random
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@jit
def _mix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@jit
def _hash(purpose: int, seed: int, u: int, v: int) -> Any:
    """`graphzoo.ops.random.hash_integers` of four integers."""
    state = np.uint64(0)
    for part in (purpose, seed, u, v):
        state = _mix((state + _GOLDEN) ^ _mix(np.uint64(part) + _GOLDEN))
    return state


@jit
def _below(stream: Any, bound: int) -> Any:
    """The stream's next number, exactly uniform in 0..bound-1 (Lemire, 2019), for bound < 2^32."""
    limit = np.uint64(bound)
    while True:
        stream[0] += _GOLDEN
        product = (_mix(stream[0]) >> np.uint64(32)) * limit
        low = product & _LOW_HALF
        # The second condition needs a division, and is rarely evaluated.
        if low >= limit or low >= ((_LOW_HALF - limit) + np.uint64(1)) % limit:
            return np.int64(product >> np.uint64(32))


@jit
def _slot(keys: Any, node: int) -> Any:
    """Slot of `node` in a hash table, or the free slot for it."""
    mask = keys.shape[0] - 1
    slot = np.int64((np.uint64(node) * _GOLDEN) >> np.uint64(33)) & mask
    while keys[slot] >= 0 and keys[slot] != node:
        slot = (slot + 1) & mask
    return slot


@jit
def _find(keys: Any, places: Any, node: int) -> Any:
    """Position of a node in the current subgraph, -1 if it is not in it."""
    if keys is None:
        return np.int64(places[np.uint64(node)])
    slot = _slot(keys, node)
    return np.int64(places[slot]) if keys[slot] >= 0 else np.int64(-1)


@jit
def _insert(keys: Any, places: Any, slots: Any, node: int, place: int) -> None:
    if keys is None:
        places[np.uint64(node)] = place
        slots[np.uint64(place)] = node
    else:
        slot = _slot(keys, node)
        keys[slot] = node
        places[slot] = place
        slots[place] = slot


@jit
def _clear(keys: Any, places: Any, slots: Any, count: int) -> None:
    for i in range(np.uint64(count)):
        if keys is None:
            places[np.uint64(slots[i])] = -1
        else:
            keys[slots[i]] = -1


@jit
def _entry(col: Any, begin: int, end: int, node: int) -> Any:
    """Position of `node` in `col`, searched in the ascending row `col[begin:end]`; -1 if it is not there."""
    stop = end
    while begin < stop:
        middle = (begin + stop) // 2
        if col[middle] < node:
            begin = middle + 1
        else:
            stop = middle
    return begin if begin < end and col[begin] == node else -1


@jit
def _choose(stream: Any, degree: int, count: int, taken: Any, chosen: Any) -> None:
    """Choose `count` of 0..degree-1, every set with equal probability (Floyd; Bentley, 1987).

    `taken` must be False, and is False again on return.
    """
    for i in range(count):
        last = degree - count + i
        choice = _below(stream, last + 1)
        if taken[choice]:
            choice = last
        taken[choice] = True
        chosen[i] = choice
    for i in range(count):
        taken[chosen[i]] = False


@jit
def _visit(scratch: Any, node: int, ego: int, count: int, tail: int) -> Any:
    """Add a node to the subgraph and to the queue of an ego sample, once each; returns (count, tail)."""
    keys, places, slots, nodes, seen, queue = scratch[:6]
    place = _find(keys, places, node)
    if place < 0:
        place = count
        _insert(keys, places, slots, node, place)
        nodes[place] = node
        seen[place] = 0
        count += 1
    if not seen[place] & ego:
        seen[place] |= ego
        queue[tail] = place
        tail += 1
    return count, tail


@jit
def _ego(
    rowptr: Any, col: Any, u: int, v: int, root: int, ego: int, depth: int, num_neighbors: int, stream: Any,
    scratch: Any, count: int,
) -> Any:  # fmt: skip
    """Add the ego sample around `root`, whose bit in `seen` is `ego`; returns the new number of nodes.

    The link between u and v is ignored.
    """
    nodes, queue, taken, chosen = scratch[3], scratch[5], scratch[6], scratch[7]
    count, tail = _visit(scratch, root, ego, count, 0)
    head = 0
    for _ in range(depth):
        end = tail
        while head < end:
            node = nodes[queue[head]]
            head += 1
            begin, stop = rowptr[node], rowptr[node + 1]
            hidden = -1
            if node == u:
                hidden = _entry(col, begin, stop, v)
            elif node == v:
                hidden = _entry(col, begin, stop, u)
            degree = stop - begin - (1 if hidden >= 0 else 0)
            if degree <= num_neighbors:
                for e in range(begin, stop):
                    if e != hidden:
                        count, tail = _visit(scratch, col[e], ego, count, tail)
            else:
                _choose(stream, degree, num_neighbors, taken, chosen)
                for i in range(num_neighbors):
                    e = begin + chosen[i]
                    if hidden >= 0 and e >= hidden:
                        e += 1
                    count, tail = _visit(scratch, col[e], ego, count, tail)
    return count


@jit
def _shuffle_front(stream: Any, nodes: Any, begin: int, end: int, stop: int) -> None:
    """Put a uniformly random choice of `nodes[begin:stop]`, in random order, into `nodes[begin:end]`."""
    for i in range(begin, min(end, stop - 1)):
        j = i + _below(stream, stop - i)
        nodes[i], nodes[j] = nodes[j], nodes[i]


@jit
def sample_nodes(
    rowptr: Any, col: Any, pairs: Any, seeds: Any, order_seeds: Any, purposes: Any, depth: int,
    num_neighbors: int, max_nodes: int, scratch: Any, sizes: Any, first: int, last: int,
) -> Any:  # fmt: skip
    """Node lists of the pairs first..last-1, concatenated; writes their lengths to `sizes`.

    With the same seed, (u, v) and (v, u) have the same nodes, but not in the same order.
    """
    keys, places, slots, nodes = scratch[:4]
    stream = np.empty(1, np.uint64)
    out = np.empty(max(256, 32 * (last - first)), col.dtype)
    used = 0
    for k in range(first, last):
        u, v = pairs[k, 0], pairs[k, 1]
        stream[0] = _hash(purposes[0], seeds[k], min(u, v), max(u, v))
        nodes[0], nodes[1] = u, v
        scratch[4][:2] = 0
        _insert(keys, places, slots, u, 0)
        _insert(keys, places, slots, v, 1)
        count = _ego(rowptr, col, u, v, min(u, v), 1, depth, num_neighbors, stream, scratch, 2)
        count = _ego(rowptr, col, u, v, max(u, v), 2, depth, num_neighbors, stream, scratch, count)
        _clear(keys, places, slots, count)
        if count > max_nodes:
            _shuffle_front(stream, nodes, 2, max_nodes, count)
            count = max_nodes
        stream[0] = _hash(purposes[1], order_seeds[k], u, v)
        _shuffle_front(stream, nodes, 2, count, count)
        if used + count > out.shape[0]:
            larger = np.empty(max(2 * out.shape[0], used + count), col.dtype)
            larger[:used] = out[:used]
            out = larger
        out[used : used + count] = nodes[:count]
        used += count
        sizes[k] = count
    return out[:used]


@jit
def _induced_row(
    rowptr: Any, col: Any, forward: Any, flat: Any, base: int, count: int, i: int, keys: Any, places: Any,
    out: Any, line: Any,
) -> None:  # fmt: skip
    """Set `out[line + j]`, which is 0, to 1 if there is an edge from the subgraph's node i to its node j.

    Neighbours outside the subgraph write to the diagonal instead, which is reset to 0 at the end since there
    are no self-loops. This avoids a branch that the processor cannot predict.
    """
    node = np.uint64(flat[np.uint64(base + i)])
    begin, end = np.uint64(rowptr[node]), np.uint64(rowptr[node + np.uint64(1)])
    degree = np.int64(end - begin)
    own = np.uint64(i)
    # If a node has far more neighbours than the subgraph has nodes, the nodes are searched in its row.
    if degree > 16 * count and degree > 2 * _bits(degree) * count:
        for j in range(count):
            e = _entry(col, np.int64(begin), np.int64(end), flat[base + j])
            if e >= 0:
                out[line + np.uint64(j)] = _value(forward, np.uint64(e))
        return
    for e in range(begin, end):
        place = _find(keys, places, col[e])
        out[line + (np.uint64(place) if place >= 0 else own)] = _value(forward, e)
    out[line + own] = 0


@jit
def _bits(number: int) -> Any:
    """Number of binary digits of a number above 0."""
    bits = 1
    while number >> bits:
        bits += 1
    return bits


@jit
def _value(forward: Any, e: int) -> Any:
    if forward is None:
        return np.uint8(1)
    return forward[e]


@jit
def pad_subgraphs(
    rowptr: Any, col: Any, forward: Any, flat: Any, offsets: Any, rows: Any, scratch: Any, out_nodes: Any,
    out_adjacency: Any, first: int, last: int,
) -> None:  # fmt: skip
    """Write nodes and induced adjacency, padding included, of the samples rows[first..last-1].

    `out_adjacency` is flat, so that the compiler sets a range of bytes to 0 at once.
    """
    keys, places, slots = scratch[:3]
    width = out_nodes.shape[1]
    area = width * width
    for b in range(first, last):
        base = offsets[rows[b]]
        count = offsets[rows[b] + 1] - base
        for i in range(count):
            node = flat[np.uint64(base + i)]
            _insert(keys, places, slots, node, i)
            out_nodes[np.uint64(b), np.uint64(i)] = node
        for i in range(count, width):
            out_nodes[np.uint64(b), np.uint64(i)] = -1
        corner = np.uint64(b * area)
        for j in range(corner, corner + np.uint64(area)):
            out_adjacency[j] = 0
        for i in range(count):
            line = corner + np.uint64(i * width)
            _induced_row(rowptr, col, forward, flat, base, count, i, keys, places, out_adjacency, line)
        out_adjacency[corner + np.uint64(1)] = 0
        out_adjacency[corner + np.uint64(width)] = 0
        _clear(keys, places, slots, count)


@jit
def check_rows(rowptr: Any, col: Any) -> Any:
    """The first fault of a CSR graph, and its row.

    Faults are 0 for none, 1 for pointers that do not ascend, 2 for a neighbour out of range, 3 for neighbours
    that do not ascend, 4 for a self-loop.
    """
    num_nodes = rowptr.shape[0] - 1
    for i in range(num_nodes):
        if rowptr[i] > rowptr[i + 1] or rowptr[i] < 0 or rowptr[i + 1] > col.shape[0]:
            return 1, i
        for e in range(rowptr[i], rowptr[i + 1]):
            if col[e] < 0 or col[e] >= num_nodes:
                return 2, i
            if e > rowptr[i] and col[e] <= col[e - 1]:
                return 3, i
            if col[e] == i:
                return 4, i
    return 0, 0


@jit
def check_symmetry(rowptr: Any, col: Any) -> Any:
    """The first row with an edge that has no reverse, -1 if there is none; takes O(N + E) time.

    The rows are read in order, and each is ascending. So the reverse edges of each node are needed in the
    order of its row, and a cursor for each row finds them.
    """
    num_nodes = rowptr.shape[0] - 1
    cursor = rowptr[:-1].copy()
    for i in range(num_nodes):
        for e in range(rowptr[i], rowptr[i + 1]):
            j = col[e]
            if cursor[j] >= rowptr[j + 1] or col[cursor[j]] != i:
                return i
            cursor[j] += 1
    return -1
