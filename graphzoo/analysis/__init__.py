"""Evaluations: the metrics of a test, and tables for pictures, reports and loggers.

Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.analysis.evaluation import Evaluation as Evaluation
    from graphzoo.analysis.evaluation import Table as Table
    from graphzoo.analysis.links import estimate_tables as estimate_tables
    from graphzoo.analysis.links import link_tables as link_tables
    from graphzoo.analysis.nodes import node_tables as node_tables
    from graphzoo.analysis.nodes import sample_nodes as sample_nodes
    from graphzoo.analysis.triples import triple_tables as triple_tables

__getattr__, __dir__, __all__ = attach(__name__)
