"""Writes the names of an exported program's graph as JSON, for machines without graphzoo."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphzoo.datasets import KnowledgeGraph, LinkGraph, NodeGraph
from graphzoo.datasets.files.arrays import write_arrays

NAMES = "names.json"
_COSINES = "relations.npz"
_INPUTS = "inputs.npz"
# The names of the three nodes with the best scores.
_BEST = "[names['{}'][i] for i in scores[0].argsort()[:-4:-1]]"


class PlainNames(NamedTuple):
    """Description of the files that were written, and lines of Python that use them."""

    described: dict[str, str]  # file -> what it holds
    before: list[str]  # lines that make inputs of the program from names
    after: list[str]  # lines that turn scores into names


def write_names(
    folder: Path,
    place: str,
    classes: Sequence[str] = (),
    *,
    is_multi_label: bool = False,
    takes: Collection[str] = (),
    inputs: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> PlainNames | None:
    """Write `names.json`, lists of names in the order of their ids, and arrays that the program takes.

    Args:
        folder: Folder of the graph in an exported model; made if it does not exist.
        place: How the lines of Python call the model's folder.
        classes: Class names of a node classifier.
        is_multi_label: Whether a node may have several classes.
        takes: Names of all inputs of the program. If cosines of relations are among them, these are written
            to relations.npz.
        inputs: Arrays of the graph that the program takes; they are written to inputs.npz.

    Returns:
        Files and lines of Python; None if there are neither names nor inputs.
    """
    opened = f"names = json.load(open({f'{place}/graph/{NAMES}'!r}, encoding='utf-8'))"
    if (folder / "knowledge_graph.npz").is_file():
        return _of_facts(folder, place, opened, compared="heads" in takes)
    nodes = _node_names(folder)
    names = {kind: list(listed) for kind, listed in (("nodes", nodes), ("classes", classes)) if listed}
    described: dict[str, str] = {}
    before: list[str] = []
    after: list[str] = []
    if inputs:
        np.savez_compressed(folder / _INPUTS, **inputs)  # type: ignore[arg-type]
        taken = [name for name in inputs if name not in ("mean", "scale")]
        described[f"graph/{_INPUTS}"] = f"{', '.join(taken)} of the model's graph" + (
            "; mean and scale, [F]: features x of other nodes are (x - mean) / scale"
            if "mean" in inputs
            else ""
        )
        before.append(f"graph = numpy.load({f'{place}/graph/{_INPUTS}'!r})")
        before.append(f"{', '.join(taken)} = {', '.join(f'graph[{name!r}]' for name in taken)}")
    if not nodes and not classes:  # links between nodes without names
        return PlainNames(described, [*before, *_asked(nodes, takes)], after) if inputs else None
    described[f"graph/{NAMES}"] = _write(folder, names)
    before.append(opened)
    if classes and is_multi_label:
        after.append("labels = [[names['classes'][i] for i in row.nonzero()[0]] for row in scores > 0]")
    elif classes:
        after.append("labels = [names['classes'][i] for i in scores.argmax(1)]")
    if nodes and classes:
        after.append(f"label = labels[names['nodes'].index({nodes[0]!r})]")
    if nodes and "head" in takes:
        after.append(f"best = {_BEST.format('nodes')}  # the node itself and known links are not left out")
    return PlainNames(described, [*before, *_asked(nodes, takes)], after)


def _asked(nodes: Sequence[str], takes: Collection[str]) -> list[str]:
    """Lines that make what a program is asked: a pair of nodes, or partners of a node."""
    places = {"source": 0, "target": -1 if nodes else 1, "head": 0}
    numbers = {
        end: f"names['nodes'].index({nodes[place]!r})" if nodes else str(place)
        for end, place in places.items()
    } | {"relation": "0"}
    return [f"{name} = numpy.array([{number}])" for name, number in numbers.items() if name in takes]


def _of_facts(folder: Path, place: str, opened: str, *, compared: bool) -> PlainNames:
    """Names of a knowledge graph; of an inductive pair both graphs' entities, and queries ask the second."""
    file, kind = "knowledge_graph.npz", "entities"
    graph = KnowledgeGraph.load(folder / file)
    names = {kind: list(graph.entities), "relations": list(graph.relations)}
    if (folder / "inference_graph.npz").is_file():
        file, kind = "inference_graph.npz", "inference_entities"
        graph = KnowledgeGraph.load(folder / file)
        names[kind] = list(graph.entities)
    head, relation, _ = graph.train[0].tolist()
    asked, by = graph.entities[head], graph.relations[relation]
    described = {
        f"graph/{NAMES}": _write(folder, names),
        f"graph/{file}": "numpy.load(file)['train'], [n, 3], int32: head, relation and tail of every fact",
    }
    before = [
        opened,
        f"head, relation, tail = numpy.load({f'{place}/graph/{file}'!r})['train'].T.astype('int64')",
        "edge_index = numpy.stack([numpy.append(head, tail), numpy.append(tail, head)])",
        "edge_type = numpy.append(relation, relation + len(names['relations']))",
        f"nodes = numpy.arange(len(names[{kind!r}]))",
        f"head = numpy.array([names[{kind!r}].index({asked!r})])",
        f"relation = numpy.array([names['relations'].index({by!r})])",
    ]
    if compared:
        described[f"graph/{_COSINES}"] = "numpy.load(file)['heads'] and ['pairs'], [2R, 2R], float32"
        _write_cosines(folder / _COSINES, graph)
        before += [
            f"cosines = numpy.load({f'{place}/graph/{_COSINES}'!r})",
            "heads, pairs = cosines['heads'], cosines['pairs']",
        ]
    return PlainNames(described, before, [f"answers = {_BEST.format(kind)}"])


def _write_cosines(path: Path, graph: KnowledgeGraph) -> None:
    from graphzoo.layers import compare_relations
    from graphzoo.ops import RelationalGraph

    facts = RelationalGraph.from_triples(graph.train, graph.num_entities, graph.num_relations)
    relations = compare_relations(facts).to_dense()
    cosines = {"heads": np.asarray(relations.heads), "pairs": np.asarray(relations.pairs)}
    write_arrays(path, {"format": 1}, cosines)


def _node_names(folder: Path) -> Sequence[str]:
    if (folder / "node_graph.npz").is_file():
        return NodeGraph.load(folder / "node_graph.npz").node_names
    if (folder / "link_graph.npz").is_file():
        return LinkGraph.load(folder / "link_graph.npz").node_names
    return ()


def _write(folder: Path, names: dict[str, list[str]]) -> str:
    """Write names.json; returns a description of its content."""
    folder.mkdir(exist_ok=True)
    text = json.dumps(names, ensure_ascii=False, indent=0)
    (folder / NAMES).write_text(text + "\n", encoding="utf-8")
    return f"JSON, lists of names ({', '.join(names)}): the id of a name is its position in its list"
