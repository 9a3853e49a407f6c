"""Data sets as graphs: files are fetched, verified, parsed and cached. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datasets.by_name import download as download
    from graphzoo.datasets.files.roots import data_root as data_root
    from graphzoo.datasets.kg.answers import AnswerIndex as AnswerIndex
    from graphzoo.datasets.kg.build import from_triples as from_triples
    from graphzoo.datasets.kg.graph import KnowledgeGraph as KnowledgeGraph
    from graphzoo.datasets.kg.load import load_knowledge_graph as load_knowledge_graph
    from graphzoo.datasets.kg.own import from_files as from_files
    from graphzoo.datasets.kg.own import split_triples as split_triples
    from graphzoo.datasets.kg.table import find_source as find_source
    from graphzoo.datasets.kg.table import list_knowledge_graphs as list_knowledge_graphs
    from graphzoo.datasets.kg.triples import read_triples as read_triples
    from graphzoo.datasets.link.graph import LinkGraph as LinkGraph
    from graphzoo.datasets.link.graph import LinkSplit as LinkSplit
    from graphzoo.datasets.link.load import load_link_graph as load_link_graph
    from graphzoo.datasets.link.own import link_graph_from_edges as link_graph_from_edges
    from graphzoo.datasets.link.own import link_graph_from_files as link_graph_from_files
    from graphzoo.datasets.link.table import find_link_source as find_link_source
    from graphzoo.datasets.link.table import list_link_graphs as list_link_graphs
    from graphzoo.datasets.node.graph import NodeGraph as NodeGraph
    from graphzoo.datasets.node.knn import knn_graph as knn_graph
    from graphzoo.datasets.node.load import load_node_graph as load_node_graph
    from graphzoo.datasets.node.own import node_graph_from_data as node_graph_from_data
    from graphzoo.datasets.node.own import node_graph_from_files as node_graph_from_files
    from graphzoo.datasets.node.splits import NodeSplit as NodeSplit
    from graphzoo.datasets.node.splits import per_class_split as per_class_split
    from graphzoo.datasets.node.splits import random_split as random_split
    from graphzoo.datasets.node.splits import redrawn_split as redrawn_split
    from graphzoo.datasets.node.table import find_node_source as find_node_source
    from graphzoo.datasets.node.table import list_node_graphs as list_node_graphs
    from graphzoo.errors import DataError as DataError
    from graphzoo.errors import DownloadError as DownloadError
    from graphzoo.errors import GraphzooDataWarning as GraphzooDataWarning

__getattr__, __dir__, __all__ = attach(__name__)
