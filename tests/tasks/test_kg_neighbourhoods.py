"""KGCompletion in neighbourhoods of the queries: training, evaluation, prediction and checkpoints."""

from functools import partial
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from helpers.kg_tasks import make_task, make_trainer, write_family

import graphzoo
from graphzoo.datamodules import KGDataModule, kg
from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel
from graphzoo.metrics import filtered_ranks
from graphzoo.sampling import NeighbourhoodSampler
from graphzoo.tasks import KGCompletion
from graphzoo.types import NeighbourhoodSpec


@pytest.fixture
def family(tmp_path):
    return str(write_family(tmp_path, families=24))


def fit(folder, path, task=None, *, epochs=1, **data):
    task = task or make_task()
    datamodule = KGDataModule(path=path, batch_size=16, **data)
    trainer = make_trainer(folder, max_epochs=epochs)
    trainer.fit(task, datamodule=datamodule)
    return task, datamodule, trainer


def test_neighbourhoods_with_all_entities_train_like_the_whole_graph(family, tmp_path):
    whole = fit(tmp_path, family)[0].state_dict()
    near = fit(tmp_path, family, neighbourhood=10**6)[0].state_dict()
    assert all(torch.equal(near[name], whole[name]) for name in whole)


def test_rules_of_grandparents_are_learned_in_neighbourhoods(family, tmp_path):
    task, datamodule, trainer = fit(
        tmp_path, family, make_task(lr=0.02), epochs=30, neighbourhood=8, eval_neighbourhood=12
    )
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert figures["test/mrr"] > 0.9
    assert 0 < figures["test/whole_graph/mrr"] <= 1
    assert "test/neighbourhood/mrr" not in figures


@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_queries_with_an_answer_outside_are_dropped_in_training(family, tmp_path, loss):
    task, datamodule, _ = fit(tmp_path, family, make_task(loss=loss, num_negatives=4), neighbourhood=5)
    loader = datamodule.train_dataloader(epoch=0)
    whole, fewer = KGDataModule(path=family, batch_size=16), []
    whole.setup()
    for near, full in zip(loader, whole.train_dataloader(epoch=0), strict=True):
        assert near.num_global == full.num_global == len(full)
        assert bool((near.graph.find(near.tail) >= 0).all())
        sampler = NeighbourhoodSampler(datamodule.graph("train"), 5)
        _, kept = sampler(full.head, full.relation, full.tail, outside="drop")
        assert torch.equal(near.index, full.index[kept])
        # The fact of the query is not among the edges, in any batch.
        nodes = near.graph.nodes.flatten()
        source, target = near.graph.edge_index.long()
        query, kind = target // 5, near.graph.edge_type % near.graph.num_relations
        is_own = (nodes[source] == near.head[query]) & (nodes[target] == near.tail[query])
        assert not bool((is_own & (kind == near.relation[query])).any())
        fewer.append(len(near) < len(full))
    assert any(fewer)


def test_entities_outside_rank_behind_all_inside(family, tmp_path):
    task, datamodule, _ = fit(tmp_path, family, neighbourhood=6)
    graph = datamodule.graph("valid")
    head, relation, _ = datamodule.triples("valid").unbind(1)
    task._trainer.datamodule = datamodule
    scores = task.eval().score_queries(graph, head, relation)
    sampler = NeighbourhoodSampler(graph, 6)
    near, levels = sampler.with_levels(head, relation)
    assert scores.shape == (len(head), graph.num_nodes) and bool(torch.isfinite(scores).all())
    inside = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, near.nodes, True)
    low = scores.masked_fill(~inside, torch.inf).amin(1)
    assert bool((scores.masked_fill(inside, -torch.inf).amax(1) < low).all())
    for b in range(len(head)):
        order = scores[b][~inside[b]].argsort(descending=True, stable=True)
        assert bool((levels[b][~inside[b]][order].diff() >= 0).all())
    # An answer outside is ranked among all entities.
    target = (~inside).float().argmax(1)
    ranks = filtered_ranks(scores, target, torch.zeros_like(inside))
    assert bool((ranks > 6).all())


