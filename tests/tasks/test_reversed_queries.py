"""Scores joined with those of the reversed queries (`reverse_weight`)."""

import pytest
import torch
from helpers.kg_tasks import make_task, make_trainer, write_family

from graphzoo.datamodules import KGDataModule
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel
from graphzoo.inference.program import make_program
from graphzoo.ops import RelationalGraph
from graphzoo.tasks.reversed_queries import ReversedQueries


@pytest.fixture
def data(tmp_path):
    made = KGDataModule(path=str(write_family(tmp_path, families=6)), batch_size=16)
    made.setup("fit")
    return made


def built(data, **settings):
    task = make_task(reverse_weight=0.3, **settings)
    task.build(data.spec)
    return task.eval()


def probabilities(task, scores):
    return torch.sigmoid(scores) if task.loss == "bce" else torch.softmax(scores, dim=1)


@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_scores_are_joined_with_those_of_each_answers_reversed_query(data, loss):
    task, graph = built(data, loss=loss), data.graph("valid")
    num_relations = graph.num_relations
    head = torch.tensor([0, 5, 0, 7])
    relation = torch.tensor([0, 1, num_relations - 1, 1])
    found = task.score_queries(graph, head, relation)
    task._reversed.weight = 0.0
    forward = probabilities(task, task.score_queries(graph, head, relation))
    for row, (h, r) in enumerate(zip(head.tolist(), relation.tolist(), strict=True)):
        inverse = (r + num_relations // 2) % num_relations
        back = torch.stack(
            [
                probabilities(task, task.score_queries(graph, torch.tensor([t]), torch.tensor([inverse])))[
                    0, h
                ]
                for t in range(graph.num_nodes)
            ]
        )
        mean = forward[row] ** (1 / 1.3) * back ** (0.3 / 1.3)
        shown = torch.sigmoid(found[row]) if loss == "bce" else found[row].exp()
        torch.testing.assert_close(shown, mean, rtol=1e-4, atol=1e-6)


def test_the_result_does_not_depend_on_the_batch(data):
    task, graph = built(data, loss="bce"), data.graph("valid")
    head, relation = torch.arange(8), torch.arange(8) % graph.num_relations
    together = task.score_queries(graph, head, relation)
    for row in range(8):
        alone = task.score_queries(graph, head[row : row + 1], relation[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])


def test_no_score_of_earlier_weights_is_used(tmp_path, data):
    task = make_task(reverse_weight=2.0, loss="bce", lr=0.05)
    trainer = make_trainer(tmp_path, max_epochs=4)
    trainer.fit(task, datamodule=data)
    found = {
        name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")
    }
    fresh = built(data, loss="bce")
    fresh.load_state_dict(task.state_dict())
    fresh._reversed.weight = 2.0
    (expected,) = make_trainer(tmp_path).validate(fresh, datamodule=data, verbose=False)
    assert found == pytest.approx(expected)
    task.score_queries(data.graph("test"), torch.arange(8), torch.zeros(8, dtype=torch.int64))
    for parameter in task.parameters():  # changes that the task cannot notice
        parameter.data.mul_(-1)
    fresh.load_state_dict(task.state_dict())
    (found,) = trainer.test(task, datamodule=data, verbose=False)
    (expected,) = make_trainer(tmp_path).test(fresh, datamodule=data, verbose=False)
    assert found == pytest.approx(expected)


def test_another_graph_has_its_own_scores(data):
    task = built(data, loss="bce")
    graph = data.graph("valid")
    fewer = RelationalGraph(
        graph.edge_index[:, ::2], graph.edge_type[::2], graph.num_nodes, graph.num_relations
    )
    head, relation = torch.tensor([1]), torch.tensor([0])
    task.score_queries(graph, head, relation)
    found = task.score_queries(fewer, head, relation)
    assert torch.equal(found, built(data, loss="bce").score_queries(fewer, head, relation))


def test_reversed_queries_of_a_relation_are_scored_once(data, monkeypatch):
    task, graph = built(data), data.graph("valid")
    calls = []
    ask = task._score_in_parts
    monkeypatch.setattr(
        task, "_score_in_parts", lambda g, h, r, **k: calls.append(len(h)) or ask(g, h, r, **k)
    )
    for _ in range(2):
        task.score_queries(graph, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0]))
    assert calls == [3, graph.num_nodes, 3]


@pytest.mark.parametrize("is_binary", [True, False])
def test_large_scores_stay_finite_and_different(is_binary):
    queries = ReversedQueries(0.5, is_binary=is_binary, max_bytes=2**20)
    graph = RelationalGraph(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1]), 4, 2)
    scores = torch.tensor([[2000.0, 300.0, -300.0, -2000.0]])
    found = queries.join(
        scores, graph, torch.tensor([0]), torch.tensor([0]), lambda h, r: scores.repeat(len(h), 1)
    )
    assert found.isfinite().all() and (found.diff() < 0).all()


def test_without_weight_scores_are_unchanged(data):
    queries = ReversedQueries(0.0, is_binary=True, max_bytes=1)
    scores = torch.randn(2, data.graph("valid").num_nodes)
    pair = torch.tensor([0, 1])
    assert queries.join(scores, data.graph("valid"), pair, pair, None) is scores


