"""Graphs: get, verify, parse, cached tensors. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datasets.answers import AnswerIndex as AnswerIndex
    from graphzoo.datasets.build import from_triples as from_triples
    from graphzoo.datasets.errors import DataError as DataError
    from graphzoo.datasets.errors import DownloadError as DownloadError
    from graphzoo.datasets.errors import GraphzooDataWarning as GraphzooDataWarning
    from graphzoo.datasets.fetch import download as download
    from graphzoo.datasets.kg import KnowledgeGraph as KnowledgeGraph
    from graphzoo.datasets.link.graph import LinkGraph as LinkGraph
    from graphzoo.datasets.link.graph import LinkSplit as LinkSplit
    from graphzoo.datasets.link.load import load_link_graph as load_link_graph
    from graphzoo.datasets.link.own import link_graph_from_files as link_graph_from_files
    from graphzoo.datasets.link.table import find_link_source as find_link_source
    from graphzoo.datasets.link.table import list_link_graphs as list_link_graphs
    from graphzoo.datasets.load import load_knowledge_graph as load_knowledge_graph
    from graphzoo.datasets.node.graph import NodeGraph as NodeGraph
    from graphzoo.datasets.node.knn import knn_graph as knn_graph
    from graphzoo.datasets.node.load import load_node_graph as load_node_graph
    from graphzoo.datasets.node.own import node_graph_from_files as node_graph_from_files
    from graphzoo.datasets.node.splits import NodeSplit as NodeSplit
    from graphzoo.datasets.node.splits import per_class_split as per_class_split
    from graphzoo.datasets.node.splits import random_split as random_split
    from graphzoo.datasets.node.table import find_node_source as find_node_source
    from graphzoo.datasets.node.table import list_node_graphs as list_node_graphs
    from graphzoo.datasets.own import from_files as from_files
    from graphzoo.datasets.roots import data_root as data_root
    from graphzoo.datasets.table import find_source as find_source
    from graphzoo.datasets.table import list_knowledge_graphs as list_knowledge_graphs
    from graphzoo.datasets.triples import read_triples as read_triples

_LAZY = {
    "AnswerIndex": "answers",
    "DataError": "errors",
    "DownloadError": "errors",
    "GraphzooDataWarning": "errors",
    "KnowledgeGraph": "kg",
    "LinkGraph": "link.graph",
    "LinkSplit": "link.graph",
    "NodeGraph": "node.graph",
    "NodeSplit": "node.splits",
    "data_root": "roots",
    "download": "fetch",
    "find_link_source": "link.table",
    "find_node_source": "node.table",
    "find_source": "table",
    "from_files": "own",
    "from_triples": "build",
    "knn_graph": "node.knn",
    "link_graph_from_files": "link.own",
    "list_knowledge_graphs": "table",
    "list_link_graphs": "link.table",
    "list_node_graphs": "node.table",
    "load_knowledge_graph": "load",
    "load_link_graph": "link.load",
    "load_node_graph": "node.load",
    "node_graph_from_files": "node.own",
    "per_class_split": "node.splits",
    "random_split": "node.splits",
    "read_triples": "triples",
}

__all__ = sorted(_LAZY)

__getattr__, __dir__ = attach(__name__, _LAZY)
