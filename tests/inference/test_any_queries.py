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


def answer_of(call, *, is_right):
    """Result of the call, or None if it raises a UsageError of a few lines, which right arguments do not."""
    try:
        return call()
    except UsageError as error:
        assert not is_right, error
        assert 0 < len(str(error).splitlines()) <= 7  # a heading, five unknown names, a hint
        return None


def numbers_of(is_right):
    """Strategies for `k` and `batch_size`."""
    return (st.integers(1, 20), st.integers(1, 3)) if is_right else (COUNTS, st.integers(-1, 3))


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


def names_of_facts(facts, is_right):
    return st.sampled_from(facts.graph.entities) if is_right else WORDS


@settings(max_examples=60)
@given(data=st.data(), ask_heads=st.booleans(), known=KNOWN, is_right=st.booleans())
def test_any_queries_for_facts(facts, data, ask_heads, known, is_right):
    name, (count, size) = names_of_facts(facts, is_right), numbers_of(is_right)
    kind = st.sampled_from(RELATIONS if is_right else [*RELATIONS, "no", None])
    questions = data.draw(st.lists(st.tuples(name, kind), max_size=4))
    k, batch_size = data.draw(count), data.draw(st.none() | size)
    candidates = data.draw(st.none() | st.lists(name, min_size=is_right, max_size=4))
    names, relations = [name for name, _ in questions], [relation for _, relation in questions]
    side = {"tail" if ask_heads else "head": names}
    found = answer_of(
        lambda: facts.predict(
            relation=relations, **side, k=k, filter_known=known, candidates=candidates, batch_size=batch_size
        ),
        is_right=is_right,
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
@given(st.data(), st.booleans())
def test_any_given_facts(facts, data, is_right):
    name = names_of_facts(facts, is_right)
    kind = st.sampled_from(RELATIONS) if is_right else WORDS
    triples = data.draw(st.lists(st.tuples(name, kind, name), max_size=3))
    scores = answer_of(lambda: facts.score(triples), is_right=is_right)
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


def names_of_links(links, is_right):
    if not is_right:
        return WORDS | st.integers(-3, 60)
    return st.sampled_from(links.graph.node_names or range(links.graph.num_nodes))


@settings(max_examples=40)
@given(data=st.data(), known=KNOWN, is_right=st.booleans())
def test_any_queries_for_partners(links, data, known, is_right):
    name, (count, size) = names_of_links(links, is_right), numbers_of(is_right)
    nodes = data.draw((name if is_right else WORDS) | st.lists(name, max_size=4))
    candidates = data.draw(st.none() | st.lists(name, min_size=is_right, max_size=4))
    k, batch_size = data.draw(count), data.draw(st.none() | size)
    options = {"k": k, "known": known, "candidates": candidates, "batch_size": batch_size}
    found = answer_of(lambda: links.predict(nodes=nodes, **options), is_right=is_right)
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
@given(st.data(), st.booleans())
def test_any_given_pairs(links, data, is_right):
    name = names_of_links(links, is_right)
    pair = st.tuples(name, name).filter(lambda ends: not is_right or ends[0] != ends[1])
    pairs = data.draw(st.lists(pair, max_size=4))
    found = answer_of(lambda: links.score(pairs), is_right=is_right)
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
@given(data=st.data(), probabilities=st.booleans(), embeddings=st.booleans(), is_right=st.booleans())
def test_any_queries_for_labels(nodes, data, probabilities, embeddings, is_right):
    name, one = WORDS | st.integers(-3, 20), WORDS
    if is_right:
        name = one = st.sampled_from(nodes.graph.node_names or range(nodes.graph.num_nodes))
    chosen = data.draw(st.none() | one | st.lists(name, max_size=5))
    options = {"probabilities": probabilities, "embeddings": embeddings}
    found = answer_of(lambda: nodes.predict(chosen, **options), is_right=is_right)
    if found is None:
        return
    count = len(NAMES) if chosen is None else len(chosen) if isinstance(chosen, list) else 1
    assert len(found) == count and set(found["label"]) <= {"ja", "nan"}
    assert found["probability"].between(0.5, 1).all()
    assert ("probability_ja" in found) == probabilities and ("state_0" in found) == embeddings
    if isinstance(chosen, list) and nodes.graph.node_names:
        assert found["node"].tolist() == [str(name) for name in chosen], "in the order of the question"
