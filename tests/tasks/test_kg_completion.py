import copy
from functools import partial

import numpy as np
import pytest
import torch
from helpers.kg_tasks import SMALL, make_task, make_trainer, write_family
from lightning import Callback
from torch.nn import functional as F

from graphzoo.datamodules import KGDataModule
from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.system import memory
from graphzoo.tasks import KGCompletion
from graphzoo.tasks import kg_completion as module
from graphzoo.types import TripleBatch


@pytest.fixture
def family(tmp_path):
    return write_family(tmp_path, families=24)


def fitted(folder, family, task=None, data=None, **trainer):
    task = task or make_task()
    made = make_trainer(folder, **trainer)
    made.fit(task, datamodule=KGDataModule(path=str(family), batch_size=16, **(data or {})))
    return task, made


def weights(task):
    return {k: v.clone() for k, v in task.state_dict().items()}


def same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **({"atol": 0, "rtol": 0} | tolerance), msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_the_rule_of_grandparents_is_learned(tmp_path, loss):
    torch.manual_seed(0)
    data = KGDataModule(path=str(write_family(tmp_path)), batch_size=20)
    task = make_task(loss=loss, num_negatives=32, lr=1e-2, lr_milestones=[20], weight_decay=0.0)
    trainer = make_trainer(tmp_path, max_epochs=25)
    trainer.fit(task, datamodule=data)
    result = trainer.test(task, datamodule=data, verbose=False)[0]
    assert result["test/mrr"] > 0.95
    assert {"test/mr", "test/hits@1", "test/hits@3", "test/hits@10", "test/mrr_tail", "test/mrr_head"} <= set(
        result
    )
    assert result["test/mrr_optimistic"] >= result["test/mrr"] == result["test/mrr_realistic"]
    assert result["test/mrr_pessimistic"] <= result["test/mrr"]
    assert {row["relation"] for row in task.test_table} == {"all", "grandparent"}


def test_results_depend_on_the_seed(tmp_path, family):
    runs = [weights(fitted(tmp_path, family, make_task(seed=s), {"seed": s})[0]) for s in (1, 1, 2)]
    same(runs[0], runs[1])
    assert any(not torch.equal(runs[0][k], runs[2][k]) for k in runs[0])


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, family):
    whole, _ = fitted(tmp_path, family, make_task(), max_epochs=4)
    first = make_trainer(tmp_path, max_epochs=2)
    first.fit(make_task(), datamodule=KGDataModule(path=str(family), batch_size=16))
    first.save_checkpoint(tmp_path / "half.ckpt")
    torch.manual_seed(99)  # the resumed process has another random state
    resumed = make_task(seed=0)
    second = make_trainer(tmp_path, max_epochs=4)
    torch.manual_seed(77)
    second.fit(
        resumed, datamodule=KGDataModule(path=str(family), batch_size=16), ckpt_path=tmp_path / "half.ckpt"
    )
    same(weights(whole), weights(resumed))
    half = torch.load(tmp_path / "half.ckpt", weights_only=True)["state_dict"]
    assert any(not torch.equal(half[k], v) for k, v in weights(resumed).items())


@pytest.mark.parametrize("loss", ["ce", "bce"])
@pytest.mark.parametrize("remove_facts", ["exact", "one_hop"])
def test_micro_batches_equal_the_batch(tmp_path, family, loss, remove_facts, monkeypatch):
    """With 60 triples in batches of 16, the last batch and its last micro-batch are smaller."""
    # Adam would scale up gradients that are zero except for rounding.
    monkeypatch.setattr(
        KGCompletion, "configure_optimizers", lambda self: torch.optim.SGD(self.parameters(), lr=0.05)
    )
    settings = {"loss": loss, "num_negatives": 8, "remove_facts": remove_facts, "loss_scale": 3.0}
    runs = []
    for micro in (None, 5):
        task, trainer = fitted(
            tmp_path, family, make_task(**settings), {"micro_batch_size": micro}, max_epochs=1
        )
        assert task.parts_of_batch == (1 if micro is None else 4)
        runs.append((weights(task), trainer.global_step))
    assert runs[0][1] == runs[1][1] == 4
    same(runs[0][0], runs[1][0], atol=1e-5, rtol=1e-5)
    start = make_task(**settings)
    attach(start, family)
    assert any((runs[0][0][k] - v).abs().max() > 1e-3 for k, v in weights(start).items())


