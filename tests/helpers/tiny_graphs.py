"""Tiny relational graphs of different shapes."""

# name: edges as pairs, edge types, number of nodes, number of relations
TINY_GRAPHS = {
    "path": ([(0, 1), (1, 2), (2, 3)], [0, 1, 0], 4, 2),
    "star": ([(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)], [0, 1, 2, 0, 2], 5, 3),
    "two_components": ([(0, 1), (1, 0), (2, 3), (3, 4), (4, 2)], [0, 1, 1, 1, 0], 6, 2),
    "repeated_edges": ([(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)], [0, 0, 1, 1, 1], 2, 2),
    "one_node": ([(0, 0), (0, 0)], [0, 1], 1, 2),
    "no_edges": ([], [], 3, 2),
}
