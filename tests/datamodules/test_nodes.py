"""Batches of NodeDataModule: whole graphs and random parts, for any number of ranks, and resumed."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.node_graphs import small_parts, write_npz, yes_no_labels

from graphzoo.datamodules import NodeDataModule, base
from graphzoo.datamodules.node_batches import PartSampler, WholeGraphSampler
from graphzoo.datasets import NodeGraph, NodeSplit, load_node_graph
from graphzoo.errors import UsageError
from graphzoo.inference.sources import stored_node_graph
from graphzoo.sampling import partition


@pytest.fixture
def path(tmp_path):
    return write_npz(tmp_path / "small.npz")


def make(path, **settings):
    datamodule = NodeDataModule(name="nodes", path=path, **settings)
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def test_a_whole_graph_is_one_batch_per_epoch(path):
    datamodule = make(path)
    loader = datamodule.train_dataloader(epoch=3)
    (batch,) = list(loader)
    assert len(loader) == 1 and batch.index is None and batch.epoch == 3 and batch.number == 0
    assert batch.x is datamodule.graph.x and batch.edge_index is datamodule.graph.edge_index
    assert torch.equal(batch.target, datamodule.split.train) and batch.num_global == len(batch)
    for part, loader in (("valid", datamodule.val_dataloader()), ("test", datamodule.test_dataloader())):
        (batch,) = list(loader)
        assert torch.equal(batch.target, getattr(datamodule.split, part))
    assert datamodule.spec.in_channels == 12 and datamodule.spec.num_classes == 3


@pytest.mark.parametrize("cut", ["all", "train"])
def test_parts_hold_every_node_once_per_epoch(path, cut):
    datamodule = make(path, batch_size=13, partition=cut)
    graph, train = datamodule.graph, datamodule.split.train
    batches = list(datamodule.train_dataloader(epoch=1))
    nodes = torch.cat([batch.index for batch in batches])
    everything = torch.arange(60) if cut == "all" else train
    assert torch.equal(nodes.sort().values, everything)
    targets = torch.cat([batch.index[batch.target] for batch in batches])
    assert torch.equal(targets.sort().values, train), "no label outside the training split is looked at"
    for batch in batches:
        assert torch.equal(batch.x, graph.x[batch.index]) and torch.equal(batch.y, graph.y[batch.index])
        assert batch.num_global == len(batch)
        inside = torch.isin(graph.edge_index, batch.index).all(0)
        assert torch.equal(batch.index[batch.edge_index], graph.edge_index[:, inside])


def order(datamodule, epoch):
    return [batch.index.tolist() for batch in datamodule.train_dataloader(epoch=epoch)]


def test_parts_depend_only_on_seed_and_epoch(path):
    datamodule = make(path, batch_size=20, seed=5)
    state = torch.get_rng_state()
    assert order(datamodule, 0) == order(make(path, batch_size=20, seed=5), 0)
    assert order(datamodule, 0) != order(datamodule, 1)
    assert order(datamodule, 0) != order(make(path, batch_size=20, seed=6), 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loader_is_resumed_within_an_epoch(path):
    datamodule = make(path, batch_size=13)
    whole = order(datamodule, 2)
    loader = datamodule.train_dataloader(epoch=2)
    first = iter(loader)
    begun = [next(first).index.tolist() for _ in range(2)]
    rest = datamodule.train_dataloader(epoch=2)
    rest.load_state_dict(loader.state_dict())
    assert begun + [batch.index.tolist() for batch in rest] == whole
    other = make(path, batch_size=30).train_dataloader(epoch=2)
    with pytest.raises(UsageError, match="5 loader items, but the epoch now has 2"):
        other.load_state_dict(loader.state_dict())


def parts_of(world, rank, accumulate=1, batch_size=13):
    is_target = torch.arange(60) % 2 == 0

    def cut(epoch):
        return partition(60, batch_size, seed=0, epoch=epoch)

    return list(PartSampler(cut, len(cut(0)), is_target, accumulate, rank, world))


def test_ranks_share_the_parts_in_equal_numbers():
    single = parts_of(1, 0)
    shared = [parts_of(2, rank) for rank in range(2)]
    assert len(single) == 5 and [len(items) for items in shared] == [3, 3]
    dealt = [item for turn in zip(*shared, strict=True) for item in turn]
    assert [item.nodes.tolist() for item in dealt[:5]] == [item.nodes.tolist() for item in single]
    assert dealt[5].target.numel() == 0 and dealt[5].nodes.numel(), (
        "the last rank computes, and counts nothing"
    )
    for turn in zip(*shared, strict=True):
        assert {item.num_global for item in turn} == {sum(item.target.numel() for item in turn)}


def test_two_processes_make_the_steps_of_one_that_accumulates():
    steps = [item.num_global for item in parts_of(1, 0, accumulate=2)]
    assert steps[::2] == [items.num_global for items in parts_of(2, 0)]


def test_ranks_share_the_targets_of_a_whole_graph():
    target = torch.tensor([3, 5, 8, 9, 11])
    items = [next(iter(WholeGraphSampler(target, rank, 2))) for rank in range(2)]
    assert torch.cat([item.target for item in items]).sort().values.tolist() == target.tolist()
    assert {item.num_global for item in items} == {5}


def test_every_rank_evaluates_the_whole_graph(path):
    datamodule = make(path, batch_size=13)
    datamodule.trainer = SimpleNamespace(global_rank=1, world_size=2, current_epoch=0)
    (batch,) = list(datamodule.val_dataloader())
    assert torch.equal(batch.target, datamodule.split.valid) and batch.num_global == len(batch)


@pytest.mark.parametrize(
    ("share", "scale", "expected"),
    [(1.0, 0.5, True), (0.1, 0.5, False), (0.1, 100.0, True), (1.0, None, False)],
)
def test_own_features_are_standardised_by_their_values(tmp_path, share, scale, expected):
    """Dense or large values are measurements and standardised; sparse small ones are words and are not."""
    draw = np.random.default_rng(0)
    there = draw.random((60, 12)) < share
    x = there if scale is None else there * draw.random((60, 12)) * scale
    own = make(write_npz(tmp_path / "a.npz", x=x.astype(np.float32)))
    assert (own.transform.mean is not None) is expected


def test_standardisation_of_own_features_can_be_switched_off(tmp_path):
    parts = small_parts()
    years = write_npz(tmp_path / "b.npz", x=parts["x"] * 100)
    own = make(years)
    assert torch.allclose(own.graph.x.std(0, correction=0), torch.ones(12), atol=1e-5)
    assert "standardised" in own.features_in_words
    left = make(years, standardize_features=False)
    assert torch.equal(left.graph.x, torch.from_numpy(parts["x"] * 100)) and left.features_in_words == ""
    asked = make(years, standardize_features=True)
    assert asked.transform.mean is not None and asked.features_in_words == ""
    rows = make(years, normalize_features=True)
    assert rows.transform.mean is None and rows.transform.normalize
    assert len({module.fingerprint for module in (own, left, rows)}) == 3


def test_fingerprints_depend_on_the_treatment_of_features(path):
    plain, normal = make(path), make(path, normalize_features=True)
    assert torch.allclose(normal.graph.x.sum(1), torch.ones(60))
    reduced = make(path, reduce_channels=4)
    assert reduced.spec.in_channels == 4
    other = make(path, split="random-50-25-25", split_index=1)
    prints = [module.fingerprint for module in (plain, normal, reduced)]
    assert len(set(prints)) == 3 and other.fingerprint == plain.fingerprint
    assert other.describe_split()["fingerprint"] != plain.describe_split()["fingerprint"]
    assert other.describe_split()["index"] == 1


def test_parts_of_sparse_features_are_sparse(tmp_path):
    dense = make(write_npz(tmp_path / "dense.npz"), batch_size=13)
    sparse = make(write_npz(tmp_path / "dense2.npz"), batch_size=13)
    graph = dense.graph
    sparse._graph = NodeGraph(
        graph.name, graph.x.to_sparse_csr(), graph.edge_index, graph.y, graph.class_names, splits=graph.splits
    )
    for one, other in zip(dense.train_dataloader(epoch=0), sparse.train_dataloader(epoch=0), strict=True):
        assert other.x.layout is torch.sparse_csr and torch.equal(other.x.to_dense(), one.x)


def test_parts_have_no_edges_if_edges_are_skipped(path):
    datamodule = make(path, batch_size=13)
    datamodule.skip_edges = True
    assert all(batch.edge_index is None for batch in datamodule.train_dataloader(epoch=0))


def test_only_labels_and_targets_of_a_whole_graph_are_moved(path):
    (batch,) = list(make(path).train_dataloader(epoch=0))
    moved = batch.to("meta")
    assert moved.y.device.type == moved.target.device.type == "meta"
    assert moved.x is batch.x and moved.edge_index is batch.edge_index


def test_a_graph_is_saved_with_its_run_unless_it_is_large(path, tmp_path, monkeypatch):
    datamodule = make(path, reduce_channels=4)
    datamodule.save_artifacts(tmp_path / "run")
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    stored = NodeGraph.load(tmp_path / "run" / meta["graph"])
    assert stored.fingerprint == meta["graph_fingerprint"] and stored.x.shape == (60, 12), "raw features"
    assert np.load(tmp_path / "run" / "projection.npy").shape == (12, 4)
    assert meta["kind"] == "nodes" and meta["path"] == [path] and meta["spec"]["in_channels"] == 4

    monkeypatch.setattr(base, "_KEPT_BYTES", 100)
    datamodule.save_artifacts(tmp_path / "large")
    assert json.loads((tmp_path / "large" / "meta.json").read_text())["graph"] is None
    assert not (tmp_path / "large" / "node_graph.npz").exists()


def test_the_neighbor_metric_is_saved_with_a_run(tmp_path, monkeypatch):
    near = NodeDataModule("digits", neighbor_metric="cosine")
    near.setup()
    (cosine, euclidean) = (load_node_graph("digits", neighbor_metric=m) for m in ("cosine", "euclidean"))
    assert torch.equal(near.graph.edge_index, cosine.edge_index)
    monkeypatch.setattr(base, "_KEPT_BYTES", 0)  # the graph is too large to be saved
    near.save_artifacts(tmp_path / "graph")
    assert stored_node_graph(tmp_path).fingerprint == cosine.fingerprint != euclidean.fingerprint


def test_multi_label_data_have_a_row_of_labels_per_node(tmp_path):
    datamodule = make(write_npz(tmp_path / "labels.npz", y=yes_no_labels()), batch_size=20)
    assert datamodule.spec.is_multi_label and datamodule.spec.num_classes == 4
    assert all(batch.y.shape[1] == 4 for batch in datamodule.train_dataloader(epoch=0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "cora", "path": "x"}, "both the data set name='cora' and your own path='x'"),
        ({"name": "nodes"}, "name='nodes' means your own graph; give path=FILE"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"partition": "half"}, "partition must be one of all, train, got 'half'"),
        ({"partition": "train"}, "needs batch_size"),
        ({"split_index": -1}, "split_index must be at least 0 and below 4,294,967,296, got -1"),
        ({"path": "x", "num_neighbors": 5}, "num_neighbors is for data sets without a graph"),
        ({"path": "x", "neighbor_metric": "cosine"}, "neighbor_metric is for data sets without a graph"),
        ({"name": "digits", "neighbor_metric": "l1"}, "neighbor_metric must be one of euclidean, cosine"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        NodeDataModule(**settings)


def test_graphs_without_file_split_or_validation_part_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no_such.npz"):
        make(str(tmp_path / "no_such.npz"))
    with pytest.raises(RuntimeError, match=r"call setup\(\) first"):
        _ = NodeDataModule().graph
    with pytest.raises(UsageError, match="unknown split 'pubic'"):
        make(write_npz(tmp_path / "small.npz"), split="pubic")
    graph = make(str(tmp_path / "small.npz")).graph
    empty = torch.empty(0, dtype=torch.int64)
    split = NodeSplit("half", 0, torch.arange(30), empty, torch.arange(30, 60))
    dataclasses.replace(graph, splits={"half": (split,)}, default_split="half").save(tmp_path / "half.npz")
    with pytest.raises(
        UsageError, match=r"(?s)valid part of split 'half' is empty.*\nMove some nodes into that part"
    ):
        make(str(tmp_path / "half.npz"))


def test_classes_missing_in_a_part_give_a_warning(tmp_path, recwarn):
    parts = small_parts() | dict.fromkeys(("train_mask", "val_mask", "test_mask"))
    parts["y"] = (np.arange(60) < 20).astype(np.int64)
    make(write_npz(tmp_path / "whole.npz", **parts))
    assert not [warning for warning in recwarn if "is of class" in str(warning.message)]
    parts["y"][1:20] = 0
    make(write_npz(tmp_path / "rare.npz", **parts))
    seen = [str(warning.message) for warning in recwarn if "is of class" in str(warning.message)]
    assert len(seen) == 2 and all("node of split 'random-50-25-25' is of class '1'" in line for line in seen)
    assert all("draw another one (--data.split_index 1), choose other" in line for line in seen)
    parts |= small_parts() | {"y": parts["y"]}
    make(write_npz(tmp_path / "given.npz", **parts))
    seen = [str(warning.message) for warning in recwarn if "is of class" in str(warning.message)][2:]
    assert len(seen) == 2 and all(line.endswith("'1'; label more nodes") for line in seen)
