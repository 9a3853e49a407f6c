"""Explanations, compared with explicit sums over edges, with all simple paths, and with `predict`."""

import dataclasses

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import graphzoo
from graphzoo.datasets import from_triples
from graphzoo.encoders import KnowFormer
from graphzoo.encoders import knowformer as knowformer_module
from graphzoo.encoders.base import QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel
from graphzoo.inference.explain import EXPLANATION_COLUMNS
from graphzoo.inference.paths import best_paths
from graphzoo.layers import messages
from graphzoo.layers.noise import in_evaluation
from graphzoo.ops import RelationalGraph, prototype_attention, prototype_attention_weights
from graphzoo.tasks import KGCompletion
from graphzoo.types import GraphSpec

N, R, E = 7, 2, 24


def make_graph():
    generator = torch.Generator().manual_seed(3)
    return RelationalGraph(
        torch.randint(N, (2, E), generator=generator),
        torch.randint(2 * R, (E,), generator=generator),
        N,
        2 * R,
    )


def make_encoder(**settings):
    torch.manual_seed(0)
    sizes = {"hidden_channels": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
    return KnowFormer(GraphSpec(N, R), **{**sizes, **settings}).double().eval()


@pytest.mark.parametrize("settings", [{}, {"value_net": False}, {"query_net": False}, {"norm": "fro"}])
@pytest.mark.parametrize("masked", [False, True])
def test_edge_gradients_are_those_of_explicit_edge_weights(settings, masked, monkeypatch):
    graph, encoder = make_graph(), make_encoder(**settings)
    head, relation = torch.tensor([2]), torch.tensor([1])
    mask = torch.arange(E) % 5 != 0 if masked else None
    direction = torch.randn(N, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    query = {"edge_mask": mask, "noise_seed": 4}
    monkeypatch.setattr(messages, "_CHUNK_ELEMENTS", 30)  # several chunks
    with torch.inference_mode():  # a caller may be in inference mode
        value, found = encoder.edge_gradients(graph, head, relation, lambda s: (s * direction).sum(), **query)

    weight = torch.ones(E, dtype=torch.float64, requires_grad=True)

    def weighted(x, vectors, graph, *, edge_mask=None):
        kept = weight if edge_mask is None else weight * edge_mask
        source, target = graph.edge_index
        return torch.zeros_like(x).index_add(
            0, target, kept[:, None, None] * x[source] * vectors[graph.edge_type]
        )

    monkeypatch.setattr(knowformer_module, "relational_spmm", weighted)
    expected = (encoder(graph, head, relation, **query) * direction).sum()
    expected.backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(found, weight.grad, atol=1e-10, rtol=1e-8)
    assert found.abs().max() > 1e-3 and not found.requires_grad
    if masked:
        assert not found[~mask].any()


def test_a_frozen_encoder_is_explained_and_not_changed():
    graph, encoder = make_graph(), make_encoder().requires_grad_(False)
    query = (graph, torch.tensor([2]), torch.tensor([1]), lambda states: states.sum(0)[0, 0])
    frozen = encoder.edge_gradients(*query)[1]
    assert not any(p.requires_grad for p in encoder.parameters())
    assert not any(module._forward_hooks for module in encoder.modules())
    torch.testing.assert_close(frozen, make_encoder().edge_gradients(*query)[1])


def test_without_messages_all_edge_gradients_are_zero():
    encoder = make_encoder(num_query_layers=0, num_value_layers=0)
    _, found = encoder.edge_gradients(
        make_graph(), torch.tensor([2]), torch.tensor([1]), lambda states: states.sum()
    )
    assert found.shape == (E,) and not found.any()


@pytest.mark.parametrize("norm", ["l2", "fro"])
def test_attention_weights_are_the_rows_of_the_matrix(norm):
    q, k, v = torch.randn(3, 6, 2, 3, 4, dtype=torch.float64)
    out = prototype_attention(q, k, v, norm=norm)
    for u in range(6):
        weight = prototype_attention_weights(q, k, torch.tensor([u, 5 - u]), norm=norm)  # [N, B, H]
        torch.testing.assert_close(weight.sum(0), torch.ones(2, 3, dtype=torch.float64))
        for b, node in enumerate((u, 5 - u)):
            mixed = torch.einsum("nh,nhd->hd", weight[:, b], v[:, b])
            torch.testing.assert_close(mixed, out[node, b])


@pytest.mark.parametrize("query_net", [True, False])
def test_attention_of_the_encoder_is_that_of_its_layers(query_net):
    graph, encoder = make_graph(), make_encoder(query_net=query_net)
    head, relation = torch.tensor([2, 0, 5]), torch.tensor([1, 3, 0])
    node = torch.tensor([4, 4, 1])
    weight = encoder.attention(graph, head, relation, node, noise_seed=3)
    assert weight.shape == (2, N, 3) and bool((weight > 0).all())
    torch.testing.assert_close(weight.sum(1), torch.ones(2, 3, dtype=torch.float64))
    alone = encoder.attention(graph, head[1:2], relation[1:2], node[1:2], noise_seed=3)
    torch.testing.assert_close(weight[..., 1:2], alone)
    # Without a query net the first layer sees zeros, so all kernel values are equal.
    if not query_net:
        torch.testing.assert_close(
            weight[0, 0, 0], torch.tensor(0.5 / N, dtype=torch.float64), atol=0.1, rtol=0
        )
    assert not any(layer._forward_hooks for layer in encoder.layers)
    with pytest.raises(UsageError, match="attention 'none' has no weights"):
        make_encoder(attention="none").attention(graph, head, relation, node)


@pytest.mark.parametrize("seed", range(5))
def test_best_paths_are_the_best_of_all_simple_paths(seed):
    draw = np.random.default_rng(seed)
    edge_index = draw.integers(8, size=(2, 30))
    weight = draw.normal(size=30)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(8))
    for i, (u, v) in enumerate(edge_index.T):
        graph.add_edge(u, v, key=i)
    expected = sorted(
        (-weight[keys].mean(), keys)
        for path in nx.all_simple_edge_paths(graph, 0, 5, cutoff=3)
        for keys in [[key for _, _, key in path]]
    )[:4]
    found = best_paths(edge_index, weight, 0, 5, k=4, max_length=3)
    assert [list(path.edges) for path in found] == [keys for _, keys in expected]
    np.testing.assert_allclose([path.weight for path in found], [-value for value, _ in expected])


def test_unreachable_nodes_have_no_path():
    none = np.empty((2, 0), dtype=np.int64)
    assert best_paths(none, np.empty(0), 0, 1, k=3, max_length=3) == []
    one = np.array([[0], [1]])
    assert best_paths(one, np.ones(1), 5, 1, k=3, max_length=3) == []  # a node without edges
    assert best_paths(one, np.ones(1), 0, 0, k=3, max_length=3) == []  # no cycles
    assert best_paths(one, np.ones(1), 0, 1, k=3, max_length=3)[0].edges == (0,)


def test_a_fact_is_explained_by_names(umls):
    known = umls.graph.train[5].tolist()
    names = umls.graph.entities[known[0]], umls.graph.relations[known[1]], umls.graph.entities[known[2]]
    found = umls.explain(*names, k=3)
    assert (found.head, found.relation, found.tail, found.known) == (*names, True)
    direct = f"{names[0]} -{names[1]}-> {names[2]}"
    assert direct not in found.paths["path"].tolist(), "the fact itself is hidden"
    assert direct not in [text for _, text in found.lines()["fact"]]
    assert len(found.paths) == len(found.facts) == 3 and found.paths["length"].between(1, 3).all()
    for text in found.paths["path"]:
        assert text.startswith(f"{names[0]} ") and text.endswith(f" {names[2]}")
    assert (
        found.facts["weight"].abs().is_monotonic_decreasing and found.paths["weight"].is_monotonic_decreasing
    )
    assert len(found.attended) == 3 and names[2] not in found.attended["entity"].tolist()
    table = found.to_table()
    assert list(table.columns) == EXPLANATION_COLUMNS
    assert table.groupby("kind").size().to_dict() == {"attended": 3, "fact": 3, "path": 3}
    assert str(found).startswith(f"{direct}  (score ") and "known, and hidden" in str(found)
    shown = dataclasses.replace(found, head="<b>")._repr_html_()
    assert shown.count("<tr") == 1 + 9 and "&lt;b&gt;" in shown and "<b>" not in shown


def test_training_noise_is_off(umls_run):
    model = graphzoo.load(umls_run.path)
    fact = "steroid", "interacts_with", "enzyme"
    expected = model.explain(*fact, k=2)
    model.task.train()
    found = model.explain(*fact, k=2)
    assert model.task.training and found.score == expected.score
    pd.testing.assert_frame_equal(found.to_table(), expected.to_table())


def test_names_that_are_numbers_may_be_given_as_numbers(umls):
    facts = from_triples([(i, "interacts_with", (i * 3 + j) % 9) for i in range(9) for j in range(2)])
    found = umls.explain(1, "interacts_with", 4.0, k=1, graph=facts)
    assert (found.head, found.tail, found.known) == ("1", "4", True)


def test_the_score_of_an_unknown_fact_is_that_of_predict(umls):
    answer = umls.predict(head="steroid", relation="interacts_with", k=1, filter_known="drop").iloc[0]
    found = umls.explain("steroid", "interacts_with", answer["tail"], k=1, max_length=2)
    assert not found.known
    assert found.score == pytest.approx(answer["score"], rel=1e-4)


def test_answers_of_both_directions_have_their_own_scores(umls):
    for direction, given in (("tail", {"head": "steroid"}), ("head", {"tail": "disease_or_syndrome"})):
        answer = umls.predict(relation="treats", k=1, filter_known="drop", **given).iloc[0]
        fact = (answer["head"], "treats", answer["tail"])
        found = umls.explain(*fact, direction=direction, k=3)
        assert found.score == pytest.approx(answer["score"], rel=1e-4) and found.direction == direction
        start, end = (fact[0], fact[2]) if direction == "tail" else (fact[2], fact[0])
        for text in found.paths["path"]:
            assert text.startswith(f"{start} ") and text.endswith(f" {end}")
        other = umls.explain(*fact, direction="head" if direction == "tail" else "tail", k=3)
        assert other.score != pytest.approx(found.score, rel=1e-4)
    with pytest.raises(UsageError, match="direction must be one of tail, head, got 'both'"):
        umls.explain(*fact, direction="both")


@pytest.fixture(scope="module")
def small():
    """A model in double precision of a graph of five facts, in which tests explain a -r-> d."""
    torch.manual_seed(3)
    graph = from_triples(
        [("a", "r", "b"), ("c", "s", "b"), ("c", "s", "d"), ("a", "r", "d"), ("d", "s", "e")]
    )
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=2, num_heads=2))
    task.build(GraphSpec(graph.num_entities, graph.num_relations))
    return KGModel(task.double(), graph)