def test_scores_do_not_depend_on_the_batch(family, tmp_path):
    task, datamodule, _ = fit(tmp_path, family, neighbourhood=6)
    graph = datamodule.graph("valid")
    head, relation, _ = datamodule.triples("train")[:20].unbind(1)
    task.eval()
    together = task.score_queries(graph, head, relation)
    task.max_score_bytes = 1
    torch.testing.assert_close(task.score_queries(graph, head, relation), together, atol=1e-5, rtol=1e-5)


@pytest.fixture
def near_model(family, tmp_path):
    """`near_model(loss)` returns a model with neighbourhoods of 6, its graph and a query (head, relation)."""

    def make(loss):
        task, datamodule, trainer = fit(tmp_path, family, make_task(loss=loss), neighbourhood=6)
        trainer.save_checkpoint(tmp_path / "model.ckpt")
        graph = datamodule.knowledge_graph
        head, relation, _ = datamodule.triples("valid")[0].tolist()
        model = graphzoo.load(tmp_path / "model.ckpt", data=graph)
        return model, graph, (head, relation)

    return make


def near_and_far(model, graph, query):
    head, relation = (torch.tensor([number]) for number in query)
    outside = model.task.outside(model._default.messages, head, relation)[0]
    names = np.array(graph.entities)
    return names[~outside.numpy()].tolist(), names[outside.numpy()].tolist()


@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_a_scored_fact_has_a_logit_inside_and_outside(near_model, loss):
    """It is that of `explain` and does not depend on other scored facts; the rank is that of evaluation."""
    model, graph, query = near_model(loss)
    near, far = near_and_far(model, graph, query)
    query_names = graph.entities[query[0]], graph.relations[query[1]]
    assert len(near) == 6 and len(far) > 40  # more than one batch of far entities

    facts = model.score_table([(*query_names, name) for name in [*near, *far]]).set_index("tail")
    assert min(facts["rank"][far]) > 6 >= max(facts["rank"][near])
    for name in [*near[:3], *far[:3], far[40]]:
        alone = model.score_table([(*query_names, name)]).iloc[0]
        assert (alone["score"], alone["probability"], alone["rank"]) == pytest.approx(
            tuple(facts.loc[name, ["score", "probability", "rank"]]), rel=1e-4
        )
        if not facts["known"][name]:  # `explain` hides known facts
            assert model.explain(*query_names, name).score == pytest.approx(facts["score"][name], abs=1e-4)
    attended = model.explain(*query_names, near[0], k=50).attended
    assert set(attended["entity"]) <= set(near) and (attended["weight"] > 0).all()
    inside, outside = facts["score"][near].to_numpy(float), facts["score"][far[40]]
    if loss == "bce":
        assert facts["probability"][far[40]] == pytest.approx(1 / (1 + np.exp(-outside)), rel=1e-4)
    else:
        share = np.exp(outside) / (np.exp(inside).sum() + np.exp(outside))
        assert facts["probability"][far[40]] == pytest.approx(share, rel=1e-4)


def test_as_many_far_candidates_as_near_entities_have_logits(near_model):
    model, graph, query = near_model("ce")
    near, far = near_and_far(model, graph, query)
    query_names = graph.entities[query[0]], graph.relations[query[1]]
    by_name = dict(zip(far, model.score([(*query_names, name) for name in far]), strict=True))

    few = model.predict(*query_names, k=5, candidates=far[:5])
    assert few["score"].tolist() == pytest.approx([by_name[name] for name in few["tail"]], abs=1e-5)
    assert few["score"].is_monotonic_decreasing and few["probability"].sum() == pytest.approx(1, rel=1e-5)
    for candidates in (graph.entities, list(graph.entities)[1:], far):
        answers = model.predict(*query_names, k=len(candidates), candidates=candidates)
        assert answers["score"].is_monotonic_decreasing
        judged = answers["tail"].isin(far) & (answers["probability"] > 1e-9)
        assert int(judged.sum()) == 6
        for name, score in answers[judged][["tail", "score"]].itertuples(index=False):
            assert score == pytest.approx(by_name[name], abs=1e-5)
    everyone = model.predict(*query_names, k=6)
    assert model.predict(*query_names, k=6, candidates=near)["tail"].tolist() == everyone["tail"].tolist()


