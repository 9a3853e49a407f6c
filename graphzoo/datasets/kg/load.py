"""Load the knowledge graphs of the table by name: find or fetch their files, verify and parse them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from graphzoo.datasets.files.cache import find_split, remember
from graphzoo.datasets.files.roots import data_root
from graphzoo.datasets.files.tables import read_bytes
from graphzoo.datasets.files.text import warn
from graphzoo.datasets.kg.build import build, label_files, with_labels
from graphzoo.datasets.kg.files import provide
from graphzoo.datasets.kg.graph import SPLITS, KnowledgeGraph
from graphzoo.datasets.kg.table import KGSource, content_hash, find_source
from graphzoo.datasets.kg.triples import parse_triples
from graphzoo.errors import DataError

_log = logging.getLogger(__name__)

Pair = tuple[KnowledgeGraph, KnowledgeGraph | None]


def load_knowledge_graph(
    name: str, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> Pair:
    """A knowledge graph of the table, by name.

    Args:
        name: A name of `list_knowledge_graphs`.
        root: Data root with `kg/<Name>/{train,valid,test}.txt[.gz]`; None takes GRAPHZOO_DATA or the user's
            cache folder.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.

    Returns:
        The graph to train on, and the graph to predict on. The second has the same relation ids; it is None
        if the data set is not an inductive pair.

    Raises:
        UsageError: if the name is unknown.
        DataError: if files are missing or damaged, or are not this data set.
    """
    source = find_source(name)
    graph = _load_folder(source, source.folder, root, download)
    if source.inductive is None:
        return graph, None
    return graph, _load_folder(source, source.inductive, root, download, graph.relations)


def _load_folder(
    source: KGSource,
    folder: str,
    root: str | os.PathLike[str] | None,
    download: bool | None,
    relations: tuple[str, ...] | None = None,
) -> KnowledgeGraph:
    """The graph of a row, or, with the `relations` of that graph, its inductive graph to predict on."""
    own = data_root(root) / "kg" / folder
    if source.embedded and not any(find_split(own, split, (".txt", ".txt.gz")) for split in SPLITS):
        embedded = resources.files("graphzoo") / "data" / source.name
        content = {split: (embedded / f"{split}.txt").read_bytes() for split in SPLITS}
        files = {split: own / f"{split}.txt" for split in SPLITS}
        return _parse_known(source, folder, files, content, relations)
    files = provide(source, folder, root=root, download=download)
    labels = label_files(files["train"].parent)
    expected = [source.file(split, folder) for split in SPLITS]

    def parse() -> tuple[KnowledgeGraph, list[str]]:
        content = {split: read_bytes(path) for split, path in files.items()}
        graph = _parse_known(source, folder, files, content, relations)
        return with_labels(graph, labels)

    # A file with texts of entities and one with texts of relations may have the same bytes.
    purpose = f"{_name(source, relations)}\n{expected}\n{relations}\n{[*labels]}"
    return remember([*files.values(), *labels.values()], purpose, KnowledgeGraph, parse, stacklevel=3)


def _parse_known(
    source: KGSource,
    folder: str,
    files: Mapping[str, Path],
    content: Mapping[str, bytes],
    relations: tuple[str, ...] | None,
) -> KnowledgeGraph:
    """Parse files of the table. Notices are logged without a warning: the published data are like that."""
    folder_path = files["train"].parent
    other = f"if another version is meant, load it as your own data (name kg, path {folder_path})"
    for split, data in content.items():
        wanted = source.file(split, folder).sha256
        if wanted is None or (sha256 := content_hash(data)) == wanted:
            continue
        differs = f"sha256 {sha256[:16]}..., expected {wanted[:16]}..."
        message = f"{files[split]}: content differs from {source.name} ({differs})"
        # A file that cannot be parsed raises an error with its line here.
        parse_triples(data, str(files[split]))
        if split not in source.provisional:
            raise DataError(f"{message}; delete it to fetch it again, or {other}")
        warn(f"{message}; the expected hash is of a reconstructed file: {source.note}")
    columns = {split: parse_triples(data, str(files[split])) for split, data in content.items()}
    name = _name(source, relations)
    graph, notices = build(columns, name, relations=relations)
    for notice in notices:
        _log.info("%s: %s", name, notice)
    num_entities, own_relations = source.counts(folder)
    num_relations = own_relations if relations is None else len(relations)
    expected = [num_entities, num_relations, *(source.file(split, folder).num_triples for split in SPLITS)]
    counts = [graph.num_entities, graph.num_relations, *(len(graph.split(split)) for split in SPLITS)]
    if counts != expected:
        raise DataError(
            f"{folder_path}: entities, relations, train, valid, test are {counts}, "
            f"{source.name} has {expected}; {other}"
        )
    return graph


def _name(source: KGSource, relations: tuple[str, ...] | None) -> str:
    return source.name if relations is None else f"{source.name}-ind"
