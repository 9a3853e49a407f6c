"""NodeModel: labels, probabilities and states of nodes, on the graph of the run and on others."""

import dataclasses
import json
import shutil
import threading
import warnings
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from helpers.node_graphs import small_parts, write_npz
from lightning.pytorch import LightningDataModule
from torch_geometric.data import Data

import graphzoo
from graphzoo.datamodules import KGDataModule, NodeDataModule, base
from graphzoo.datamodules import nodes as nodes_module
from graphzoo.datasets import NodeGraph, node_graph_from_data, node_graph_from_files
from graphzoo.errors import UsageError
from graphzoo.inference import sources as sources_module
from graphzoo.inference import trained as trained_module
from graphzoo.layers.noise import in_evaluation


def train(run, datamodule, **settings):
    """Train some steps and write a run directory like `graphzoo fit`."""
    from lightning.pytorch import Trainer, seed_everything

    from graphzoo.encoders import GALiT
    from graphzoo.tasks import NodeClassification

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_everything(1, verbose=False)
        task = NodeClassification(lambda spec: GALiT(spec, hidden_channels=8, gamma=0.4), lr=0.05, **settings)
        trainer = Trainer(
            max_epochs=30, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(task, datamodule=datamodule)
        trainer.save_checkpoint(run / "checkpoints" / "best.ckpt")
        datamodule.save_artifacts(run / "graph")
        metrics = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    return run, task, datamodule, metrics


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    path = write_npz(folder / "small.npz")
    return train(folder / "run", NodeDataModule("nodes", path, normalize_features=True))


@pytest.fixture
def model(trained):
    return graphzoo.load(trained[0])


def test_labels_have_the_accuracy_of_the_test(trained, model):
    _, _, datamodule, metrics = trained
    table = model.predict()
    assert list(table) == ["node", "label", "probability"] and len(table) == 60
    test = datamodule.split.test.numpy()
    right = table["label"].astype(int).to_numpy()[test] == datamodule.graph.y.numpy()[test]
    assert right.mean() == pytest.approx(metrics["test/acc"]) and right.mean() > 0.8


def test_a_test_on_another_graph_treats_features_as_predict_does(tmp_path):
    from lightning.pytorch import Trainer

    path = write_npz(tmp_path / "small.npz")
    settings = {"standardize_features": True}
    run, task, datamodule, _ = train(tmp_path / "run", NodeDataModule("nodes", path, **settings))
    raw = datamodule._raw
    other = dataclasses.replace(raw, x=raw.x[:, :1] + 0.5 * raw.x, fingerprint="")
    table = graphzoo.load(run).predict(data=other, probabilities=True)
    shares = torch.from_numpy(table.filter(like="probability_").to_numpy())
    nodes = other.split().test
    expected = -shares[nodes, other.y[nodes]].log().mean()
    there = NodeDataModule(data=other, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
        found = trainer.test(task, there, ckpt_path=str(run / "checkpoints" / "best.ckpt"), verbose=False)[0]
        again = NodeDataModule(data=other, **settings)
        in_memory = trainer.test(graphzoo.load(run).task, again, verbose=False)[0]
    assert found["test/loss"] == pytest.approx(expected.item(), rel=1e-4) == in_memory["test/loss"]
    assert again.graph.x.mean(0).abs().max() > 0.1
    again.setup("fit")  # training scales the features again
    assert again.graph.x.mean(0).abs().max() < 1e-5
    known = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["graphzoo"]
    known["features"]["reduce_channels"] = 3
    reduced = NodeDataModule(data=other, standardize_features=True, reduce_channels=3)
    reduced.setup()
    with pytest.raises(UsageError, match="reduced to 3 by a projection learnt from its graph"):
        task.check_data(known, reduced)


def test_a_test_with_fewer_features_is_refused(trained):
    from lightning.pytorch import Trainer

    from graphzoo.encoders import GALiT
    from graphzoo.tasks import NodeClassification

    run, _, datamodule, _ = trained
    same = {"normalize_features": datamodule.normalize_features}
    narrow = dataclasses.replace(datamodule._raw, name="narrow", x=datamodule._raw.x[:, :3], fingerprint="")
    fresh = NodeClassification(lambda spec: GALiT(spec, hidden_channels=8, gamma=0.4))
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    with pytest.raises(UsageError, match="^narrow has 3 features per node, the model was trained with "):
        trainer.test(fresh, NodeDataModule(data=narrow, **same), ckpt_path=run / "checkpoints" / "best.ckpt")


@pytest.mark.parametrize("kind", [np.array, torch.tensor, pd.Series, tuple])
def test_nodes_are_given_in_any_container(model, kind):
    assert model.predict(kind([3, 5])).equals(model.predict([3, 5]))
    assert model.predict(np.int64(3)).equals(model.predict(3)) and len(model.predict(np.array([]))) == 0
    assert model.predict([kind([3])[0], kind([5])[0]]).equals(model.predict([3, 5]))
    assert model.predict(list(torch.tensor([3, 5]))).equals(model.predict([3, 5]))
    mask = torch.arange(model.graph.num_nodes) % 7 == 3
    for given in (mask, mask.numpy(), pd.Series(mask.numpy())):  # masks, as in PyG
        assert model.predict(given).equals(model.predict(mask.nonzero().squeeze(1)))
    with pytest.raises(UsageError, match=rf"a mask of nodes must be \[{len(mask)}\], got \[3\]"):
        model.predict(mask[:3])
    for wrong in (2.5, object()):
        with pytest.raises(UsageError, match="nodes must be a name, a number, or several of them, got"):
            model.predict(wrong)


def test_classes_missing_in_a_part_give_one_warning(tmp_path, recwarn):
    y = (np.arange(60) >= 58).astype(int)  # both nodes of class 1 are in the training part
    for _ in range(2):
        NodeDataModule("nodes", write_npz(tmp_path / "small.npz", y=y)).setup()
        warnings.resetwarnings()
    assert len([warning for warning in recwarn if "is of class" in str(warning.message)]) == 2


def test_probabilities_and_states_are_those_of_the_task(trained, model):
    _, task, datamodule, _ = trained
    graph = datamodule.graph
    with torch.no_grad():
        states = task.eval().encoder(graph.x, graph.edge_index)
        shares = task.decoder(states).softmax(1)
    table = model.predict(probabilities=True, embeddings=True)
    assert np.allclose(table.filter(like="probability_"), shares, atol=1e-5)
    assert np.allclose(table["probability"], shares.amax(1), atol=1e-5)
    assert np.allclose(table.filter(like="state_"), states, atol=1e-5)
    assert np.allclose(model.embed(), states, atol=1e-5) and model.embed().dtype == np.float32
    assert table["label"].tolist() == [str(number) for number in shares.argmax(1).tolist()]


def test_some_nodes_are_answered_in_their_order(model):
    everything = model.predict()
    some = model.predict([7, 3, 7])
    assert some["node"].tolist() == [7, 3, 7]
    assert some["probability"].tolist() == everything["probability"][[7, 3, 7]].tolist()
    assert model.predict("7").equals(model.predict(7))
    empty = model.predict([])
    assert len(empty) == 0 and empty.dtypes.equals(some.dtypes)
    assert np.array_equal(model.embed([5, 2]), model.embed()[[5, 2]])


def test_long_tables_are_made_in_pieces(model, monkeypatch):
    whole = model.predict()
    monkeypatch.setattr(trained_module, "_TABLE_ROWS", 25)
    pieces = list(model.predict_batches())
    assert [len(piece) for piece in pieces] == [25, 25, 10]
    assert pd.concat(pieces, ignore_index=True).equals(whole)


@pytest.mark.parametrize("node", [60, -1, "x", 1.5])
def test_unknown_numbers_of_nodes_are_refused(model, node):
    with pytest.raises(UsageError, match=f"unknown node {node!r}: nodes have the numbers 0 to 59"):
        model.predict([3, node])


def test_nodes_have_names(trained, model):
    names = tuple(f"paper{number}" for number in range(60))
    graph = dataclasses.replace(model.graph, node_names=names, fingerprint="")
    named = graphzoo.load(trained[0], data=graph)
    assert named.predict("paper4")["label"].tolist() == model.predict(4)["label"].tolist()
    assert named.predict()["node"].tolist() == list(names)
    with pytest.raises(UsageError, match="unknown node 'papr4'; nearest: 'paper4'"):
        named.predict("papr4")


def test_a_new_graph_with_the_same_features_is_labelled(trained, model, tmp_path):
    """Inductive use with other nodes and edges and no labels, from an object, a file or at loading."""
    parts = small_parts(seed=9, num_nodes=33)
    new = {name: parts[name] for name in ("x", "edge_index")}
    path = tmp_path / "new.npz"
    np.savez(path, **new)
    graph = NodeGraph(
        "new", torch.from_numpy(new["x"]), torch.from_numpy(new["edge_index"]), torch.full((33,), -1), ()
    )
    from_file = model.predict(data=path)
    assert len(from_file) == 33
    assert (from_file["label"].astype(int).to_numpy() == parts["y"]).mean() > 0.8
    assert from_file["label"].equals(graphzoo.load(trained[0], data=path).predict()["label"])
    # Edges of a file are used in both directions, those of an object as they are.
    both = torch.cat([graph.edge_index, graph.edge_index.flip(0)], 1)
    same = model.predict(data=dataclasses.replace(graph, edge_index=both, fingerprint=""))
    assert np.allclose(same["probability"], from_file["probability"], atol=1e-6)
    assert len(model.predict()) == 60, "the run's own graph is not replaced"


def write_tables(folder, columns):
    """Write a ring of 30 nodes, whose class is the sign of column f, with columns in this order."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    values = {"f": np.tile([-3.0, 3.0], 15) + draw.random(30), "g": draw.random(30), "h": draw.random(30)}
    rows = [["name", "label", *columns]]
    rows += [[f"n{i}", "ab"[i % 2], *(f"{values[name][i]}" for name in columns)] for i in range(30)]
    (folder / "nodes.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (folder / "edges.csv").write_text(
        "source,target\n" + "".join(f"n{i},n{(i + 2) % 30}\n" for i in range(30))
    )
    return folder


@pytest.mark.parametrize("reduce_channels", [None, 1])
def test_columns_of_a_table_are_found_by_name(tmp_path, reduce_channels):
    tables = write_tables(tmp_path / "first", ["f", "g"])
    datamodule = NodeDataModule("nodes", str(tables), reduce_channels=reduce_channels)
    run = train(tmp_path / "run", datamodule)[0]
    model = graphzoo.load(run)
    expected = model.predict()
    other = write_tables(tmp_path / "other", ["h", "g", "f"])
    assert model.predict(data=other).equals(expected)
    assert graphzoo.load(run, data=other).predict().equals(expected)
    with pytest.raises(UsageError, match="no feature 'f', .* it has g, h"):
        model.predict(data=write_tables(tmp_path / "less", ["g", "h"]))


def test_a_test_with_other_columns_is_refused(tmp_path):
    from lightning.pytorch import Trainer

    tables = write_tables(tmp_path / "first", ["f", "g"])
    run = train(tmp_path / "run", NodeDataModule("nodes", str(tables)))[0]
    other = NodeDataModule("nodes", str(write_tables(tmp_path / "other", ["g", "f"])))
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, barebones=False)
    task = graphzoo.load(run).task
    with pytest.raises(UsageError, match="features are f, g, those of other are g, f"):
        trainer.test(task, other, ckpt_path=run / "checkpoints" / "best.ckpt", verbose=False)


def test_other_features_are_refused(model, tmp_path):
    path = write_npz(tmp_path / "narrow.npz", x=small_parts()["x"][:, :7])
    with pytest.raises(UsageError, match="has 7 features per node, the model was trained with 12"):
        model.predict(data=path)
    with pytest.raises(UsageError, match="there is no such path, and no data set"):
        model.predict(data=str(tmp_path / "nothing.npz"))


def test_the_same_graph_is_encoded_once(model, monkeypatch):
    calls = []
    encoder = type(model.task.encoder)
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda self, *a, **k: calls.append(1) or forward(self, *a, **k))
    model.predict(3)
    model.predict(4)
    model.embed()
    assert len(calls) == 1


def test_another_graph_is_encoded_once_until_its_file_changes(model, tmp_path, monkeypatch):
    calls = []
    encoder = type(model.task.encoder)
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda self, *a, **k: calls.append(1) or forward(self, *a, **k))
    path = write_npz(tmp_path / "other.npz", x=small_parts(seed=5)["x"])
    before = model.predict(data=path)
    model.predict(3, data=path)
    assert len(calls) == 1
    write_npz(path, x=small_parts(seed=5)["x"][::-1])
    assert not model.predict(data=path).equals(before) and len(calls) == 2


def test_reduced_features_need_the_run(tmp_path):
    path = write_npz(tmp_path / "small.npz")
    run, task, datamodule, _ = train(tmp_path / "run", NodeDataModule("nodes", path, reduce_channels=5))
    model = graphzoo.load(run)
    assert model.task.encoder.spec.in_channels == 5
    with torch.no_grad():
        expected = task.eval().encoder(datamodule.graph.x, datamodule.graph.edge_index)
    assert np.allclose(model.embed(), expected, atol=1e-5)
    assert np.allclose(model.embed(data=path), expected, atol=1e-5), "projected as in training"
    lone = shutil.copy(run / "checkpoints" / "best.ckpt", tmp_path / "lone.ckpt")
    with pytest.raises(UsageError, match="give the run directory instead"):
        graphzoo.load(lone, data=path)


def test_multi_label_predictions(tmp_path):
    classes = np.eye(3, dtype=np.float32)[small_parts()["y"]]
    path = write_npz(tmp_path / "labels.npz", y=np.concatenate([classes, 1 - classes[:, :1]], 1))
    run, *_ = train(tmp_path / "run", NodeDataModule("nodes", path), metric="roc_auc")
    table = graphzoo.load(run).predict()
    shares = table.filter(like="probability_").to_numpy()
    names = [name.removeprefix("probability_") for name in table if name.startswith("probability_")]
    assert list(table) == ["node", "label", *(f"probability_{name}" for name in names)] and len(names) == 4
    expected = [";".join(np.array(names)[row >= 0.5]) for row in shares]
    assert table["label"].tolist() == expected and len(set(expected)) > 2


def test_a_large_graph_is_read_from_its_original_path(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_KEPT_BYTES", 10)
    path = write_npz(tmp_path / "small.npz")
    run, *_ = train(tmp_path / "run", NodeDataModule("nodes", path))
    assert not (run / "graph" / "node_graph.npz").exists()
    assert len(graphzoo.load(run).predict()) == 60
    write_npz(tmp_path / "small.npz", x=small_parts()["x"] + 1)
    with pytest.raises(UsageError, match="is not the graph that the run was trained on"):
        graphzoo.load(run)
    (tmp_path / "small.npz").unlink()
    with pytest.raises(UsageError, match="reading it again from .*small.npz failed"):
        graphzoo.load(run)
    assert len(graphzoo.load(run, data=write_npz(tmp_path / "other.npz")).predict()) == 60


def test_a_large_data_set_is_read_from_its_data_root(tmp_path, monkeypatch):
    seen = []

    def load_by_name(name, *, root=None, **_):
        seen.append(root)
        return node_graph_from_files(Path(root or tmp_path / "default") / f"{name}.npz")

    monkeypatch.setattr(base, "_KEPT_BYTES", 10)
    for module in (nodes_module, sources_module):
        monkeypatch.setattr(module, "load_node_graph", load_by_name)
    for folder in ("root", "default"):
        (tmp_path / folder).mkdir()
        write_npz(tmp_path / folder / "cora.npz")
    monkeypatch.chdir(tmp_path)
    run, *_ = train(tmp_path / "run", NodeDataModule("cora", root="root"))
    graphzoo.load(run)
    assert seen[-1] == str(tmp_path / "root"), "whatever the current folder is"
    shutil.rmtree(tmp_path / "root")
    graphzoo.load(run)
    assert seen[-1] is None, "on another machine, the root of that machine"


def test_a_lone_checkpoint_asks_for_a_graph(trained, tmp_path):
    lone = shutil.copy(trained[0] / "checkpoints" / "best.ckpt", tmp_path / "lone.ckpt")
    with pytest.raises(UsageError, match="comes without a graph to answer on"):
        graphzoo.load(lone)
    assert len(graphzoo.load(lone, data=write_npz(tmp_path / "small.npz")).predict()) == 60


def test_graphs_of_the_other_kind_are_refused(trained):
    from graphzoo.datasets import from_triples

    with pytest.raises(UsageError, match="data= is a knowledge graph"):
        graphzoo.load(trained[0], data=from_triples([("a", "r", "b"), ("b", "r", "c")]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["graphzoo"].update(classes="abc"), "no usable 'classes'"),
        (lambda c: c["graphzoo"].pop("features"), "no usable 'features'"),
        (lambda c: c["graphzoo"]["features"].pop("normalize"), r"no usable 'features\.normalize'"),
        (lambda c: c["graphzoo"]["features"].update(reduce_channels=4), r"projection\.npy"),
        (
            lambda c: c["graphzoo"]["encoder"].update(class_path="graphzoo.encoders.KnowFormer"),
            "is no NodeEncoder",
        ),
        (
            lambda c: c["graphzoo"]["encoder"]["init_args"].update(hidden_channels=16),
            "settings say hidden_channels=16, but the weights are those of hidden_channels=8",
        ),
        (
            lambda c: c["graphzoo"]["spec"].update(in_channels=11),
            "in_channels=11, but the weights are those of 12",
        ),
    ],
)
def test_damaged_descriptions_are_refused(trained, tmp_path, change, message):
    run = shutil.copytree(trained[0], tmp_path / "copy")
    path = run / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, path)
    with pytest.raises(UsageError, match=message):
        graphzoo.load(run)


@pytest.mark.fault(
    "meta.json of a run is damaged, or names files elsewhere", "refused; no other file is read"
)
def test_a_damaged_description_of_the_graph_is_refused(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "copy")
    path = run / "graph" / "meta.json"
    meta = json.loads(path.read_text())
    changes = [{"graph": "../../secret.npz"}, {"path": "abc"}, {"graph": 3}, {"graph_fingerprint": None}]
    copies = [json.dumps({**meta, **change}).encode() for change in changes]
    without_split = {**meta, "graph": None, "path": None, "split": {}}
    without_split.pop("num_neighbors")
    for content in (b"", b"{", b"[]", b"\xff", b"[" * 9999, *copies, json.dumps(without_split).encode()):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"meta\.json is damaged.*\n.*--data\.path"):
            graphzoo.load(run)


@pytest.mark.fault("the stored graph of a run is truncated", "refused; nothing is predicted")
def test_a_damaged_graph_of_a_run_is_refused(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "copy")
    path = run / "graph" / "node_graph.npz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UsageError, match=r"node_graph\.npz: not a readable graph file"):
        graphzoo.load(run)


def test_a_copied_run_is_self_contained(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "elsewhere")
    meta = json.loads((run / "graph" / "meta.json").read_text())
    meta["path"] = ["/gone/away.npz"]
    (run / "graph" / "meta.json").write_text(json.dumps(meta))
    assert graphzoo.load(run).predict().equals(graphzoo.load(trained[0]).predict())


def test_a_data_object_of_pyg_is_labelled(model):
    graph = model.graph
    data = Data(x=graph.x.to_dense(), edge_index=graph.edge_index)
    pd.testing.assert_frame_equal(model.predict(data=data), model.predict(), check_exact=False)
    for y in (torch.rand(graph.num_nodes), torch.arange(0, 20_000 * graph.num_nodes, 20_000)):
        labelled = Data(x=data.x, edge_index=data.edge_index, y=y, train_mask=torch.ones(3))
        assert model.predict(data=labelled).equals(model.predict(data=data)), "labels are not asked for"
    for given, what in ((networkx.path_graph(3), "is a Graph"), ([data], "holds a Data")):
        with pytest.raises(UsageError, match=f"data= {what}, .*\nGive files, .* or a Data object of PyG"):
            model.predict(data=given)


@pytest.mark.parametrize("directed", [True, False])
def test_edges_have_the_directions_of_training(tmp_path, directed):
    """They are directed, or used in both directions."""
    parts = {name: torch.from_numpy(value) for name, value in small_parts().items() if name != "class_names"}
    source, target = parts["edge_index"]
    data = Data(**{**parts, "edge_index": parts["edge_index"][:, source < target]})
    run, task, module, _ = train(tmp_path / "run", NodeDataModule.from_data(data, directed=directed))
    model = graphzoo.load(run, data=data)
    assert model.graph.edge_index.equal(module.graph.edge_index) and module.is_directed == directed
    assert model.predict().equals(graphzoo.load(run).predict())
    assert model.predict(data=data).equals(model.predict())
    np.savez(tmp_path / "graph.npz", x=data.x, edge_index=data.edge_index)
    assert model.predict(data=tmp_path / "graph.npz").equals(model.predict())


def test_changed_weights_give_other_answers_and_noise_is_off_in_training_mode(model):
    before = model.predict()
    model.task.train()
    pd.testing.assert_frame_equal(model.predict(), before)
    assert model.task.training
    for weight in model.task.parameters():
        weight.data = torch.zeros_like(weight)
    after = model.predict(embeddings=True)
    assert after["probability"].nunique() == 1 and not after["state_0"].any()


def test_no_nodes_give_an_empty_table_of_the_same_types(tmp_path):
    graph = networkx.path_graph(["a", "b", "c", "d", "e", "f"])
    for node in graph:
        graph.nodes[node].update(x=[1.0, 0.5], y=node in "abc")
    model = graphzoo.fit("galit", graph, max_epochs=1, quiet=True, run_dir=str(tmp_path / "run"))
    assert (model.predict([]).dtypes == model.predict().dtypes).all()


def test_a_loaded_model_is_not_trained_on_another_split(trained):
    """Its new checkpoint would only name the new split; after training on its own split, it names both."""
    from lightning.pytorch import Trainer

    run, _, datamodule, _ = trained
    trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    graph = datamodule._raw
    settings = {"normalize_features": datamodule.normalize_features}
    other = NodeDataModule(data=graph, split="random-50-25-25", split_index=1, **settings)
    with pytest.raises(UsageError, match="split"):
        trainer.fit(graphzoo.load(run).task, other)
    tested = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    checkpoint = str(run / "checkpoints" / "best.ckpt")
    task = graphzoo.load(run).task
    tested.test(task, datamodule, ckpt_path=checkpoint, weights_only=True, verbose=False)
    with pytest.raises(UsageError, match="split"):
        tested.fit(task, other)  # also after loading a checkpoint
    task = graphzoo.load(run).task
    before = task.describe()["data"]
    trainer.fit(task, datamodule)
    assert task.describe()["began_with"] == [before]


def test_edges_of_a_directed_graph_in_a_file_keep_their_directions(tmp_path):
    parts = {name: torch.from_numpy(value) for name, value in small_parts().items() if name != "class_names"}
    source, target = parts["edge_index"]
    data = Data(**{**parts, "edge_index": parts["edge_index"][:, source < target]})
    node_graph_from_data(data, directed=True).save(tmp_path / "own.npz")
    module = NodeDataModule("nodes", str(tmp_path / "own.npz"))
    run, *_ = train(tmp_path / "run", module)
    assert module.is_directed
    model = graphzoo.load(run)
    assert model.predict(data=data).equals(model.predict())


def test_several_threads_use_a_model_in_training_mode(model):
    """The modes are restored when the last thread leaves, not the first."""
    model.task.train()
    inside, leave = threading.Event(), threading.Event()

    def first():
        with in_evaluation(model.task):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    with in_evaluation(model.task):
        leave.set()
        thread.join(10)
        assert not model.task.training
    assert model.task.training
    encoder = model.task.encoder  # a part is entered and left first
    part, whole = in_evaluation(encoder), in_evaluation(model.task)
    part.__enter__()
    whole.__enter__()
    part.__exit__(None, None, None)
    assert not encoder.training
    whole.__exit__(None, None, None)
    assert encoder.training and model.task.training


def test_a_run_on_large_data_in_memory_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_KEPT_BYTES", 10)
    parts = {name: torch.from_numpy(value) for name, value in small_parts().items() if name != "class_names"}
    settings = {"max_epochs": 1, "quiet": True, "no_test": True, "hidden_channels": 8}
    model = graphzoo.fit("galit", Data(**parts), run_dir=tmp_path / "run", **settings)
    before = model.predict()
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.npz").write_text("of a later run")
    pd.testing.assert_frame_equal(graphzoo.load(tmp_path / "moved").predict(), before)


def test_other_graphs_are_not_cached_on_disk(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = graphzoo.load(trained[0])
    parts = {name: torch.from_numpy(value) for name, value in small_parts().items() if name != "class_names"}
    for seed in range(3):
        x = torch.randn(parts["x"].shape, generator=torch.Generator().manual_seed(seed))
        model.predict([0], data=Data(**{**parts, "x": x}))
    assert not [*tmp_path.glob("cache/**/precomputed/*")]


@pytest.mark.parametrize(
    ("module", "part"),
    [
        (lambda: NodeDataModule(data=node_graph_from_data(Data(**small_parts()))), "data=datamodule.graph"),
        (lambda: KGDataModule("umls"), "data=datamodule.knowledge_graph"),
        (lambda: LightningDataModule(), "Give one graph of it"),
    ],
)
def test_a_data_module_instead_of_a_graph_is_refused(trained, module, part):
    with pytest.raises(UsageError, match=f"but a graph is expected[\\s\\S]*{part}"):
        graphzoo.load(trained[0], data=module())


def test_a_forked_process_uses_one_thread(model, in_forked_process):
    with pytest.warns(UserWarning, match="forked after a model was loaded"):
        model.predict([0])
    assert in_forked_process == [1]
