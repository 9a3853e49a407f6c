"""Any query gives ordered answers, or a UsageError in a few lines; no other error."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers.link_graphs import make_link_graph
from hypothesis import given, settings

from graphzoo.datamodules import LinkDataModule
from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import NodeGraph, from_triples
from graphzoo.datasets.node.build import tidy_edges
from graphzoo.encoders import GALiT, KnowFormer
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel, LinkModel, NodeModel
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification
from graphzoo.types import GraphSpec

# Names as in real files: other scripts, spaces, values that pandas reads as missing, numbers, similar names.
NAMES = [
    "a",
    "A",
    " a",
    "\u00e4",
    "a\u0308",
    "\u540d\u524d",
    "nan",
    "NaN",
    "None",
    "",
    "0",
    "1e3",
    "-1",
    "x" * 300,
    "a\tb",
]
RELATIONS = ["likes", "nan", "l\u00e4uft"]
WORDS = st.one_of(
    st.sampled_from(NAMES),
    st.text(max_size=6),
    st.sampled_from(["9" * 5000, "\u0663", "\u00b2", None, float("nan"), 3, -1, 2**70, True]),
)
COUNTS = st.one_of(st.integers(-2, 20), st.sampled_from([2**40]))
KNOWN = st.sampled_from(["mark", "drop", "keep"])


def answer_of(call):
    """Result of the call, or None if it raises a UsageError of a few lines."""
    try:
        return call()
    except UsageError as error:
        assert 0 < len(str(error).splitlines()) <= 6
        return None


def check_order(table, by, k, answers):
    """For each query: ranks count from 1, scores descend, and no answer occurs twice."""
    assert np.isfinite(table["score"]).all() and table["probability"].between(0, 1).all()
    for _, rows in table.groupby(by, sort=False):
        repeats = int((rows["rank"] == 1).sum())  # a query may be repeated
        for start in range(0, len(rows), len(rows) // repeats):
            part = rows.iloc[start : start + len(rows) // repeats]
            assert part["rank"].tolist() == list(range(1, len(part) + 1)) and len(part) <= k
            assert (np.diff(part["score"]) <= 0).all()
            assert part[answers].is_unique


@pytest.fixture(scope="module")
def facts():
    names = [name for name in NAMES if name == name.strip() and name.isprintable() and name]
    triples = [(names[i], RELATIONS[i % 3], names[(3 * i + 1) % len(names)]) for i in range(len(names))]
    graph = from_triples(triples, name="any")
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=4, num_heads=2, num_layers=1))
    task.build(GraphSpec(graph.num_entities, graph.num_relations))
    return KGModel(task, graph)


@settings(max_examples=60)
@given(
    questions=st.lists(st.tuples(WORDS, st.sampled_from([*RELATIONS, "no", None])), max_size=4),
    ask_heads=st.booleans(), k=COUNTS, known=KNOWN, candidates=st.none() | st.lists(WORDS, max_size=4),
    batch_size=st.none() | st.integers(-1, 3),
)  # fmt: skip
def test_any_queries_for_facts(facts, questions, ask_heads, k, known, candidates, batch_size):
    names, relations = [name for name, _ in questions], [relation for _, relation in questions]
    side = {"tail" if ask_heads else "head": names}
    found = answer_of(
        lambda: facts.predict(
            relation=relations, **side, k=k, filter_known=known, candidates=candidates, batch_size=batch_size
        )
    )
    if found is None:
        return
    assert k >= 1
    here, there = ("tail", "head") if ask_heads else ("head", "tail")
    check_order(found, [here, "relation"], k, there)
    held = {tuple(row) for row in facts.graph.known_triples().tolist()}
    entities, rels = list(facts.graph.entities), list(facts.graph.relations)
    is_known = [
        (entities.index(row.head), rels.index(row.relation), entities.index(row.tail)) in held
        for row in found.itertuples()
    ]
    if known == "mark":
        assert found["known"].tolist() == is_known
    if known == "drop":
        assert not any(is_known)
    if candidates is None and known == "mark":
        assert len(found) == len(questions) * min(k, len(entities))


@settings(max_examples=30)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=3))
def test_any_given_facts(facts, triples):
    scores = answer_of(lambda: facts.score(triples))
    assert scores is None or (scores.shape == (len(triples),) and np.isfinite(scores).all())


@pytest.fixture(scope="module", params=[True, False], ids=["names", "numbers"])
def links(request):
    data = LinkDataModule(eval_batch_size=16)
    names = tuple(f"n{i}" for i in range(48 - len(NAMES))) + tuple(NAMES) if request.param else ()
    graph = make_link_graph(node_names=names)
    data._load = lambda download: graph
    data.setup()
    task = LinkPrediction(lambda spec: GALiT(spec, hidden_channels=4, dropout=0.0))
    task.build(data.spec)
    return LinkModel(task, graph, data.transform, data.describe_settings())


@settings(max_examples=40)
@given(
    nodes=WORDS | st.lists(WORDS | st.integers(-3, 60), max_size=4), k=COUNTS, known=KNOWN,
    candidates=st.none() | st.lists(WORDS | st.integers(-3, 60), max_size=4),
    batch_size=st.none() | st.integers(-1, 3),
)  # fmt: skip
def test_any_queries_for_partners(links, nodes, k, known, candidates, batch_size):
    options = {"k": k, "known": known, "candidates": candidates, "batch_size": batch_size}
    found = answer_of(lambda: links.predict(nodes=nodes, **options))
    if found is None:
        return
    check_order(found, "node", k, "partner")
    assert (found["node"] != found["partner"]).all()
    pairs = (
        links._default.names.find(found["node"].tolist()),
        links._default.names.find(found["partner"].tolist()),
    )
    is_known = links._default.is_known(torch.stack(pairs, dim=1)).tolist()
    assert known != "mark" or found["known"].tolist() == is_known
    assert known != "drop" or not any(is_known)


@settings(max_examples=30)
@given(st.lists(st.tuples(WORDS | st.integers(-3, 60), WORDS | st.integers(-3, 60)), max_size=4))
def test_any_given_pairs(links, pairs):
    found = answer_of(lambda: links.score(pairs))
    assert found is None or (len(found) == len(pairs) and np.isfinite(found["score"]).all())


@pytest.fixture(scope="module", params=[True, False], ids=["names", "numbers"])
def nodes(request):
    size = len(NAMES)
    ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    graph = NodeGraph(
        name="any", x=torch.randn(size, 3), edge_index=tidy_edges(ring, size)[0],
        y=torch.arange(size) % 2, class_names=("ja", "nan"), node_names=tuple(NAMES) if request.param else (),
    )  # fmt: skip
    task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=4, dropout=0.0))
    task.build(GraphSpec(size, in_channels=3, num_classes=2))
    return NodeModel(task, graph, FeatureTransform(3), ("ja", "nan"))


@settings(max_examples=40)
@given(
    chosen=st.none() | WORDS | st.lists(WORDS | st.integers(-3, 20), max_size=5),
    probabilities=st.booleans(), embeddings=st.booleans(),
)  # fmt: skip
def test_any_queries_for_labels(nodes, chosen, probabilities, embeddings):
    found = answer_of(lambda: nodes.predict(chosen, probabilities=probabilities, embeddings=embeddings))
    if found is None:
        return
    count = len(NAMES) if chosen is None else len(chosen) if isinstance(chosen, list) else 1
    assert len(found) == count and set(found["label"]) <= {"ja", "nan"}
    assert found["probability"].between(0.5, 1).all()
    assert ("probability_ja" in found) == probabilities and ("state_0" in found) == embeddings
    if isinstance(chosen, list) and nodes.graph.node_names:
        assert found["node"].tolist() == [str(name) for name in chosen], "in the order of the question"
