"""Node classification from the command line: runs, selection, resuming, labels, refusals."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.node_graphs import write_npz, yes_no_labels
from helpers.same_runs import figures

from graphzoo.callbacks import best_checkpoint
from graphzoo.callbacks import progress as progress_module
from graphzoo.catalog import classes as registry
from graphzoo.catalog.presets import list_presets
from graphzoo.cli import reproduce as reproduce_module
from graphzoo.cli import search as search_module
from graphzoo.errors import GraphzooDataWarning
from graphzoo.runs import changes as changes_module
from graphzoo.training.plan import make_plan

ONE_STEP = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--logger=csv", "--run_dir=run"]
MODELS = ("nodeformer", "galit", "gcn", "gat", "sgc", "mlp", "sgformer", "sgformer-pyg")
RECIPES = [preset.name.split("/") for model in MODELS for preset in list_presets("recipe", model)]


def load(path):
    return torch.load(path, weights_only=True)


def rows(run):
    with (Path(run) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_run_ends_with_the_test_table(fit_nodes, results, workplace):
    result = fit_nodes("--run_dir=run", "--model.lr=0.05", epochs=30)
    found = results("run")
    validated = {int(row["epoch"]): float(row["val/acc"]) for row in rows("run") if row.get("val/acc")}
    assert len(validated) == 30
    assert found["best_epoch"] == max(epoch for epoch, accuracy in validated.items() if accuracy == 1.0)
    assert found["validation"]["best val/acc"] == max(validated.values())
    accuracy = found["metrics"]["test/acc"]
    right = accuracy * found["split"]["test"]
    assert right == pytest.approx(round(right), abs=1e-9), "no digit is lost on the way"
    assert f"{100 * accuracy:.2f}" in result.out and "accuracy %" in result.out
    assert found["split"]["name"] == "given" and len(found["split"]["fingerprint"]) == 64
    assert {path.name for path in Path("run/checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert load("run/checkpoints/best.ckpt")["graphzoo"]["classes"] == ["0", "1", "2"]


def test_test_repeats_the_figures_and_refuses_other_splits(fit_nodes, cli, results):
    fit_nodes("--run_dir=run", epochs=5)
    assert cli("test", "--ckpt_path", "run", "--run_dir=again").status == 0
    assert results("again")["metrics"] == results("run")["metrics"]
    assert cli("validate", "--ckpt_path", "run", "--run_dir=judged").status == 0
    best = results("run")["validation"]["best val/acc"]
    assert results("judged")["metrics"]["val/acc"] == best
    other = cli("test", "--ckpt_path", "run", "--data.split=random-50-25-25", "--run_dir=other")
    assert other.status == 2 and "may be among its training nodes" in other.err
    assert "--data.split given --data.split_index 0" in other.err
    scaled = cli("test", "--ckpt_path", "run", "--data.normalize_features=true", "--run_dir=scaled")
    assert scaled.status == 2 and "--data.normalize_features False" in scaled.err
    metric = cli("test", "--ckpt_path", "run", "--model.metric=roc_auc", "--run_dir=metric")
    assert metric.status == 2 and "Take --model.metric accuracy" in metric.err
    assert not any(Path(name).exists() for name in ("other", "scaled", "metric"))


def test_settings_refused_by_the_data_leave_no_files(fit_nodes):
    refused = fit_nodes("--model.class_weights=[1.0]", "--logger=tensorboard", status=2)
    assert "class_weights has 1 factors for 3 classes" in refused.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("metric", "early"), [("auroc", "--trainer.callbacks+=EarlyStopping"), ("acc", "--trainer=early")]
)
def test_checkpoint_and_early_stopping_watch_the_metric(cli, results, workplace, metric, early):
    path = write_npz(workplace / "labels.npz", y=yes_no_labels())
    arguments = ["--model=galit", "--data=nodes", f"--data.path={path}", "--trainer.accelerator=cpu"]
    if metric == "auroc":
        arguments.append("--model.metric=roc_auc")
    early = [early, "--trainer.callbacks.patience=2", "--logger=csv"]
    result = cli("fit", *arguments, *early, "--trainer.max_epochs=40", "--run_dir=run")
    assert result.status == 0, result.err
    found = results("run")
    assert found["epochs"] < 40, "stopped early"
    validated = [float(row[f"val/{metric}"]) for row in rows("run") if row.get(f"val/{metric}")]
    assert found["validation"][f"best val/{metric}"] == max(validated)
    assert f"test/{metric}" in found["metrics"] and f"val/{metric} " in result.out
    assert found["best_epoch"] == validated.index(max(validated)) == found["epochs"] - 3


def test_the_checkpoint_is_chosen_by_the_smallest_loss(fit_nodes, results):
    fit_nodes("--model.checkpoint_by_loss=true", "--model.lr=0.1", "--run_dir=run", epochs=8)
    losses = [float(row["val/loss"]) for row in rows("run") if row.get("val/loss")]
    assert results("run")["validation"]["best val/loss"] == min(losses)


def same_training(one, other):
    first, second = load(one), load(other)
    assert first["epoch"] == second["epoch"] and first["global_step"] == second["global_step"]
    assert all(torch.equal(value, second["state_dict"][name]) for name, value in first["state_dict"].items())
    for left, right in zip(first["optimizer_states"], second["optimizer_states"], strict=True):
        for key, state in left["state"].items():
            assert all(torch.equal(state[name], right["state"][key][name]) for name in state)


@pytest.mark.parametrize("model", ["galit", "nodeformer"])
@pytest.mark.parametrize(
    ("more", "epoch", "batch"),
    [
        ([], 3, 0),
        (["--data.batch_size=13"], 1, 2),
        (["--data.batch_size=13", "--data.partition=train"], 2, 0),
    ],
    ids=["whole", "parts", "training parts"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(fit_nodes, cli, results, model, more, epoch, batch):
    settings = [*more, "--model.decoder=mlp", "--model.dropout=0.3", "--model.encoder.dropout=0.3"]
    settings += ["--model.lr_milestones=[2]", "--trainer.log_every_n_steps=1"]
    fit_nodes("--run_dir=whole", *settings, model=model, epochs=5)
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", f"--trainer.callbacks.epoch={epoch}"]
    stop += [f"--trainer.callbacks.batch={batch}"]
    stopped = fit_nodes("--run_dir=parts", *settings, *stop, model=model, epochs=5, status=143)
    assert "graphzoo fit --ckpt_path parts --trust" in stopped.err
    assert Path("parts/checkpoints/best.ckpt").is_file(), "the best checkpoint is kept"
    assert cli("fit", "--ckpt_path", "parts", "--trust").status == 0
    same_training("whole/checkpoints/last.ckpt", "parts/checkpoints/last.ckpt")
    same_training("whole/checkpoints/best.ckpt", "parts/checkpoints/best.ckpt")
    assert results("whole")["metrics"] == results("parts")["metrics"]
    assert figures("whole") == figures("parts")


def test_checkpoints_are_written_rarely_and_completely(fit_nodes, monkeypatch, results):
    """Hundreds of epochs a minute must not mean hundreds of files a minute."""
    from graphzoo.callbacks.checkpoint_file import CheckpointFile

    written = []
    save = CheckpointFile.save_checkpoint

    def count(self, checkpoint, path, *args, **kwargs):
        written.append((Path(path).name, checkpoint["epoch"]))
        save(self, checkpoint, path, *args, **kwargs)

    monkeypatch.setattr(CheckpointFile, "save_checkpoint", count)
    monkeypatch.setattr(best_checkpoint.time, "monotonic", lambda: 0.0)  # no time elapses
    fit_nodes("--run_dir=run", "--model.lr=0.05", epochs=30)
    best = results("run")["best_epoch"]
    assert best > 0
    assert written == [("best.ckpt", 0), ("last.ckpt", 0), ("best.ckpt", best), ("last.ckpt", 29)]


def test_a_failed_run_keeps_its_best_epoch(fit_nodes, monkeypatch):
    monkeypatch.setattr(best_checkpoint.time, "monotonic", lambda: 0.0)
    failed = fit_nodes(
        "--run_dir=run", "--model.lr=0.05", "--trainer.callbacks+=helpers.own.BreakLoss",
        "--trainer.callbacks.step=25", epochs=30, status=1,
    )  # fmt: skip
    assert "best.ckpt" in failed.err
    validated = [float(row["val/acc"]) for row in rows("run") if row.get("val/acc")]
    best = load("run/checkpoints/best.ckpt")
    assert best["epoch"] == max(epoch for epoch, accuracy in enumerate(validated) if accuracy == 1.0)
    assert all(torch.isfinite(value).all() for value in best["state_dict"].values()), "as in that epoch"


def test_few_lines_for_many_epochs(fit_nodes, monkeypatch):
    monkeypatch.setattr(progress_module.EpochLines.__init__, "__defaults__", (math.inf, lambda: 0.0))
    shown = fit_nodes("--trainer.max_epochs=60").out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("epoch")] == ["1/60", "60/60"]
    shown = fit_nodes(epochs=4).out
    assert len([line for line in shown.splitlines() if line.startswith("epoch")]) == 4


# Predictions


def test_predict_labels_every_node_or_some(fit_nodes, cli, workplace):
    fit_nodes("--run_dir=run", "--model.lr=0.05", epochs=30)
    assert cli("predict", "--ckpt_path", "run", "--out", "all.parquet").status == 0
    table = pd.read_parquet("all.parquet")
    assert list(table) == ["node", "label", "probability"] and table["node"].tolist() == list(range(60))
    Path("nodes.txt").write_text("7\n3\n")
    for name in ("some.csv", "some.jsonl", "some.parquet"):
        done = cli("predict", "--ckpt_path=run", "--nodes=nodes.txt", "--embeddings", "--probabilities",
                   f"--out={name}")  # fmt: skip
        assert done.status == 0, done.err
    some = pd.read_csv("some.csv")
    assert some["node"].tolist() == [7, 3] and some["label"].tolist() == [
        int(label) for label in table["label"][[7, 3]]
    ]
    assert [name for name in some if name.startswith("probability_")] == [
        "probability_0", "probability_1", "probability_2",
    ]  # fmt: skip
    assert len([name for name in some if name.startswith("state_")]) == 8
    assert some.filter(like="probability_").sum(axis=1).tolist() == pytest.approx([1, 1], abs=1e-5)
    Path("nodes.txt").write_text("7\n60\n")
    unknown = cli("predict", "--ckpt_path=run", "--nodes=nodes.txt", "--out=no.csv")
    assert unknown.status == 2 and "line 2: node '60': nodes have the numbers 0 to 59" in unknown.err
    assert not Path("no.csv").exists()
    names = ["--nodes=nodes.txt", "--skip-unknown", "--out=known.csv"]
    with pytest.warns(GraphzooDataWarning, match="nodes.txt: 1 line of 2 left out for unknown names: '60'"):
        assert cli("predict", "--ckpt_path=run", *names).status == 0
    assert pd.read_csv("known.csv")["node"].tolist() == [7]


def test_predict_on_another_graph(fit_nodes, cli, workplace):
    fit_nodes("--run_dir=run")
    parts = {"y": None, "train_mask": None, "val_mask": None, "test_mask": None}
    write_npz(workplace / "new.npz", **parts)
    assert cli("predict", "--ckpt_path=run", "--data.path=new.npz", "--out=new.csv").status == 0
    assert cli("predict", "--ckpt_path=run", "--out=old.csv").status == 0
    assert Path("new.csv").read_text() == Path("old.csv").read_text()
    narrow = torch.rand(60, 5).numpy()
    write_npz(workplace / "narrow.npz", x=narrow, **parts)
    refused = cli("predict", "--ckpt_path=run", "--data.path=narrow.npz", "--out=narrow.csv")
    assert refused.status == 2 and "5 features per node, the model was trained with 12" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queries=nodes.txt"], "--queries is for runs of knowledge-graph completion; run is one of node"),
        (["--reverse-weight=0"], "--reverse-weight is for runs of knowledge-graph completion"),
        (["--top-k=3"], "--top-k is for runs of knowledge-graph completion"),
        (["--nodes=nothing.txt"], "nothing.txt: no such file"),
    ],
)
def test_predict_refuses_options_of_the_other_task(fit_nodes, cli, arguments, message):
    fit_nodes("--run_dir=run", epochs=1)
    Path("nodes.txt").write_text("7\n")
    result = cli("predict", "--ckpt_path=run", "--out=out.csv", *arguments)
    assert result.status == 2 and message in result.err


def test_results_list_settings_that_differ_from_the_recipe(cli, results):
    names = ["--model=galit", "--data=digits", "--trainer.accelerator=cpu", "--run_dir=run"]
    result = cli("fit", *names, "--trainer.max_epochs=1", "--seed=3", "--trainer.log_every_n_steps=1")
    assert result.status == 0, result.err
    assert re.fullmatch(r"trainer\.max_epochs 1 \(recipe \d+\)", results("run")["changed"])


@pytest.mark.fault(
    "a preset is damaged while a run trains",
    "scores are kept; results.json lacks `changed`, and a warning says so",
)
def test_scores_are_kept_if_a_recipe_cannot_be_read(cli, results, tiny_nodes, monkeypatch, caplog):
    from graphzoo.errors import UsageError

    def unreadable(record):
        raise UsageError("galit.yaml, line 3: no YAML")

    monkeypatch.setattr(changes_module, "changed_protocol", unreadable)
    result = cli("fit", "--model=galit", "--data=nodes", f"--data.path={tiny_nodes}", *ONE_STEP)
    assert result.status == 0, result.err
    assert "test/acc" in results("run")["metrics"] and "changed" not in results("run")
    assert "galit.yaml, line 3" in caplog.text


# Plug-in encoders


def test_an_encoder_by_dotted_path(cli, results, tiny_nodes):
    names = [
        "--model.encoder=helpers.own.OwnNodeEncoder",
        "--data=nodes",
        f"--data.path={tiny_nodes}",
    ]
    result = cli("fit", *names, "--model.encoder.hidden_channels=6", *ONE_STEP)
    assert result.status == 0, result.err
    found = load("run/checkpoints/best.ckpt")["graphzoo"]["encoder"]
    assert found["class_path"] == "helpers.own.OwnNodeEncoder" and found["init_args"]["hidden_channels"] == 6
    assert cli("predict", "--ckpt_path=run", "--out=out.csv").status == 0


def test_an_encoder_may_have_lazy_weights(cli, tiny_nodes):
    """The memory check before training cannot count weights of unknown size."""
    names = [
        "--model.encoder=helpers.own.LazyNodeEncoder",
        "--data=nodes",
        f"--data.path={tiny_nodes}",
    ]
    result = cli("fit", *names, *ONE_STEP)
    assert result.status == 0, result.err


def test_an_encoder_by_entry_point(cli, results, tiny_nodes, monkeypatch):
    from importlib.metadata import EntryPoint

    entry = EntryPoint("ownformer", "helpers.own:OwnNodeEncoder", registry.ENCODER_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    result = cli("fit", "--model=ownformer", "--data=nodes", f"--data.path={tiny_nodes}", *ONE_STEP)
    assert result.status == 0, result.err
    assert results("run")["model"] == "ownformer" and "test/acc" in results("run")["metrics"]
    wrong = cli("fit", "--model=ownformer", "--data=umls", "--trainer=smoke", "--trainer.accelerator=cpu")
    assert wrong.status == 2 and "the task needs a QueryEncoder" in wrong.err


# Refused combinations


@pytest.mark.parametrize(
    ("model", "data", "reason"),
    [
        ("knowformer", "cora", "turns node features into a state for every node"),
        ("nodeformer", "umls", "answers (head, relation, ?)"),
        ("galit", "kg", "answers (head, relation, ?)"),
    ],
)
def test_unsuitable_models_are_refused_before_torch_is_imported(model, data, reason):
    code = (
        "import sys; from graphzoo.cli import main; status = main(sys.argv[1:]);"
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "fit", "--model", model, "--data", data]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert result.returncode == 2 and reason in result.stderr and "Models for it" in result.stderr


def test_resuming_on_another_split_is_refused(fit_nodes, cli):
    fit_nodes("--run_dir=run", "--data.split=random-50-25-25")
    command = ["fit", "--ckpt_path=run", "--trainer.max_epochs=5"]
    result = cli(*command, "--data.split_index=1")
    assert result.status == 2 and "--data.split_index: 0 in the checkpoint, 1 now" in result.err


def test_a_lone_checkpoint_knows_its_split(fit_nodes, cli, tiny_nodes):
    fit_nodes("--run_dir=run", "--data.split=random-50-25-25")
    shutil.copy("run/checkpoints/last.ckpt", "lone.ckpt")
    command = ["fit", "--ckpt_path=lone.ckpt", "--data=nodes", f"--data.path={tiny_nodes}", "--logger=csv"]
    command += ["--trainer.max_epochs=5", "--trainer.accelerator=cpu", "--model.lr=0.01"]
    other = cli(*command, "--run_dir=other", "--data.split=random-50-25-25", "--data.split_index=1")
    assert other.status == 2 and "the split differs from that of the checkpoint" in other.err
    same = cli(*command, "--run_dir=same", "--data.split=random-50-25-25")
    assert same.status == 0, same.err


# Recipes and rows


@pytest.mark.parametrize(("model", "name"), RECIPES)
def test_recipe_runs_a_step(cli, tiny_nodes, results, model, name):
    recipe = next(preset for preset in list_presets("recipe", model) if preset.name == f"{model}/{name}")
    command = ["fit", f"--model={model}", "--data=nodes", f"--data.path={tiny_nodes}", f"--recipe={name}"]
    # These settings suit the recipe's own data only.
    command += ["--data.num_neighbors=null", "--data.reduce_channels=null"]
    result = cli(*command, *ONE_STEP)
    assert result.status == 0, result.err
    assert results("run")["recipe"] == f"{model}/{name}" and results("run")["steps"] == 1
    assert {"title", "settings", "selection", "measured"} <= set(recipe.header)
    data = recipe.header.get("data", name)
    assert make_plan("fit", ["--model", model, "--data", data, "--recipe", name]).recipe == recipe.name


@pytest.mark.fault(
    "--splits of reproduce or search exceed those of the data",
    "refused with the number of splits before a run starts",
)
@pytest.mark.parametrize(("count", "message"), [(1, "one split, 0"), (3, "3 splits, 0 to 2")])
@pytest.mark.parametrize("command", ["reproduce", "search"])
def test_missing_splits_are_refused_before_a_run(cli, tmp_path, monkeypatch, command, count, message):
    import numpy as np
    from helpers.node_graphs import write_npz

    def begin(*arguments, **options):
        raise AssertionError("a run begins")

    monkeypatch.setattr(reproduce_module, "run_command", begin)
    monkeypatch.setattr(search_module, "_work", begin)
    path = write_npz(tmp_path / "graph.npz")
    with np.load(path) as file:
        arrays = dict(file)
    for name in ("train_mask", "val_mask", "test_mask"):
        arrays[name] = np.stack([arrays[name]] * count, 1)
    np.savez(path, **arrays)
    words = [command, "galit", "nodes", f"--data.path={path}", f"--splits=0,{count}"]
    refused = cli(*words)
    assert refused.status == 2 and not Path("runs").exists()
    assert refused.err.startswith(
        f"graphzoo: nodes has {message}: there is no split {count} of --splits 0,{count}\n"
    ), refused.err
    assert f"Give --splits 0{'-2' * (count > 1)}, or" in refused.err
    for fine in ([f"--splits={count - 1}"], [f"--splits=0,{count}", "--data.split=random-50-25-25"]):
        with pytest.raises(AssertionError, match="a run begins"):
            cli(*words[:4], *fine, f"--out=fine-{len(fine)}", "--debug")


def test_missing_splits_of_links_are_refused(cli, links):
    words = ["reproduce", "heuristic.cn", "cora-link", "--data.protocol=original", "--splits=1"]
    refused = cli(*words)
    assert refused.status == 2 and "cora-link has one split, 0: there is no split 1" in refused.err
    own = cli("reproduce", "heuristic.cn", "links", f"--data.path={links}", "--splits=0-1")
    assert own.status == 2 and "links has one split, 0: there is no split 1" in own.err, own.err
    assert not Path("runs").exists()


def test_reproduce_averages_over_splits(cli, results, tiny_nodes, monkeypatch):
    from graphzoo.cli import main

    monkeypatch.setattr(reproduce_module, "run_command", main)
    command = ["reproduce", "galit", "nodes", f"--data.path={tiny_nodes}", "--data.split=random-50-25-25"]
    command += ["--splits=0-2", "--trainer.max_epochs=3", "--trainer.accelerator=cpu", "--logger=csv"]
    done = cli(*command)
    assert done.status == 0, done.err
    row = Path("runs/reproduce/galit-tiny")
    runs = [results(row / f"split-{split}-seed-0") for split in range(3)]
    assert [run["split"]["index"] for run in runs] == [0, 1, 2] and {run["seed"] for run in runs} == {0}
    assert len({run["split"]["fingerprint"] for run in runs}) == 3
    table = json.loads((row / "row.json").read_text())
    values = [run["metrics"]["test/acc"] for run in runs]
    assert table["metrics"]["test/acc"]["mean"] == pytest.approx(sum(values) / 3)
    assert table["splits"] == [0, 1, 2] and table["seeds"] == [0]
    assert f"{100 * sum(values) / 3:.2f} ±" in done.out and "3 runs" in done.out
    again = cli(*command)
    assert again.status == 0 and again.err.count("finished before") == 3
    assert "test, 15 nodes, 3 runs" in again.out
    smaller = row / "split-1-seed-0" / "results.json"  # splits fixed by a data set may differ in size
    smaller.write_text(json.dumps(runs[1] | {"evaluated": 14, "tested": 14}))
    assert "test, 14 to 15 nodes, 3 runs" in cli(*command).out
    both = cli(*command, "--data.split_index=1")
    assert both.status == 2 and "--splits sets --data.split_index itself" in both.err


def test_a_row_is_not_continued_on_changed_data(cli, workplace, monkeypatch):
    from graphzoo.cli import main

    monkeypatch.setattr(reproduce_module, "run_command", main)
    path = write_npz(workplace / "own.npz")
    words = ["reproduce", "galit", "nodes", f"--data.path={path}", *ONE_STEP[:3], "--out=row"]
    words.append("--model.encoder.hidden_channels=8")
    assert cli(*words, "--seeds=0").status == 0
    assert cli(*words, "--seeds=0").status == 0, "the same data"
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "x": arrays["x"] + 1})
    refused = cli(*words, "--seeds=0,1")
    assert refused.status == 2 and "the data have changed since seed 0 was finished" in refused.err
    assert "another folder: --out NEW" in refused.err and not Path("row/seed-1").exists()