def test_dropped_known_facts_do_not_count_as_candidates_with_logits(near_model, monkeypatch):
    model, graph, query = near_model("ce")
    _, far = near_and_far(model, graph, query)
    query_names = graph.entities[query[0]], graph.relations[query[1]]
    marked = model.predict(*query_names, k=len(far), candidates=far)
    first = marked["tail"][:4].tolist()
    numbers = torch.tensor([graph.entities.index(name) for name in first])
    known = SimpleNamespace(lookup=lambda *_: (torch.zeros(4, dtype=torch.int64), numbers))
    monkeypatch.setitem(vars(model._default), "answers", known)
    answers = model.predict(*query_names, k=len(far), candidates=far, filter_known="drop")
    assert not set(first) & set(answers["tail"]) and len(answers) == len(far) - 4
    logits = model.score([(*query_names, name) for name in answers["tail"][:6]])
    assert answers["score"][:6].tolist() == pytest.approx(logits.tolist(), abs=1e-5)


def test_candidates_without_logit_have_no_probability_at_any_scale(near_model, monkeypatch):
    """Softmax is invariant to a common shift of the logits."""
    model, graph, query = near_model("ce")
    near, far = near_and_far(model, graph, query)
    query_names = graph.entities[query[0]], graph.relations[query[1]]
    facts = [(*query_names, name) for name in (near[0], far[0])]

    def answers():
        return [
            model.predict(*query_names, k=72).set_index("tail")["probability"],
            model.predict(*query_names, k=72, candidates=far).set_index("tail")["probability"],
            model.score_table(facts).set_index("tail")["probability"],
        ]

    expected, decode = answers(), model.task.decode
    assert expected[0][far].sum() < 1e-6 and expected[1].nlargest(6).sum() == pytest.approx(1, abs=1e-6)
    for shift in (-30, 30):
        monkeypatch.setattr(model.task, "decode", lambda states, shift=shift: decode(states) + shift)
        for before, now in zip(expected, answers(), strict=True):
            assert now[before.index].to_numpy() == pytest.approx(before.to_numpy(), abs=1e-5)


def test_candidates_without_logit_rank_behind_those_with_one(near_model, monkeypatch):
    model, graph, query = near_model("ce")
    _, far = near_and_far(model, graph, query)
    query_names = graph.entities[query[0]], graph.relations[query[1]]
    order = model.predict(*query_names, k=72, candidates=far)["tail"].tolist()
    monkeypatch.setattr(model.task, "score_far", lambda graph, head, *_: torch.full((len(head),), -1000.0))
    answers = model.predict(*query_names, k=72, candidates=far)
    assert set(answers["tail"][:6]) == set(order[:6]) and answers["tail"][6:].tolist() == order[6:]
    assert answers["score"][:6].eq(-1000).all() and answers["score"][6:].max() <= -1020


def test_many_queries_about_far_entities_have_the_scores_of_single_ones(near_model):
    """There are more queries than in one batch."""
    model, graph, (_, relation) = near_model("ce")
    heads, tail = [*graph.entities[:70:2]], graph.entities[-1]
    facts = [(head, graph.relations[relation], tail) for head in heads]
    together = model.score(facts)
    assert len(facts) > 32
    assert together == pytest.approx([float(model.score([fact])[0]) for fact in facts], abs=1e-5)
    answers = model.predict(heads, [graph.relations[relation]] * len(heads), k=1, candidates=[tail])
    assert answers["score"].tolist() == pytest.approx(together.tolist(), abs=1e-5)