def attach(task, family, **data):
    """Prepare the task as a fit does, without training; return its data."""
    trainer = make_trainer(family, max_epochs=0)
    datamodule = KGDataModule(path=str(family), batch_size=16, **data)
    trainer.fit(task, datamodule=datamodule)
    return datamodule


def one_batch(datamodule):
    return next(iter(datamodule.train_dataloader()))


def test_losses_equal_their_definitions(family, monkeypatch):
    task = make_task(loss="bce", num_negatives=6, adversarial_temperature=0.7, loss_scale=5.0)
    datamodule = attach(task, family)
    batch = one_batch(datamodule)
    logits = torch.randn(len(batch), datamodule.spec.num_nodes)
    negatives = torch.randint(datamodule.spec.num_nodes, (len(batch), 6))
    monkeypatch.setattr(
        module, "sample_negatives", lambda *a, **k: (negatives, torch.ones(len(batch), dtype=torch.bool))
    )
    found = task._bce(logits, batch.tail, batch)
    for b in range(len(batch)):
        wrong = logits[b, negatives[b]]
        weight = torch.softmax(wrong / 0.7, 0)
        expected = (
            F.binary_cross_entropy_with_logits(logits[b, batch.tail[b]], torch.tensor(1.0))
            + (weight * F.binary_cross_entropy_with_logits(wrong, torch.zeros(6), reduction="none")).sum()
        )
        torch.testing.assert_close(found[b], expected)
    expected = torch.stack([logits[b].logsumexp(0) - logits[b, batch.tail[b]] for b in range(len(batch))])
    torch.testing.assert_close(make_task(loss="ce")._ce(logits, batch.tail, batch), expected)


@pytest.mark.parametrize("neighbourhood", [None, 12])
def test_filtered_ce_leaves_other_training_answers_out(tmp_path, neighbourhood):
    facts = [f"a{i % 7}\tr{i % 2}\tb{i * i % 11}\n" for i in range(60)]  # queries with many answers
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("".join(facts if split == "train" else facts[:1]))
    task = make_task(loss="filtered_ce")
    datamodule = attach(task, tmp_path, neighbourhood=neighbourhood)
    train = {tuple(fact) for fact in datamodule.triples("train").tolist()}
    num_relations, others = len(datamodule.knowledge_graph.relations), 0
    for batch in datamodule.train_dataloader():
        answer = batch.tail if batch.graph is None else batch.graph.find(batch.tail)
        columns = datamodule.spec.num_nodes if batch.graph is None else batch.graph.nodes.shape[1]
        logits = torch.randn(len(batch), columns, requires_grad=True)
        found = task._ce(logits, answer, batch)
        for b in range(len(batch)):
            head, relation = int(batch.head[b]), int(batch.relation[b])
            kept = []
            for column in range(columns):
                entity = column if batch.graph is None else int(batch.graph.nodes[b, column])
                fact = (head, relation, entity)
                if relation >= num_relations:
                    fact = (entity, relation - num_relations, head)
                if fact not in train or column == int(answer[b]):
                    kept.append(column)
            others += columns - len(kept)
            torch.testing.assert_close(found[b], logits[b, kept].logsumexp(0) - logits[b, answer[b]])
        (gradient,) = torch.autograd.grad(found.sum(), logits)
        assert gradient.isfinite().all()
    assert others  # some answers were left out


