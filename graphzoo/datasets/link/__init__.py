"""Graphs whose links are predicted: data sets by name, own files, splits. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.datasets.link.graph import LinkGraph as LinkGraph
    from graphzoo.datasets.link.graph import LinkSplit as LinkSplit
    from graphzoo.datasets.link.load import load_link_graph as load_link_graph
    from graphzoo.datasets.link.own import link_graph_from_files as link_graph_from_files
    from graphzoo.datasets.link.table import find_link_source as find_link_source
    from graphzoo.datasets.link.table import list_link_graphs as list_link_graphs

__getattr__, __dir__, __all__ = attach(__name__)
