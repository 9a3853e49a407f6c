"""Batches of KGDataModule for any batch size, number of workers and number of ranks."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphzoo.cli import options
from graphzoo.datamodules import KGDataModule, kg, left_out
from graphzoo.datasets import KnowledgeGraph
from graphzoo.errors import DataError, UsageError


class Ranks:
    """Stand-in for a trainer, with the attributes that the data module reads."""

    def __init__(self, rank=0, world_size=1, epoch=0):
        self.global_rank, self.world_size, self.current_epoch = rank, world_size, epoch


def module(path, *, rank=0, world_size=1, **kwargs):
    dm = KGDataModule(path=path, **kwargs)
    if world_size > 1:
        dm.trainer = Ranks(rank, world_size)
    dm.setup()
    return dm


def training_items(dm, epoch=0):
    return list(dm.train_dataloader(epoch))


def directed(batch):
    """Queries of a batch as (position, head, relation, tail)."""
    columns = (batch.index, batch.head, batch.relation, batch.tail)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def global_batches(path, *, world_size=1, epoch=0, **kwargs):
    """Removed facts of each step -> its queries, from all ranks and micro-batches."""
    steps = defaultdict(list)
    for rank in range(world_size):
        dm = module(path, rank=rank, world_size=world_size, **kwargs)
        for batch in training_items(dm, epoch):
            assert len(batch) <= (dm.micro_batch_size or dm.batch_size)
            assert batch.epoch == epoch
            assert batch.num_global == batch.removed.numel()
            steps[tuple(batch.removed.tolist())] += directed(batch)
    return dict(steps)


def test_settings_of_numpy_and_paths_mean_the_same(toy, tmp_path):
    made = [
        module(toy, seed=3, batch_size=4),
        KGDataModule(path=Path(toy), seed=np.int64(3), batch_size=np.int32(4)),
    ]
    made[1].setup()
    first, second = (torch.cat([batch.index for batch in training_items(dm)]) for dm in made)
    assert torch.equal(first, second)
    for dm, name in zip(made, "ab", strict=True):
        (tmp_path / name).mkdir()
        dm.save_artifacts(tmp_path / name)
    assert (tmp_path / "a/meta.json").read_text() == (tmp_path / "b/meta.json").read_text()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), batch_size=st.integers(1, 70), epoch=st.integers(0, 3), seed=st.integers(0, 2))
def test_micro_batches_and_ranks_partition_the_same_global_batches(toy, data, batch_size, epoch, seed):
    micro_batch_size = data.draw(st.none() | st.integers(1, batch_size))
    world_size = data.draw(st.integers(1, min(4, batch_size)))
    setting = {"batch_size": batch_size, "seed": seed, "epoch": epoch}
    plain = global_batches(toy, **setting)
    cut = global_batches(toy, **setting, micro_batch_size=micro_batch_size, world_size=world_size)
    assert list(map(sorted, plain.values())) == list(map(sorted, cut.values()))
    assert list(plain) == list(cut)
    # Every fact occurs once per epoch, in batches of the given size.
    positions = [query[0] for queries in cut.values() for query in queries]
    assert sorted(positions) == list(range(61))
    assert [len(removed) for removed in plain] == [min(batch_size, 61 - i) for i in range(0, 61, batch_size)]
    for removed, queries in plain.items():
        assert [query[0] for query in queries] == list(removed)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_each_micro_batch_hides_its_own_facts(toy, world_size):
    """The four micro-batches of a batch are the same in one, two and four processes."""
    setting = {"batch_size": 20, "micro_batch_size": 5, "hide": "micro_batch"}
    found = []
    for rank in range(world_size):
        for batch in training_items(module(toy, rank=rank, world_size=world_size, **setting)):
            assert torch.equal(batch.removed, batch.index)
            assert batch.num_global in (20, 1)
            found.append(batch.index.tolist())
    single = [batch.index.tolist() for batch in training_items(module(toy, **setting))]
    assert sorted(part for part in found if part) == sorted(part for part in single if part)


@pytest.mark.parametrize("batch_size", [8, 7, 64])
def test_half_of_every_batch_has_inverse_relations(toy, batch_size):
    dm = module(toy, batch_size=batch_size)
    triples = dm.triples("train").tolist()
    for batch in training_items(dm):
        inverse = batch.relation >= 3
        assert abs(int(inverse.sum()) * 2 - len(batch)) <= 1
        for position, head, relation, tail in directed(batch):
            fact = [tail, relation - 3, head] if relation >= 3 else [head, relation, tail]
            assert fact == triples[position]


def test_order_depends_only_on_seed_and_epoch(toy):
    def order(dm, epoch):
        return torch.cat([batch.index for batch in training_items(dm, epoch)]).tolist()

    dm = module(toy, batch_size=8)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = order(dm, 0)
    # The order is the same with another module, global random state or workers, and leaves that state alone.
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert order(module(toy, batch_size=8), 0) == first
    assert order(module(toy, batch_size=8, num_workers=2), 0) == first
    assert order(dm, 1) != first
    assert order(module(toy, batch_size=8, seed=1), 0) != first
    loader = dm.train_dataloader()
    loader.set_epoch(1)
    assert torch.cat([batch.index for batch in loader]).tolist() == order(dm, 1)
    # Some facts change their direction between epochs.
    turned = [
        {query[0]: query[2] for batch in training_items(dm, e) for query in directed(batch)} for e in (0, 1)
    ]
    assert turned[0] != turned[1]


def test_all_ranks_make_the_same_number_of_steps(toy):
    for world_size in (2, 3, 4):
        for micro_batch_size in (1, 3, 8):
            setting = {"batch_size": 16, "micro_batch_size": micro_batch_size, "world_size": world_size}
            modules = [module(toy, rank=rank, **setting) for rank in range(world_size)]
            sizes = {len(dm.train_dataloader()) for dm in modules}
            assert len(sizes) == 1 and sizes == {len(training_items(modules[0]))}
            items = len(training_items(modules[0]))
            full, rest = divmod(61, 16)
            steps = modules[0].num_micro_batches
            assert full * steps < items <= full * steps + steps and rest


def test_num_micro_batches(toy):
    assert module(toy, batch_size=64).num_micro_batches == 1
    assert module(toy, batch_size=60, micro_batch_size=20).num_micro_batches == 3
    assert module(toy, batch_size=60, micro_batch_size=21).num_micro_batches == 3
    assert module(toy, batch_size=60, micro_batch_size=20, world_size=2).num_micro_batches == 2
    # The split is smaller than the batch: one step of 61 queries.
    assert module(toy, batch_size=500, micro_batch_size=50).num_micro_batches == 2


def evaluation(path, split, *, world_size=1, **kwargs):
    """Target index -> (head, relation, target, filter), from all ranks; no index may occur twice."""
    answers, queries, lengths = {}, [], set()
    for rank in range(world_size):
        dm = module(path, rank=rank, world_size=world_size, **kwargs)
        loader = dm.val_dataloader() if split == "valid" else dm.test_dataloader()
        batches = list(loader)
        assert len(batches) == len(loader)
        lengths.add(len(batches))
        for batch in batches:
            assert len(batch) <= dm.eval_batch_size
            queries += list(zip(batch.head.tolist(), batch.relation.tolist(), strict=True))
            assert batch.target_row.tolist() == sorted(batch.target_row.tolist())
            assert batch.known_row.tolist() == sorted(batch.known_row.tolist())
            for row, target, index in zip(
                batch.target_row.tolist(), batch.target.tolist(), batch.target_index.tolist(), strict=True
            ):
                assert index not in answers
                known = frozenset(batch.known_entity[batch.known_row == row].tolist())
                answers[index] = (int(batch.head[row]), int(batch.relation[row]), target, known)
    assert len(lengths) == 1, "a rank with fewer batches would leave the others waiting"
    assert len(queries) == len(set(queries))
    assert set(queries) == {(head, relation) for head, relation, _, _ in answers.values()}
    return answers


def expected_evaluation(triples, known_triples, num_relations):
    known = defaultdict(set)
    for head, relation, tail in known_triples.tolist():
        known[head, relation].add(tail)
        known[tail, relation + num_relations].add(head)
    expected = {}
    for i, (head, relation, tail) in enumerate(triples.tolist()):
        inverse = relation + num_relations
        expected[i] = (head, relation, tail, frozenset(known[head, relation]))
        expected[i + len(triples)] = (tail, inverse, head, frozenset(known[tail, inverse]))
    return expected


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize(("batch_size", "world_size"), [(1, 1), (4, 1), (64, 1), (1, 3), (5, 2), (64, 4)])
def test_evaluation_has_every_target_once_with_its_filter(toy, split, batch_size, world_size):
    graph = module(toy).knowledge_graph
    expected = expected_evaluation(graph.split(split), graph.known_triples(), 3)
    assert evaluation(toy, split, eval_batch_size=batch_size, world_size=world_size) == expected


@pytest.mark.parametrize("num_workers", [0, 1])
def test_ranks_without_queries_get_empty_batches(toy, num_workers):
    """All ranks need the same number of batches for their collective operations."""
    ranks = [
        list(module(toy, rank=rank, world_size=3, num_workers=num_workers).val_dataloader())
        for rank in range(3)
    ]
    assert [len(batches) for batches in ranks] == [1, 1, 1]
    full = ranks[0][0]
    assert full.target.numel() == 26
    for empty in (ranks[1][0], ranks[2][0]):
        assert len(empty) == 0
        columns = dict(vars(empty))
        assert columns.pop("source") == 0
        for name, value in columns.items():
            assert value.shape == (0,) and value.dtype == getattr(full, name).dtype == torch.int64


def test_inductive_evaluation(pair):
    dm = module(pair)
    first, second = dm.knowledge_graph, dm.inference_graph
    known = torch.cat([first.train, first.valid])
    assert evaluation(pair, "valid", eval_batch_size=5) == expected_evaluation(first.valid, known, 3)
    assert evaluation(pair, "test", eval_batch_size=5) == expected_evaluation(
        second.test, second.known_triples(), 3
    )
    assert torch.equal(dm.triples("test"), second.test) and torch.equal(dm.triples("valid"), first.valid)
    assert dm.spec.num_nodes == 9 and dm.spec.num_relations == 3


def test_validation_on_the_second_graph(pair):
    """Messages pass along its training facts, and its test triples are not in the filter."""
    dm = module(pair, validate_on="inference")
    second = dm.inference_graph
    known = torch.cat([second.train, second.valid])
    assert evaluation(pair, "valid", validate_on="inference") == expected_evaluation(second.valid, known, 3)
    assert evaluation(pair, "test", validate_on="inference") == evaluation(pair, "test")
    assert dm.graph("valid") is dm.graph("test") is not dm.graph("train")
    assert torch.equal(dm.triples("valid"), second.valid)
    split = dm.describe_split()
    assert split["valid"] == len(second.valid) and split["validate_on"] == "inference"
    assert "validate_on" not in module(pair).describe_split()
    assert dm.describe_graph()["valid triples of the second graph"] == len(second.valid)


def test_validation_on_a_second_graph_without_validation_triples_is_refused(toy, pair, tmp_path):
    with pytest.raises(UsageError, match="is one graph\nGive --data.validate_on training"):
        module(toy, validate_on="inference")
    (tmp_path / "second" / "valid.txt").unlink()
    with pytest.raises(UsageError, match="second has no validation triples\nAdd its valid file"):
        module(pair, validate_on="inference")
    assert len(module(pair).triples("valid")) == 13
    for path in (toy, pair):  # testing such a run on other data needs no validation triples
        dm = KGDataModule(path=path, validate_on="inference")
        dm.setup("test")
        assert len(dm.triples("test"))


def test_validation_on_a_second_graph_that_is_left_out_is_refused(pair, monkeypatch):
    graphs = kg.from_files(pair)
    monkeypatch.setattr(left_out, "load_knowledge_graph", lambda *_, **__: graphs)
    dm = KGDataModule(path=pair, leave_out="nell995-v1", validate_on="inference")
    with pytest.raises(UsageError, match="validates on second, which --data.leave_out nell995-v1 leaves out"):
        dm.setup()
    KGDataModule(path=pair, leave_out="nell995-v1").setup()


def test_workers_do_not_change_evaluation(toy):
    assert evaluation(toy, "valid", eval_batch_size=4, num_workers=2) == evaluation(
        toy, "valid", eval_batch_size=64
    )


def test_training_answers_know_the_training_split_only(toy, pair):
    for path in (toy, pair):
        dm = module(path)
        head, relation, tail = dm.triples("train").unbind(1)
        everything = torch.cartesian_prod(torch.arange(9), torch.arange(6))
        assert int(dm.answers("train").counts(*everything.unbind(1)).sum()) == 2 * 61
        row, entity = dm.answers("train").lookup(head, relation)
        assert set(zip(range(61), tail.tolist(), strict=True)) <= set(
            zip(row.tolist(), entity.tolist(), strict=True)
        )


def test_one_graph_has_the_same_answers_in_validation_and_test(toy):
    dm = module(toy)
    assert dm.answers("valid") is dm.answers("test")


def test_validation_sample_is_fixed(toy):
    full = evaluation(toy, "valid")
    sample = evaluation(toy, "valid", max_valid_triples=5, eval_batch_size=2)
    assert len(sample) == 10
    # Indices are those of the whole split of 13 triples, so the directions of a triple are 13 apart.
    assert {index % 13 for index in sample} == {index for index in sample if index < 13}
    assert all(full[index] == value for index, value in sample.items())
    assert evaluation(toy, "valid", max_valid_triples=5, seed=3) == sample
    assert evaluation(toy, "valid", max_valid_triples=99) == full
    assert len(evaluation(toy, "test", max_valid_triples=5)) == 22


def graph_facts(graph):
    return list(zip(*graph.edge_index.tolist(), graph.edge_type.tolist(), strict=True))


def test_message_graph_holds_training_facts_and_inverses_only(toy):
    dm = module(toy)
    graph = dm.graph("train")
    train = dm.triples("train").tolist()
    assert graph.num_nodes == 9 and graph.num_relations == 6
    facts = graph_facts(graph)
    assert facts[:61] == [(head, tail, relation) for head, relation, tail in train]
    assert facts[61:] == [(tail, head, relation + 3) for head, relation, tail in train]
    for split in ("valid", "test"):
        for head, relation, tail in dm.triples(split).tolist():
            assert (head, tail, relation) not in facts and (tail, head, relation + 3) not in facts
    for split in ("train", "valid", "test", "predict"):
        assert dm.graph(split) is graph


def test_inductive_message_graphs(pair):
    dm = module(pair)
    assert dm.graph("valid") is dm.graph("train")
    assert dm.graph("test") is dm.graph("predict") is not dm.graph("train")
    second = dm.graph("test")
    assert (second.num_nodes, second.num_edges, second.num_relations) == (7, 80, 6)
    expected = [(head, tail, relation) for head, relation, tail in dm.inference_graph.train.tolist()]
    assert graph_facts(second)[:40] == expected


def test_message_graphs_of_folders_with_the_same_name(tmp_path, pair):
    """The names of folders do not identify a graph."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    (tmp_path / "first").rename(tmp_path / "a" / "kg"), (tmp_path / "second").rename(tmp_path / "b" / "kg")
    dm = module([str(tmp_path / "a" / "kg"), str(tmp_path / "b" / "kg")])
    assert dm.graph("train").num_nodes == 9 and dm.graph("test").num_nodes == 7


