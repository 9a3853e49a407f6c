"""Batches of MixtureDataModule, and scores as means over its graphs."""

import dataclasses
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer

from graphzoo.datamodules import KGDataModule, MixtureDataModule
from graphzoo.encoders import KnowFormer, KnowFormerAny
from graphzoo.errors import UsageError
from graphzoo.tasks import KGCompletion, kg_completion, micro_batches

SIZES = {"small": (6, 2, 12), "large": (40, 5, 90), "middle": (20, 3, 30)}


class Ranks:
    """Stand-in for a trainer, with the attributes that the data module reads."""

    def __init__(self, rank=0, world_size=1, epoch=0):
        self.global_rank, self.world_size, self.current_epoch = rank, world_size, epoch


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three graphs with different names and numbers of entities and relations."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for name, (entities, relations, count) in SIZES.items():
        folder = tmp_path_factory.mktemp(name)
        seen = set()
        while len(seen) < count:
            row = [
                int(torch.randint(size, (), generator=generator)) for size in (entities, relations, entities)
            ]
            seen.add(f"{name}{row[0]}\tis{row[1]}of{name}\t{name}{row[2]}\n")
        lines = sorted(seen)
        for split, part in (("valid", lines[::5]), ("test", lines[1::5])):
            (folder / f"{split}.txt").write_text("".join(part))
        (folder / "train.txt").write_text("".join(line for i, line in enumerate(lines) if i % 5 > 1))
        made.append(str(folder))
    return made


def module(folders, rank=0, world_size=1, **settings):
    usual = {"batch_size": 4, "epoch_queries": 40, "neighbourhood": 8}
    dm = MixtureDataModule(names=folders, **{**usual, **settings})
    dm.trainer = Ranks(rank, world_size)
    dm.setup()
    return dm


def queries_of(dm, epoch=0):
    """Batches of an epoch, each as (graph, triple) of its queries."""
    loader = dm.train_dataloader(epoch)
    return [[(item.source, i) for i in item.position.tolist()] for item in loader.sampler]


def test_a_test_of_several_graphs_has_no_tables_of_an_earlier_test(folders):
    task = KGCompletion(lambda spec: KnowFormerAny(spec, hidden_channels=8, num_layers=1, num_heads=2))
    settings = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    Trainer(**settings).test(task, KGDataModule(path=folders[0]), verbose=False)
    assert task.test_tables and task.test_table
    Trainer(**settings).test(task, module(folders), verbose=False)
    assert not task.test_tables and not task.test_table


def test_each_batch_is_of_one_graph_in_proportion_to_their_facts(folders):
    dm = module(folders, epoch_queries=400)
    batches = queries_of(dm)
    assert len(batches) == 100
    assert all(len({source for source, _ in batch}) == 1 for batch in batches)
    count = Counter(batch[0][0] for batch in batches)
    sizes = [len(part.triples("train")) for part in dm.parts]
    assert [count[i] for i in range(3)] == pytest.approx([100 * size / sum(sizes) for size in sizes], abs=1)
    order = [batch[0][0] for batch in batches]
    assert order != sorted(order)  # the graphs take turns


def test_a_small_graph_has_a_batch_in_every_epoch(folders):
    assert {batch[0][0] for batch in queries_of(module(folders, epoch_queries=4))} == {0, 1, 2}


def test_a_graph_continues_in_the_next_epoch_and_repeats_no_triple_before_all_were_used(folders):
    dm = module(folders)
    given = defaultdict(list)
    for epoch in range(12):
        for batch in queries_of(dm, epoch):
            for source, position in batch:
                given[source].append(position)
    for source, part in enumerate(dm.parts):
        size = len(part.triples("train"))
        passes = [given[source][i : i + size] for i in range(0, len(given[source]) - size, size)]
        assert len(passes) >= 1
        assert all(sorted(one) == list(range(size)) for one in passes)
        assert len(set(map(tuple, passes))) == len(passes)