def test_far_candidates_are_scored_in_batches_that_fit_into_memory(near_model, monkeypatch):
    """Batches have the size allowed by `max_score_bytes`, and are halved if memory runs out."""
    model, graph, query = near_model("ce")
    _, far = near_and_far(model, graph, query)
    facts = [(graph.entities[query[0]], graph.relations[query[1]], name) for name in far]
    expected, sizes = model.score(facts), []
    scored = model.task._logits

    def small(graph, head, *more):
        if head.numel() > 4:
            raise torch.OutOfMemoryError("out of memory")
        sizes.append(head.numel())
        return scored(graph, head, *more)

    monkeypatch.setattr(model.task, "_logits", small)
    assert model.score(facts) == pytest.approx(expected, abs=1e-5)
    assert max(sizes) == 4
    monkeypatch.setattr(model.task, "max_score_bytes", 1)
    sizes.clear()
    assert model.score(facts) == pytest.approx(expected, abs=1e-5)
    assert max(sizes) == 1


def test_a_checkpoint_restores_its_neighbourhoods(family, tmp_path):
    task, datamodule, trainer = fit(tmp_path, family, neighbourhood=6, eval_neighbourhood=9)
    file = tmp_path / "model.ckpt"
    trainer.save_checkpoint(file)
    model = graphzoo.load(file, data=datamodule.knowledge_graph)
    assert isinstance(model, KGModel)
    assert model.task.neighbourhoods == NeighbourhoodSpec(9, 0.5, "neighbourhood")
    head, relation, tail = datamodule.triples("valid")[0].tolist()
    graph = datamodule.knowledge_graph
    expected = task.eval().score_queries(
        datamodule.graph("valid"), torch.tensor([head]), torch.tensor([relation])
    )[0]
    names = [graph.entities[head], graph.relations[relation]]
    answers = model.predict(*names, k=5)
    assert answers["tail"].tolist() == [graph.entities[i] for i in expected.topk(5).indices]
    torch.testing.assert_close(
        torch.from_numpy(model.score([(*names, graph.entities[tail])])), expected[tail : tail + 1]
    )


def test_facts_are_explained_within_the_neighbourhood(family, tmp_path):
    _, datamodule, trainer = fit(tmp_path, family, make_task(lr=0.02), epochs=10, neighbourhood=8)
    file = tmp_path / "model.ckpt"
    trainer.save_checkpoint(file)
    model = graphzoo.load(file, data=datamodule.knowledge_graph)
    graph = datamodule.knowledge_graph
    fact = [names[i] for names, i in zip(
        (graph.entities, graph.relations, graph.entities), graph.valid[0].tolist(), strict=True
    )]  # fmt: skip
    found = model.explain(*fact, k=3)
    assert len(found.paths) and found.paths["path"][0].count("parent") == 2
    assert len(found.facts) and len(found.attended)
    # Edges of an explained training fact are hidden.
    known = [names[i] for names, i in zip(
        (graph.entities, graph.relations, graph.entities), graph.train[0].tolist(), strict=True
    )]  # fmt: skip
    other = model.explain(*known, k=50)
    assert other.known
    assert tuple(known) not in other.facts[["head", "relation", "tail"]].itertuples(index=False, name=None)


def test_a_model_of_neighbourhoods_can_be_evaluated_on_the_whole_graph(family, tmp_path):
    task, datamodule, trainer = fit(tmp_path, family, neighbourhood=6, protocol="whole_graph")
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    graph = datamodule.graph("test")
    head, relation, _ = datamodule.triples("test").unbind(1)
    scores = task.eval().score_queries(graph, head, relation)
    plain = KGDataModule(path=family, batch_size=16)
    trainer.validate(task, datamodule=plain, verbose=False)
    torch.testing.assert_close(task.score_queries(graph, head, relation), scores)
    assert 0 < figures["test/neighbourhood/mrr"] <= 1


