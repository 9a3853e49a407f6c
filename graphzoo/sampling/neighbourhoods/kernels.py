"""Compiled loops of the neighbourhood sampler: personalised PageRank, the choice of entities, induced facts.

A call computes one query and releases the GIL, so that threads compute several queries of a batch at once.
Each thread has its own scratch arrays. They are reset after use, which takes time for the entries that the
query changed, not for the whole graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphzoo.ops.row_kernels import helper, jit


@helper
def _is_hidden(u: int, kind: int, v: int, hidden: Any) -> Any:
    """Whether the edge u -kind-> v is hidden, see `push`: the query's own fact, or its inverse."""
    head, tail, own, inverse = hidden[0], hidden[1], hidden[2], hidden[3]
    if tail < 0:
        return False
    if u == head and v == tail and (own < 0 or kind == own):
        return True
    return u == tail and v == head and (own < 0 or kind == inverse)


@helper
def _degree(offsets: Any, neighbour: Any, kind: Any, u: int, hidden: Any) -> Any:
    degree = offsets[u + 1] - offsets[u]
    if hidden[1] >= 0 and (u == hidden[0] or u == hidden[1]):
        for e in range(offsets[u], offsets[u + 1]):
            if _is_hidden(u, kind[e], neighbour[e], hidden):
                degree -= 1
    return degree


@jit
def push(
    offsets: Any, neighbour: Any, kind: Any, hidden: Any, teleport: float, tolerance: float,
    score: Any, rest: Any, waiting: Any, touched: Any, queue: Any,
) -> Any:  # fmt: skip
    """Approximate personalised PageRank of the head by local pushes (Andersen, Chung and Lang, 2006).

    Given:
        offsets, neighbour, kind: Edges sorted by source: first positions, targets and types.
        hidden: Head, tail, type of the query's own fact, type of its inverse, relation of the query. A tail
            of -1 hides nothing. Types of -1 hide all edges between head and tail.
        teleport: Probability of restarting at the head.
        tolerance: A node is pushed as long as it has at least this much probability for each of its edges.
        score: Scratch [N], zeros; has the estimates on return.
        rest: Scratch [N], zeros; probability that is not yet pushed.
        waiting: Scratch [N], False; whether a node is in the queue.
        touched: Scratch [N]; has the nodes that were reached on return, in the order of reaching them.
        queue: Scratch [N], a ring buffer.

    Returns:
        The number of nodes that were reached, the head included; the number of hidden edges of the tail; and
        1 if the graph has the query's own fact, else 0.
    """
    head = hidden[0]
    size = queue.shape[0]
    degree_head = _degree(offsets, neighbour, kind, head, hidden)
    degree_tail = _degree(offsets, neighbour, kind, hidden[1], hidden) if hidden[1] >= 0 else 0
    rest[head] = 1.0
    touched[0] = head
    score[head] = 1e-300  # a positive score marks nodes that were reached
    count = 1
    queue[0] = head
    waiting[head] = True
    first, length = 0, 1
    while length:
        u = queue[first]
        first = first + 1 if first + 1 < size else 0
        length -= 1
        waiting[u] = False
        degree = offsets[u + 1] - offsets[u]
        if u == head:
            degree = degree_head
        elif u == hidden[1]:
            degree = degree_tail
        held = rest[u]
        rest[u] = 0.0
        if degree == 0:
            score[u] += held
            continue
        score[u] += teleport * held
        share = (1.0 - teleport) * held / degree
        special = hidden[1] >= 0 and (u == head or u == hidden[1])
        for e in range(offsets[u], offsets[u + 1]):
            v = neighbour[e]
            if special and _is_hidden(u, kind[e], v, hidden):
                continue
            rest[v] += share
            if score[v] == 0.0:
                score[v] = 1e-300
                touched[count] = v
                count += 1
            shares = offsets[v + 1] - offsets[v]
            if v == head:
                shares = degree_head
            elif v == hidden[1]:
                shares = degree_tail
            if not waiting[v] and rest[v] >= tolerance * shares:
                waiting[v] = True
                last = first + length
                queue[last if last < size else last - size] = v
                length += 1
    for i in range(count):
        v = touched[i]
        score[v] += teleport * rest[v]
    if hidden[1] < 0:
        return count, 0, 0
    own_facts = 0
    for e in range(offsets[head], offsets[head + 1]):
        if neighbour[e] == hidden[1] and kind[e] == hidden[4]:
            own_facts = 1
    return count, offsets[hidden[1] + 1] - offsets[hidden[1]] - degree_tail, own_facts


@jit
def undo(score: Any, rest: Any, touched: Any, count: int) -> None:
    """Reset the scratch arrays of `push`."""
    for i in range(count):
        score[touched[i]] = 0.0
        rest[touched[i]] = 0.0


