"""Fact dropout hides facts from the training queries of an epoch, and none in evaluation."""

import pickle
from functools import partial

import pytest
import torch
from helpers.kg_tasks import SMALL, make_task, make_trainer, write_family

from graphzoo.callbacks.summary import RunSummary
from graphzoo.datamodules import KGDataModule, MixtureDataModule
from graphzoo.encoders import KnowFormer, KnowFormerAny
from graphzoo.errors import UsageError
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import FactDropout, NeighbourhoodSampler
from graphzoo.tasks import KGCompletion

ENTITIES, RELATIONS = 50, 3


@pytest.fixture
def facts():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (2000,), generator=generator) for size in (ENTITIES, RELATIONS, ENTITIES)]
    return torch.unique(torch.stack(columns, 1), dim=0)


@pytest.fixture
def family(tmp_path):
    return str(write_family(tmp_path, families=24))


def dropout(facts, share=0.3, seed=0):
    return FactDropout(facts, ENTITIES, RELATIONS, share, seed)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_hidden_share_is_about_the_given_one(facts, share):
    hidden = 1 - dropout(facts, share).kept(3).double().mean()
    assert abs(hidden - share) <= 4 * (share * (1 - share) / len(facts)) ** 0.5


def test_epochs_and_seeds_hide_other_facts(facts):
    draws = [dropout(facts, 0.5, seed).kept(epoch) for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(draws):
        for other in draws[:i]:  # independent draws agree on half of the facts
            assert 0.4 < (one == other).double().mean() < 0.6
    again = dropout(facts, 0.5, 1)
    again.kept(7)
    assert torch.equal(again.kept(1), draws[3])


def test_the_draw_of_a_fact_does_not_depend_on_its_position(facts):
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(1))
    kept = dropout(facts).kept(2)
    assert torch.equal(dropout(facts[order]).kept(2), kept[order])
    assert torch.equal(dropout(torch.cat([facts, facts]).int()).kept(2), kept.repeat(2))


def test_neighbourhoods_are_those_of_the_kept_facts(facts):
    graph = RelationalGraph.from_triples(facts, ENTITIES, RELATIONS)
    like = NeighbourhoodSampler(graph, 12, relation_share=0.25, teleport=0.3, tolerance=1e-3)
    drops = dropout(facts, 0.6)
    left = RelationalGraph.from_triples(facts[drops.kept(4)], ENTITIES, RELATIONS)
    expected = NeighbourhoodSampler(left, 12, relation_share=0.25, teleport=0.3, tolerance=1e-3)
    head, relation, tail = facts[:40].unbind(1)
    one, rows = drops.sampler(4, like)(head, relation, tail)
    other, expected_rows = expected(head, relation, tail)
    assert torch.equal(rows, expected_rows) and torch.equal(one.nodes, other.nodes)
    assert torch.equal(one.edge_index, other.edge_index) and torch.equal(one.edge_type, other.edge_type)
    assert one.edge_index.shape[1] < like(head, relation, tail)[0].edge_index.shape[1]
    assert one.whole is None  # the whole graph has all facts, so it is not given
    sent = pickle.loads(pickle.dumps(drops))
    assert torch.equal(sent.sampler(4, like)(head, relation, tail)[0].edge_index, one.edge_index)
    assert not torch.equal(drops.sampler(5, like)(head, relation, tail)[0].nodes, one.nodes)
    drops.sampler(4, NeighbourhoodSampler(graph, 12, relation_share=1.0, teleport=0.3, tolerance=1e-3))
    assert drops.sampler(4, like).relation_share == 0.25  # other settings, another sampler


def loader_of(path, epoch, **settings):
    datamodule = KGDataModule(path=path, batch_size=16, fact_dropout=0.4, **settings)
    datamodule.setup()
    return datamodule, list(datamodule.train_dataloader(epoch=epoch))


@pytest.mark.parametrize("workers", [0, 1])
def test_training_neighbourhoods_have_only_the_kept_facts_of_the_epoch(family, workers):
    datamodule, batches = loader_of(family, 2, neighbourhood=6, num_workers=workers)
    kept = datamodule.kept_facts(2)
    left = {tuple(fact) for fact in datamodule.triples("train")[kept].tolist()}
    all_facts = {tuple(fact) for fact in datamodule.triples("train").tolist()}
    seen = set()
    for batch in batches:
        nodes, (source, target) = batch.graph.nodes.flatten(), batch.graph.edge_index.long()
        kind = batch.graph.edge_type.long() % batch.graph.num_relations
        forward = kind < len(datamodule.relations)
        columns = nodes[source[forward]], kind[forward], nodes[target[forward]]
        seen |= set(zip(*(column.tolist() for column in columns), strict=True))
    assert seen <= left < all_facts
    assert len(seen) > len(left) / 4
    asked = torch.cat([batch.index for batch in batches])
    assert not bool(kept[asked].all())  # hidden facts are still queries


@pytest.mark.parametrize("near", [{}, {"neighbourhood": 6}])
def test_evaluation_hides_no_facts(family, tmp_path, near):
    task = make_task()
    trainer = make_trainer(tmp_path)
    hiding = KGDataModule(path=family, batch_size=16, fact_dropout=0.6, **near)
    trainer.fit(task, datamodule=hiding)
    found = trainer.test(task, datamodule=hiding, verbose=False)
    plain = KGDataModule(path=family, batch_size=16, **near)
    assert found == trainer.test(task, datamodule=plain, verbose=False)
    assert hiding.kept_facts(1) is not None and plain.kept_facts(1) is None


