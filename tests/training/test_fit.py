"""`graphzoo.fit` trains from Python like the command, with names of data or data in memory."""

import contextlib
import json
import logging
import os
import random
import signal
import warnings

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from helpers.own import SMALL_LINKS, SendSignal
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping
from torch_geometric.data import Data, HeteroData

import graphzoo
from graphzoo.cli import main
from graphzoo.datamodules import base
from graphzoo.errors import DataError, UsageError

QUICK = {"max_epochs": 2, "logger": "csv", "trainer.accelerator": "cpu", "quiet": True}
KNOWFORMER = {
    **QUICK,
    "model.encoder.hidden_channels": 8,
    "model.encoder.num_heads": 2,
    "model.encoder.num_layers": 1,
    "data.batch_size": 16,
}
UMLS = {**KNOWFORMER, "trainer.limit_train_batches": 4}
PENCIL = {**QUICK, "data.num_neighbors": 3}
PENCIL |= {word.removeprefix("--").split("=")[0]: int(word.split("=")[1]) for word in SMALL_LINKS["pencil"]}
TRIPLES = [
    fact
    for i in range(12)
    for fact in ((f"a{i}", "mother_of", f"b{i}"), (f"b{i}", "father_of", f"c{i}"), (f"a{i}", "near", f"c{i}"))
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labelled_data() -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    return Data(x=x, edge_index=torch.randint(60, (2, 150), generator=generator), y=(x[:, 0] > 0).long())


def ring(num_nodes: int = 40) -> torch.Tensor:
    nodes = torch.arange(num_nodes)
    return torch.cat([torch.stack([nodes, (nodes + step) % num_nodes]) for step in (1, 2, 3)], dim=1)


def process_state():
    """State of the process that a run might change."""
    named = [
        (name, logger.level, tuple(logger.filters), tuple(logger.handlers), logger.propagate, logger.disabled)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (logger.filters or logger.handlers or logger.level)
    ]
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals() - {9, 19}},
        "loggers": sorted(named, key=lambda row: row[0]),
        "root": (logging.root.level, tuple(logging.root.handlers)),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "random": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "folder": os.getcwd(),
    }


def test_fit_with_names_is_the_run_of_the_command(folder):
    """Settings, scores and weights are those of the command with the same options."""
    model = graphzoo.fit("knowformer", "umls", seed=3, run_dir="mine", **UMLS, **{"model.lr": 1e-3})
    words = [f"--{name}={value}" for name, value in UMLS.items() if "." in name]
    words += ["--trainer.max_epochs=2", "--logger=csv", "--quiet", "--seed=3", "--model.lr=0.001"]
    words += ["--trainer.devices=1"]
    assert main(["fit", "--model=knowformer", "--data=umls", "--run_dir=theirs", *words]) == 0
    mine, theirs = (json.loads((folder / name / "results.json").read_text()) for name in ("mine", "theirs"))
    for name in ("metrics", "config_hash", "data_fingerprint", "seed", "recipe", "steps", "checkpoint_epoch"):
        assert mine[name] == theirs[name], name
    assert model.metrics == mine["metrics"] and "test/mrr" in model.metrics
    assert model.run_dir == folder / "mine"
    answers = model.predict(head="virus", relation="causes", k=3)
    assert answers.equals(graphzoo.load("mine").predict(head="virus", relation="causes", k=3))
    assert (folder / "mine" / "config.yaml").read_text() == (folder / "theirs" / "config.yaml").read_text()


@pytest.mark.parametrize(
    "triples",
    [TRIPLES, np.array(TRIPLES), pd.DataFrame(TRIPLES, columns=["head", "relation", "tail"])],
    ids=["list", "array", "frame"],
)
def test_a_run_on_triples_in_memory_is_self_contained(folder, triples):
    model = graphzoo.fit("knowformer", triples, **KNOWFORMER)
    assert set(model.graph.entities) == {name for h, _, t in TRIPLES for name in (h, t)}
    again = graphzoo.load(model.run_dir)
    assert again.graph.fingerprint == model.graph.fingerprint
    query = {"head": "a1", "relation": "near", "k": 3}
    assert again.predict(**query).equals(model.predict(**query))
    # The command finds the data, also from another folder.
    (folder / "elsewhere").mkdir()
    os.chdir(folder / "elsewhere")
    assert main(["test", "--ckpt_path", str(model.run_dir), "--quiet", "--run_dir", "tested"]) == 0
    assert json.loads((folder / "elsewhere/tested/results.json").read_text())["metrics"] == model.metrics


