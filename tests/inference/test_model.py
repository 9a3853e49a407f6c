"""KGModel: answers by name, compared with the scores of the task and with its test table."""

import copy
import pickle
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphzoo
from graphzoo.datasets import from_triples
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel, scoring, trained
from graphzoo.inference import model as model_module
from graphzoo.inference.graphs import PredictionGraph
from graphzoo.metrics import summarize_ranks

COLUMNS = ["head", "relation", "tail", "direction", "rank", "score", "probability", "known"]


def logits_of(model, entity, relation, *, inverse=False):
    """Scores of one query, computed by the task."""
    graph = model.graph
    r = graph.relations.index(relation) + (graph.num_relations if inverse else 0)
    head = torch.tensor([graph.entities.index(entity)])
    return model.task.score_queries(model._default.messages, head, torch.tensor([r]))[0]


def known_tails(graph, head, relation):
    return {
        graph.entities[t]
        for h, r, t in graph.known_triples().tolist()
        if (graph.entities[h], graph.relations[r]) == (head, relation)
    }


def test_tails_are_the_best_scores_with_known_facts_marked(umls):
    answers = umls.predict(head="steroid", relation="interacts_with", k=20)
    logits = logits_of(umls, "steroid", "interacts_with")
    best = logits.sort(descending=True, stable=True).indices[:20]
    assert list(answers.columns[:8]) == COLUMNS
    assert answers["tail"].tolist() == [umls.graph.entities[i] for i in best]
    assert answers["rank"].tolist() == list(range(1, 21))
    np.testing.assert_allclose(answers["score"], logits[best], rtol=1e-5)
    np.testing.assert_allclose(answers["probability"], logits.softmax(0)[best], rtol=1e-5)
    assert (answers["head"] == "steroid").all()
    assert (answers["direction"] == "tail").all()
    known = known_tails(umls.graph, "steroid", "interacts_with")
    assert answers["known"].tolist() == [tail in known for tail in answers["tail"]]
    assert answers["known"].any()


def test_heads_use_the_inverse_relation(umls):
    answers = umls.predict(relation="treats", tail="disease_or_syndrome", k=5)
    logits = logits_of(umls, "disease_or_syndrome", "treats", inverse=True)
    best = logits.sort(descending=True, stable=True).indices[:5]
    assert answers["head"].tolist() == [umls.graph.entities[i] for i in best]
    assert (answers["tail"] == "disease_or_syndrome").all()
    assert (answers["direction"] == "head").all()
    assert (
        "drug_delivery_device"
        in umls.predict(relation="treats", tail="disease_or_syndrome", k=200).query("known")["head"].tolist()
    )


def test_known_facts_are_dropped_or_not_marked(umls):
    marked = umls.predict(head="steroid", relation="interacts_with", k=135)
    dropped = umls.predict(head="steroid", relation="interacts_with", k=135, filter_known="drop")
    kept = umls.predict(head="steroid", relation="interacts_with", k=135, filter_known="keep")
    assert len(marked) == 135
    unknown = marked[~marked["known"]]
    assert dropped["tail"].tolist() == unknown["tail"].tolist()
    assert dropped["rank"].tolist() == list(range(1, len(unknown) + 1))
    assert not dropped["known"].any()
    # Dropping facts does not make the rest more probable.
    np.testing.assert_array_equal(dropped["probability"], unknown["probability"])
    assert "known" not in kept.columns
    assert kept["tail"].tolist() == marked["tail"].tolist()


def test_tails_are_chosen_among_candidates(umls):
    names = ["virus", "steroid", "eicosanoid"]
    answers = umls.predict(head="steroid", relation="interacts_with", candidates=names)
    assert sorted(answers["tail"]) == sorted(names)
    assert answers["probability"].sum() == pytest.approx(1, abs=1e-6)
    assert answers["score"].is_monotonic_decreasing
    for others in (iter(names), np.array(names)):
        found = umls.predict(head="steroid", relation="interacts_with", candidates=others)
        assert found.equals(answers)
    with pytest.raises(ValueError, match="candidates is empty"):
        umls.predict(head="steroid", relation="interacts_with", candidates=iter([]))
    with pytest.raises(ValueError, match="unknown entity 'viruss'; nearest: 'virus'"):
        umls.predict(head="steroid", relation="interacts_with", candidates=["viruss"])