@jit
def best_first(nodes: Any, score: Any, count: int) -> None:
    """Move the `count` nodes of highest score to the front, in place; of equal scores the lowest numbers.

    This is Hoare's selection. `np.partition` does the same, but takes longer to compile than all of `choose`.
    """
    low, high = 0, nodes.shape[0]
    while low < count < high:
        middle = nodes[(low + high - 1) // 2]
        bound = score[middle]
        i, j = low, high - 1
        while True:
            while score[nodes[i]] > bound or (score[nodes[i]] == bound and nodes[i] < middle):
                i += 1
            while score[nodes[j]] < bound or (score[nodes[j]] == bound and nodes[j] > middle):
                j -= 1
            if i >= j:
                break
            nodes[i], nodes[j] = nodes[j], nodes[i]
            i += 1
            j -= 1
        if count <= j + 1:
            high = j + 1
        else:
            low = j + 1


@helper
def _nearest(nodes: Any, score: Any, count: int, inside: Any, chosen: Any, filled: int) -> Any:
    """Choose the `count` nodes of highest score, or all if there are fewer; returns how many are chosen."""
    count = min(count, nodes.shape[0])
    best_first(nodes, score, count)
    for i in range(count):
        inside[nodes[i]] = 0
        chosen[filled + i] = nodes[i]
    return filled + count


@helper
def _answers(members: Any, counts: Any, begin: int, end: int, v: int) -> Any:
    """Number of facts in which `v` answers the relation with the ascending answers `members[begin:end]`."""
    stop = end
    while begin < stop:
        middle = (begin + stop) // 2
        if members[middle] < v:
            begin = middle + 1
        else:
            stop = middle
    return counts[begin] if begin < end and members[begin] == v else 0


@helper
def _fill(
    entities: Any, counts: Any, begin: int, end: int, own: int, less: int, inside: Any, chosen: Any,
    filled: int, wanted: int, least: int,
) -> Any:  # fmt: skip
    """Choose entities by descending count until `wanted` are chosen; returns how many are chosen.

    Entities of equal count are taken in ascending order of their numbers. The count of `own` is reduced by
    `less`, and `own` is left out if the result is below `least`: 1 for answers, 0 for all entities.
    """
    late = np.int64(-1)
    for i in range(begin, end):
        if filled >= wanted:
            return filled
        v, count = entities[i], counts[i]
        if late >= 0 and (count < late or (count == late and own < v)):
            inside[own] = 0
            chosen[filled] = own
            filled += 1
            late = np.int64(-1)
            if filled >= wanted:
                return filled
        if v == own:
            if inside[v] < 0:
                late = np.int64(count - less)
        elif inside[v] < 0:
            inside[v] = 0
            chosen[filled] = v
            filled += 1
    if filled < wanted and late >= least:
        inside[own] = 0
        chosen[filled] = own
        filled += 1
    return filled


@jit
def choose(
    hidden: Any, own: int, hidden_edges: int, own_facts: int, relation: int, answers: Any, popular: Any,
    num_nodes: int, share: float, score: Any, touched: Any, num_touched: int, inside: Any,
) -> Any:  # fmt: skip
    """Choose the entities of a query: its head, answers of its relation, the nearest, then the most frequent.

    Given:
        hidden: As for `push`; only the head is used.
        own: The query's own answer, whose count must not include the query's own fact; -1 for none.
        hidden_edges: Number of edges of `own` that are hidden.
        own_facts: 1 if the graph has the query's own fact, so that it is counted among the answers; else 0.
        relation: Relation of the query, in 0..2R-1.
        answers: For all relations: position of the first answer of each; answers in ascending order, and
            their counts; answers by descending count, and their counts.
        popular: Entities by descending degree, and their degrees, [N] each.
        num_nodes: K.
        share: Share of K for answers of the relation.
        score, touched, num_touched: Results of `push`.
        inside: Scratch [N], -1; it is -1 again on return.

    Returns:
        K distinct entities.
    """
    starts, members, member_counts, frequent, frequent_counts = answers
    begin, end = starts[relation], starts[relation + 1]
    chosen = np.empty(num_nodes, np.int32)
    chosen[0] = hidden[0]
    inside[hidden[0]] = 0
    filled = 1
    wanted = min(int(share * num_nodes), num_nodes - 1)
    if wanted and end > begin:
        near = np.empty(num_touched, np.int32)
        num_near = 0
        for i in range(num_touched):
            v = touched[i]
            if inside[v] < 0 and _answers(members, member_counts, begin, end, v) > own_facts * (v == own):
                near[num_near] = v
                num_near += 1
        filled = _nearest(near[:num_near], score, wanted, inside, chosen, filled)
        filled = _fill(
            frequent, frequent_counts, begin, end, own, own_facts, inside, chosen, filled, wanted + 1, 1
        )
    near = np.empty(num_touched, np.int32)
    num_near = 0
    for i in range(num_touched):
        if inside[touched[i]] < 0:
            near[num_near] = touched[i]
            num_near += 1
    filled = _nearest(near[:num_near], score, num_nodes - filled, inside, chosen, filled)
    entities, degrees = popular
    filled = _fill(
        entities, degrees, 0, entities.shape[0], own, hidden_edges, inside, chosen, filled, num_nodes, 0
    )
    for i in range(num_nodes):
        inside[chosen[i]] = -1
    return chosen


@jit
def induce(
    offsets: Any, neighbour: Any, kind: Any, edge: Any, nodes: Any, hidden: Any, num_kinds: int, shift: int,
    inside: Any,
) -> Any:  # fmt: skip
    """The edges between some nodes, sorted by target.

    Each fact is found from the end of lower degree. Neighbours are sorted by descending degree, so a node of
    high degree reads only its few neighbours of higher degree.

    Given:
        offsets, neighbour, kind: Edges sorted by source, then by descending (degree, number) of the target.
        edge: Number of each of these edges in the user's order.
        nodes: K nodes, ascending.
        hidden: As for `push`.
        num_kinds: 2R.
        shift: The inverse of type r is (r + shift) % 2R: R, or 0 if edges have no direction.
        inside: Scratch [N], -1; it is -1 again on return.

    Returns:
        Position of the first edge of each target [K + 1]; and for each edge its source and type, int32, and
        its number in the user's order.
    """
    size = nodes.shape[0]
    for k in range(size):
        inside[nodes[k]] = k
    found = np.empty(48 * size, np.int64)  # for each fact: position of both ends in `nodes`, edge
    used = 0
    starts = np.zeros(size + 1, np.int64)
    for k in range(size):
        v = nodes[k]
        degree = offsets[v + 1] - offsets[v]
        for e in range(offsets[v], offsets[v + 1]):
            w = neighbour[e]
            other = offsets[w + 1] - offsets[w]
            if other < degree or (other == degree and w < v):
                break
            place = inside[w]
            if place < 0 or _is_hidden(v, kind[e], w, hidden):
                continue
            if used == found.shape[0]:
                grown = np.empty(2 * used, np.int64)
                for i in range(used):
                    grown[i] = found[i]
                found = grown
            found[used], found[used + 1], found[used + 2] = k, place, e
            used += 3
            starts[place + 1] += 1  # v -kind-> w
            if place != k:
                starts[k + 1] += 1  # w -inverse-> v
    for k in range(size):
        inside[nodes[k]] = -1
    free = np.empty(size, np.int64)
    for k in range(size):
        free[k] = starts[k]
        starts[k + 1] += starts[k]
    total = starts[size]
    source, second = np.empty(total, np.int32), np.empty(total, np.int32)
    number = np.empty(total, np.int64)
    facts = edge.shape[0] // 2
    for i in range(0, used, 3):
        low, high, e = found[i], found[i + 1], found[i + 2]
        at = free[high]
        free[high] = at + 1
        source[at], second[at], number[at] = low, kind[e], edge[e]
        if low != high:
            at = free[low]
            free[low] = at + 1
            source[at], second[at] = high, (kind[e] + shift) % num_kinds
            number[at] = edge[e] + facts if edge[e] < facts else edge[e] - facts
    return starts, source, second, number


@jit
def assemble(
    starts: Any, source: Any, second: Any, query: int, first_edge: int, num_kinds: int, shift: int,
    offsets: Any, sources: Any, kinds: Any, mirrored: Any, targets: Any,
    by_kind: Any, kind_sources: Any, kind_targets: Any,
) -> None:  # fmt: skip
    """Copy the edges of one query into the arrays of a batch, sorted by target and by (query, type).

    Given:
        starts, source, second: Results of `induce`.
        query: Number b of the query; node k becomes b K + k, and type r becomes b 2R + r.
        first_edge: Number of edges of the queries before.
        num_kinds, shift: As for `induce`.
        offsets, sources, kinds, mirrored, targets: The batch's edges sorted by target: position of the first
            edge of each target; and for each edge its source, its type, the type of its inverse, its target.
        by_kind, kind_sources, kind_targets: The batch's edges sorted by type: position of the first edge of
            each type; and for each edge its source and target.
    """
    size = starts.shape[0] - 1
    node, relation = query * size, query * num_kinds
    free = np.zeros(num_kinds + 1, np.int64)
    for e in range(source.shape[0]):
        free[second[e] + 1] += 1
    for r in range(num_kinds):
        free[r + 1] += free[r]
        by_kind[relation + r] = first_edge + free[r]
    for k in range(size):
        offsets[node + k] = first_edge + starts[k]
        for e in range(starts[k], starts[k + 1]):
            at = first_edge + e
            sources[at] = node + source[e]
            kinds[at] = relation + second[e]
            mirrored[at] = relation + (second[e] + shift) % num_kinds
            targets[at] = node + k
            place = first_edge + free[second[e]]
            free[second[e]] += 1
            kind_sources[place] = node + source[e]
            kind_targets[place] = node + k