def test_given_splits_are_kept(folder):
    parts = {"train": TRIPLES[:30], "valid": TRIPLES[30:33], "test": TRIPLES[33:]}
    graph = graphzoo.fit("knowformer", parts, **KNOWFORMER).graph
    assert [len(graph.split(name)) for name in ("train", "valid", "test")] == [30, 3, 3]
    with pytest.raises(UsageError, match="train and may have valid and test, not train, check"):
        graphzoo.fit("knowformer", {"train": TRIPLES, "check": []}, **KNOWFORMER)


@pytest.mark.parametrize("metric", ["val/f1", "val/loss", "valence"])
def test_metrics_of_a_users_callback_can_be_monitored(folder, metric):
    """Only misspelt metrics, and those of other tasks, are refused before they are logged."""

    class Logs(Callback):
        def on_validation_epoch_end(self, trainer, pl_module):
            pl_module.log(metric, 1.0)

    watching = [EarlyStopping("val/hits@3", strict=False)]
    watching += [Logs(), EarlyStopping(metric)] if metric != "val/loss" else [EarlyStopping(metric)]
    graphzoo.fit("galit", labelled_data(), callbacks=watching, **QUICK)


def test_a_run_on_data_in_memory_can_be_moved(folder, cli):
    graphzoo.fit("galit", labelled_data(), run_dir="run", **QUICK)
    os.rename("run", "moved")
    assert cli("test", "--ckpt_path", "moved", "--run_dir=again").status == 0
    again, before = (json.loads((folder / run / "results.json").read_text()) for run in ("again", "moved"))
    assert again["metrics"] == before["metrics"]
    assert cli("fit", "moved", "--trainer.max_epochs=4").status == 0
    assert len(graphzoo.load("moved").predict()) == 60
    os.remove("moved/data.npz")
    refused = cli("test", "--ckpt_path", "moved")
    assert refused.status == 2 and "data.npz, which does not exist here" in refused.err


def test_labels_of_a_pyg_graph_are_trained_on(folder):
    data = labelled_data()
    model = graphzoo.fit("galit", data, **QUICK)
    assert len(model.predict()) == 60 and "test/acc" in model.metrics
    data.train_mask, data.val_mask, data.test_mask = (torch.arange(60) % 3 == part for part in range(3))
    masked = graphzoo.fit("gcn", data, **QUICK)
    assert masked.graph.split().train.tolist() == data.train_mask.nonzero().flatten().tolist()
    # A model of links is trained on the edges of the same object.
    links = graphzoo.fit("pencil", data, **PENCIL)
    assert "test/mrr" in links.metrics and links.graph.num_nodes == 60


def test_an_edge_index_is_split_as_the_command_would(folder):
    first = graphzoo.fit("pencil", ring(), **PENCIL)
    second = graphzoo.fit("pencil", ring().numpy(), **PENCIL, **{"data.split_index": 1})
    assert len(first.graph.train) == len(second.graph.train)
    assert first.graph.fingerprint != second.graph.fingerprint
    assert len(first.predict(0, k=3)) == 3
    with pytest.raises(DataError, match=r"expected edge_index \[2, E\].*transpose it"):
        graphzoo.fit("pencil", ring().t(), **PENCIL)


def test_pairs_of_names_are_links(folder):
    pairs = [(f"n{u}", f"n{v}") for u, v in ring().t().tolist()]
    model = graphzoo.fit("pencil", pairs, **PENCIL)
    assert set(model.predict("n3", k=2)["node"]) == {"n3"}
    frame = pd.DataFrame(pairs, columns=["source", "target"])
    assert graphzoo.fit("pencil", frame, **PENCIL).graph.fingerprint == model.graph.fingerprint


def test_a_networkx_graph_with_labels_is_for_node_classification(folder):
    graph = networkx.karate_club_graph()
    for node, attributes in graph.nodes(data=True):
        attributes["label"] = attributes.pop("club") if node % 5 else None
        attributes["x"] = [float(graph.degree[node]), 1.0]
    graph = networkx.relabel_nodes(graph, lambda node: f"member {node}")
    model = graphzoo.fit("galit", graph, **QUICK)
    table = model.predict(["member 0", "member 33"])
    assert set(table["label"]) <= {"Mr. Hi", "Officer"} and model.graph.x.shape == (34, 2)
    assert int((model.graph.y < 0).sum()) == 7  # nodes without a label
    assert "MRR" not in model._repr_html_()
    links = graphzoo.fit("pencil", graph, **PENCIL)
    assert links.graph.node_names[0] == "member 0" and links.graph.x.shape == (34, 2)