def test_two_processes_share_the_batches_of_one(folders):
    steps = {1: [], 2: []}
    for world_size, batches in steps.items():
        ranks = [queries_of(module(folders, rank, world_size)) for rank in range(world_size)]
        batches += [sorted(sum(parts, [])) for parts in zip(*ranks, strict=True)]
    assert steps[1] == steps[2]


def test_batches_hold_their_graph_and_its_known_answers(folders):
    dm = module(folders, epoch_queries=80)
    for batch in dm.train_dataloader(0):
        part = dm.parts[batch.source]
        row, entity = part.answers("train").lookup(batch.head, batch.relation)
        if batch.graph is not None:  # known answers are positions in the neighbourhood
            entity = batch.graph.find(entity, row)
            row, entity = row[entity >= 0], entity[entity >= 0]
        assert torch.equal(batch.known_row, row) and torch.equal(batch.known_entity, entity)
        small = part.spec.num_nodes <= 8
        assert (batch.graph is None) == small
        if not small:
            assert batch.graph.whole is part.graph("train")
            assert (batch.graph.find(batch.tail) >= 0).all()
    for part in dm.parts:
        part.knows_answers = False
    assert next(iter(dm.train_dataloader(0))).known_row is None


def trainer(folder, **settings):
    return Trainer(
        default_root_dir=folder, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", **settings,
    )  # fmt: skip


def task(encoder=KnowFormerAny, **settings):
    small = {"hidden_channels": 8, "num_layers": 1, "num_heads": 2}
    return KGCompletion(lambda spec: encoder(spec, **small), **{"loss": "filtered_ce", **settings})


def test_scores_are_means_over_the_graphs(folders, tmp_path):
    torch.manual_seed(0)
    model = task()
    mixture = {"neighbourhood": 8, "max_valid_triples": 1000}
    together = trainer(tmp_path).validate(model, MixtureDataModule(names=folders, **mixture), verbose=False)[
        0
    ]
    alone = [
        trainer(tmp_path).validate(model, KGDataModule(path=path, **mixture), verbose=False)[0]
        for path in folders
    ]
    for name in ("mrr", "mr", "hits@10"):
        mean = sum(figures[f"val/{name}"] for figures in alone) / len(alone)
        assert together[f"val/{name}"] == pytest.approx(mean, rel=1e-6)
    for path, figures in zip(folders, alone, strict=True):
        assert together[f"val/mrr_{Path(path).name}"] == pytest.approx(figures["val/mrr"], rel=1e-6)


def test_one_model_learns_from_all_graphs_and_is_tested_on_them(folders, tmp_path):
    torch.manual_seed(0)
    model, dm = (
        task(lr=0.01),
        MixtureDataModule(names=folders, batch_size=8, epoch_queries=160, neighbourhood=8),
    )
    fit = trainer(tmp_path, max_epochs=4)
    losses = []
    model.on_train_epoch_end = lambda: losses.append(float(model.latest_loss))
    fit.fit(model, dm)
    tested = fit.test(model, dm, verbose=False)[0]
    assert fit.callback_metrics["test/mrr"] == tested["test/mrr"] > 0
    assert dm.num_tested == sum(part.num_tested for part in dm.parts)
    assert losses[-1] < losses[0]


def without_test(part):
    """Remove the test triples of a graph, as `leave_out` may do."""
    part.setup()
    graph = part.knowledge_graph
    part._graphs = (dataclasses.replace(graph, test=graph.test[:0]), None)


def test_a_graph_without_test_triples_is_left_out_of_the_mean(folders, tmp_path):
    """The second of three is left out, so the numbers of the third one's queries begin earlier."""
    torch.manual_seed(0)
    model, mixture = task(), {"neighbourhood": 8}
    dm = MixtureDataModule(names=folders, **mixture)
    without_test(dm.parts[1])
    together = trainer(tmp_path).test(model, dm, verbose=False)[0]
    alone = {
        f"test/mrr_{Path(path).name}": trainer(tmp_path).test(
            model, KGDataModule(path=path, **mixture), verbose=False
        )[0]["test/mrr"]
        for path in (folders[0], folders[2])
    }
    assert {name: mrr for name, mrr in together.items() if "mrr_" in name} == pytest.approx(alone, rel=1e-6)
    assert together["test/mrr"] == pytest.approx(sum(alone.values()) / 2, rel=1e-6)


