"""Link prediction from the command line: runs of every kind of encoder, heuristics, recipes, resuming."""

import csv
import json
from pathlib import Path

import pytest
import torch
from helpers.link_graphs import make_link_graph
from helpers.own import QUIET_CPU, SMALL_LINKS

from graphzoo.catalog.presets import list_presets
from graphzoo.cli import reproduce as reproduce_module

RECIPES = [
    preset.name.split("/")
    for preset in list_presets("recipe")
    if preset.name.startswith("pencil/") and "heuristics" not in preset.header.get("data", preset.name)
] + [["knowformer", f"{name}-link"] for name in ("cora", "citeseer", "pubmed")]


@pytest.mark.parametrize("model", SMALL_LINKS)
def test_every_kind_of_encoder_runs_to_the_test_table(fit_links, cli, results, model):
    result = fit_links("--run_dir=run", "--data.batch_size=64", model=model)
    found = results("run")["metrics"]
    for name in ("mrr", "hits@1", "hits@20", "hits@50", "hits@100", "auroc", "ap"):
        assert 0 <= found[f"test/{name}"] <= 1
    assert "MRR" in result.out and "Hits@20" in result.out and f"{found['test/mrr']:.4f}" in result.out
    assert max(map(len, result.out.splitlines())) <= 80, "the table fits a terminal"
    assert cli("test", "--ckpt_path=run", "--run_dir=again", *QUIET_CPU).status == 0
    assert results("again")["metrics"] == found
    assert cli("validate", "--ckpt_path=run", "--run_dir=judged", *QUIET_CPU).status == 0
    assert results("judged")["metrics"]["val/mrr"] == results("run")["validation"]["best val/mrr"]


def test_data_settings_that_differ_from_the_checkpoint_are_refused(fit_links, cli):
    fit_links("--run_dir=run", epochs=1)
    other = cli("test", "--ckpt_path=run", "--data.num_neighbors=3", "--run_dir=other", *QUIET_CPU)
    assert other.status == 2 and "--data.num_neighbors 10" in other.err, other.err


def test_a_test_may_use_neighbourhoods_of_another_size(fit_links, cli, results):
    fit_links("--run_dir=run", "--data.neighbourhood=8", model="knowformer", epochs=1)
    for size, place in ((8, "same"), (2, "nearer")):
        size_option = f"--data.eval_neighbourhood={size}"
        done = cli("test", "--ckpt_path=run", size_option, f"--run_dir={place}", *QUIET_CPU)
        assert done.status == 0, done.err
    trained, same, nearer = (results(place) for place in ("run", "same", "nearer"))
    assert same["metrics"] == trained["metrics"]
    assert nearer["protocol"] == "in neighbourhoods of 2 nodes"
    other = cli("test", "--ckpt_path=run", "--data.neighbourhood=12", "--run_dir=other", *QUIET_CPU)
    assert other.status == 2 and "--data.neighbourhood 8" in other.err, other.err


@pytest.mark.parametrize("model, recipe", RECIPES, ids=["/".join(r) for r in RECIPES])
def test_recipe_runs_a_step(fit_links, results, model, recipe):
    few = [
        "--data.batch_size=32",
        "--data.micro_batch_size=16",
        "--data.max_nodes=20",
        "--data.num_neighbors=5",
    ]
    epoch = ["--trainer.check_val_every_n_epoch=1", "--trainer.limit_train_batches=1", "--run_dir=run"]
    fit_links("--recipe", recipe, *few, *epoch, model=model, epochs=1)
    found = results("run")
    assert found["recipe"] == f"{model}/{recipe}" and found["steps"] == 1
    assert 0 < found["metrics"]["test/mrr"] <= 1


@pytest.mark.parametrize("name", ["cn", "aa", "ra", "katz", "spd", "pagerank", "ppr"])
def test_heuristics_are_tested_without_a_checkpoint(cli, links, results, name):
    names = ["--model", f"heuristic.{name}", "--data=links", "--data.path", links]
    result = cli("test", *names, *QUIET_CPU, "--run_dir=run")
    assert result.status == 0, result.err
    found = results("run")["metrics"]
    # PageRank follows the degrees, which carry no information about communities.
    assert found["test/auroc"] > (0.3 if name == "pagerank" else 0.9)
    refused = cli("fit", *names, *QUIET_CPU, "--run_dir=fitted")
    assert refused.status == 2 and "nothing to train" in refused.err and "graphzoo test" in refused.err
    assert len(refused.err.splitlines()) <= 6


def test_a_heuristic_on_other_tasks_is_refused_at_once(cli):
    for data in ("umls", "cora"):
        result = cli("test", "--model=heuristic.ra", "--data", data)
        assert result.status == 2 and "heuristic encoder" in result.err


def test_reproduce_tests_a_heuristic_once(cli, links, monkeypatch):
    from graphzoo.cli import main

    monkeypatch.setattr(reproduce_module, "run_command", main)
    result = cli("reproduce", "heuristic.ra", "links", "--data.path", links, "--out=row", *QUIET_CPU)
    assert result.status == 0, result.err
    row = json.loads(Path("row/row.json").read_text())
    assert row["seeds"] == [0] and row["metrics"]["test/mrr"]["std"] is None