def test_umls_by_name_without_a_trainer(monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    dm = KGDataModule("UMLS", batch_size=512)
    dm.prepare_data()
    dm.setup("fit")
    assert dm.name == "umls"
    assert sum(len(batch) for batch in dm.train_dataloader()) == 5216
    assert sum(batch.target.numel() for batch in dm.test_dataloader()) == 1322


def test_names(toy):
    assert [KGDataModule(name).name for name in (None, "UMLS", "FB15k-237")] == ["umls", "umls", "fb15k237"]
    assert [KGDataModule(name, path=toy).name for name in (None, "kg", "KG")] == ["kg"] * 3


def test_graphs_are_loaded_from_the_artifacts(toy, pair, tmp_path):
    for number, path in enumerate((toy, pair)):
        dm = module(path)
        folder = tmp_path / f"run{number}" / "graph"
        dm.save_artifacts(folder)
        meta = json.loads((folder / "meta.json").read_text())
        assert meta["fingerprint"] == dm.fingerprint and meta["path"] == path
        loaded = [KnowledgeGraph.load(folder / name) for name in meta["graphs"]]
        graphs = [graph for graph in (dm.knowledge_graph, dm.inference_graph) if graph is not None]
        assert [graph.fingerprint for graph in loaded] == [graph.fingerprint for graph in graphs]
        assert len(list(folder.iterdir())) == 1 + len(graphs)
    assert module(toy).fingerprint != module(pair).fingerprint != module(pair[0]).fingerprint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
        ({"eval_batch_size": -1}, "eval_batch_size must be at least 1"),
        ({"max_valid_triples": 0}, "max_valid_triples must be at least 1"),
        ({"batch_size": 4, "micro_batch_size": 5}, "micro_batch_size 5 exceeds batch_size 4"),
        ({"num_workers": -1}, "num_workers"),
        ({"validate_on": "test"}, "validate_on must be"),
        ({"hide": "device"}, "hide must be"),
        ({"hide": "micro_batch"}, "give --data.micro_batch_size"),
        ({"hide": "micro_batch", "micro_batch_size": 4, "neighbourhood": 9}, "leave out --data.hide"),
        ({"seed": -1}, "seed"),
        ({"name": "wn18rr", "path": "x"}, "name='wn18rr' and your own path='x'.*\\n.*--data kg --data.path"),
        ({"name": "umls", "path": "x"}, "name='umls' and your own path='x'"),
        ({"name": "kg"}, "give path="),
        ({"name": "fb15k-273"}, "fb15k237"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        KGDataModule(**arguments)


def test_wrong_calls_are_refused(toy):
    dm = KGDataModule(path=toy)
    with pytest.raises(RuntimeError, match="setup"):
        dm.train_dataloader()
    dm.setup()
    for call in (dm.graph, dm.triples, dm.answers):
        with pytest.raises(ValueError, match="train, valid, test"):
            call("dev")
    with pytest.raises(ValueError, match="less than the 4 processes"):
        module(toy, batch_size=3, world_size=4)


def test_a_loader_begins_with_the_trainers_epoch(toy):
    dm = module(toy, batch_size=8)
    expected = [batch.index.tolist() for batch in training_items(dm, 2)]
    dm.trainer = Ranks(epoch=2)
    assert [batch.index.tolist() for batch in dm.train_dataloader()] == expected


def test_files_are_fetched_before_setup_if_there_is_a_trainer(tmp_path):
    """Lightning calls `prepare_data` once per machine, and `setup` in every process."""
    dm = KGDataModule("wn18rr", root=str(tmp_path), download=True)
    dm.trainer = Ranks()
    with pytest.raises(DataError, match="downloads are switched off"):
        dm.setup()


def test_an_empty_test_split_is_reported(tmp_path, caplog):
    write = (tmp_path / "g").mkdir() or (lambda name, text: (tmp_path / "g" / name).write_text(text))
    write("train.txt", "a\tr\tb\n"), write("valid.txt", "b\tr\ta\n")
    second = tmp_path / "h"
    second.mkdir()
    (second / "train.txt").write_text("x\tr\ty\n")
    dm = module([str(tmp_path / "g"), str(second)])
    assert list(dm.test_dataloader()) == []
    assert "test split is empty" in caplog.text
    with pytest.raises(UsageError, match="^h has no test triples"):
        dm.setup("test")


def test_a_data_set_can_be_left_out(tmp_path, monkeypatch):
    """Some of the own triples are triples of UMLS."""
    umls = KGDataModule("umls")
    umls.setup()
    graph = umls.knowledge_graph
    names = graph.entities, graph.relations, graph.entities
    triples = graph.known_triples()
    known = [
        [part[number] for part, number in zip(names, triple, strict=True)]
        for triple in triples[triples[:, 1] == triples[:, 1].mode().values][:25].tolist()
    ]
    entity = graph.entities[0]

    def write(*own):
        lines = ["\t".join(row) + "\n" for row in [*own, *known]]
        for split, part in (("train", lines[:20]), ("valid", lines[20:22]), ("test", lines[22:])):
            (tmp_path / f"{split}.txt").write_text("".join(part))
        return str(tmp_path)

    data = KGDataModule(path=write(("me", "knows", entity), (entity, "knows", "me")), leave_out="UMLS,")
    data.setup()
    assert [len(data.triples(split)) for split in ("train", "valid", "test")] == [2, 0, 0]
    with pytest.raises(UsageError, match="no training triples left without umls"):
        KGDataModule(path=write(), leave_out="umls").setup()
    assert len(KGDataModule(leave_out="inductive, umls").leave_out) == 13
    fetched = []
    monkeypatch.setattr(
        kg, "load_knowledge_graph", lambda name, root, download: fetched.append((name, download))
    )
    KGDataModule("umls", leave_out="nations,kinship", download=True).prepare_data()
    assert fetched == [("umls", True), ("nations", True), ("kinship", True)], (
        "fetched before `setup`, which may not"
    )
    with pytest.raises(ValueError, match="unknown knowledge graph 'umlz'"):
        KGDataModule(leave_out="umlz")


def test_the_drawn_split_of_own_triples_varies_with_its_index(tmp_path, caplog):
    caplog.set_level("INFO")
    triples = [(f"e{n}", "r", f"e{(n + step) % 20}") for n in range(20) for step in (2, 3, 5, 7)]
    path = tmp_path / "facts.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    first, again, other = (module(str(path), split_index=index) for index in (2, 2, 0))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.describe_split() == again.describe_split()
    described = [each.describe_split() for each in (first, other)]
    assert described[0]["triples"] == described[1]["triples"]
    assert [each["index"] for each in described] == [2, 0]
    assert first.fingerprint == KGDataModule(triples=triples, split_index=2).fingerprint
    assert first.num_splits is None and KGDataModule("umls").num_splits == 1
    caplog.clear()
    assert KGDataModule(path=str(path), split_index=3).num_splits is None
    section = {"class_path": "graphzoo.datamodules.KGDataModule", "init_args": {"path": str(path)}}
    assert options._num_splits(section, 4) is None  # for --splits
    assert [line.partition("seed ")[2][0] for line in caplog.messages if "split drawn" in line] == ["3", "4"]


def test_an_index_of_a_split_that_is_not_drawn_is_refused(tiny_kg):
    with pytest.raises(UsageError, match="umls has one split, 0: there is no split_index 1"):
        KGDataModule("umls", split_index=1).setup()
    with pytest.raises(UsageError, match="one split, 0"):
        KGDataModule(path=str(tiny_kg), split_index=1).setup()
    with pytest.raises(UsageError, match="one split, 0"):
        KGDataModule(triples=[("a", "r", "b")], valid=[("b", "r", "a")], test=[], split_index=1)
    for index in (-1, 2**32):
        with pytest.raises(UsageError, match="split_index must be at least 0 and below 4,294,967,296"):
            KGDataModule("umls", split_index=index)


def test_checkpoints_of_earlier_code_know_their_triples():
    """Recorded: a checkpoint is compared with the data by this value."""
    data = KGDataModule("umls")
    data.setup()
    assert data.describe_split()["triples"].startswith("a5780bc137788d2922eb848a")