def test_paths_are_written_with_the_directions_of_the_facts(small):
    found = small.explain("a", "r", "d", k=9)
    assert found.known and set(found.paths["path"]) == {"a -r-> b <-s- c -s-> d"}
    backwards = small.explain("a", "r", "d", direction="head", k=9)
    assert set(backwards.paths["path"]) == {"d <-s- c -s-> b <-r- a"}
    reached = small.explain("a", "s", "e", k=9, max_length=2)
    assert set(reached.paths["path"]) == {"a -r-> d -s-> e"} and not reached.known


def test_weights_of_facts_are_derivatives_of_the_score(small, monkeypatch):
    """The weight is the derivative of the score in t, if both edges of a fact have weight 1 + t."""
    found = small.explain("a", "r", "d", k=9)
    names, messages_ = small.graph, small._default.messages
    weight = torch.ones(messages_.num_edges, dtype=torch.float64)

    def weighted(x, vectors, graph, *, edge_mask=None):
        source, target = graph.edge_index
        message = weight[:, None, None] * x[source] * vectors[graph.edge_type]
        return torch.zeros_like(x).index_add(0, target, message)

    monkeypatch.setattr(knowformer_module, "relational_spmm", weighted)
    facts = [(names.entities[h], names.relations[r], names.entities[t]) for h, r, t in names.train.tolist()]
    explained = facts.index(("a", "r", "d"))

    def score():
        head, relation = names.entities.index("a"), names.relations.index("r")
        logits = small.task.score_queries(messages_, torch.tensor([head]), torch.tensor([relation]))
        return float(logits[0, names.entities.index("d")])

    n = len(facts)
    weight[[explained, explained + n]] = 0
    assert found.score == pytest.approx(score(), abs=1e-9)
    slopes = {}
    for i, fact in enumerate(facts):
        if i != explained:
            weight[[i, i + n]] = 1 + 1e-6
            up = score()
            weight[[i, i + n]] = 1 - 1e-6
            slopes[fact] = (up - score()) / 2e-6
            weight[[i, i + n]] = 1
    rows = found.facts[["head", "relation", "tail"]].itertuples(index=False, name=None)
    weights = dict(zip(rows, found.facts["weight"], strict=True))
    assert weights.keys() == slopes.keys()
    for fact, value in weights.items():
        assert value == pytest.approx(slopes[fact], abs=1e-6)
    assert max(map(abs, slopes.values())) > 1e-3


