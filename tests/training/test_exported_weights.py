"""Exported folders are evaluated like their runs, and new runs begin with their weights."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from helpers.link_graphs import make_link_graph
from helpers.node_graphs import small_parts, write_npz
from lightning.pytorch import Trainer
from torch_geometric.data import Data

import graphzoo
from graphzoo.cli import main
from graphzoo.datamodules import LinkDataModule, NodeDataModule
from graphzoo.encoders import GALiT
from graphzoo.errors import UsageError
from graphzoo.tasks import LinkPrediction, NodeClassification

CPU = ["--trainer.accelerator=cpu", "--logger=csv"]
SMALL = ["--model.encoder.hidden_channels=8", "--trainer.max_epochs=2", *CPU]


def files(folder, task):
    """Write a graph for the task; return its path and a decoder that is not the default."""
    if task == "nodes":
        return write_npz(folder / "small.npz"), "mlp"
    make_link_graph().save(folder / "small.npz")
    return str(folder / "small.npz"), "concat"


@pytest.fixture(params=["nodes", "links"])
def exported(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, decoder = files(tmp_path, request.param)
    data = [f"--data={request.param}", f"--data.path={path}"]
    model = ["--model=galit", f"--model.decoder={decoder}", "--model.dropout=0.25"]
    assert main(["fit", *model, *data, *SMALL, "--run_dir=run"]) == 0
    assert main(["export", "run", "--out", "shared"]) == 0
    return data


def metrics(run):
    return json.loads(Path(run, "results.json").read_text())["metrics"]


def test_an_exported_folder_has_the_scores_of_its_run(exported, capsys):
    assert main(["test", "--ckpt_path=shared", *exported, *CPU, "--run_dir=tested"]) == 0
    assert "the weights of shared" in capsys.readouterr().err
    found, expected = metrics("tested"), metrics("run")
    names = [name for name in expected if name.startswith("test/") and "second" not in name]
    assert len(names) > 1 and {name: found[name] for name in names} == {k: expected[k] for k in names}
    assert main(["plot", "tested", "--no-model", "--out", "page.html"]) == 0
    assert "galit" in Path("page.html").read_text()
    assert main(["plot", "shared", "--out", "refused.html"]) == 2
    assert "Evaluate it: graphzoo test --ckpt_path shared --data NAME" in capsys.readouterr().err


def test_a_fit_begins_with_the_weights(exported, capsys):
    """With a learning rate near 0 the scores stay the same, with another one they change."""
    begin = ["fit", "--ckpt_path=shared", *exported, *CPU, "--trainer.max_epochs=1"]
    assert main([*begin, "--model.lr=1e-12", "--run_dir=still"]) == 0
    assert "the weights of shared" in capsys.readouterr().err
    expected = {name: value for name, value in metrics("run").items() if "second" not in name}
    still = metrics("still")
    assert {name: still[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert main([*begin, "--model.lr=0.1", "--run_dir=changed"]) == 0
    changed = metrics("changed")
    assert {name: changed[name] for name in expected} != pytest.approx(expected, abs=1e-6)


def test_the_user_changes_a_setting_of_the_stored_encoder(exported):
    """The stored encoder is set first, so that it does not replace the change."""
    changed = ["--model.encoder.gamma=0.25", "--run_dir=changed"]
    assert main(["test", "--ckpt_path=shared", *exported, *CPU, *changed]) == 0
    encoder = yaml.safe_load(Path("changed/config.yaml").read_text())["model"]["init_args"]["encoder"]
    assert encoder["init_args"]["gamma"] == 0.25 and encoder["init_args"]["hidden_channels"] == 8


def another_split(data):
    """Options that, after those of the data, give another split."""
    if task_of(data) == "nodes":
        return ["--data.split=random-50-25-25"]
    graph = make_link_graph()
    held = len(graph.test.positive)
    test = dataclasses.replace(graph.test, positive=graph.train[:held])
    train = torch.cat([graph.train[held:], graph.test.positive])
    make_link_graph(train=train, test=test).save("other.npz")
    return ["--data.path=other.npz"]


def test_a_fit_on_another_split_is_refused(exported, capsys):
    """The weights may be trained on its test part."""
    other = another_split(exported)
    begin = ["fit", "--ckpt_path=shared", *exported, *CPU, "--run_dir=refused"]
    assert main([*begin, *other]) == 2
    assert "the model was trained on split" in capsys.readouterr().err
    assert not Path("refused").exists()


def second(folder, task):
    """Write another graph for the task; return its options."""
    if task == "nodes":
        x = small_parts(1)["x"] * 3 + 1
        return [
            "--data=nodes",
            f"--data.path={write_npz(folder / 'second.npz', **{**small_parts(1), 'x': x})}",
        ]
    make_link_graph(seed=1, name="second").save(folder / "second.npz")
    return ["--data=links", f"--data.path={folder / 'second.npz'}"]


def task_of(data):
    return data[0].removeprefix("--data=")


def described(run):
    return torch.load(Path(run, "checkpoints/best.ckpt"), weights_only=True)["graphzoo"]


def test_a_fit_needs_the_folder_only_at_its_start(exported, tmp_path, capsys):
    """Features of another graph are treated as in the first training, also in a test and a resume."""
    fit = ["fit", *CPU, "--trainer.max_epochs=1", "--run_dir=tuned"]
    assert main([*fit, "--ckpt_path=shared", *second(tmp_path, task_of(exported))]) == 0
    first, tuned = described("run"), described("tuned")
    assert tuned["features"] == first["features"]
    assert tuned["began_with"] == [first["data"]]
    shutil.rmtree("shared")

    assert main(["test", "--ckpt_path=tuned", "--run_dir=tested"]) == 0
    found, expected = metrics("tested"), metrics("tuned")
    assert {name: found[name] for name in expected if "second" not in name} == pytest.approx(
        {name: expected[name] for name in expected if "second" not in name}
    )
    assert main(["fit", "--ckpt_path=tuned", "--trainer.max_epochs=3"]) == 0
    assert described("tuned")["features"] == first["features"]
    last = torch.load("tuned/checkpoints/last.ckpt", weights_only=True)
    assert last["epoch"] == 2 and last["graphzoo"]["began_with"] == [first["data"]]
    capsys.readouterr()


def test_the_first_training_data_are_remembered(exported, tmp_path, capsys):
    """After training on a second graph, other splits of the first are still refused."""
    fit = ["fit", *CPU, "--trainer.max_epochs=1"]
    begin = [*fit, "--ckpt_path=shared", *second(tmp_path, task_of(exported)), "--run_dir=tuned"]
    assert main(begin) == 0
    assert main(["export", "tuned", "--out", "again"]) == 0
    other = another_split(exported)
    refused = "the model was trained on split"
    for source in ("again", "tuned/checkpoints/best.ckpt"):
        for command in ("fit", "test"):
            if command == "test" or source == "again":
                words = [command, f"--ckpt_path={source}", *exported, *CPU, *other, "--run_dir=refused"]
                capsys.readouterr()
                assert main(words) == 2
                assert refused in capsys.readouterr().err
    assert not Path("refused").exists()
    assert main([*fit, "--ckpt_path=again", *exported, "--run_dir=third"]) == 0
    assert described("third")["began_with"] == [described("run")["data"], described("tuned")["data"]]


def test_a_fit_takes_the_decoder_of_the_folder(exported, capsys):
    """No other decoder fits the weights: it is kept with `--model`, and a typed one is refused."""
    begin = ["fit", "--ckpt_path=shared", "--model=galit", "--model.encoder.hidden_channels=8"]
    begin += [*exported, *CPU, "--trainer.max_epochs=1"]
    assert main([*begin, "--run_dir=tuned"]) == 0
    settings = [yaml.safe_load(Path(run, "config.yaml").read_text())["model"] for run in ("run", "tuned")]
    assert settings[0]["init_args"]["decoder"] == settings[1]["init_args"]["decoder"]
    other = "dot" if task_of(exported) == "links" else "linear"
    assert main([*begin, f"--model.decoder={other}", "--run_dir=refused"]) == 2
    assert "decoder" in capsys.readouterr().err
    assert not Path("refused").exists()


@pytest.mark.parametrize("command", ["fit", "test"])
@pytest.mark.parametrize("model", [[], ["--model=galit"]])
def test_weights_of_another_task_are_refused(exported, command, model, tmp_path, capsys):
    own, other = ("links", "nodes") if task_of(exported) == "links" else ("nodes", "links")
    titles = {"links": "link prediction", "nodes": "node classification"}
    words = [command, "--ckpt_path=shared", *model, *second(tmp_path, other), *CPU, "--run_dir=refused"]
    assert main(words) == 2
    expected = f"shared is a model for {titles[own]}, but the data are for {titles[other]}"
    assert expected in capsys.readouterr().err
    assert not Path("refused").exists()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("links", "knowformer-any is a model for knowledge-graph completion, but the data are for link"),
        ("nodes", "model knowformer-any (a query encoder) cannot be used on nodes"),
    ],
)
def test_weights_of_kg_completion_are_refused_for_other_tasks(data, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "--ckpt_path=knowformer-any", *second(tmp_path, data), *CPU, "--run_dir=refused"]
    assert main(words) == 2
    assert expected in capsys.readouterr().err
    assert not Path("refused").exists()


def test_data_in_memory_are_used_for_the_task_of_the_weights(exported):
    """The data have labels in both cases, but only node classification uses them."""
    parts = small_parts(1, num_features=12 if task_of(exported) == "nodes" else 4)
    both = torch.from_numpy(parts["edge_index"])
    data = Data(
        x=torch.from_numpy(parts["x"]),
        y=torch.from_numpy(parts["y"]),
        edge_index=torch.cat([both, both.flip(0)], dim=1),
        **{name: torch.from_numpy(parts[name]) for name in ("train_mask", "val_mask", "test_mask")},
    )
    words = {"max_epochs": 1, "run_dir": "given", "logger": "csv", "quiet": True}
    model = graphzoo.fit(data=data, ckpt_path="shared", **words)
    assert type(model).__name__ == {"nodes": "NodeModel", "links": "LinkModel"}[task_of(exported)]


@pytest.mark.parametrize("exported", ["nodes"], indirect=True)
def test_a_task_can_be_fitted_twice(exported, tmp_path):
    """Each fit of one task treats features as in the training of the weights."""
    data = NodeDataModule(path=second(tmp_path, "nodes")[1].partition("=")[2])
    task = NodeClassification(
        lambda spec: GALiT(spec, hidden_channels=8), decoder="mlp", start_from=str(Path("shared").absolute())
    )
    for _ in range(2):
        quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        Trainer(max_epochs=1, enable_checkpointing=False, enable_model_summary=False, **quiet).fit(task, data)
        assert data.transform.describe() == described("run")["features"]


@pytest.mark.parametrize("exported", ["nodes"], indirect=True)
def test_a_task_refuses_weights_of_another(exported):
    task = LinkPrediction(
        lambda spec: GALiT(spec, hidden_channels=8), start_from=str(Path("shared").absolute())
    )
    trainer = Trainer(accelerator="cpu", logger=False)
    with pytest.raises(UsageError, match="is a model for node classification, but"):
        trainer.fit(task, LinkDataModule(edge_index=make_link_graph()))


@pytest.mark.parametrize("exported", ["nodes"], indirect=True)
@pytest.mark.parametrize("first", ["a refused fit", "a test"])
def test_every_fit_compares_the_data_with_those_of_the_weights(exported, first):
    """After a refused one the weights are not random ones, which any data would fit."""
    path, quiet = exported[1].partition("=")[2], {"accelerator": "cpu", "logger": False, "max_epochs": 1}
    own, other = NodeDataModule(path=path), NodeDataModule(path=path, split="random-50-25-25")
    task = NodeClassification(
        lambda spec: GALiT(spec, hidden_channels=8), decoder="mlp", start_from=str(Path("shared").absolute())
    )
    if first == "a test":
        Trainer(**quiet).test(task, own, verbose=False)
    for _ in range(1 if first == "a test" else 2):
        with pytest.raises(UsageError, match="the model was trained on split"):
            Trainer(**quiet).fit(task, other)


@pytest.mark.parametrize("damage", [7, ["x"], [{"name": "small"}]])
def test_a_damaged_history_is_refused(exported, damage, capsys):
    file = Path("shared/config.json")
    content = json.loads(file.read_text())
    content["graphzoo"]["began_with"] = damage
    file.write_text(json.dumps(content))
    assert main(["test", "--ckpt_path=shared", *exported, *CPU, "--run_dir=refused"]) == 2
    err = capsys.readouterr().err
    assert "description of its training data is damaged" in err or "began_with is not a list" in err

    best = Path("run/checkpoints/best.ckpt")
    checkpoint = torch.load(best, weights_only=True)
    checkpoint["graphzoo"]["began_with"] = damage
    torch.save(checkpoint, best)
    assert main(["test", "--ckpt_path=run", "--run_dir=refused"]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not Path("refused/results.json").exists()


def test_weights_cannot_be_used_to_estimate_heuristics(exported, capsys):
    pairs = ["fit", "--ckpt_path=shared", "--data=citeseer-heuristics", *CPU, "--run_dir=refused"]
    assert main(pairs) == 2
    assert (
        "holds exported weights, which graphzoo cannot use for estimation of link heuristics"
        in capsys.readouterr().err
    )
    assert not Path("refused").exists()


@pytest.mark.parametrize("exported", ["nodes"], indirect=True)
def test_other_classes_are_refused(exported, capsys):
    """The exported folder describes its classes, like a checkpoint."""
    path = write_npz(Path("other.npz"), y=small_parts()["y"] % 2)
    refused = ["test", "--ckpt_path=shared", "--data=nodes", f"--data.path={path}", *CPU, "--run_dir=none"]
    assert main(refused) == 2
    assert "the model's classes are" in capsys.readouterr().err
    assert not Path("none").exists()


def test_a_model_of_neighbourhoods_is_tested_in_them(tmp_path, monkeypatch):
    """This holds for an exported folder and for a checkpoint without its run."""
    monkeypatch.chdir(tmp_path)
    rows = (f"e{i}\tr{step}\te{(i + step) % 30}\n" for i in range(30) for step in (1, 2, 3, 7))
    Path("facts.tsv").write_text("".join(rows))
    data = ["--data=kg", "--data.path=facts.tsv", "--data.eval_batch_size=8"]
    near = ["--data.neighbourhood=6", "--data.eval_neighbourhood=9", "--data.relation_share=0.25"]
    small = ["--model=knowformer", "--model.encoder.hidden_channels=8", "--model.encoder.num_layers=1"]
    assert main(["fit", *small, *data, *near, "--trainer=smoke", "--logger=csv", "--run_dir=run"]) == 0
    assert main(["export", "run", "--out", "shared"]) == 0
    assert main(["test", "--ckpt_path=shared", *data, *CPU, "--run_dir=tested"]) == 0
    assert metrics("tested") == metrics("run") and "test/whole_graph/mrr" in metrics("run")
    shutil.copy("run/checkpoints/best.ckpt", "alone.ckpt")
    assert main(["test", "--ckpt_path=alone.ckpt", *data, *CPU, "--run_dir=again"]) == 0
    assert metrics("again") == metrics("run")
    whole = ["--data.protocol=whole_graph", "--run_dir=whole"]
    assert main(["test", "--ckpt_path=shared", *data, *CPU, *whole]) == 0
    assert metrics("whole")["test/mrr"] == pytest.approx(metrics("run")["test/whole_graph/mrr"], abs=1e-6)
    Path("own.yaml").write_text("data: {init_args: {neighbourhood: 6, eval_neighbourhood: 4}}\n")
    assert main(["test", "--ckpt_path=shared", *data, *CPU, "--recipe=own.yaml", "--run_dir=own"]) == 0
    settings = yaml.safe_load(Path("own/config.yaml").read_text())["data"]["init_args"]
    assert settings["eval_neighbourhood"] == 4 and settings["relation_share"] != 0.25


@pytest.mark.parametrize(
    ("model", "data", "settings"),
    [
        ("galit", "nodes", ["--data.normalize_features=true", "--data.reduce_channels=4"]),
        ("galit", "nodes", ["--data.standardize_features=true"]),
        (
            "pencil",
            "links",
            [
                *("--data.num_relabelings=2", "--data.both_directions=true", "--data.use_features=false"),
                *("--data.depth=1", "--data.num_neighbors=3", "--data.max_nodes=12"),
            ],
        ),
        ("knowformer", "links", ["--data.neighbourhood=12", "--data.eval_neighbourhood=15"]),
        ("galit", "links", ["--data.standardize_features=true"]),
        ("galit", "links", ["--data.normalize_features=true"]),
    ],
    ids=["features", "standardised", "subgraphs", "neighbourhoods", "standardised-links", "normalised-links"],
)
def test_weights_bring_the_settings_of_their_data(tmp_path, monkeypatch, capsys, model, data, settings):
    monkeypatch.chdir(tmp_path)
    words = [f"--data={data}", f"--data.path={files(tmp_path, data)[0]}"]
    heads = ["--model.encoder.num_heads=2"] if model != "galit" else []
    assert main(["fit", f"--model={model}", *words, *SMALL, *heads, *settings, "--run_dir=run"]) == 0
    assert main(["export", "run", "--out", "shared"]) == 0
    shutil.copy("run/checkpoints/best.ckpt", "alone.ckpt")
    for number, source in enumerate(("shared", "alone.ckpt")):
        tested = ["test", f"--ckpt_path={source}", *words, *CPU, f"--run_dir=tested-{number}"]
        assert main(tested) == 0, capsys.readouterr().err
        found, expected = metrics(f"tested-{number}"), metrics("run")
        assert all(found[name] == expected[name] for name in expected if "second" not in name)
    assert main(["fit", "--ckpt_path=shared", *words, *CPU, "--trainer.max_epochs=1", "--run_dir=on"]) == 0
    kept = yaml.safe_load(Path("on/config.yaml").read_text())["data"]["init_args"]
    for name, _, value in (word.removeprefix("--data.").partition("=") for word in settings):
        brings = name not in ("num_relabelings", "both_directions")  # training may sample in another way
        assert (str(kept[name]).lower() == value) is brings, name


def test_another_treatment_of_features_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data=nodes", f"--data.path={files(tmp_path, 'nodes')[0]}"]
    trained = ["--model=galit", *words, *SMALL, "--data.normalize_features=true", "--run_dir=run"]
    assert main(["fit", *trained]) == 0
    assert main(["export", "run", "--out", "shared"]) == 0
    other = ["--data.standardize_features=true", "--run_dir=on"]
    assert main(["fit", "--ckpt_path=shared", *words, *CPU, *other]) == 2
    assert "the model was trained with normalize_features True, here it is False" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"normalize": False, "reduce_channels": "${oc.env:HOME}"}, "reduce_channels is '${oc.env:HOME}'"),
        ({"normalize": False}, "KeyError('reduce_channels')"),
        ("x", "TypeError"),
    ],
    ids=["an interpolation", "incomplete", "no table"],
)
def test_a_damaged_description_of_features_is_refused(tmp_path, monkeypatch, capsys, features, expected):
    monkeypatch.chdir(tmp_path)
    words = ["--data=nodes", f"--data.path={files(tmp_path, 'nodes')[0]}"]
    assert main(["fit", "--model=galit", *words, *SMALL, "--run_dir=run"]) == 0
    content = torch.load("run/checkpoints/best.ckpt", weights_only=True)
    content["graphzoo"]["features"] = features
    torch.save(content, "alone.ckpt")
    assert main(["test", "--ckpt_path=alone.ckpt", *words, *CPU, "--run_dir=tested"]) == 2
    error = capsys.readouterr().err
    assert expected in error and "Take another checkpoint of the run" in error and not Path("tested").exists()