@pytest.mark.parametrize("model", SMALL_LINKS)
@pytest.mark.parametrize("epoch, batch", [(0, 5), (1, 4)])
def test_a_resumed_run_equals_an_uninterrupted_one(fit_links, cli, results, model, epoch, batch):
    """Stops inside a step of several micro-batches, and at the end of one."""
    settings = ["--data.batch_size=32", "--data.micro_batch_size=8", "--data.seed=3"]
    stop = [
        "--trainer.callbacks+=helpers.own.SendSignal",
        f"--trainer.callbacks.epoch={epoch}",
        f"--trainer.callbacks.batch={batch}",
    ]
    fit_links(*settings, "--run_dir=whole", model=model)
    fit_links(*settings, *stop, "--run_dir=parts", model=model, status=143)
    assert cli("fit", "--ckpt_path=parts", "--trust").status == 0
    one, other = (torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True) for run in ("whole", "parts"))
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    assert results("whole")["metrics"] == results("parts")["metrics"]
    with Path("parts/metrics.csv").open() as file:
        assert any(row.get("val/mrr") for row in csv.DictReader(file))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--model.decoder=cross"], "decoder"),
        (["--data.micro_batch_size=0"], "micro_batch_size must be at least 1"),
    ],
)
def test_wrong_settings_are_answered_in_a_few_lines(fit_links, cli, links, arguments, message):
    names = ["--model=pencil", "--data=links", "--data.path", links]
    result = cli("fit", *names, *QUIET_CPU, *arguments)
    assert result.status == 2 and message in result.err and len(result.err.splitlines()) <= 6, result.err


def test_tables_leave_out_hits_that_every_link_has(fit_links, results):
    """With fewer than 100 negatives Hits@100 is 1 for every link. Only results.json has it."""
    out, found = fit_links("--run_dir=run", epochs=1).out, results("run")
    assert found["negatives"] < 100 and "test/hits@100" in found["metrics"]
    assert "Hits@1 " in out and "Hits@100" not in out
    chosen_by_it = fit_links("--run_dir=other", "--model.metric=hits@100", epochs=1).out
    assert "Hits@100" in chosen_by_it


def test_a_run_older_than_standardised_features_is_tested_and_resumed(workplace, cli, results):
    """Its config.yaml lacks the option, and its features were not standardised."""
    make_link_graph().save(Path("own.npz"))
    names = ["fit", "--model=galit", "--data=links", "--data.path=own.npz", *QUIET_CPU]
    assert cli(*names, *SMALL_LINKS["galit"], "--trainer.max_epochs=2", "--run_dir=new").status == 0
    left = ["--data.standardize_features=false", "--run_dir=run"]
    assert cli(*names, *SMALL_LINKS["galit"], "--trainer.max_epochs=2", *left).status == 0
    config = Path("run/config.yaml")
    text = config.read_text()
    assert results("run")["metrics"] != results("new")["metrics"], "the option changes scores"
    config.write_text(text.replace("    standardize_features: false\n", ""))
    assert config.read_text() != text
    assert cli("test", "run", "--run_dir=again", *QUIET_CPU).status == 0
    assert results("again")["metrics"] == results("run")["metrics"]
    resumed = cli("fit", "run", "--trainer.max_epochs=3", *QUIET_CPU)
    assert resumed.status == 0, resumed.err
    assert results("run")["resumed"] is None
    other = cli("fit", "run", "--trainer.max_epochs=4", "--data.standardize_features=true", *QUIET_CPU)
    assert other.status == 2 and "--data.standardize_features: False in the checkpoint, True now" in other.err


@pytest.mark.parametrize("more", [[], ["--model.lr=0.02"]], ids=["split", "split-and-rate"])
def test_a_resume_on_another_split_forgets_scores_of_the_first(more, workplace, cli, results):
    """The best checkpoint must come from the new split: one of the old split may not be tested on it."""
    links = make_link_graph().train.tolist()
    Path("own.csv").write_text("".join(f"{u},{v}\n" for u, v in links))
    data = ["--data=links", "--data.path=own.csv", *QUIET_CPU, "--run_dir=run"]
    mine = {"+": "ModelCheckpoint", ".monitor": "val/mrr", ".mode": "max", ".dirpath": "mine"}
    data += [f"--trainer.callbacks{name}={value}" for name, value in mine.items()]
    assert cli("fit", "--model=pencil", *data, *SMALL_LINKS["pencil"], "--trainer.max_epochs=3").status == 0
    command = ["fit", "run", "--data.split_index=1", "--trainer.max_epochs=4", *more, *QUIET_CPU, "--trust"]
    refused = cli(*command)
    assert refused.status == 2 and "--override" in refused.err
    result = cli(*command, "--override")
    assert result.status == 0, result.err
    found = results("run")
    assert found["resumed"] == "with other settings after epoch 3, on other data after epoch 3"
    assert found["split"]["index"] == 1 and found["best_epoch"] == 3
    assert f"# resumed: {found['resumed']}\n" in Path("run/config.yaml").read_text()
    states = torch.load("run/checkpoints/last.ckpt", weights_only=True)["callbacks"]
    (own,) = (state for name, state in states.items() if name.startswith("ModelCheckpoint"))
    assert Path(own["best_model_path"]).name.startswith("epoch=3")


def test_normalising_missing_features_has_no_effect(workplace, cli):
    make_link_graph(features=False).save(Path("own.npz"))
    data = ["--data=links", "--data.path=own.npz", *QUIET_CPU]
    made = ["--data.normalize_features=true", "--run_dir=run", "--trainer.max_epochs=1"]
    assert cli("fit", "--model=knowformer", *data, *SMALL_LINKS["knowformer"], *made).status == 0
    assert cli("export", "run", "--out", "shared").status == 0
    tested = cli("test", "--ckpt_path=shared", *data, "--run_dir=tested")
    assert tested.status == 0, tested.err
