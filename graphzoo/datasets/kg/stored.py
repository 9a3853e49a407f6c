"""Parsed knowledge graphs in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphzoo.datasets.files.cache import find_split, remember_as
from graphzoo.datasets.kg.graph import KnowledgeGraph
from graphzoo.datasets.kg.triples import read_bytes

__all__ = ["Parsed", "label_files", "remember", "with_labels"]


_SEPARATOR = "\x00"
_LABELS = {"entity": ("entity_names", "entity2text"), "relation": ("relation2text",)}
Parsed = tuple[KnowledgeGraph, list[str]]


def label_files(folder: Path) -> dict[str, Path]:
    """The files with readable texts of entities and relations that lie beside the triples."""
    paths: dict[str, Path] = {}
    for kind, stems in _LABELS.items():
        for stem in stems:
            path = find_split(folder, stem, (".txt", ".txt.gz"))
            if path is not None:
                paths.setdefault(kind, path)
    return paths


def with_labels(graph: KnowledgeGraph, files: Mapping[str, Path]) -> KnowledgeGraph:
    """The graph with the texts of `label_files`; lines `name<TAB>text`, others are skipped."""
    labels: dict[str, dict[str, str]] = {"entity": {}, "relation": {}}
    for kind, path in files.items():
        lines = read_bytes(path).decode("utf-8-sig", errors="replace").replace("\r\n", "\n").split("\n")
        pairs = (line.split("\t", 1) for line in lines if "\t" in line)
        labels[kind] = {name: text.strip() for name, text in pairs}
    return replace(graph, entity_labels=labels["entity"], relation_labels=labels["relation"])


def remember(files: Sequence[Path], purpose: str, parse: Callable[[], Parsed]) -> KnowledgeGraph:
    """`remember_as` for a knowledge graph."""
    return remember_as(files, purpose, parse, _read, _write, stacklevel=4)


def _write(graph: KnowledgeGraph, path: Path, notices: Sequence[str]) -> None:
    # the notices travel with the graph, so that a cached load warns like the first one
    replace(graph, split_name=_SEPARATOR.join([graph.split_name, *notices])).save(path)


def _read(path: Path) -> Parsed:
    stored = KnowledgeGraph.load(path)
    split_name, *notices = stored.split_name.split(_SEPARATOR)
    return replace(stored, split_name=split_name), notices
