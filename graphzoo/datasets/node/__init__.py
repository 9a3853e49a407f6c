"""Graphs whose nodes are classified: data sets by name, own files, splits. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datasets.node.graph import NodeGraph as NodeGraph
    from graphzoo.datasets.node.knn import knn_graph as knn_graph
    from graphzoo.datasets.node.load import load_node_graph as load_node_graph
    from graphzoo.datasets.node.own import node_graph_from_files as node_graph_from_files
    from graphzoo.datasets.node.splits import NodeSplit as NodeSplit
    from graphzoo.datasets.node.splits import per_class_split as per_class_split
    from graphzoo.datasets.node.splits import random_split as random_split
    from graphzoo.datasets.node.table import find_node_source as find_node_source
    from graphzoo.datasets.node.table import list_node_graphs as list_node_graphs

__getattr__, __dir__, __all__ = attach(__name__)