def test_attended_entities_are_those_of_the_layers_without_the_fact(small):
    found = small.explain("a", "r", "d", k=2)
    place, names = small._default, small.graph
    ids = [names.entities.index("a"), names.relations.index("r"), names.entities.index("d")]
    source, target = place.messages.edge_index
    there, back = ((source == u) & (target == v) for u, v in ((ids[0], ids[2]), (ids[2], ids[0])))
    query = [torch.tensor([number]) for number in ids]
    weight = small.task.query_encoder.attention(
        place.messages, *query, edge_mask=~(there | back), noise_seed=0
    )[..., 0]
    weight[:, ids[2]] = 0
    expected = [
        (layer + 1, names.entities[i]) for layer in (1, 0) for i in weight[layer].topk(2).indices.tolist()
    ]
    rows = found.attended[["layer", "entity"]].itertuples(index=False, name=None)
    assert list(rows) == expected
    np.testing.assert_allclose(found.attended["weight"][:2], weight[1].topk(2).values)


def test_labels_follow_names_unless_they_are_alike(small):
    texts = {"entity_labels": {"a": "Ada", "d": "D", "b": "Bob"}, "relation_labels": {"r": "/R", "s": "sees"}}
    found = KGModel(small.task, dataclasses.replace(small.graph, **texts)).explain("a", "r", "d", k=9)
    assert str(found).startswith("a (Ada) -r-> d  (score")
    assert found.paths["path"][0] == "a (Ada) -r-> b (Bob) <-s (sees)- c -s (sees)-> d"
    assert "c -s (sees)-> b (Bob)" in [text for _, text in found.lines()["fact"]]
    assert set(found.facts["relation"]) == {"r", "s"} and set(found.to_table()["relation"]) == {"r"}