def test_a_networkx_graph_without_labels_is_for_link_prediction(folder):
    graph = networkx.DiGraph(ring().t().tolist())
    model = graphzoo.fit("pencil", graph, **PENCIL)
    assert model.graph.is_directed and model.graph.x is None and model.graph.num_nodes == 40


def test_a_networkx_graph_with_labels_needs_features(folder):
    graph = networkx.path_graph(9)
    networkx.set_node_attributes(graph, {node: node % 2 for node in graph}, "y")
    with pytest.raises(UsageError, match="labels but no features"):
        graphzoo.fit("galit", graph, **QUICK)
    networkx.set_node_attributes(graph, {0: 1.0}, "x")
    with pytest.raises(UsageError, match="node 1 has no 'x'"):
        graphzoo.fit("galit", graph, **QUICK)
    assert not any(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("knowfromer", "umls"), {}, "unknown model 'knowfromer'\nDid you mean: knowformer"),
        (("galit", "umls"), {}, "cannot be used on umls"),
        (("knowformer", "umls"), {"max_epoch": 3}, "unknown option --max_epoch"),
        (("knowformer", "umls"), {"model.encoder.hidden_chanels": 3}, "hidden_channels"),
        (("knowformer", "umls"), {"max_epochs": "many"}, "--trainer.max_epochs"),
        (("knowformer", "umls"), {"model.encoder.hidden_channels": -8}, "hidden_channels must be at least"),
        (("knowformer", "umls"), {"dry_run": True}, "it trains no model"),
        (("knowformer", "umls"), {"quiet": "yes"}, "quiet is True or False, got 'yes'"),
        (("knowformer", "umls"), {"model.lr": object()}, "plain values"),
        (("heuristic.cn", "cora-link"), {}, "there is nothing to train"),
        (("knowformer", "citeseer-heuristics"), {}, "citeseer-heuristics"),
        (("knowformer", TRIPLES), {"data.path": "a"}, "give one of the two"),
        (("knowformer", object()), {}, "data is a object; graphzoo takes triples"),
        (("galit", HeteroData()), {}, "one kind of node"),
        (("galit", labelled_data()), {"data.split": "nonsense"}, "unknown split 'nonsense'"),
        ((None, "umls"), {}, "fit needs a model"),
        (("knowformer", "umls"), {"max_epochs": 0}, "--trainer.max_epochs=0 trains nothing"),
        (
            ("knowformer", "umls"),
            {"callbacks": "EarlyStopping"},
            "callbacks must be objects such as EarlyStopping(...)",
        ),
        (
            ("knowformer", pd.DataFrame({"relation": ["r"], "tail": ["b"]})),
            {},
            "triples have three columns, head, ",
        ),
        (("galit", labelled_data()), {"trainer.overfit_batches": 1}, "Give --trainer.limit_train_batches 1"),
        (("galit", labelled_data()), {"trainer.overfit_batches": 2}, "Give --trainer.limit_train_batches 2"),
        (
            ("galit", labelled_data()),
            {"trainer.overfit_batches": 0.5},
            "Give --trainer.limit_train_batches 0.5",
        ),
        (("pencil", labelled_data()), {"trainer.overfit_batches": 2}, "Give --trainer.limit_train_batches 2"),
        (("galit", labelled_data()), {"callbacks": EarlyStopping("val_acc")}, "Did you mean: val/acc?"),
        (("galit", labelled_data()), {"callbacks": EarlyStopping("val/accuracy")}, "Did you mean: val/acc?"),
        (
            ("galit", labelled_data()),
            {"callbacks": EarlyStopping("val/mrr")},
            "NodeClassification does not log",
        ),
        (
            ("knowformer", {"train": [], "dev": [], "val": []}),
            {},
            "may have valid and test, not train, dev, val",
        ),
    ],
)
def test_a_mistake_raises_and_changes_nothing(folder, arguments, settings, message):
    with contextlib.suppress(UsageError):
        graphzoo.fit("knowfromer", "umls")  # imports, and caches that are made once
    before = process_state()
    with pytest.raises(UsageError) as error:
        graphzoo.fit(*arguments, **{"quiet": True, "logger": "csv", **settings})
    assert message in str(error.value), str(error.value)
    assert not any(folder.iterdir())
    assert process_state() == before