def test_queries_are_lists_or_single_values(umls):
    answers = umls.predict(
        head=["steroid", None, "virus"], relation="affects", tail=[None, "virus", None], k=2
    )
    assert answers["direction"].tolist() == ["tail", "tail", "head", "head", "tail", "tail"]
    parts = [
        umls.predict(head="steroid", relation="affects", k=2),
        umls.predict(relation="affects", tail="virus", k=2),
        umls.predict(head="virus", relation="affects", k=2),
    ]
    expected = pd.concat(parts, ignore_index=True)
    pd.testing.assert_frame_equal(answers, expected, rtol=1e-4)
    series = umls.predict(head=pd.Series(["steroid", "virus"]), relation=np.array(["affects", "causes"]), k=1)
    assert series["relation"].tolist() == ["affects", "causes"]


def test_answers_do_not_depend_on_the_batch_size_and_are_streamed(umls):
    heads = list(umls.graph.entities[:20])
    whole = umls.predict(head=heads, relation="affects", k=3)
    tables = umls.predict_batches(head=heads, relation="affects", k=3, batch_size=6)
    first = next(tables)
    assert first["head"].nunique() == 6
    rest = list(tables)
    assert [len(table) for table in rest] == [18, 18, 6]
    pd.testing.assert_frame_equal(pd.concat([first, *rest], ignore_index=True), whole, rtol=1e-4)


def test_a_repeated_query_is_scored_once(umls, monkeypatch):
    sizes = []
    score = umls.task.score_queries
    monkeypatch.setattr(
        umls.task,
        "score_queries",
        lambda graph, head, *rest: sizes.append(len(head)) or score(graph, head, *rest),
    )
    heads = ["steroid", "hormone", "steroid", "vitamin", "steroid"]
    answers = umls.predict(head=heads, relation="interacts_with", k=30)
    assert sizes == [3] and answers["head"].tolist() == [name for name in heads for _ in range(30)]
    first, *others = (part.reset_index(drop=True) for _, part in answers.groupby(answers.index // 30))
    assert first.equals(others[1]) and first.equals(others[3]) and not first.equals(others[0])


def test_no_queries_give_an_empty_table_of_the_same_types(umls):
    empty = umls.predict(head=[], relation="affects")
    full = umls.predict(head="virus", relation="affects")
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


def test_equal_scores_are_in_the_order_of_entities(umls, monkeypatch):
    def constant(graph, head, relation):
        return torch.zeros(head.numel(), graph.num_nodes)

    monkeypatch.setattr(umls.task, "score_queries", constant)
    answers = umls.predict(head="virus", relation="affects", k=135)
    assert answers["tail"].tolist() == list(umls.graph.entities)
    table = umls.score_table([("virus", "affects", name) for name in umls.graph.entities])
    known = len(known_tails(umls.graph, "virus", "affects"))
    assert set(table["rank"][~table["known"]]) == {(1 + 135 - known) / 2}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinite_scores_are_refused(umls, monkeypatch, bad):
    monkeypatch.setattr(
        umls.task, "score_queries", lambda graph, head, _: torch.full((head.numel(), graph.num_nodes), bad)
    )
    with pytest.raises(ValueError, match="NaN or infinite scores"):
        umls.predict(head="virus", relation="affects")


def test_scores_of_the_test_split_give_the_test_metrics(umls, umls_run):
    graph = umls.graph
    names = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.test.tolist()]
    table = umls.score_table(names, batch_size=50)
    row = next(r for r in umls_run.task.test_table if (r["relation"], r["direction"]) == ("all", "tail"))
    assert row["count"] == len(table)
    doubled = torch.tensor((2 * table["rank"]).tolist()).long()
    figures = summarize_ranks(doubled // 2, doubled - doubled // 2)
    assert figures["mrr"] == pytest.approx(row["mrr"], abs=1e-6)
    assert table["known"].all()
    assert umls_run.metrics["test/mrr"] > 0


def test_long_tables_are_scored_and_written_in_parts(umls, monkeypatch):
    triples = umls.graph.test[:40].T
    (whole,) = umls.judge(triples)
    monkeypatch.setattr(model_module, "_FACTS", 16)
    monkeypatch.setattr(model_module, "judge_facts", scored := Mock(side_effect=scoring.judge_facts))
    parts = umls.judge(triples)
    first = next(parts)
    assert len(first) == 16 and scored.call_count == 1, "rows come before the rest is scored"
    found = pd.concat([first, *parts], ignore_index=True)
    pd.testing.assert_frame_equal(found, whole, rtol=1e-5)


def test_score_accepts_many_forms_and_keeps_their_order(umls, tmp_path):
    triples = [
        ("virus", "causes", "disease_or_syndrome"),
        ("steroid", "interacts_with", "eicosanoid"),
        ("virus", "causes", "steroid"),
        ("virus", "causes", "disease_or_syndrome"),
    ]
    scores = umls.score(triples)
    assert scores.dtype == np.float32
    expected = [logits_of(umls, h, r)[umls.graph.entities.index(t)].item() for h, r, t in triples]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    path = tmp_path / "facts.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    frame = pd.DataFrame(triples, columns=["head", "relation", "tail"])[["tail", "relation", "head"]]
    for form in (np.array(triples), frame, path, str(path)):
        np.testing.assert_array_equal(umls.score(form), scores)
    np.testing.assert_allclose(umls.score(triples, batch_size=1), scores, rtol=1e-5)
    table = umls.score_table(triples)
    assert table["known"].tolist() == [True, True, False, True]
    assert len(umls.score([])) == 0


def test_a_name_in_an_array_without_dimensions_is_that_name(umls):
    expected = umls.predict(head="virus", relation="causes", k=3)
    found = umls.predict(head=np.array("virus"), relation=[np.array("causes")], k=3)
    assert found.equals(expected)
    with pytest.raises(UsageError, match="unknown entity '7'"):
        umls.predict(head=[torch.tensor(7)], relation="causes")


def test_score_names_the_row_of_unknown_names(umls):
    with pytest.raises(
        ValueError,
        match=r"2 names are unknown(.|\n)*row 2: entity 'viruss'; nearest: 'virus'(.|\n)*row 3: rel",
    ):
        umls.score([("virus", "causes", "virus"), ("viruss", "causes", "virus"), ("virus", "cause", "virus")])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"head": "viruss", "relation": "causes"}, "unknown entity 'viruss'; nearest: 'virus'"),
        ({"head": "virus", "relation": "cause"}, "unknown relation 'cause'; nearest: 'causes'"),
        (
            {"head": "virus", "relation": "causes", "tail": "virus"},
            r"got both; for given facts use score\(\)",
        ),
        ({"relation": "causes"}, "either head or tail, got neither"),
        ({"head": "virus"}, "relation is missing"),
        ({"head": ["virus"], "relation": ["causes", "affects"]}, "one length, got head 1, relation 2"),
        ({"head": ["virus", None], "relation": "causes"}, "query 1: give either head or tail, got neither"),
        ({"head": "virus", "relation": "causes", "k": 0}, "k must be at least 1"),
        ({"head": "virus", "relation": "causes", "batch_size": 0}, "batch_size must be at least 1"),
        (
            {"head": "virus", "relation": "causes", "filter_known": "hide"},
            "one of mark, drop, keep, got 'hide'",
        ),
    ],
)
def test_wrong_queries_are_refused(umls, query, message):
    with pytest.raises(ValueError, match=message):
        umls.predict(**query)


