"""Exported folders are evaluated as the runs that they come from, and new runs begin with their weights."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from helpers.link_graphs import make_link_graph
from helpers.node_graphs import small_parts, write_npz

from graphzoo.cli import main

CPU = ["--trainer.accelerator=cpu", "--logger=csv"]
SMALL = ["--model.encoder.hidden_channels=8", "--trainer.max_epochs=2", *CPU]


def files(folder, task):
    """Of a graph of the task, and the decoder that is not the usual one."""
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


def test_a_folder_is_tested_like_its_run(exported, capsys):
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
    """At a rate of almost nothing they stay what they were; at another one they do not."""
    begin = ["fit", "--ckpt_path=shared", *exported, *CPU, "--trainer.max_epochs=1"]
    assert main([*begin, "--model.lr=1e-12", "--run_dir=still"]) == 0
    assert "the weights of shared" in capsys.readouterr().err
    expected = {name: value for name, value in metrics("run").items() if "second" not in name}
    still = metrics("still")
    assert {name: still[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert main([*begin, "--model.lr=0.1", "--run_dir=changed"]) == 0
    changed = metrics("changed")
    assert {name: changed[name] for name in expected} != pytest.approx(expected, abs=1e-6)


def test_a_fit_on_another_split_is_refused(exported, capsys):
    """Its test part may be among what the weights were trained on."""
    other = ["--data.split=random-50-25-25"]
    if "--data=links" in exported:
        graph = make_link_graph()
        held = len(graph.test.positive)
        test = dataclasses.replace(graph.test, positive=graph.train[:held])
        train = torch.cat([graph.train[held:], graph.test.positive])
        make_link_graph(train=train, test=test).save("other.npz")
        other = ["--data.path=other.npz"]
    begin = ["fit", "--ckpt_path=shared", *exported, *CPU, "--run_dir=refused"]
    assert main([*begin, *other]) == 2
    assert "the checkpoint was trained on split" in capsys.readouterr().err
    assert not Path("refused").exists()


def test_a_fit_of_another_decoder_is_refused(exported, capsys):
    other = "dot" if "--data=links" in exported else "linear"
    begin = ["fit", "--ckpt_path=shared", *exported, *CPU, f"--model.decoder={other}", "--run_dir=refused"]
    assert main(begin) == 2
    assert "decoder" in capsys.readouterr().err
    assert not Path("refused").exists()


def test_what_holds_no_such_model_is_refused(exported, capsys):
    pairs = ["fit", "--ckpt_path=shared", "--data=citeseer-heuristics", *CPU, "--run_dir=refused"]
    assert main(pairs) == 2
    assert "no model for estimation of link heuristics is exported" in capsys.readouterr().err
    assert not Path("refused").exists()


@pytest.mark.parametrize("exported", ["nodes"], indirect=True)
def test_other_classes_are_refused(exported, capsys):
    """By what the folder says of its data, as of a checkpoint."""
    path = write_npz(Path("other.npz"), y=small_parts()["y"] % 2)
    refused = ["test", "--ckpt_path=shared", "--data=nodes", f"--data.path={path}", *CPU, "--run_dir=none"]
    assert main(refused) == 2
    assert "the model's classes are" in capsys.readouterr().err
    assert not Path("none").exists()


def test_a_model_of_neighbourhoods_is_tested_in_them(tmp_path, monkeypatch):
    """As it predicts; an exported folder, and a checkpoint without its run."""
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