def test_fit_works_in_inference_mode(folder):
    with torch.inference_mode():
        model = graphzoo.fit("galit", labelled_data(), **QUICK)
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
        assert len(model.predict()) == 60
    assert not any(weight.is_inference() for weight in model.task.parameters()), "it may be trained on"


def test_repeated_calls_leave_the_process_unchanged(folder):
    graphzoo.fit("galit", labelled_data(), **QUICK)  # imports, and caches that are made once
    before = process_state()
    first = graphzoo.fit("galit", labelled_data(), **QUICK, matmul_precision="high", seed=1)
    assert process_state() == before
    torch.rand(3)
    second = graphzoo.fit("galit", labelled_data(), **QUICK, matmul_precision="high", seed=1)
    assert second.metrics == first.metrics and first.run_dir != second.run_dir
    pd.testing.assert_frame_equal(first.predict(), second.predict())


def test_ctrl_c_saves_and_prints_how_to_resume(folder):
    settings = {**UMLS, "max_epochs": 3, "run_dir": "mine"}
    before = process_state()
    with pytest.raises(KeyboardInterrupt, match="graphzoo fit --ckpt_path"):
        graphzoo.fit("knowformer", "umls", callbacks=[SendSignal(1, 0, "SIGINT")], **settings)
    assert process_state() == before
    model = graphzoo.fit(ckpt_path="mine", quiet=True)
    assert json.loads((folder / "mine/results.json").read_text())["epochs"] == 3
    assert model.run_dir == folder / "mine" and "test/mrr" in model.metrics


def test_one_callback_needs_no_list(folder):
    class Counts(Callback):
        ended = 0

        def on_train_end(self, trainer, pl_module):
            self.ended += 1

    counts = Counts()
    graphzoo.fit("galit", labelled_data(), callbacks=counts, **QUICK)
    assert counts.ended == 1


def test_other_errors_are_raised_unchanged(folder):
    class Stumbles(SendSignal):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            raise LookupError("of the caller's own")

    before = process_state()
    with pytest.raises(LookupError, match=r"of the caller's own"):
        graphzoo.fit("galit", labelled_data(), callbacks=[Stumbles(0, 0)], **QUICK)
    assert process_state() == before


def test_a_graph_too_large_for_the_run_is_found_again(folder, monkeypatch):
    monkeypatch.setattr(base, "_KEPT_BYTES", 0)
    model = graphzoo.fit("galit", labelled_data(), **QUICK)
    assert not (model.run_dir / "graph" / "node_graph.npz").exists()
    assert graphzoo.load(model.run_dir).graph.fingerprint == model.graph.fingerprint


def test_a_notebook_gets_its_own_bar(folder, monkeypatch, capsys):
    """Rich's progress bar needs ipywidgets in a notebook."""
    from graphzoo.training import callbacks

    seen = []
    monkeypatch.setattr(callbacks, "in_notebook", lambda: True)

    class Look(SendSignal):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            seen.append(type(trainer.progress_bar_callback).__name__)

    shown = {name: value for name, value in KNOWFORMER.items() if name != "quiet"}
    graphzoo.fit("knowformer", TRIPLES, callbacks=[Look(0, 0)], **shown)
    assert set(seen) == {"NotebookBar"}
    output = capsys.readouterr()
    assert "queries/s" in output.out + output.err and "epoch 2/2" in output.out


def test_no_test_writes_no_results(folder):
    model = graphzoo.fit("galit", labelled_data(), no_test=True, **QUICK)
    assert model.metrics == {} and len(model.predict()) == 60
    assert not (model.run_dir / "results.json").exists()


def test_data_without_a_test_split_are_trained_on_with_a_message(folder, capsys):
    parts = {"train": TRIPLES[:30], "valid": TRIPLES[30:], "test": []}
    model = graphzoo.fit("knowformer", parts, **(KNOWFORMER | {"quiet": False}))
    assert "no test samples" in capsys.readouterr().err
    assert model.metrics == {} and not (model.run_dir / "results.json").exists()
    assert main(["test", "--ckpt_path", str(model.run_dir), "--run_dir", "tested"]) == 2
    assert "kg has no test triples: there is nothing to evaluate" in capsys.readouterr().err
    assert not (folder / "tested").exists()