def test_inductive_run_answers_on_its_second_graph(inductive_run):
    model = graphzoo.load(inductive_run.path)
    assert set(model.graph.entities) == {f"planet{i}" for i in range(7)}
    answers = model.predict(head="planet0", relation="likes", k=7)
    assert len(answers) == 7
    # After training with binary cross entropy, the probability is the sigmoid of the score.
    np.testing.assert_allclose(answers["probability"], 1 / (1 + np.exp(-answers["score"])), rtol=1e-5)
    with pytest.raises(
        ValueError, match="unknown entity 'person1'; none of the 7 names is similar .examples: 'planet0'"
    ):
        model.predict(head="person1", relation="likes")
    people = graphzoo.load(inductive_run.path, data=inductive_run.people)
    assert "person1" in people.graph.entities


def test_another_graph_is_used_for_a_call_or_for_the_model(inductive_run):
    model = graphzoo.load(inductive_run.path)
    # The relations have another order than in training, and one is missing.
    cats = from_triples([("tom", "owes", "kitty"), ("kitty", "knows", "felix"), ("felix", "knows", "tom")])
    assert cats.relations == ("knows", "owes")
    answers = model.predict(head="tom", relation="owes", graph=cats)
    assert answers["tail"][answers["known"]].tolist() == ["kitty"]
    for_good = graphzoo.load(inductive_run.path, data=cats)
    assert for_good.graph.relations == ("knows", "likes", "owes")
    pd.testing.assert_frame_equal(for_good.predict(head="tom", relation="owes"), answers)
    assert model.score([("tom", "owes", "kitty")], graph=cats)[0] == pytest.approx(
        answers["score"][answers["known"]].item()
    )
    planets = model.predict(head="planet0", relation="likes")
    again = model.predict(head="planet0", relation="likes", graph=inductive_run.planets)
    pd.testing.assert_frame_equal(planets, again)