def test_reverse_weight_is_refused_in_neighbourhoods(family, tmp_path):
    task = make_task(reverse_weight=0.5)
    task.training_step = lambda *_: pytest.fail("training began")
    with pytest.raises(UsageError, match="Take reverse_weight 0"):
        fit(tmp_path, family, task, neighbourhood=6)
    task, datamodule, _ = fit(tmp_path, family, neighbourhood=6)
    task.reverse_weight = 0.5
    with pytest.raises(UsageError, match="in neighbourhoods"):
        task.score_queries(datamodule.graph("valid"), torch.tensor([0]), torch.tensor([0]))
    fit(tmp_path, family, make_task(reverse_weight=0.5), neighbourhood=10**6)  # holds the whole graph


def test_entities_outside_have_a_negligible_probability(family, tmp_path):
    _, datamodule, trainer = fit(tmp_path, family, make_task(loss="bce", num_negatives=4), neighbourhood=6)
    file = tmp_path / "model.ckpt"
    trainer.save_checkpoint(file)
    graph = datamodule.knowledge_graph
    model = graphzoo.load(file, data=graph)
    answers = model.predict(head=graph.entities[0], relation=graph.relations[0], k=graph.num_entities)
    assert len(answers) == graph.num_entities
    assert float(answers["probability"][6:].max()) < 1e-8 < float(answers["probability"][:6].min())


def test_explanations_of_unknown_triples_have_the_predicted_score(family, tmp_path):
    _, datamodule, trainer = fit(tmp_path, family, neighbourhood=12)
    file = tmp_path / "model.ckpt"
    trainer.save_checkpoint(file)
    graph = datamodule.knowledge_graph
    model = graphzoo.load(file, data=graph)
    answers = model.predict(head=graph.entities[0], relation=graph.relations[0], k=12)
    unknown = answers[~answers["known"]]
    assert len(unknown) > 3
    for row in unknown.itertuples():
        assert model.explain(row.head, row.relation, row.tail).score == pytest.approx(row.score, abs=1e-5)


def test_the_name_of_the_protocol_is_that_of_the_evaluation(family):
    def words(**settings):
        data = KGDataModule(path=family, **settings)
        data.setup()
        return data.protocol_in_words

    assert words() is None and words(neighbourhood=10**6) is None
    assert words(neighbourhood=6) == "in neighbourhoods of 6 entities"
    assert words(neighbourhood=6, eval_neighbourhood=10**6) == "on the whole graph"
    assert words(neighbourhood=6, protocol="whole_graph") == "on the whole graph"


def test_a_test_can_be_limited_to_one_protocol(family, tmp_path):
    task, datamodule, trainer = fit(tmp_path, family, neighbourhood=6, test_both=False)
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    assert not [name for name in figures if "whole_graph" in name]


@pytest.mark.parametrize(("most", "is_tested"), [(1e9, True), (1e-9, False)])
def test_the_whole_graph_is_tested_too_if_it_costs_little(
    family, tmp_path, monkeypatch, caplog, most, is_tested
):
    monkeypatch.setattr(kg, "_MOST_COST", most)
    task, datamodule, trainer = fit(tmp_path, family, neighbourhood=6, test_both=None)
    figures = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    told = [line for line in caplog.messages if line.startswith("tested in neighbourhoods only")]
    assert ("test/whole_graph/mrr" in figures) == is_tested == (not told) == (datamodule.test_cost > 1)
    assert is_tested or "; --data.test_both true adds the whole graph, about 0." in told[0] and len(told) == 1
    given = KGDataModule(path=family, neighbourhood=6, test_both=True)
    given.setup()
    assert given.test_both and given.test_cost > 1 and not given.cost_left_out
    given.test_both = False
    assert given.test_cost == 1
    assert KGDataModule(path=family, neighbourhood=6).test_both, "kept rows have both"