def test_all_paths_within_the_width_of_the_beam_are_compared():
    """The best of 256 paths has the smallest weight on its first hop."""
    arms = np.arange(1, 257)
    edge_index = np.array([[*[0] * 256, *arms], [*arms, *[300] * 256]])
    weight = np.concatenate([np.linspace(1, 2, 256), np.linspace(0, -5, 256)])
    weight[256] = 9
    (best,) = best_paths(edge_index, weight, 0, 300, k=1, max_length=2)
    assert best.edges == (0, 256) and best.weight == 5


def test_the_search_for_paths_ends_when_no_node_is_left():
    """A thousand million hops would take hours."""
    around = np.array([[0, 1, 2], [1, 2, 0]])
    (found,) = best_paths(around, np.ones(3), 0, 2, k=5, max_length=10**9)
    assert found.edges == (0, 1)


def test_explanations_in_inference_mode_are_the_same(umls_run):
    import graphzoo

    model = graphzoo.load(umls_run.path)  # its graph is made at the first query
    with torch.inference_mode():
        inside = model.explain("steroid", "interacts_with", "enzyme", k=2)
    outside = model.explain("steroid", "interacts_with", "enzyme", k=2)
    assert inside.to_table().equals(outside.to_table())


def test_wrong_arguments_are_refused(umls, monkeypatch):
    with pytest.raises(UsageError, match="unknown entity 'steroyd'.*steroid"):
        umls.explain("steroyd", "interacts_with", "enzyme")
    with pytest.raises(UsageError, match="unknown relation 'interact_with'.*interacts_with"):
        umls.explain("steroid", "interact_with", "enzyme")
    with pytest.raises(UsageError, match="k must be at least 1, got 0"):
        umls.explain("steroid", "interacts_with", "enzyme", k=0)
    with pytest.raises(UsageError, match="max_length must be at least 1, got -1"):
        umls.explain("steroid", "interacts_with", "enzyme", max_length=-1)
    # A user's encoder may have neither method.
    for name in ("edge_gradients", "attention"):
        monkeypatch.setattr(KnowFormer, name, getattr(QueryEncoder, name))
        if name == "edge_gradients":
            with pytest.raises(UsageError, match="KnowFormer does not say which edges"):
                umls.explain("steroid", "interacts_with", "enzyme")
            monkeypatch.undo()
    monkeypatch.setattr(KnowFormer, "attention", QueryEncoder.attention)
    found = umls.explain("steroid", "interacts_with", "enzyme", k=2)
    assert found.attended.empty and len(found.paths) == 2 and "attended" not in str(found)


def test_a_fact_of_another_graph_is_explained(inductive_run):
    import graphzoo

    model = graphzoo.load(inductive_run.path)
    found = model.explain("person1", "likes", "person4", graph=inductive_run.people, k=2)
    assert found.paths["path"].str.startswith("person1 ").all() and len(found.paths)