def test_negatives_are_no_training_answers(family, monkeypatch):
    task = make_task(loss="bce", num_negatives=64)
    datamodule = attach(task, family)
    drawn = []
    original = module.sample_negatives

    def spy(*args, **kwargs):
        drawn.append(original(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(module, "sample_negatives", spy)
    batch = one_batch(datamodule)
    task._bce(torch.zeros(len(batch), datamodule.spec.num_nodes), batch.tail, batch)
    count = datamodule.spec.num_relations
    answers = set()
    for head, relation, tail in datamodule.triples("train").tolist():
        answers |= {(head, relation, tail), (tail, relation + count, head)}
    negatives, possible = drawn[0]
    assert possible.all() and negatives.shape == (len(batch), min(64, datamodule.spec.num_nodes))
    for b in range(len(batch)):
        for entity in negatives[b].tolist():
            assert (int(batch.head[b]), int(batch.relation[b]), entity) not in answers


def test_facts_of_the_batch_are_hidden_only_in_training(family, monkeypatch):
    task = make_task()
    datamodule = attach(task, family)
    masks = []
    original = task.encoder.forward
    monkeypatch.setattr(
        task.encoder,
        "forward",
        lambda *a, edge_mask=None, **k: masks.append(edge_mask) or original(*a, edge_mask=edge_mask, **k),
    )
    batch = one_batch(datamodule)
    monkeypatch.setattr(task, "log", lambda *args, **kwargs: None)  # Lightning logs only inside its loops
    task.training_step(batch, 0)
    hidden = (~masks[0]).nonzero().squeeze(1)
    count = datamodule.triples("train").shape[0]
    assert set(hidden.tolist()) == set(batch.removed.tolist()) | {i + count for i in batch.removed.tolist()}
    task.validation_step(next(iter(datamodule.val_dataloader())), 0)
    assert masks[1] is None


@pytest.mark.parametrize("eval_batch_size", [1, 3, 64])
def test_metrics_do_not_depend_on_the_evaluation_batch(tmp_path, family, eval_batch_size):
    task, trainer = fitted(tmp_path, family, max_epochs=1)
    results = [
        trainer.test(task, datamodule=KGDataModule(path=str(family), eval_batch_size=size), verbose=False)[0]
        for size in (7, eval_batch_size)
    ]
    assert results[0] == pytest.approx(results[1], abs=1e-6)


def test_scoring_in_parts_gives_the_same_scores_and_survives_running_out_of_memory(
    tmp_path, family, monkeypatch, caplog
):
    task, trainer = fitted(tmp_path, family, max_epochs=1)
    graph = trainer.datamodule.graph("test")
    head, relation = torch.arange(9), torch.zeros(9, dtype=torch.int64)
    whole = task.eval().score_queries(graph, head, relation)
    task.max_score_bytes = 3 * graph.num_nodes * 16 * 4 * 8
    torch.testing.assert_close(task.score_queries(graph, head, relation), whole, atol=1e-6, rtol=1e-6)
    task.max_score_bytes = 2**30
    original = task._logits

    def starved(graph, head, *rest):
        if head.numel() > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return original(graph, head, *rest)

    monkeypatch.setattr(task, "_logits", starved)
    with caplog.at_level("WARNING"):
        torch.testing.assert_close(task.score_queries(graph, head, relation), whole, atol=1e-6, rtol=1e-6)
    assert "2 queries at a time" in caplog.text
    monkeypatch.setattr(
        task, "_logits", lambda *a: (_ for _ in ()).throw(RuntimeError("mat1 and mat2 shapes"))
    )
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        task.score_queries(graph, head, relation)


def test_nan_scores_are_an_error_that_names_split_and_step(tmp_path, family):
    task, trainer = fitted(tmp_path, family, max_epochs=1)
    with torch.no_grad():
        task.decoder.lin2.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="test scores after step"):
        trainer.test(task, datamodule=trainer.datamodule, verbose=False)


def test_checkpoint_loads_without_code_and_describes_itself(tmp_path, family):
    task, trainer = fitted(tmp_path, family, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    described = checkpoint["graphzoo"]
    assert described["encoder"]["class_path"] == "graphzoo.encoders.KnowFormer"
    assert described["encoder"]["init_args"]["hidden_channels"] == 16
    assert described["relations"] == ["grandparent", "parent"]
    assert described["data"]["fingerprint"] == trainer.datamodule.fingerprint
    loaded = KGCompletion.load_from_checkpoint(tmp_path / "model.ckpt", encoder=partial(KnowFormer, **SMALL))
    same(weights(task), weights(loaded))
    rebuilt = KGCompletion.from_checkpoint_dict(
        checkpoint, partial(KnowFormer, **described["encoder"]["init_args"])
    )
    graph = trainer.datamodule.graph("test")
    query = torch.tensor([0]), torch.tensor([1])
    assert torch.equal(rebuilt.score_queries(graph, *query), task.eval().score_queries(graph, *query))
    assert rebuilt.describe()["relations"] == described["relations"]


def test_settings_of_numpy_become_plain_values(tmp_path, family):
    """Otherwise the checkpoint could not be loaded, and the run not be resumed."""
    numpy = {"lr": np.float32(0.01), "seed": np.int64(1), "loss": np.str_("ce")}
    task, trainer = fitted(
        tmp_path, family, make_task(lr_milestones=list(np.arange(1, 3)), **numpy), max_epochs=1
    )
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    found = checkpoint["hyper_parameters"]
    assert {name: type(found[name]) for name in numpy} == {"lr": float, "seed": int, "loss": str}
    assert found["lr_milestones"] == [1, 2] and task.lr == found["lr"] == float(np.float32(0.01))
    again, resumed = make_task(lr_milestones=[1, 2], **numpy), make_trainer(tmp_path, max_epochs=2)
    resumed.fit(again, datamodule=trainer.datamodule, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    assert resumed.global_step == 2 * trainer.global_step


def test_checkpoints_of_other_programs_and_formats_are_refused(tmp_path, family):
    _, trainer = fitted(tmp_path, family, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    future = copy.deepcopy(checkpoint)
    future["graphzoo"]["format"] = 99
    with pytest.raises(ValueError, match="format 99"):
        KGCompletion.from_checkpoint_dict(future, partial(KnowFormer, **SMALL))
    del checkpoint["graphzoo"]
    with pytest.raises(ValueError, match="no graphzoo description"):
        KGCompletion.from_checkpoint_dict(checkpoint, partial(KnowFormer, **SMALL))


def test_biases_are_not_decayed(family):
    task = make_task(weight_decay=0.1)
    attach(task, family)
    decayed, biases = task.parameter_groups(0.1)
    names = {id(p): name for name, p in task.named_parameters()}
    assert all(names[id(p)].endswith("bias") for p in biases["params"]) and biases["weight_decay"] == 0
    assert (
        not any(names[id(p)].endswith("bias") for p in decayed["params"]) and decayed["weight_decay"] == 0.1
    )
    assert len(names) == len(decayed["params"]) + len(biases["params"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "mse"}, "loss must be"),
        ({"remove_facts": "all"}, "remove_facts must be"),
        ({"num_negatives": 0}, "num_negatives must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"adversarial_temperature": -1.0}, "adversarial_temperature must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_task(**settings)


def test_wrong_use_is_refused_with_a_remedy(tmp_path, family):
    with pytest.raises(ValueError, match=r"trainer\.fit\(task, datamodule=\.\.\.\)"):
        make_trainer(tmp_path).fit(make_task(), train_dataloaders=[])
    with pytest.raises(ValueError, match="made without an encoder"):
        fitted(tmp_path, family, KGCompletion())
    with pytest.raises(ValueError, match="not built yet"):
        make_task().score_queries(None, torch.tensor([0]), torch.tensor([0]))

    class NodesOnly(torch.nn.Module):
        pass

    with pytest.raises(UsageError, match="needs a QueryEncoder; NodesOnly is not one"):
        fitted(tmp_path, family, KGCompletion(lambda spec: NodesOnly()))
    with pytest.raises(ValueError, match="got 3: leave it out"):
        fitted(tmp_path, family, data={"micro_batch_size": 4}, accumulate_grad_batches=3)


@pytest.mark.fault(
    "a batch whose states cannot fit into memory",
    (
        "refused before anything is allocated; the message has the needed and the free memory and "
        "the option to lower"
    ),
)
def test_a_batch_that_cannot_fit_is_refused_before_training(tmp_path, family, monkeypatch):
    # Two float32 tensors of 72 entities, 16 queries and 16 channels.
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2 * 72 * 16 * 16 * 4 - 1)
    with pytest.raises(UsageError, match="16 queries at once over 72 nodes(.|\\n)*--data.micro_batch_size"):
        fitted(tmp_path, family, data={"micro_batch_size": 16})
    fitted(tmp_path, family, max_epochs=1)  # without a given size, micro-batches are chosen
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2 * 72 * 8 * 16 * 4 - 1)
    with pytest.raises(UsageError, match="8 queries at once over 72 nodes(.|\\n)*--data.micro_batch_size"):
        fitted(tmp_path, family)
    task, trainer = fitted(
        tmp_path, family, make_task(max_score_bytes=1), data={"micro_batch_size": 4}, max_epochs=1
    )
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2 * 72 * 16 * 4 - 1)
    with pytest.raises(
        UsageError, match="There cannot be less than one query: take a smaller .*hidden_channels"
    ):
        trainer.validate(task, datamodule=trainer.datamodule, verbose=False)


def test_a_batch_is_copied_to_a_device():
    """The device "meta" stands for a GPU."""
    tensor = torch.arange(3)
    batch = TripleBatch(*[tensor] * 5, num_global=3, epoch=1, known_row=tensor).to("meta")
    columns = (batch.head, batch.relation, batch.tail, batch.index, batch.removed, batch.known_row)
    assert {column.device.type for column in columns} == {"meta"}
    assert len(batch) == batch.num_global == 3 and batch.epoch == 1 and batch.graph is None


@pytest.mark.parametrize("neighbourhood", [None, 60])
def test_scores_are_averaged_over_draws_of_the_noise(family, neighbourhood):
    task = make_task(encoder={**SMALL, "noise_std": 4.0}, num_draws=3)
    datamodule = attach(task, family, neighbourhood=neighbourhood, eval_neighbourhood=neighbourhood)
    graph, head, relation = datamodule.graph("valid"), torch.tensor([3, 1]), torch.tensor([0, 2])
    seeds = []
    logits = task._logits

    def note(*arguments):
        seeds.append(arguments[-1])
        return logits(*arguments)

    task._logits = note
    with torch.no_grad():
        mean = task.score_queries(graph, head, relation)
        assert seeds == [0, 1, 2]
        if neighbourhood is None:
            draws = torch.stack([logits(graph, head, relation, None, seed) for seed in range(3)])
            assert draws.std(0).max() > 1e-3, "noise matters"
            torch.testing.assert_close(mean, draws.mean(0))


def renamed(family, folder):
    """A copy of the data with other names of relations, which exchange their numbers."""
    folder.mkdir()
    for file in family.glob("*.txt"):
        text = file.read_text().replace("\tgrandparent\t", "\tz\t").replace("\tparent\t", "\ta\t")
        (folder / file.name).write_text(text)
    return folder


@pytest.mark.parametrize("step", ["test", "fit"])
def test_a_checkpoint_is_refused_for_other_relations(tmp_path, family, step):
    _, trainer = fitted(tmp_path, family, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    other = KGDataModule(path=str(renamed(family, tmp_path / "other")), batch_size=16)
    do = getattr(make_trainer(tmp_path, max_epochs=2), step)
    with pytest.raises(UsageError, match="trained with other relations than those of other"):
        do(make_task(), datamodule=other, ckpt_path=tmp_path / "a.ckpt")


def test_a_graph_with_some_of_the_relations_is_tested_as_second_of_a_pair(tmp_path):
    both, few = tmp_path / "both", tmp_path / "few"
    both.mkdir()
    write_family(both, families=24)
    for split in ("valid", "test"):  # drawn, with other results for a single graph and a pair
        (both / f"{split}.txt").unlink()
    few.mkdir()
    (few / "train.txt").write_text("x\tparent\ty\ny\tparent\tz\n")
    (few / "test.txt").write_text("x\tparent\tz\n")
    _, trainer = fitted(tmp_path, both, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    arguments = {"ckpt_path": tmp_path / "a.ckpt", "verbose": False}
    facts = [("x", "parent", "y")]
    alone = KGDataModule(triples=facts, valid=[], test=[("x", "parent", "x")], name="few")
    (tmp_path / "alone").mkdir()
    file = tmp_path / "alone" / "train.txt"
    file.write_text("".join(f"x{i}\tparent\tx{i + step}\n" for i in range(30) for step in (1, 2)))
    for data, second in (
        (alone, "FOLDER"),
        (KGDataModule(path=str(file)), "FOLDER"),
        (KGDataModule(path=str(file.parent)), file.parent),
    ):
        with pytest.raises(UsageError) as refused:
            make_trainer(tmp_path).test(make_task(), data, **arguments)
        assert f'--data.path "[TRAINED_ON,{second}]"; the second needs' in str(refused.value)
    pair = KGDataModule(path=[str(both), str(few)])
    assert "test/mrr" in make_trainer(tmp_path).test(make_task(), pair, **arguments)[0]
    with pytest.raises(UsageError, match="Give the files that it was trained on"):
        make_trainer(tmp_path).validate(make_task(), pair, **arguments)


def test_data_without_test_triples_are_not_tested(tmp_path, family):
    (family / "test.txt").unlink()
    data = KGDataModule(path=[str(family), str(family)], batch_size=16)
    task, trainer = make_task(), make_trainer(tmp_path, max_epochs=1)
    trainer.fit(task, datamodule=data)
    assert task.num_evaluated
    with pytest.raises(UsageError, match="has no test triples: there is nothing to evaluate"):
        trainer.test(task, datamodule=data, verbose=False)


@pytest.mark.parametrize(("first", "step"), [("fit", "fit"), ("fit", "test"), ("validate", "fit")])
def test_a_model_in_memory_is_refused_for_other_relations(tmp_path, family, first, step):
    task = make_task()
    getattr(make_trainer(tmp_path, max_epochs=1), first)(task, datamodule=KGDataModule(path=str(family)))
    other = KGDataModule(path=str(renamed(family, tmp_path / "other")), batch_size=16)
    with pytest.raises(UsageError, match="the model was trained with other relations than those of other"):
        getattr(make_trainer(tmp_path), step)(task, datamodule=other)
    make_trainer(tmp_path).test(task, datamodule=KGDataModule(path=str(family)), verbose=False)


def test_a_fit_on_another_graph_hides_the_facts_of_that_graph(tmp_path, family):
    task, _ = fitted(tmp_path, family, max_epochs=1)
    (tmp_path / "other").mkdir()
    fitted(tmp_path, write_family(tmp_path / "other", families=28), task, max_epochs=1)
    batch = next(iter(task.trainer.datamodule.train_dataloader()))
    hidden = ~task._remover(0).edge_mask(batch.removed)
    graph = task.trainer.datamodule.graph("train")
    assert hidden.numel() == graph.num_edges and int(hidden.sum()) == 2 * len(batch)


class _BreakOff(Callback):
    def on_validation_batch_end(self, *_):
        raise RuntimeError("broken off")


def test_ranks_of_an_interrupted_evaluation_are_discarded(tmp_path, family):
    """Like after Ctrl-C in a notebook: the same targets are evaluated again, with other weights."""
    data = KGDataModule(path=str(family), batch_size=16, eval_batch_size=4)
    task = make_task(lr=0.1)
    with pytest.raises(RuntimeError, match="broken off"):
        make_trainer(tmp_path, max_epochs=1, callbacks=[_BreakOff()]).fit(task, datamodule=data)
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(task, datamodule=data)
    seen = trainer.callback_metrics["val/mrr"]
    assert trainer.validate(task, datamodule=data, verbose=False)[0]["val/mrr"] == seen


@pytest.mark.parametrize(
    ("there", "here", "remedy"),
    [
        ("given", "given", "Give the files that it was trained on"),
        ("random test seed 0", "random test seed 1", "Give --data.split_index 0"),
        (
            "random test seed 0",
            "random test seed 0",
            "Give the split that the run has kept: --data.path RUN/graph",
        ),
    ],
)
def test_the_remedy_for_another_split_suits_the_way_it_was_made(there, here, remedy):
    with pytest.raises(UsageError, match=remedy):
        module._refuse_split({"name": there, "index": 0}, {"name": here, "index": 1}, "")
