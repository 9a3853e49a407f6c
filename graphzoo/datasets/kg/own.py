"""Load the user's own triples from folders or files; splits are given or drawn."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphzoo.datasets.files.cache import find_split, remember
from graphzoo.datasets.files.tables import Column
from graphzoo.datasets.files.text import listing, warn
from graphzoo.datasets.kg.build import build, label_files, triple_keys, with_labels
from graphzoo.datasets.kg.graph import SPLITS, KnowledgeGraph
from graphzoo.datasets.kg.repeats import repeated_relations
from graphzoo.datasets.kg.triples import Columns, heed_first_lines, read_triples, triples_from_table
from graphzoo.errors import DataError
from graphzoo.system.units import counted

_log = logging.getLogger(__name__)
# Drawn splits that this process has already logged.
_told: set[str] = set()
# Share of each drawn split; on large graphs a number of triples, which takes hours less to test.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 10_000

Pair = tuple[KnowledgeGraph, KnowledgeGraph | None]


def from_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, split_seed: int = 0
) -> Pair:
    """The user's own triples.

    Args:
        path: A folder with `train`, `valid`, `test` (.txt, .tsv or .csv, also .gz; the last two may be
            missing); one file; a list of one to three files (train, valid, test); an `.npz` file that
            `KnowledgeGraph.save` wrote; or, for the inductive setting, a list of two folders: the graph to
            train on, and the graph to predict on. The second folder needs only `train`.
        split_seed: Seed of drawn splits. A missing valid or test is drawn from train, 5 % each but at most
            10,000 triples. The draw does not depend on the order of lines, and leaves each entity and
            relation a training triple.

    Returns:
        The graph, and the graph to predict on; None if there is none.

    Raises:
        DataError: if the path does not exist or has no triples, or a file is malformed.
    """
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(part) for part in path]
    for part in paths:
        if not part.exists():
            lists = '; several files are a list: "[train.tsv,valid.tsv,test.tsv]"'
            raise DataError(
                f"{part}: no such file or folder; give a folder with train.txt, or the files themselves"
                + (lists if "," in str(part) else "")
            )
    if all(part.is_dir() for part in paths) and 1 <= len(paths) <= 2:
        # The first graph of a pair is never tested on, so that no test split is drawn from it.
        drawn = ("valid", "test") if len(paths) == 1 else ("valid",)
        graph = _load_own(_own_files(paths[0]), paths[0].resolve().name, drawn, split_seed)
        if len(paths) == 1:
            return graph, None
        files = _own_files(paths[1])
        second = _load_own(files, paths[1].resolve().name, (), split_seed, graph.relations)
        _warn_of_trained(graph, second)
        return graph, second
    if not paths or len(paths) > 3 or any(part.is_dir() for part in paths):
        raise DataError(
            "expected a folder, one to three files (train, valid, test) or two folders, got "
            f"{len(paths)} paths: {', '.join(map(str, paths)) or 'none'}"
        )
    if len(paths) == 1 and paths[0].suffix == ".npz":
        return KnowledgeGraph.load(paths[0]), None
    files = dict(zip(SPLITS, paths, strict=False))
    return _load_own(files, paths[0].name.split(".")[0], ("valid", "test"), split_seed), None


def _warn_of_trained(graph: KnowledgeGraph, second: KnowledgeGraph) -> None:
    """Warn if evaluated facts of the second graph are training facts of the first, compared by names."""
    trained = replace(graph, valid=graph.valid[:0], test=graph.test[:0], fingerprint="")
    new = second.without([trained])
    for split in ("valid", "test"):
        asked = len(second.split(split))
        if known := asked - len(new.split(split)):
            message = f"{known:,} of {asked:,} {split} triples are training triples of {graph.name}"
            warn(f"{second.name}: {message}: scores are optimistic if equal names are the same entities")


def split_triples(
    triples: Any, valid: Any = None, test: Any = None, *, name: str = "kg", split_seed: int = 0
) -> KnowledgeGraph:
    """A knowledge graph from tables in memory; a missing valid or test is drawn, as by `from_files`.

    Args:
        triples: Training triples, in any form of `from_triples`.
        valid: Validation triples; None draws 5 % of `triples`, at most 10,000.
        test: Test triples; None draws 5 % of `triples`, at most 10,000.
        name: Name for logs and results.
        split_seed: Seed of the draw.

    Returns:
        The graph. Warnings are those of `from_triples`, and those about repeated relations.

    Raises:
        DataError: if a row is malformed, or there are too few triples to draw a split.
    """
    given = {"train": triples, "valid": valid, "test": test}
    tables = {split: table for split, table in given.items() if table is not None}
    columns = {
        split: triples_from_table(table, split if len(tables) > 1 else name)
        for split, table in tables.items()
    }
    columns, notices, split_name = _with_splits(columns, ("valid", "test"), split_seed)
    graph, more = build(columns, name, split_name=split_name)
    if len(tables) == 2:  # who gives one of valid and test may not expect that the other is drawn
        _tell_draw(graph, [split for split in SPLITS if split not in tables], "")
    for notice in [*notices, *more, *repeated_relations(graph)]:
        warn(notice)
    return graph


def _own_files(folder: Path) -> dict[str, Path]:
    files = {split: path for split in SPLITS if (path := find_split(folder, split)) is not None}
    if "train" not in files:
        raise DataError(
            f"{folder}: no train.txt, train.tsv or train.csv (.gz allowed); the folder has {listing(folder)}"
        )
    return files


def _load_own(
    files: Mapping[str, Path],
    name: str,
    drawn: Sequence[str],
    split_seed: int,
    relations: tuple[str, ...] | None = None,
) -> KnowledgeGraph:
    """Load own files. A missing split that is in `drawn` is drawn from train, another one stays empty."""
    labels = label_files(files["train"].parent)

    def parse() -> tuple[KnowledgeGraph, list[str]]:
        columns, first = heed_first_lines({split: read_triples(path) for split, path in files.items()})
        try:
            columns, duplicates, split_name = _with_splits(columns, drawn, split_seed)
            graph, notices = build(columns, name, relations=relations, split_name=split_name)
        except DataError as error:  # a header that was read as a fact may be the reason
            raise DataError("\n".join([str(error), *first])) from error
        notices += repeated_relations(graph) if relations is None else []
        labelled, more = with_labels(graph, labels)
        return labelled, [*first, *duplicates, *notices, *more]

    paths = sorted((split, str(path.parent.resolve() / path.name)) for split, path in files.items())
    # A file with texts of entities and one with texts of relations may have the same bytes.
    key = f"7\n{name}\n{drawn} {split_seed}\n{relations}\n{paths}\n{[*labels]}"
    graph = remember([*files.values(), *labels.values()], key, KnowledgeGraph, parse, stacklevel=3)
    drawn_from = f"{key}\n{graph.fingerprint}"
    if graph.split_name != "given" and drawn_from not in _told:
        _told.add(drawn_from)  # a run loads its data several times
        _tell_draw(graph, [split for split in SPLITS if split not in files], " file")
    return graph


def _tell_draw(graph: KnowledgeGraph, missing: Sequence[str], file: str) -> None:
    sizes = ", ".join(f"{split} {graph.split(split).size(0):,}" for split in SPLITS)
    values = (graph.name, " or ".join(missing), file, graph.split_name, sizes, graph.fingerprint[:12])
    _log.warning("%s: no %s%s, split drawn (%s): %s; fingerprint %s", *values)


def _with_splits(
    columns: dict[str, Columns], drawn: Sequence[str], seed: int
) -> tuple[dict[str, Columns], list[str], str]:
    """All three splits, notices, and the name of the split; those of `drawn` that are missing are drawn."""
    notices, name = list[str](), "given"
    if missing := [split for split in drawn if split not in columns]:
        columns, notices = _draw_splits(columns, missing, seed)
        name = f"random {'+'.join(missing)} seed {seed}"
    return {split: columns.get(split, Columns.empty(split)) for split in SPLITS}, notices, name


def _remedy(columns: Mapping[str, Columns], missing: Sequence[str]) -> str:
    """How to give the splits that cannot be drawn."""
    train = columns["train"]
    if train.unit != "line":
        return f"also give {' and '.join(f'{split}=' for split in missing)}"
    if Path(train.source).name.split(".")[0] == "train":
        return f"also put {' and '.join(f'{split}.txt' for split in missing)} beside it, and give the folder"
    paths = [columns[split].source if split in columns else f"{split}.tsv" for split in SPLITS]
    return f'give three files: --data.path "[{",".join(paths)}]"'


def _draw_splits(
    columns: dict[str, Columns], missing: Sequence[str], seed: int
) -> tuple[dict[str, Columns], list[str]]:
    """Move 5 % of train, at most 10,000 triples, into each missing split.

    Every name keeps at least one training triple.
    """
    train = columns["train"]
    entities = sorted({*train.head.names, *train.tail.names})
    relations = sorted(train.relation.names)
    ids = train.renumber(
        {entity: number for number, entity in enumerate(entities)},
        {relation: number for number, relation in enumerate(relations)},
    )
    # Rows are sorted and distinct, so that the draw does not depend on the order of lines.
    rows = ids[np.unique(triple_keys(ids, len(entities), len(relations)), return_index=True)[1]]
    repeated = len(train) - len(rows)
    dropped = f"{train.source}: {counted(repeated, 'duplicate triple')} dropped before the split"
    notices = [dropped] if repeated else []
    shuffled = rows[np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))]
    # the first triple of every name stays
    free = np.ones(len(rows), dtype=bool)
    free[np.unique(shuffled[:, 1], return_index=True)[1]] = False
    free[np.unique(shuffled[:, [0, 2]].ravel(), return_index=True)[1] // 2] = False
    candidates = np.flatnonzero(free)
    wanted = min(max(1, round(_HELD_OUT * len(rows))), _MOST_HELD_OUT)
    size = min(wanted, candidates.size // (len(missing) + 1))
    if size == 0:
        raise DataError(
            f"{train.source}: too few triples ({len(rows)}) to draw {' and '.join(missing)}: every name has "
            f"to keep one for training; {_remedy(columns, missing)}"
        )

    def to_columns(triples: np.ndarray[Any, Any], source: str) -> Columns:
        head, relation, tail = map(Column, triples.T, (entities, relations, entities))
        return Columns(head, relation, tail, source, unit="row")

    result = dict(columns)
    for number, split in enumerate(missing):
        taken = candidates[number * size : (number + 1) * size]
        result[split] = to_columns(shuffled[taken], f"{train.source} ({split})")
    rest = np.delete(shuffled, candidates[: size * len(missing)], axis=0)
    result["train"] = replace(to_columns(rest, train.source), notices=train.notices)
    return result, notices