def test_the_command_explains_facts_and_answers(umls_run, tmp_path, capsys):
    from graphzoo.cli.predict import predict_main

    facts, queries = tmp_path / "facts.tsv", tmp_path / "q.tsv"
    facts.write_text("steroid\tinteracts_with\tenzyme\nvirus\tcauses\tdisease_or_syndrome\n")
    queries.write_text("steroid\tinteracts_with\t?\n")
    common = ["--ckpt_path", str(umls_run.path)]
    assert (
        predict_main([*common, "--score", str(facts), "--explain", "2", "--out", str(tmp_path / "f.csv")])
        == 0
    )
    table = pd.read_csv(tmp_path / "f.csv")
    assert list(table.columns) == EXPLANATION_COLUMNS and table["head"].unique().tolist() == [
        "steroid",
        "virus",
    ]
    assert (table.groupby(["head", "kind"]).size() == 2).all()
    assert predict_main([*common, "--queries", str(queries), "--top-k", "2", "--explain"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split("\t") == EXPLANATION_COLUMNS and len(shown) == 1 + 2 * 15
    queries.write_text("?\ttreats\tdisease_or_syndrome\n")
    assert (
        predict_main([*common, "--queries", str(queries), "--explain", "1", "--out", str(tmp_path / "h.csv")])
        == 0
    )
    assert set(pd.read_csv(tmp_path / "h.csv")["direction"]) == {"head"}
    assert predict_main([*common, "--score", str(facts), "--explain", "0"]) == 2
    assert "takes a whole number of at least 1" in capsys.readouterr().err


def test_explanations_have_the_number_of_draws_of_the_scores(umls, monkeypatch):
    """Score, derivatives and attention are averaged over as many draws of the noise."""
    task, fact, draws = umls.task, ("steroid", "interacts_with", "virus"), 3
    monkeypatch.setattr(task._reversed, "_weight", 0.0)  # not part of explanations
    graph = umls.graph
    ids = [torch.tensor([list(names).index(name)]) for names, name in
           zip((graph.entities, graph.relations, graph.entities), fact, strict=True)]  # fmt: skip
    messages_ = umls._default.messages

    def alone(seed):
        """Score, derivatives and attention of one draw."""
        score = lambda states: task.decode(states)[0, ids[2][0]]  # noqa: E731
        encoder = task.query_encoder
        value, gradient = encoder.edge_gradients(messages_, *ids[:2], score, noise_seed=seed)
        return value, gradient, encoder.attention(messages_, *ids, noise_seed=seed)

    with in_evaluation(task):
        each = [alone(seed) for seed in range(draws)]
    expected = [torch.stack(parts).mean(0) for parts in zip(*each, strict=True)]
    for task_draws, values in ((1, each[0]), (draws, expected)):
        monkeypatch.setattr(task, "num_draws", task_draws)
        found = umls.explain(*fact, k=3)
        assert not found.known
        assert found.score == pytest.approx(float(values[0]), abs=1e-5)
        assert found.score == pytest.approx(float(umls.score([fact])[0]), abs=1e-4)
        with in_evaluation(task):
            gradient, weights = task.edge_gradients(messages_, *ids)[1], task.attention(messages_, *ids)
        torch.testing.assert_close(gradient, values[1], atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(weights, values[2], atol=1e-6, rtol=1e-4)
    assert not torch.allclose(each[0][1], expected[1], atol=1e-6)
    assert not torch.allclose(each[0][2], expected[2], atol=1e-6)


def test_answers_without_an_explanation_have_the_types_of_others(umls_run, tmp_path):
    """The first query has no answer among the candidates; a Parquet file has the types of its first table."""
    from graphzoo.cli.predict import predict_main

    queries, candidates, out = tmp_path / "q.tsv", tmp_path / "c.txt", tmp_path / "h.parquet"
    graph = umls_run.datamodule.knowledge_graph
    known = {tuple(triple) for triple in graph.known_triples().tolist()}
    head, relation, tail = min(known)
    other = next(h for h in range(graph.num_entities) if (h, relation, tail) not in known)
    asked = [f"{graph.entities[entity]}\t{graph.relations[relation]}\t?\n" for entity in (head, other)]
    candidates.write_text(graph.entities[tail] + "\n")
    queries.write_text("".join(asked))
    words = ["--ckpt_path", str(umls_run.path), "--queries", str(queries), "--candidates", str(candidates)]
    words += ["--known", "drop", "--batch-size", "1", "--explain", "1", "--out"]
    assert predict_main([*words, str(out)]) == 0
    found = pd.read_parquet(out)
    assert found["head"].unique().tolist() == [graph.entities[other]]
    assert found.dtypes["score"] == "float64" and found.dtypes["known"] == "bool"
    queries.write_text(asked[0])
    assert predict_main([*words, str(tmp_path / "none.parquet")]) == 0
    none = pd.read_parquet(tmp_path / "none.parquet")
    assert none.empty and none.dtypes.equals(found.dtypes)