def test_a_mixture_without_any_test_triples_is_not_tested(folders, tmp_path):
    dm = MixtureDataModule(names=folders[:2], neighbourhood=8)
    for part in dm.parts:
        without_test(part)
    with pytest.raises(UsageError, match="none of small[0-9]+, large[0-9]+ has test triples"):
        trainer(tmp_path).test(task(), dm, verbose=False)


@pytest.mark.parametrize("remove_facts", ["exact", "auto", "none"])
def test_messages_never_pass_along_the_fact_of_the_query(folders, tmp_path, remove_facts):
    """In neighbourhoods and in whole graphs; with `remove_facts` "none" they pass along every one."""
    model = task(remove_facts=remove_facts)
    losses, logits, batches, sees = model.sample_losses, model._logits, [], {}

    def remember(batch):
        batches.append(batch)
        return losses(batch)

    def look(graph, head, relation, mask, seed):
        if not model.training:
            return logits(graph, head, relation, mask, seed)
        batch, kinds = batches[-1], graph.num_relations
        (source, target), kind = graph.edge_index.long(), graph.edge_type.long() % kinds
        row = torch.zeros_like(kind)
        if batch.graph is not None:
            nodes = graph.nodes.flatten()
            row, source, target = target // graph.num_nodes, nodes[source], nodes[target]
        shown = torch.stack([row, source, kind, target], dim=1)[slice(None) if mask is None else mask]
        edges = set(map(tuple, shown.tolist()))
        place = torch.arange(len(batch)) if batch.graph is not None else torch.zeros_like(batch.head)
        inverse = (batch.relation + kinds // 2) % kinds
        for fact in ((batch.head, batch.relation, batch.tail), (batch.tail, inverse, batch.head)):
            own = map(tuple, torch.stack([place, *fact], dim=1).tolist())
            sees.setdefault(batch.source, set()).update(edge in edges for edge in own)
        return logits(graph, head, relation, mask, seed)

    model.sample_losses, model._logits = remember, look
    data = MixtureDataModule(names=folders, batch_size=4, epoch_queries=80, neighbourhood=8)
    trainer(tmp_path, max_epochs=1).fit(model, data)
    assert sees == {source: {remove_facts == "none"} for source in range(3)}


def test_memory_is_measured_with_a_batch_of_each_graph(folders, tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(micro_batches, "kept_bytes", lambda task, run: measured.extend(run.args) or 0)
    data = MixtureDataModule(names=folders, batch_size=16, epoch_queries=160, neighbourhood=8)
    trainer(tmp_path, max_steps=1, limit_val_batches=0).fit(task(), data)
    assert {batch.source for batch in measured} == {0, 1, 2} and len(measured) == 3


def test_an_encoder_with_fixed_relations_is_refused(folders, tmp_path):
    with pytest.raises(UsageError, match="knowformer-any"):
        trainer(tmp_path, max_epochs=1).fit(task(KnowFormer), MixtureDataModule(names=folders))
    with pytest.raises(UsageError, match="reverse_weight"):
        trainer(tmp_path, max_epochs=1).fit(task(reverse_weight=0.5), MixtureDataModule(names=folders))


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="umls"):
        MixtureDataModule(names="umls,ulms")


def test_a_missing_folder_is_no_unknown_data_set_only(tmp_path):
    with pytest.raises(
        UsageError, match="my/facts: there is no such folder here(.|\n)*where the run was started"
    ):
        MixtureDataModule(names="umls,my/facts")


def fitted(folder, data):
    """The checkpoint of a model that was trained on these data."""
    fit = trainer(folder, max_steps=1, limit_val_batches=0)
    fit.fit(task(), data)
    fit.save_checkpoint(folder / "a.ckpt")
    return folder / "a.ckpt"


def test_other_data_of_a_mixture_are_noticed(folders, tmp_path, caplog):
    """As for one graph: a split that is drawn from other facts may test on facts of the training."""
    for name in ("one", "two"):
        shutil.copytree(folders[1], tmp_path / name)
        for split in ("valid", "test"):
            (tmp_path / name / f"{split}.txt").unlink()
    two = tmp_path / "two" / "train.txt"
    two.write_text(two.read_text().replace("large", "two"))

    def mixture():
        return MixtureDataModule(names=[str(tmp_path / "one"), str(tmp_path / "two")], neighbourhood=8)

    path = fitted(tmp_path, mixture())
    trainer(tmp_path).test(task(), mixture(), ckpt_path=path, verbose=False)
    assert "these are not the data" not in caplog.text
    with pytest.raises(UsageError, match="another split of these triples"):
        alone = KGDataModule(path=str(tmp_path / "one"), neighbourhood=8, split_index=1)
        trainer(tmp_path).test(task(), alone, ckpt_path=path, verbose=False)
    two.write_text(two.read_text() + "two1\tis1oflarge\tnew\n")
    trainer(tmp_path).test(task(), mixture(), ckpt_path=path, verbose=False)
    assert "two: these are not the data that the model was trained on" in caplog.text
    assert "one: these are not" not in caplog.text


def test_a_mixture_refuses_another_split_of_a_graph_that_was_trained_on(folders, tmp_path):
    own = str(shutil.copytree(folders[1], tmp_path / "own"))
    for split in ("valid", "test"):
        Path(own, f"{split}.txt").unlink()
    path = fitted(tmp_path, KGDataModule(path=own, neighbourhood=8, split_index=1))
    with pytest.raises(UsageError, match=f"Give --data kg --data.path {own} --data.split_index 1"):
        mixture = MixtureDataModule(names=[own, folders[0]], neighbourhood=8)
        trainer(tmp_path).test(task(), mixture, ckpt_path=path, verbose=False)


def test_a_folder_is_not_taken_for_the_data_set_of_its_name(folders, tmp_path, monkeypatch):
    """Which of the two a name means depends on the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders[0], "umls")
    names = f"{folders[1]},umls"

    def test(names):
        data = MixtureDataModule(names=names, neighbourhood=8)
        return trainer(tmp_path).test(task(), data, ckpt_path="a.ckpt", verbose=False)[0]

    fitted(tmp_path, MixtureDataModule(names=names, neighbourhood=8))
    Path("umls").rename("moved")
    with pytest.raises(UsageError, match="trained on the folder umls, which does not exist here"):
        test(names)
    assert "test/mrr_moved" in test(f"{folders[1]},moved")
    fitted(tmp_path, MixtureDataModule(names=names, neighbourhood=8))
    Path("moved").rename("umls")
    with pytest.raises(UsageError, match="trained on the data set umls, but .*\n.*give .* with ./umls"):
        test(names)
    assert "test/mrr_umls" in test(f"{folders[1]},./umls")


@pytest.mark.parametrize("names", ["umls", "umls,UMLS", "umls, umls", "umls,", "", []])
def test_a_mixture_needs_two_different_graphs(names):
    with pytest.raises(UsageError, match="at least two different data sets"):
        MixtureDataModule(names=names)


def test_negatives_are_drawn_anew_each_time_a_fact_is_used(folders, monkeypatch):
    """An epoch may use a fact of a small graph several times, and facts of two graphs may share a number."""
    names = Counter()
    original = kg_completion.sample_negatives

    def noting(index, *known, seed, epoch, **more):
        names.update({(seed, epoch, i) for i in index.tolist()})  # called once per step
        return original(index, *known, seed=seed, epoch=epoch, **more)

    monkeypatch.setattr(kg_completion, "sample_negatives", noting)
    task = KGCompletion(lambda spec: KnowFormerAny(spec, hidden_channels=8, num_layers=1), loss="bce")
    dm = MixtureDataModule(names=folders, batch_size=4, epoch_queries=80, neighbourhood=None)
    trainer = Trainer(
        max_epochs=2, limit_val_batches=0, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, dm)
    assert len(names) > 140 and max(names.values()) == 1
