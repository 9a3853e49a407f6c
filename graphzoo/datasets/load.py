"""From a name or a path to KnowledgeGraphs: find or fetch the files, verify, parse, keep the tensors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from graphzoo.datasets import store
from graphzoo.datasets.errors import DataError
from graphzoo.datasets.fetch import provide
from graphzoo.datasets.kg import SPLITS, KnowledgeGraph, build, warn
from graphzoo.datasets.roots import data_root
from graphzoo.datasets.table import KGSource, content_hash, find_source
from graphzoo.datasets.triples import Columns, parse_triples, read_bytes

__all__ = ["from_files", "load_knowledge_graph"]

_log = logging.getLogger(__name__)
_SUFFIXES = (".txt", ".tsv", ".csv", ".txt.gz", ".tsv.gz", ".csv.gz")
_LABELS = {"entity": ("entity_names", "entity2text"), "relation": ("relation2text",)}
_HELD_OUT = 0.05

Pair = tuple[KnowledgeGraph, KnowledgeGraph | None]


def load_knowledge_graph(
    name: str, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> Pair:
    """A knowledge graph of the table, by name.

    Args:
        name: See `list_knowledge_graphs`.
        root: Data root with `kg/<Name>/{train,valid,test}.txt[.gz]`; None takes GRAPHZOO_DATA or the user's cache.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.

    Returns:
        The graph, and for an inductive pair the graph to predict on (same relation ids), else None.

    Raises:
        ValueError: unknown name.
        DataError: missing or damaged files, or files that are not this data set.
    """
    source = find_source(name)
    graph = _load_folder(source, source.folder, source.name, root, download, None)
    if source.inductive is None:
        return graph, None
    return graph, _load_folder(
        source, source.inductive, f"{source.name}-ind", root, download, graph.relations
    )


def from_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, split_seed: int = 0
) -> Pair:
    """The user's own triples.

    Args:
        path: A folder with `train`, `valid`, `test` (.txt, .tsv or .csv, also .gz; the last two may be missing);
            one file; a list of one to three files (train, valid, test); or a list of two folders (graph to train on,
            graph to predict on: the inductive setting). An inductive folder needs only `train`.
        split_seed: Without valid and test, 5 % each are drawn from train with this seed, whatever the line order;
            no entity or relation loses its last training triple.

    Returns:
        The graph, and the graph to predict on or None.

    Raises:
        DataError: nothing to read at the path, or malformed files.
    """
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(part) for part in path]
    for part in paths:
        if not part.exists():
            raise DataError(
                f"{part}: no such file or folder; give a folder with train.txt, or the files themselves"
            )
    if all(part.is_dir() for part in paths) and 1 <= len(paths) <= 2:
        graph = _load_own(_own_files(paths[0]), paths[0].resolve().name, split_seed)
        if len(paths) == 1:
            return graph, None
        inference_files = _own_files(paths[1])
        return graph, _load_own(inference_files, paths[1].resolve().name, None, graph.relations)
    if not paths or len(paths) > 3 or any(part.is_dir() for part in paths):
        raise DataError(
            f"expected a folder, one to three files (train, valid, test) or two folders, got {len(paths)} paths: "
            f"{', '.join(map(str, paths)) or 'none'}"
        )
    files = dict(zip(SPLITS, paths, strict=False))
    return _load_own(files, paths[0].name.split(".")[0], split_seed), None


def find_split(folder: Path, split: str, suffixes: Sequence[str] = _SUFFIXES) -> Path | None:
    """The file of a split in a folder, or None; two candidates are an error."""
    found = [path for suffix in suffixes if (path := folder / f"{split}{suffix}").is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name}; keep one of them")
    return found[0] if found else None


def _load_folder(
    source: KGSource,
    folder: str,
    name: str,
    root: str | os.PathLike[str] | None,
    download: bool | None,
    relations: tuple[str, ...] | None,
) -> KnowledgeGraph:
    own = data_root(root) / "kg" / folder
    if source.embedded and not any(find_split(own, split, (".txt", ".txt.gz")) for split in SPLITS):
        embedded = resources.files("graphzoo") / "data" / source.name
        content = {split: (embedded / f"{split}.txt").read_bytes() for split in SPLITS}
        files = {split: own / f"{split}.txt" for split in SPLITS}
        return _parse_known(source, folder, name, files, content, relations)
    files = provide(source, folder, root=root, download=download)
    labels = _label_files(files["train"].parent)

    def parse() -> tuple[KnowledgeGraph, list[str]]:
        content = {split: read_bytes(path) for split, path in files.items()}
        graph = _parse_known(source, folder, name, files, content, relations)
        return replace(graph, **_read_labels(labels)), []

    return _through_store([*files.values(), *labels.values()], f"{name}\n{relations}", parse)


def _parse_known(
    source: KGSource,
    folder: str,
    name: str,
    files: Mapping[str, Path],
    content: Mapping[str, bytes],
    relations: tuple[str, ...] | None,
) -> KnowledgeGraph:
    """Parse files of the table; their oddities are part of the published data, so they are logged, not warned of."""
    other = f"if it is another version on purpose, load it as your own data (name kg, path {files['train'].parent})"
    for split, data in content.items():
        expected = source.file(split, folder).sha256
        if expected is None or (found := content_hash(data)) == expected:
            continue
        message = f"{files[split]}: content differs from {source.name} (sha256 {found[:16]}..., expected {expected[:16]}...)"
        # a file that does not even parse should say so, with its line
        parse_triples(data, str(files[split]))
        if split not in source.provisional:
            raise DataError(f"{message}; delete it to fetch it again, or {other}")
        warn(f"{message}; the reference is itself a reconstruction: {source.note}")
    columns = {split: parse_triples(data, str(files[split])) for split, data in content.items()}
    graph, notices = build(columns, name, relations=relations)
    for notice in notices:
        _log.info("%s: %s", name, notice)
    num_entities, num_relations = source.counts(folder)
    if relations is not None:
        num_relations = len(relations)
    found_counts = [
        graph.num_entities,
        graph.num_relations,
        *(graph.split(split).size(0) for split in SPLITS),
    ]
    expected_counts = [
        num_entities,
        num_relations,
        *(source.file(split, folder).num_triples for split in SPLITS),
    ]
    if found_counts != expected_counts:
        raise DataError(
            f"{files['train'].parent}: entities, relations, train, valid, test are {found_counts}, "
            f"{source.name} has {expected_counts}; {other}"
        )
    return graph


def _own_files(folder: Path) -> dict[str, Path]:
    files = {split: path for split in SPLITS if (path := find_split(folder, split)) is not None}
    if "train" not in files:
        present = ", ".join(sorted(entry.name for entry in folder.iterdir())[:5]) or "nothing"
        raise DataError(f"{folder}: no train.txt, train.tsv or train.csv (.gz allowed); it holds {present}")
    return files


def _load_own(
    files: Mapping[str, Path], name: str, split_seed: int | None, relations: tuple[str, ...] | None = None
) -> KnowledgeGraph:
    """Own files; `split_seed` None leaves missing splits empty (the graph of an inductive pair)."""
    labels = _label_files(files["train"].parent)

    def parse() -> tuple[KnowledgeGraph, list[str]]:
        columns = {
            split: parse_triples(read_bytes(path), str(path), is_csv=".csv" in path.suffixes[-2:])
            for split, path in files.items()
        }
        split_name = "given"
        missing = [split for split in SPLITS if split not in columns]
        # a folder with a test set alone keeps it; only what is missing is drawn
        if missing and split_seed is not None:
            split_name = f"random {'+'.join(missing)} seed {split_seed}"
            columns = _draw_splits(columns, missing, split_seed)
        for split in missing:
            columns.setdefault(split, Columns([], [], [], split))
        columns = {split: columns[split] for split in SPLITS}
        graph, notices = build(columns, name, relations=relations, split_name=split_name)
        if split_name != "given":
            notices = [notice for notice in notices if "without a training triple" not in notice]
        return replace(graph, **_read_labels(labels)), notices

    key = f"{name}\n{split_seed}\n{relations}\n{sorted((split, path.name) for split, path in files.items())}"
    graph = _through_store([*files.values(), *labels.values()], key, parse)
    if graph.split_name != "given":
        sizes = ", ".join(f"{split} {graph.split(split).size(0):,}" for split in SPLITS)
        _log.warning(
            "%s: no %s file, split drawn (%s): %s; fingerprint %s",
            name,
            " or ".join(split for split in SPLITS if split not in files),
            graph.split_name,
            sizes,
            graph.fingerprint[:12],
        )
    return graph


def _draw_splits(columns: dict[str, Columns], missing: Sequence[str], seed: int) -> dict[str, Columns]:
    """Move 5 % of train into each missing split, without taking any name's last training triple."""
    train = columns["train"]
    # sorted and distinct: the draw must not depend on the line order of the file
    rows = sorted(set(zip(train.head, train.relation, train.tail, strict=True)))
    duplicates = len(train) - len(rows)
    if duplicates:
        _log.warning("%s: %s duplicate triples dropped before the split", train.source, f"{duplicates:,}")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
    shuffled = [rows[i] for i in order]
    covered = np.zeros(len(rows), dtype=bool)
    for names in (
        [row[1] for row in shuffled],
        [name for row in shuffled for name in (row[0], row[2])],
    ):
        first = np.unique(np.array(names, dtype=object), return_index=True)[1]
        covered[first // (len(names) // len(rows))] = True
    free = np.flatnonzero(~covered)
    size = min(max(1, round(_HELD_OUT * len(rows))), free.size // (len(missing) + 1))
    if size == 0:
        raise DataError(
            f"{train.source}: too few triples ({len(rows)}) to draw {' and '.join(missing)} without taking a name's "
            f"last one; add {' and '.join(f'{split}.txt' for split in missing)}"
        )
    result = dict(columns)
    taken: set[int] = set()
    for number, split in enumerate(missing):
        part = free[number * size : (number + 1) * size].tolist()
        taken.update(part)
        result[split] = _to_columns([shuffled[i] for i in part], f"{train.source} ({split})")
    rest = [row for i, row in enumerate(shuffled) if i not in taken]
    result["train"] = _to_columns(rest, train.source)
    return result


def _to_columns(rows: Sequence[tuple[str, str, str]], source: str) -> Columns:
    return Columns(
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], source, unit="row"
    )


def _label_files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for kind, stems in _LABELS.items():
        for stem in stems:
            path = find_split(folder, stem, (".txt", ".txt.gz"))
            if path is not None:
                found.setdefault(kind, path)
    return found


def _read_labels(files: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    labels = {}
    for kind, path in files.items():
        lines = read_bytes(path).decode("utf-8-sig", errors="replace").replace("\r\n", "\n").split("\n")
        pairs = (line.split("\t", 1) for line in lines if "\t" in line)
        labels[f"{kind}_labels"] = {name: text.strip() for name, text in pairs}
    return labels


def _through_store(
    files: Sequence[Path], purpose: str, parse: Callable[[], tuple[KnowledgeGraph, list[str]]]
) -> KnowledgeGraph:
    """Parse, or take the tensors that an earlier call parsed from the same bytes; warn of what was counted."""
    graph, notices = store.remember(files, purpose, parse)
    for notice in notices:
        warn(notice, stacklevel=5)
    return graph