def test_another_graph_with_an_unknown_relation_is_refused(inductive_run, tmp_path):
    model = graphzoo.load(inductive_run.path)
    strange = from_triples([("a", "like", "b"), ("b", "hates", "c")])
    with pytest.raises(ValueError, match=r"not trained with \(and 1 more\): relation 'hates'"):
        model.predict(head="a", relation="likes", graph=strange)
    (tmp_path / "train.tsv").write_text("a\tlikes\tb\nb\tlike\tc\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: relation 'like'(.|\n)*likes"):
        graphzoo.load(inductive_run.path, data=tmp_path)


def test_labels_name_entities_when_they_are_unique(inductive_run):
    triples = [("Q1", "likes", "Q2"), ("Q2", "knows", "Q3")]
    labels = {"Q1": "Earth", "Q2": "moon", "Q3": "moon"}
    graph = from_triples(triples, entity_labels=labels, relation_labels={"likes": "is fond of"})
    model = graphzoo.load(inductive_run.path, data=graph)
    answers = model.predict(head="Earth", relation="is fond of", k=3)
    assert answers["head"].tolist() == ["Q1"] * 3
    assert dict(zip(answers["tail"], answers["label"], strict=True)) == labels
    assert set(answers["relation"]) == {"likes"} and set(answers["relation_label"]) == {"is fond of"}
    none = model.predict(head=[], relation="knows")
    assert none["relation_label"].dtype == answers["relation_label"].dtype
    unlabelled = model.predict(head="Q1", relation="knows", graph=from_triples(triples))
    assert not {"label", "relation_label"} & set(unlabelled)
    with pytest.raises(ValueError, match=r"'moon': 2 names have this label \('Q2', 'Q3'\); give the name"):
        model.predict(head="moon", relation="likes")


def test_memory_of_a_batch_is_bounded():
    queries = scoring.Queries(torch.zeros(5000, dtype=torch.int64), torch.zeros(5000, dtype=torch.int64))
    for num_entities in (135, 40_943, 123_182, 10**8):
        sizes = [batch.entity.numel() for batch in scoring.batches_of(queries, num_entities, None)]
        assert sum(sizes) == 5000
        assert sizes[0] * num_entities <= scoring._BATCH_ELEMENTS or sizes[0] == 1


def test_long_tables_of_facts_are_scored_in_pieces(umls, monkeypatch):
    monkeypatch.setattr(trained, "_TABLE_ROWS", 2)
    triples = [("virus", "causes", name) for name in umls.graph.entities[:5]]
    table = umls.score_table(triples)
    assert table["tail"].tolist() == list(umls.graph.entities[:5])
    assert len(table["score"].unique()) > 1


def test_a_graph_of_other_relations_is_refused(umls):
    graph = from_triples([("a", "r", "b")])
    with pytest.raises(ValueError, match="the graph has 1 relations, the model was built for 46"):
        KGModel(umls.task, graph)


def test_the_repr_of_a_model(umls):
    assert repr(umls).startswith("KGModel(KnowFormer, KnowledgeGraph('umls', 135 entities, 46 relations")


def test_a_copy_has_no_cached_graph(umls):
    """The cache is keyed by the address of a graph, at which the copy may meet another graph."""
    other = from_triples([("a", "affects", "b"), ("b", "affects", "c")])
    umls.predict(head="a", relation="affects", graph=other, k=1)
    assert umls._last[0] == id(other)
    assert copy.deepcopy(umls)._last == pickle.loads(pickle.dumps(umls))._last == (None, None)


def test_scores_do_not_depend_on_the_default_dtype(umls):
    fact = ("steroid", "interacts_with", "virus")
    expected = umls.score([fact])
    torch.set_default_dtype(torch.float64)
    try:
        found = umls.score([fact])
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == np.float32 and np.array_equal(found, expected)


def test_facts_are_on_the_device_of_the_task():
    """The device "meta" stands for a GPU to which the task is moved after loading."""
    task = SimpleNamespace(device=torch.device("cpu"))
    place = PredictionGraph(from_triples([("a", "r", "b")]), task)
    assert place.messages is place.messages and place.messages.edge_index.device.type == "cpu"
    task.device = torch.device("meta")
    assert place.messages.edge_index.device.type == "meta"


@given(
    rows=st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0, -torch.inf]), min_size=7, max_size=7), max_size=4
    ),
    k=st.integers(0, 9),
)
def test_the_best_columns_are_those_of_a_stable_sort(rows, k):
    scores = torch.tensor(rows).view(len(rows), 7)
    expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    assert torch.equal(scoring.best_columns(scores, k), expected)