@pytest.mark.parametrize("near", [{}, {"neighbourhood": 6}])
def test_an_epoch_in_which_all_facts_are_hidden_trains(family, tmp_path, near):
    data = KGDataModule(path=family, batch_size=16, fact_dropout=1 - 1e-9, **near)
    task = make_task()
    make_trainer(tmp_path, max_epochs=1).fit(task, datamodule=data)
    assert not bool(data.kept_facts(0).any())
    assert all(bool(parameter.isfinite().all()) for parameter in task.parameters())


@pytest.mark.parametrize(
    "remove_facts, parts",
    [("exact", {}), ("one_hop", {}), ("none", {}), ("exact", {"micro_batch_size": 4, "hide": "micro_batch"})],
)
def test_queries_on_the_whole_graph_use_the_kept_facts(family, tmp_path, remove_facts, parts):
    """Losses are those of a graph of the kept facts without the facts of the batch, or of its micro-batch."""
    task = make_task(remove_facts=remove_facts, encoder={**SMALL, "dropout": 0.0})
    datamodule = KGDataModule(path=family, batch_size=16, fact_dropout=0.4, **parts)
    trainer = make_trainer(tmp_path)
    trainer.fit(task, datamodule=datamodule)
    triples, count = datamodule.triples("train"), datamodule.knowledge_graph.num_entities
    for batch in list(datamodule.train_dataloader(epoch=1))[:3]:
        assert len(batch.removed) == parts.get("micro_batch_size", 16)
        stays = datamodule.kept_facts(1).clone()
        if remove_facts == "exact":
            stays[batch.removed] = False
        if remove_facts == "one_hop":
            pairs = {frozenset(pair) for pair in triples[batch.removed][:, ::2].tolist()}
            stays &= torch.tensor([frozenset(pair) not in pairs for pair in triples[:, ::2].tolist()])
        left = RelationalGraph.from_triples(triples[stays], count, len(datamodule.relations))
        seed = task._noise_seed(trainer.global_step + 1)
        logits = task._logits(left, batch.head, batch.relation, None, seed)
        expected = torch.nn.functional.cross_entropy(logits, batch.tail, reduction="none")
        torch.testing.assert_close(task.sample_losses(batch), expected, rtol=1e-5, atol=1e-6)


def test_workers_do_not_change_the_training_of_knowformer_any(family, tmp_path):
    """Its relation graph has all facts, in whichever process the batch was made."""
    weights = []
    for workers in (0, 1):
        torch.manual_seed(0)
        task = KGCompletion(partial(KnowFormerAny, **SMALL), loss="filtered_ce")
        data = {"batch_size": 16, "neighbourhood": 6, "fact_dropout": 0.4, "num_workers": workers}
        make_trainer(tmp_path, max_epochs=1).fit(task, datamodule=KGDataModule(path=family, **data))
        weights.append([parameter.detach().clone() for parameter in task.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_rules_are_learned_with_fact_dropout(family, tmp_path):
    task = make_task(lr=0.02)
    datamodule = KGDataModule(path=family, batch_size=16, fact_dropout=0.2)
    trainer = make_trainer(tmp_path, max_epochs=30)
    trainer.fit(task, datamodule=datamodule)
    assert trainer.test(task, datamodule=datamodule, verbose=False)[0]["test/mrr"] > 0.9
    assert isinstance(task.encoder, KnowFormer)


def test_a_mixture_has_no_fact_dropout(family, tmp_path):
    (tmp_path / "other").mkdir()
    paths = [family, str(write_family(tmp_path / "other", families=6, seed=1))]
    mixture = MixtureDataModule(names=paths, neighbourhood=8, epoch_queries=64)
    mixture.setup()
    assert mixture.kept_facts(0, 1) is None


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_out_of_range_are_refused(share):
    with pytest.raises(UsageError, match=f"share must be at least 0 and below 1, got {share}"):
        FactDropout(torch.tensor([[0, 0, 1]]), 2, 1, share)
    with pytest.raises(UsageError, match=f"fact_dropout must be at least 0 and below 1, got {share}"):
        KGDataModule(fact_dropout=share)


def test_descriptions_name_the_hidden_share(family):
    near, whole = ({"neighbourhood": 5, "later_neighbourhoods": {2: 7}}, {})
    descriptions = [loader_of(family, 0, **settings)[0].describe_queries() for settings in (near, whole)]
    assert descriptions[0].startswith(
        "trained in neighbourhoods of 5 entities, 7 from epoch 3 on, with 40% of the facts hidden; evaluated"
    )
    assert descriptions[1] == "in the whole graph; trained with 40% of the facts hidden"
    for share, words in ((0.125, "12.5%"), (0.004, "0.4%")):
        module = KGDataModule(path=family, fact_dropout=share)
        module.setup()
        assert words in module.describe_queries()


def test_the_summary_of_a_run_names_the_hidden_share(family, tmp_path, capsys):
    data = KGDataModule(path=family, batch_size=16, fact_dropout=0.4)
    make_trainer(tmp_path, max_epochs=1, callbacks=[RunSummary()]).fit(make_task(), datamodule=data)
    assert "with 40% of the facts hidden" in " ".join(capsys.readouterr().out.split())
