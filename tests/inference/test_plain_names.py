"""Names beside an exported program, which its example reads with json and numpy."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from helpers.link_graphs import NODES, make_link_graph
from helpers.node_graphs import write_npz

from graphzoo.datasets import KnowledgeGraph, node_graph_from_files
from graphzoo.inference.plain_names import write_names


def variables_of(names, **given):
    """Run the lines of the example, with given scores, and return their variables."""
    space = {"json": json, "numpy": numpy, **given}
    exec("\n".join([*names.before, *names.after]), space)
    return space


def test_names_are_in_the_order_of_their_numbers(inductive_run, tmp_path):
    folder = Path(shutil.copytree(inductive_run.path / "graph", tmp_path / "graph"))
    names = write_names(folder, str(tmp_path))
    found = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    first, second = (KnowledgeGraph.load(folder / f"{n}_graph.npz") for n in ("knowledge", "inference"))
    assert found == {
        "entities": list(first.entities),
        "relations": list(first.relations),
        "inference_entities": list(second.entities),
    }
    scores = numpy.eye(second.num_entities)[2:3]
    made = variables_of(names, scores=scores)
    head, relation, tail = second.train.T
    assert made["edge_index"].tolist() == [[*head.tolist(), *tail.tolist()], [*tail.tolist(), *head.tolist()]]
    assert made["edge_type"].tolist() == [*relation.tolist(), *(relation + first.num_relations).tolist()]
    assert made["nodes"].tolist() == list(range(second.num_entities))
    assert (made["head"], made["relation"]) == (head[:1].numpy(), relation[:1].numpy())
    assert made["answers"][0] == second.entities[2]
    assert {*names.described} == {"graph/names.json", "graph/inference_graph.npz"}


AWKWARD = ('a "quoted" {name}', "two\nlines", "tab\t\x85", "näme")


@pytest.mark.parametrize("is_multi_label", [False, True])
def test_classes_and_nodes_have_names(tmp_path, is_multi_label):
    graph = node_graph_from_files(write_npz(tmp_path / "small.npz"))
    named = AWKWARD + tuple(f"node{i}" for i in range(graph.num_nodes - len(AWKWARD)))
    (tmp_path / "graph").mkdir()
    replace(graph, node_names=named, fingerprint="").save(tmp_path / "graph" / "node_graph.npz")
    classes = ("rain", "snow", "sun")
    names = write_names(tmp_path / "graph", str(tmp_path), classes, is_multi_label=is_multi_label)
    assert json.loads((tmp_path / "graph" / "names.json").read_text())["nodes"] == list(named)
    scores = numpy.full((graph.num_nodes, 3), -1.0)
    scores[0] = [-1.0, 3.0, 2.0]
    made = variables_of(names, scores=scores)
    assert made["label"] == (["snow", "sun"] if is_multi_label else "snow")
    assert len(names.before) + len(names.after) == 3


def test_pairs_have_names(tmp_path):
    people = AWKWARD + tuple(f"person{i}" for i in range(NODES - len(AWKWARD)))
    (tmp_path / "graph").mkdir()
    make_link_graph(node_names=people).save(tmp_path / "graph" / "link_graph.npz")
    made = variables_of(write_names(tmp_path / "graph", str(tmp_path), takes=("source", "target")))
    assert (made["source"].tolist(), made["target"].tolist()) == ([0], [NODES - 1])


def test_without_names_nothing_is_written(tmp_path):
    (tmp_path / "graph").mkdir()
    make_link_graph().save(tmp_path / "graph" / "link_graph.npz")
    assert write_names(tmp_path / "graph", "x") is None
    assert not (tmp_path / "graph" / "names.json").exists()
    assert write_names(tmp_path / "large", "x", ("a", "b")).described, "a large graph is not there"