def test_the_usual_limit_separates_small_graphs_from_large_ones(tmp_path):
    def tests_both(size):
        triples = [(f"e{i}", "r", f"e{(i + step) % size}") for i in range(size) for step in (1, 7, 50)]
        return KGDataModule.from_triples(triples, neighbourhood="auto", test_both=None).test_both

    assert tests_both(1500) and not tests_both(12_000)


@pytest.mark.parametrize("size", [2, 15])
def test_queries_whose_answers_are_outside_are_counted_and_log_no_loss(family, tmp_path, caplog, size):
    logged = []

    class Task(KGCompletion):
        def log_training(self, name, value):
            logged.append(float(value))

    datamodule = KGDataModule(
        path=family, batch_size=1, neighbourhood=size, relation_share=0.0, micro_batch_size=1
    )
    task = Task(partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2))
    trainer = make_trainer(tmp_path, max_epochs=2, limit_val_batches=0)
    trainer.fit(task, datamodule=datamodule)
    kept = [len(batch) for epoch in (0, 1) for batch in datamodule.train_dataloader(epoch=epoch)]
    assert len(logged) == sum(kept) and all(loss > 0 for loss in logged)
    first = sum(kept[: len(kept) // 2]) / (len(kept) // 2)
    assert (first < 0.5) == (size == 2), "the sizes are chosen so"
    told = [line for line in caplog.messages if "were left out" in line]
    assert len(told) == (size == 2), "once, not in every epoch"
    if told:
        assert told[0].startswith(f"{100 * (1 - first):.0f} % of the training queries of this epoch")
        assert "outside their neighbourhoods of 2 entities" in told[0]
        assert "--data.neighbourhood, such as 8;" in told[0]


def test_a_batch_with_all_answers_outside_is_a_step(family, tmp_path):
    datamodule = KGDataModule(path=family, batch_size=1, neighbourhood=2, relation_share=0.0)
    task = KGCompletion(partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2))
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, limit_val_batches=0,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(task, datamodule=datamodule)
    batches = list(datamodule.train_dataloader(epoch=0))
    assert any(len(batch) == 0 for batch in batches)
    assert trainer.global_step == len(batches)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"neighbourhood": 1}, "neighbourhood must be at least 2, got 1"),
        ({"neighbourhood": "many"}, "a number of entities or 'auto', got 'many'"),
        ({"neighbourhood": 5, "eval_neighbourhood": 0}, "eval_neighbourhood must be at least 2"),
        ({"neighbourhood": 5, "later_neighbourhoods": {0: 9}}, "epochs from 1 on"),
        ({"neighbourhood": 5, "later_neighbourhoods": {3: 1}}, "sizes from 2 on, got 3: 1"),
        ({"later_neighbourhoods": {3: 9}}, "give --data.neighbourhood too"),
        ({"eval_neighbourhood": 9}, "give --data.neighbourhood too"),
        (
            {"neighbourhood": 5, "relation_share": -0.1},
            "relation_share must be at least 0 and at most 1, got -0.1",
        ),
        ({"neighbourhood": 5, "protocol": "both"}, "protocol must be one of"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        KGDataModule(**wrong)


@pytest.mark.parametrize("stored", [5, {"num_nodes": "x"}, {"num_nodes": 10, "else": 1}, {"num_nodes": True}])
def test_a_damaged_description_of_neighbourhoods_is_refused(stored):
    with pytest.raises(ValueError):
        NeighbourhoodSpec.from_dict(stored)


def test_later_epochs_have_larger_neighbourhoods(family):
    data = KGDataModule(path=family, batch_size=16, neighbourhood=4, later_neighbourhoods={2: 9})
    data.setup()
    sizes = [next(iter(data.train_dataloader(epoch=epoch))).graph.num_nodes for epoch in range(4)]
    assert sizes == [4, 4, 9, 9]


@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_later_epochs_on_the_whole_graph_have_its_batches_and_losses(family, tmp_path, loss):
    near = {"neighbourhood": 4, "later_neighbourhoods": {2: 10**6, 1: 9}, "protocol": "whole_graph"}
    task, datamodule, trainer = fit(tmp_path, family, make_task(loss=loss), epochs=3, **near)
    assert datamodule.describe_queries() == (
        "trained in neighbourhoods of 4 entities, 9 from epoch 2 on, the whole graph from epoch 3 on; "
        "evaluated on the whole graph"
    )
    plain = KGDataModule(path=family, batch_size=16)
    plain.knows_answers = datamodule.knows_answers
    plain.setup()
    pairs = zip(datamodule.train_dataloader(epoch=2), plain.train_dataloader(epoch=2), strict=True)
    for one, whole in pairs:
        for name in ("head", "relation", "tail", "index", "removed", "known_row", "known_entity"):
            found, expected = getattr(one, name), getattr(whole, name)
            assert (found is expected is None) or torch.equal(found, expected), name
        assert one.graph is None and one.num_global == whole.num_global
        found = task.sample_losses(one)
        task._trainer.datamodule = plain
        assert torch.equal(found, task.sample_losses(whole))
        task._trainer.datamodule = datamodule
    costs = datamodule.step_costs()
    assert costs[0] < costs[1] < costs[2]
    # A test on the whole graph is repeated in neighbourhoods, which cost less.
    assert 1 < datamodule.test_cost < 1.5 and plain.test_cost == 1
    other = KGDataModule(path=family, neighbourhood=4)
    other.setup()
    assert other.test_cost == pytest.approx(1 + 1 / (datamodule.test_cost - 1))
    task._trainer = trainer
    figures = trainer.validate(task, datamodule=datamodule, verbose=False)[0]
    again = trainer.validate(task, datamodule=plain, verbose=False)[0]
    assert figures["val/mrr"] == again["val/mrr"]


def test_auto_chooses_the_whole_graph_or_neighbourhoods_by_size(family, tmp_path):
    small = KGDataModule(path=family, neighbourhood="auto")
    small.setup()
    assert small.neighbourhood is None and small.neighbourhoods is None
    assert small.describe_queries() == "in the whole graph"
    folder = tmp_path / "large"
    folder.mkdir()
    chain = "".join(f"e{i}\tnext\te{i + 1}\n" for i in range(1200))
    (folder / "train.txt").write_text(chain)
    (folder / "valid.txt").write_text("".join(f"e{i}\tnext\te{i + 2}\n" for i in range(600)))
    large = KGDataModule(path=str(folder), neighbourhood="auto", eval_batch_size=1)
    large.setup()
    assert large.neighbourhood == 300 and large.neighbourhoods == NeighbourhoodSpec(1000)
    assert large.describe_queries() == (
        "trained in neighbourhoods of 300 entities; evaluated in neighbourhoods of 1,000 entities, "
        "validated on 250 of 600 triples (by the size of the graph)"
    )
    num_targets = sum(batch.target.numel() for batch in large.val_dataloader())
    assert num_targets == 2 * 250 == large.num_valid


def test_costs_of_steps_depend_on_the_size_of_neighbourhoods(family):
    datamodule = KGDataModule(path=family, batch_size=16, neighbourhood=5, later_neighbourhoods={2: 5, 3: 20})
    datamodule.setup()
    costs = datamodule.step_costs()
    assert list(costs) == [0, 2, 3]
    assert costs[0] == costs[2] == 1
    assert 3 < costs[3] < 8
    same = KGDataModule(path=family, neighbourhood=5)
    same.setup()
    assert same.step_costs() == {}


def test_a_graph_smaller_than_the_neighbourhood_is_described_as_whole(family):
    datamodule = KGDataModule(path=family, neighbourhood=10**6, eval_neighbourhood=5)
    datamodule.setup()
    assert datamodule.asks_near
    assert datamodule.describe_queries() == (
        "in the whole graph, which has no more than 1,000,000 entities; eval_neighbourhood is not used"
    )
