"""Knowledge graphs: get, verify, parse, cached tensors. Names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphzoo.datasets.answers import AnswerIndex as AnswerIndex
    from graphzoo.datasets.build import from_triples as from_triples
    from graphzoo.datasets.errors import DataError as DataError
    from graphzoo.datasets.errors import DownloadError as DownloadError
    from graphzoo.datasets.errors import GraphzooDataWarning as GraphzooDataWarning
    from graphzoo.datasets.fetch import download as download
    from graphzoo.datasets.kg import KnowledgeGraph as KnowledgeGraph
    from graphzoo.datasets.load import load_knowledge_graph as load_knowledge_graph
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
    "data_root": "roots",
    "download": "fetch",
    "find_source": "table",
    "from_files": "own",
    "from_triples": "build",
    "list_knowledge_graphs": "table",
    "load_knowledge_graph": "load",
    "read_triples": "triples",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'graphzoo.datasets' has no attribute {name!r}")
    value = getattr(import_module(f"graphzoo.datasets.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