def test_too_large_a_graph_is_refused_before_training(tmp_path, data):
    task = make_task(reverse_weight=0.2, max_score_bytes=2000)
    with pytest.raises(UsageError, match=r"asks 18 questions for each of 4 relations.*\n.*reverse_weight 0"):
        make_trainer(tmp_path).fit(task, datamodule=data)
    queries = ReversedQueries(0.2, is_binary=True, max_bytes=2 * 2**30)
    with pytest.raises(UsageError, match=r"keeps 373\.4 GiB of scores; max_score_bytes allows 2\.0 GiB"):
        queries.check(14_541, 474)


def test_without_weight_no_second_graph_is_built_before_training(tmp_path, data, monkeypatch):
    calls = []
    graph = data.graph
    monkeypatch.setattr(data, "graph", lambda split, *source: calls.append(split) or graph(split, *source))
    make_trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(make_task(), datamodule=data)
    assert "train" in calls and "test" not in calls


def test_scores_of_half_precision_are_kept_in_single(data):
    queries = ReversedQueries(1.0, is_binary=True, max_bytes=2**20)
    graph, scores = data.graph("valid"), torch.linspace(-9, 9, 18).repeat(18, 1).to(torch.bfloat16)
    head, relation = torch.tensor([3]), torch.tensor([0])
    found = queries.join(scores[:1], graph, head, relation, lambda h, r: scores)
    p, q = torch.sigmoid(scores[:1].double()), torch.sigmoid(scores[:, 3].double())
    torch.testing.assert_close(torch.sigmoid(found.double()), (p * q).sqrt(), rtol=1e-5, atol=1e-7)


def test_too_large_a_test_graph_is_refused_before_training(tmp_path, monkeypatch):
    """The second graph of an inductive pair, which is used after training, is also checked."""
    for name, families in (("seen", 4), ("seen_ind", 9)):
        (tmp_path / name).mkdir()
        write_family(tmp_path / name, families=families)
    data = KGDataModule(path=[str(tmp_path / "seen"), str(tmp_path / "seen_ind")], batch_size=16)
    task = make_task(reverse_weight=0.2, max_score_bytes=4 * 4 * 20**2)
    monkeypatch.setattr(task, "training_step", lambda *_: pytest.fail("training began"))
    with pytest.raises(UsageError, match="asks 27 questions for each of 4 relations"):
        make_trainer(tmp_path).fit(task, datamodule=data)


def test_prediction_keeps_scores_of_its_relation_only(data):
    """The scores of one relation fit into memory, those of four would not."""
    task, graph = built(data), data.graph("test")
    task._reversed.max_bytes = 4 * graph.num_nodes**2
    model = KGModel(task, data.knowledge_graph)
    alone = model.predict(head="a0", relation="parent", k=3)
    task._reversed.max_bytes = 2**20
    assert model.predict(head="a0", relation="parent", k=3).equals(alone)
    task.reverse_weight = 0.0
    assert not model.predict(head="a0", relation="parent", k=3)["score"].equals(alone["score"])
    assert task.hparams["reverse_weight"] == 0.0


def test_a_program_of_such_a_model_is_refused(data):
    with pytest.raises(
        UsageError, match="scores forward queries only.*reverse_weight 0.3\nExport it with --to safe"
    ):
        make_program(built(data))


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan")])
def test_a_weight_out_of_range_is_refused(weight):
    with pytest.raises(ValueError, match=f"reverse_weight must be at least 0 and finite, got {weight}"):
        make_task(reverse_weight=weight)


def test_two_threads_may_query_two_graphs():
    """A nested call stands for another thread that queries another graph meanwhile."""
    queries = ReversedQueries(1.0, is_binary=True, max_bytes=2**20)
    edges, kinds = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1])
    one, other = RelationalGraph(edges, kinds, 4, 2), RelationalGraph(edges, kinds, 6, 2)
    zero = torch.tensor([0])

    def ask(head, relation):
        if len(head) == one.num_nodes:
            queries.join(torch.zeros(1, 6), other, zero, zero, ask)
        return torch.full((len(head), len(head)), float(len(head)))

    alone = ReversedQueries(1.0, is_binary=True, max_bytes=2**20)
    expected = alone.join(torch.zeros(1, 6), other, zero, zero, ask)
    queries.join(torch.zeros(1, 4), one, zero, zero, ask)
    assert torch.equal(queries.join(torch.zeros(1, 6), other, zero, zero, ask), expected)


@pytest.mark.parametrize("change", ["in place", "load_state_dict", "num_draws"])
def test_scores_follow_changes_of_the_model(data, change):
    """The change may be by a user's loop, `load_state_dict` or a setting."""
    model = KGModel(
        built(data, encoder={"hidden_channels": 8, "num_layers": 1, "noise_std": 4.0}), data.knowledge_graph
    )
    head, relation = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    graph = model._default.messages
    before = model.task.score_queries(graph, head, relation)
    assert torch.equal(model.task.score_queries(graph, head, relation), before)
    if change == "num_draws":
        model.task.num_draws = 4
    else:
        weights = {name: value * 1.5 for name, value in model.task.state_dict().items()}
        if change == "in place":
            with torch.no_grad():
                for name, value in model.task.named_parameters():
                    value.copy_(weights[name])
        else:
            model.task.load_state_dict(weights)
    found = model.task.score_queries(graph, head, relation)
    model.task._reversed.clear()
    assert torch.equal(found, model.task.score_queries(graph, head, relation))
    assert not torch.allclose(found, before)
