"""Files of a run, its seed and options, loggers, and the same run from Python."""

import csv
import io
import json
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from helpers.own import SMALL, OwnModule
from lightning import Callback, Trainer

from graphzoo.callbacks import MetricsFile, ProgressBar, Throughput
from graphzoo.datamodules import KGDataModule
from graphzoo.encoders import KnowFormer
from graphzoo.errors import UsageError
from graphzoo.report.results import headline, results_section
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records
from graphzoo.runs.results_file import config_hash
from graphzoo.tasks import KGCompletion
from graphzoo.training import loggers


def load(path):
    return torch.load(path, weights_only=True)


def rows(run):
    with (Path(run) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def printed(result):
    assert result.status == 0, result.err
    return yaml.safe_load(result.out)


def test_files_of_a_run_directory(fit, results, workplace):
    result = fit()
    (run,) = workplace.glob("runs/knowformer-kg/*")
    assert {path.name for path in run.iterdir()} == {
        "checkpoints", "config.yaml", "evaluation", "graph", "metrics.csv", "relations.csv", "results.json",
    }  # fmt: skip
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    found = results(run)
    assert {"test/mrr", "test/mr", "test/hits@1", "test/hits@3", "test/hits@10"} <= set(found["metrics"])
    assert (found["model"], found["data"], found["seed"], found["epochs"]) == ("knowformer", "kg", 0, 2)
    assert found["best_epoch"] in (0, 1)
    assert found["tested"] == 24  # twelve triples in both directions
    assert found["num_parameters"] > 0 and found["seconds"] > 0 and found["versions"]["torch"]
    assert (
        found["data_fingerprint"]
        == load(run / "checkpoints" / "best.ckpt")["graphzoo"]["data"]["fingerprint"]
    )
    assert result.err.startswith("graphzoo fit: data kg, model knowformer, recipe knowformer/kg")
    assert "both directions" in result.out and "tail" in result.out and "head" in result.out


def test_results_say_what_queries_see(fit, cli, results, workplace):
    """With "auto", the settings do not say it."""
    assert fit("--run_dir=whole").status == 0
    assert results("whole")["queries"] is None
    # In training, two relations join the same entities; no fact joins those of the other triples.
    pairs = [(f"a{i}", f"b{(i + step) % 30}", step) for step in range(3) for i in range(30)]
    facts = [f"{a}\t{relation}\t{b}\n" for a, b, step in pairs if step != 2 for relation in "rs"]
    others = [f"{a}\tr\t{b}\n" for a, b, step in pairs if step == 2]
    (workplace / "doubled").mkdir()
    for split, lines in (("train", facts), ("valid", others[:10]), ("test", others[10:])):
        (workplace / f"doubled/{split}.tsv").write_text("".join(lines))
    near = ("--data.neighbourhood=6", "--data.eval_neighbourhood=9", "--model.remove_facts=auto")
    assert fit("--data.path=doubled", "--run_dir=near", *near).status == 0
    assert results("near")["queries"] == (
        "trained in neighbourhoods of 6 entities; evaluated in neighbourhoods of 9 entities; "
        "every other edge between the two entities is hidden in training (remove_facts one_hop)"
    )
    assert cli("test", "--ckpt_path=near", "--run_dir=tested").status == 0
    assert results("tested")["queries"] is None, "nothing was trained"


def test_results_are_the_test_scores_of_the_best_epoch_in_full_precision(fit, cli, results, workplace):
    fit("--run_dir=run", "--model.lr=0.02", epochs=4)
    found = results("run")
    validated = {int(row["epoch"]): float(row["val/mrr"]) for row in rows("run") if row["val/mrr"]}
    assert found["best_epoch"] == max(validated, key=validated.get)
    assert found["validation"]["best val/mrr"] == max(validated.values())
    with (workplace / "run" / "relations.csv").open() as file:
        table = next(csv.DictReader(file))
    assert found["metrics"]["test/mrr"] == float(table["mrr"]), "no digit is lost on the way"
    again = cli("test", "--ckpt_path", "run")
    assert again.status == 0, again.err
    (other,) = workplace.glob("runs/knowformer-kg/*")
    assert results(other)["metrics"] == found["metrics"]
    assert results(other)["best_epoch"] == found["best_epoch"]


def test_own_data_have_the_name_of_their_folder(cli, fit, results, tiny_kg):
    """Recipes are looked up by the name of the preset, which commands also use."""
    shutil.copytree(tiny_kg, "my-triples")
    out = fit("--data.path=my-triples", "--run_dir=run").out
    assert "knowformer on my-triples: test" in out
    found = results("run")
    assert (found["data"], found["data_name"], found["recipe"]) == ("kg", "my-triples", "knowformer/kg")
    (group,) = group_records(find_records([Path("run")]))
    assert group.label == "knowformer on my-triples"
    shown = cli("results", "run", "--commands")
    assert "my-triples" in shown.out and "--data kg" in shown.out, shown.out
    # Earlier versions did not store the name in results.json.
    found.pop("data_name")
    Path("run/results.json").write_text(json.dumps(found))
    assert find_records([Path("run")])[0].data_name == "my-triples"


def test_validate_gives_the_scores_of_training(fit, cli, results, workplace):
    fit("--run_dir=run")
    assert cli("validate", "--ckpt_path", "run/checkpoints/best.ckpt", "--run_dir=judged").status == 0
    assert results("judged")["metrics"]["val/mrr"] == results("run")["validation"]["best val/mrr"]


def test_signal_handlers_are_restored(fit):
    """Handlers of Lightning that stay would keep their trainers, and call each other in later runs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    fit("--trainer.max_epochs=1")
    assert {number: signal.getsignal(number) for number in before} == before


def test_two_runs_get_two_directories(fit, workplace):
    fit(epochs=1)
    fit(epochs=1)
    assert len(list(workplace.glob("runs/knowformer-kg/*/results.json"))) == 2


def test_runs_without_a_logger_have_their_own_folders(fit, workplace):
    """Without a logger Lightning would write last-v1, last-v2 to ./checkpoints."""
    fit("--trainer.logger=false", "--run_dir=one", epochs=1)
    fit("--trainer.logger=false", "--run_dir=two", epochs=1)
    assert {path.name for path in workplace.iterdir()} == {"one", "two"}
    assert not (workplace / "one" / "metrics.csv").exists()
    assert {path.name for path in (workplace / "two" / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def test_one_seed_for_everything_and_for_the_same_result(fit, results):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        fit(f"--run_dir={name}", f"--seed={seed}")
    first, second, third = (load(f"{name}/checkpoints/last.ckpt")["state_dict"] for name in "abc")
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], third[key]) for key in first)
    assert results("a")["metrics"] == results("b")["metrics"]
    assert results("a")["config_hash"] == results("c")["config_hash"], "seeds of one setting share it"
    config = yaml.safe_load(Path("a/config.yaml").read_text())
    assert config["seed_everything"] == 3
    assert config["data"]["init_args"]["seed"] == 3
    assert config["model"]["init_args"]["seed"] == 3


def test_seed_true_draws_one_seed(cli):
    config = printed(
        cli("fit", "--model=knowformer", "--data=umls", "--seed_everything=true", "--print_config")
    )
    assert config["seed_everything"] == config["data"]["init_args"]["seed"]


def test_a_printed_configuration_gives_the_same_run(cli, fit, results):
    names = [
        "--model",
        "knowformer",
        "--data",
        "umls",
        "--trainer",
        "smoke",
        "--model.encoder.hidden_channels=8",
    ]
    shown = cli("fit", *names, "--print_config")
    Path("again.yaml").write_text(shown.out)
    again = cli("fit", "--config", "again.yaml", "--print_config")
    assert printed(again) == printed(shown)
    ran = cli("fit", "--config", "again.yaml", "--seed", "5", "--run_dir=run", "--logger=csv")
    assert ran.status == 0, ran.err
    found = results("run")
    assert (found["model"], found["data"], found["recipe"]) == ("knowformer", "umls", "knowformer/umls")
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["data"]["init_args"]["seed"] == 5, "the printed seed does not outlive a new one"


def test_data_and_task_follow_the_seed_of_the_run_unless_they_have_their_own(cli):
    names = ("--model", "knowformer", "--data", "umls", "--recipe=none")

    def seeds(*words):
        shown = cli("fit", *words, "--print_config")
        config = yaml.safe_load(shown.out)
        return [
            config["seed_everything"],
            *(config[name]["init_args"].get("seed") for name in ("data", "model")),
        ]

    Path("own.yaml").write_text(cli("fit", *names, "--seed=3", "--model.seed=7", "--print_config").out)
    Path("same.yaml").write_text(cli("fit", *names, "--seed=3", "--print_config").out)
    Path("part.yaml").write_text("model: {init_args: {seed: 7}}")
    Path("three.yaml").write_text("seed_everything: 3")
    Path("older.yaml").write_text(Path("own.yaml").read_text().replace("seed: 7", "seed: 0"))
    # With a printed configuration.
    assert seeds("--config=own.yaml") == seeds("--config=own.yaml", "--seed=3") == [3, 3, 7]
    assert seeds("--config=same.yaml") == [3, 3, 3]
    assert seeds("--config=own.yaml", "--seed=5") == [5, 5, 7]
    assert seeds("--config=same.yaml", "--seed=5") == [5, 5, 5]
    assert seeds("--config=own.yaml", "--config=same.yaml", "--seed=5") == [5, 5, 5]
    assert seeds("--config=own.yaml", "--seed=5", "--model.seed=9") == [5, 5, 9]
    # With a user's configuration file.
    assert seeds(*names, "--config=part.yaml") == [0, 0, 7]
    assert seeds(*names, "--config=part.yaml", "--seed=5") == [5, 5, 7]
    assert seeds(*names, "--config=three.yaml") == seeds(*names, "--seed=3") == [3, 3, 3]
    # Configurations printed by earlier versions repeat their training, and are refused for other seeds.
    assert seeds("--config=older.yaml") == [3, 3, 0] and seeds("--config=older.yaml", "--seed=5") == [5, 5, 5]


def test_a_users_task_follows_the_seed_if_it_has_one(cli):
    body = "from graphzoo.tasks import NodeClassification as N\n"
    for name, seed in (("With", ", seed: int = 0"), ("Without", "")):
        body += f"class {name}(N):\n    def __init__(self, encoder: dict{seed}):\n"
        body += "        super().__init__(encoder)\n"
    Path("own_task.py").write_text(body)
    encoder = "--model.encoder={class_path: graphzoo.encoders.GALiT}"
    Path("printed.yaml").write_text(
        cli("fit", "--model=galit", "--data=cora", "--seed=3", "--print_config").out
    )
    for lead in (["--data=cora"], ["--config=printed.yaml"]):
        for name, expected in (("With", 5), ("Without", None)):
            shown = cli("fit", *lead, f"--model=own_task.{name}", encoder, "--seed=5", "--print_config")
            assert shown.status == 0, shown.err
            assert yaml.safe_load(shown.out)["model"]["init_args"].get("seed") == expected


def test_saved_config_repeats_the_run(fit, cli):
    fit("--run_dir=one", "--seed=2", epochs=1)
    assert cli("fit", "--config", "one/config.yaml", "--run_dir=two").status == 0
    one, two = (load(f"{name}/checkpoints/last.ckpt")["state_dict"] for name in ("one", "two"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_the_same_run_from_python(fit, results, tiny_kg):
    from lightning.pytorch import Trainer, seed_everything
    from lightning.pytorch.callbacks import ModelCheckpoint

    from graphzoo.callbacks import WarmupEMAWeightAveraging
    from graphzoo.datamodules import KGDataModule
    from graphzoo.encoders import KnowFormer
    from graphzoo.tasks import KGCompletion

    fit("--run_dir=run", "--seed=1")
    seed_everything(1)
    data = KGDataModule(path=str(tiny_kg), batch_size=16, seed=1)
    sizes = {
        "hidden_channels": 8,
        "num_heads": 2,
        "num_layers": 1,
        "num_query_layers": 1,
        "num_value_layers": 1,
    }
    recipe = {"remove_facts": "auto", "lr": 0.004, "lr_gamma": 0.3}
    task = KGCompletion(encoder=lambda spec: KnowFormer(spec, **sizes), seed=1, **recipe)
    best = ModelCheckpoint(monitor=task.monitor, mode=task.mode, dirpath="python")
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[WarmupEMAWeightAveraging(0.998), best],
        logger=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(task, datamodule=data)
    saved = load("run/checkpoints/last.ckpt")["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in task.state_dict().items())
    (tested,) = trainer.test(task, datamodule=data, ckpt_path=best.best_model_path, weights_only=True)
    assert tested["test/mrr"] == pytest.approx(results("run")["metrics"]["test/mrr"], abs=1e-12)


def test_a_plain_lightning_module_runs(cli, tiny_kg, results):
    """LightningCLI would require linked arguments of every model."""
    result = cli(
        "fit", "--model=helpers.own.OwnModule", "--data=kg", "--data.path", tiny_kg, "--model.width=2",
        "--trainer.max_epochs=1", "--run_dir=run", "--logger=csv", "--trainer.enable_progress_bar=false",
    )  # fmt: skip
    assert result.status == 0, result.err
    assert results("run")["metrics"]["test/own"] > 0
    assert load("run/checkpoints/last.ckpt")["state_dict"]["weight"].shape == (2,)
    assert OwnModule().weight.shape == (3,)


def test_own_encoder_by_class_path(fit, results):
    fit("--model.encoder=helpers.own.OwnEncoder", "--run_dir=run", epochs=1)
    assert load("run/checkpoints/best.ckpt")["graphzoo"]["encoder"]["init_args"] == {"hidden_channels": 8}


def test_class_paths_may_name_files_of_the_current_folder(fit):
    Path("of_this_folder.py").write_text("from helpers.own import OwnEncoder\nclass Mine(OwnEncoder): pass\n")
    before = list(sys.path)
    fit("--model.encoder=of_this_folder.Mine", "--run_dir=run", epochs=1)
    assert load("run/checkpoints/best.ckpt")["graphzoo"]["encoder"]["class_path"] == "of_this_folder.Mine"
    assert sys.path == before


def test_callbacks_and_configuration_files_of_the_user_are_used(fit):
    Path("mine.yaml").write_text("trainer:\n  gradient_clip_val: 0.5\nmodel:\n  init_args:\n    lr: 0.001\n")
    fit("--config", "mine.yaml", "--trainer.callbacks+=EarlyStopping", "--run_dir=run", epochs=1)
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["trainer"]["gradient_clip_val"] == 0.5 and config["model"]["init_args"]["lr"] == 0.001
    *recipes, callback = config["trainer"]["callbacks"]
    classes = [each["class_path"] for each in recipes]
    assert classes == ["graphzoo.callbacks.WarmupEMAWeightAveraging", "graphzoo.callbacks.QueryBudget"]
    assert callback["init_args"]["monitor"] == "val/mrr" and callback["init_args"]["mode"] == "max"


@pytest.mark.parametrize("command", [["--model=knowformer"], ["--ckpt_path=knowformer-any"]], ids=str)
def test_the_budget_of_own_triples_can_be_set(cli, tiny_kg, command):
    words = ["--data=kg", "--data.path", tiny_kg, "--trainer.callbacks.queries=320", "--data.batch_size=16"]
    result = cli("fit", *command, *words, "--no-test", "--run_dir=run")
    assert result.status == 0, result.err
    assert "2 steps an epoch" in result.out and "at most 10 epochs" in result.out


@pytest.mark.parametrize("name", ["EMAWeightAveraging", "WarmupEMAWeightAveraging"])
def test_moving_averages_are_evaluated_and_saved(cli, fit, results, name):
    """best.ckpt and the test use the averages, and a resume continues with both sets of weights."""
    none, more = "--trainer.callbacks=null", f"--trainer.callbacks+={name}"  # the recipe has averages, too
    result = fit(none, more, "--trainer.callbacks.decay=0.9", "--seed=3", "--run_dir=run")
    assert "WeightAveraging" not in result.err + result.out
    saved = load("run/checkpoints/best.ckpt")
    average, latest = saved["state_dict"], saved["current_model_state"]
    assert any(not torch.equal(average[name], latest[name]) for name in average)
    judged = cli("test", "--ckpt_path", "run", "--run_dir=judged")
    assert judged.status == 0, judged.err
    assert results("judged")["metrics"]["test/mrr"] == results("run")["metrics"]["test/mrr"]
    plain = fit(none, "--seed=3", "--run_dir=plain")
    assert plain.status == 0
    assert results("plain")["metrics"]["test/mrr"] != results("run")["metrics"]["test/mrr"]
    assert results("plain")["config_hash"] != results("run")["config_hash"]

    stopping = '[{"class_path": "EarlyStopping", "init_args": {"monitor": "val/mrr"}}]'
    for others in ("null", stopping):
        refused = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3", f"--trainer.callbacks={others}")
        assert refused.status == 2
        assert (
            "--trainer.callbacks: moving averages of the weights in the checkpoint, none now" in refused.err
        )
    twice = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3", more)
    assert twice.status == 2 and "two callbacks average the weights" in twice.err and none in twice.err
    assert "=null --trainer.max_epochs" in twice.err  # the recipe's limit is a callback, too
    longer = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert longer.status == 0, longer.err
    assert "current_model_state" in load("run/checkpoints/last.ckpt")


def test_metrics_are_logged_per_step_and_epoch(fit):
    fit("--run_dir=run", "--trainer.log_every_n_steps=1")
    found = rows("run")
    assert len([row for row in found if row["train/loss"]]) == 8
    assert len([row for row in found if row["val/mrr"]]) == 2
    rates = [float(row["train/queries_per_s"]) for row in found if row["train/queries_per_s"]]
    assert len(rates) == 2 and min(rates) > 0
    assert [float(row["lr-Adam/pg1"]) for row in found if row["lr-Adam/pg1"]][:1] == [0.004]


@pytest.mark.parametrize("task", ["fit", "fit_nodes", "fit_links"])
def test_the_line_of_an_epoch_shows_its_loss(request, task):
    """It must not show the loss of the previous epoch, or none in the first."""
    options = ["--run_dir=run", "--trainer.log_every_n_steps=1", "--trainer.enable_progress_bar=true"]
    result = request.getfixturevalue(task)(*options, epochs=3)
    losses = {row["epoch"]: float(row["train/loss"]) for row in rows("run") if row["train/loss"]}
    shown = [line.split() for line in result.out.splitlines() if line.startswith("epoch ")]
    assert [line[1] for line in shown] == ["1/3", "2/3", "3/3"] and len(losses) == 3
    assert [line[line.index("train/loss") + 1] for line in shown] == [f"{x:.4f}" for x in losses.values()]
    unit = {"fit": "queries/s", "fit_nodes": "nodes/s", "fit_links": "pairs/s"}[task]
    assert all(line[-1] == unit and float(line[-2]) > 0 for line in shown)


class Counting(Callback):
    """Records what the progress bar would show after each step."""

    def __init__(self):
        self.shown = []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.shown.append(ProgressBar().get_metrics(trainer, pl_module))


def test_the_bar_shows_loss_and_rate():
    seen = Counting()
    task = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    few = {"max_epochs": 2, "limit_train_batches": 2, "limit_val_batches": 1, "accelerator": "cpu"}
    trainer = Trainer(**options, **few, callbacks=[Throughput(), seen], enable_model_summary=False)
    trainer.fit(task, KGDataModule(name="umls", batch_size=4))
    last = seen.shown[-1]
    assert {"train/loss", "val/mrr", "queries/s"} <= set(last) and int(last["queries/s"]) > 0


def test_an_optimiser_and_a_schedule_of_the_user_are_used(cli, fit_nodes):
    """It gets weights that are made after the data are known, and is restored in a resume."""
    schedule = ["--lr_scheduler=StepLR", "--lr_scheduler.step_size=1", "--lr_scheduler.gamma=0.5"]
    own = ["--optimizer=SGD", "--optimizer.lr=0.5", "--optimizer.momentum=0.9", *schedule]
    result = fit_nodes("--run_dir=run", "--trainer.log_every_n_steps=1", *own)
    assert "overridden" not in result.err
    assert [row["train/lr"] for row in rows("run") if row["train/lr"]] == ["0.5", "0.25", "0.125"]
    (state,) = load("run/checkpoints/last.ckpt")["optimizer_states"]
    assert state["param_groups"][0]["momentum"] == 0.9 and "momentum_buffer" in state["state"][0]
    assert cli("fit", "--ckpt_path=run", "--trainer.max_epochs=4").status == 0
    assert [row["train/lr"] for row in rows("run") if row["train/lr"]][3:] == ["0.0625"]


def test_a_file_of_some_settings_changes_those_of_a_run(cli, fit_nodes, tmp_path):
    """A file that names no task is read after the configuration of the run."""
    fit_nodes("--run_dir=run")
    mine = tmp_path / "mine.yaml"
    mine.write_text("trainer: {max_epochs: 4}\nmodel: {lr: 0.5}\n")
    refused = cli("fit", "run", f"--config={mine}")
    assert refused.status == 2 and "0.5 now" in refused.err and "--override" in refused.err
    resumed = cli("fit", "run", f"--config={mine}", "--override")
    assert resumed.status == 0, resumed.err
    last = load("run/checkpoints/last.ckpt")
    assert last["optimizer_states"][0]["param_groups"][0]["lr"] == 0.5 and last["epoch"] == 3


def test_a_schedule_without_an_optimiser_is_refused(cli, tiny_nodes):
    command = ["fit", "--model=galit", "--data=nodes", f"--data.path={tiny_nodes}", "--trainer.max_epochs=1"]
    result = cli(*command, "--lr_scheduler=ExponentialLR", "--lr_scheduler.gamma=0.5")
    assert result.status == 2 and "Give --optimizer NAME" in result.err and "milestones" in result.err
    assert not list(Path().glob("runs*"))


def test_tips_for_paid_services_are_left_out(process, tiny_kg, workplace):
    done = process(
        "fit", "--model=knowformer", "--data=kg", f"--data.path={tiny_kg}", "--trainer=smoke",
        "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("litlogger", "litmodels", "💡", "Warning"):
        assert word not in done.stderr + done.stdout
    assert "both directions" in done.stdout
    assert len(done.stderr.splitlines()) <= 3, done.stderr


def test_tensorboard_is_used_if_it_is_installed(cli, tiny_kg):
    pytest.importorskip("tensorboard")
    result = cli(
        "fit", "--model=knowformer", "--data=kg", "--data.path", tiny_kg, "--trainer=smoke", "--run_dir=run",
        "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu",
    )  # fmt: skip
    assert result.status == 0, result.err
    assert list(Path("run/tensorboard").glob("events.*"))
    assert (Path("run") / "metrics.csv").is_file()


def test_mlflow_logs_settings_and_scores(cli, tiny_kg, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = cli(
        "fit", "--model=knowformer", "--data=kg", "--data.path", tiny_kg, "--trainer=smoke", "--run_dir=run",
        "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--logger=mlflow",
    )  # fmt: skip
    assert result.status == 0, result.err
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("graphzoo")
    (run,) = client.search_runs([experiment.experiment_id])
    scores = json.loads(Path("run/results.json").read_text())["metrics"]
    assert run.info.run_name == f"knowformer-{tiny_kg.name}-run" and run.info.status == "FINISHED"
    assert run.data.metrics["test/mrr"] == pytest.approx(scores["test/mrr"])
    assert run.data.params["loss"] == "ce" and run.data.tags["model"] == "knowformer"
    assert (Path("run") / "metrics.csv").is_file()


def test_without_mlflow_the_remedy_is_named(cli, tiny_kg, monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    refused = cli("fit", "--model=knowformer", "--data=kg", "--data.path", tiny_kg, "--logger=mlflow")
    assert refused.status == 2 and "pip install mlflow-skinny" in refused.err


def test_a_folder_that_mlflow_cannot_write_to_is_refused_at_once(cli, tiny_kg, monkeypatch):
    """mlflow would retry for minutes."""
    monkeypatch.setattr(loggers, "find_spec", lambda name: True)
    monkeypatch.setattr(loggers, "_can_write", lambda file: False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    refused = cli("fit", "--model=knowformer", "--data=kg", "--data.path", tiny_kg, "--logger=mlflow")
    assert refused.status == 2 and "mlflow.db cannot be written\n" in refused.err
    assert "MLFLOW_TRACKING_URI=sqlite:///" in refused.err


def test_writable_folders_are_recognised(tmp_path):
    assert loggers._can_write(tmp_path / "new.db")
    assert not loggers._can_write(tmp_path / "nowhere" / "new.db")


@pytest.mark.parametrize("logger", ["--logger=wandb", "--trainer.logger=WandbLogger"])
def test_wandb_works_without_a_network(cli, tiny_kg, monkeypatch, logger):
    """The logger is given by graphzoo's name and by Lightning's option."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = cli(
        "fit", "--model=knowformer", "--data=kg", "--data.path", tiny_kg, "--trainer=smoke", "--run_dir=run",
        "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", logger,
        "--trainer.log_every_n_steps=1",
    )  # fmt: skip
    assert result.status == 0, result.err
    (record,) = Path("run/wandb").glob("offline-run-*/run-*.wandb")
    for _ in range(300):  # W&B's process may still write when the command has ended
        content = record.read_bytes()
        if b"test/mrr" in content:
            break
        time.sleep(0.1)
    named = f"knowformer-{tiny_kg.name}-run".encode()
    for word in (b"val/mrr", b"test/mrr", b"train/loss", named, b"hidden_channels"):
        assert word in content
    assert (Path("run") / "metrics.csv").is_file()


def test_quiet_silences_wandb_too(process, tiny_kg, workplace, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    command = ["fit", "--model=knowformer", "--data=kg", f"--data.path={tiny_kg}", "--trainer=smoke"]
    small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--run_dir=run"]
    done = process(*command, *small, "--logger=wandb", "--quiet")
    assert done.returncode == 0 and list(Path("run").glob("wandb/offline-run-*")), done.stderr
    assert "wandb" not in (done.stdout + done.stderr).lower() and "both directions" in done.stdout
    loud = process(*command, *small, "--run_dir=loud", "--logger=wandb")
    assert "wandb: Run summary" in loud.stderr, "what is silenced"
    (run,) = Path("loud/wandb").glob("offline-run-*")
    assert f"`wandb sync {run}` sends the run; its panels: `graphzoo dashboard --project" in loud.stderr


def test_no_test_does_not_use_the_test_split(fit, cli, monkeypatch):
    from graphzoo.tasks import KGCompletion

    monkeypatch.setattr(KGCompletion, "test_step", lambda *_: pytest.fail("the test split was used"))
    fit("--run_dir=run", "--no-test", epochs=1)
    assert {path.name for path in Path("run").iterdir()} == {
        "checkpoints",
        "config.yaml",
        "graph",
        "metrics.csv",
    }
    Path("queries.tsv").write_text("entity0\trel0\t?\n")
    answered = cli("predict", "--ckpt_path=run", "--queries=queries.tsv", "--top-k=1", "--out=answers.csv")
    assert answered.status == 0, answered.err
    resumed = cli("fit", "--ckpt_path=run", "--trainer.max_epochs=2")
    assert resumed.status == 0 and "the configuration of run, no test, as before;" in resumed.err, resumed.err
    assert not Path("run/results.json").exists() and len(list(Path("run").glob("config*.yaml"))) == 2
    refused = cli("test", "--ckpt_path=run", "--no-test")
    assert refused.status == 2 and "--no-test is an option of fit" in refused.err


def test_fast_dev_run_leaves_no_checkpoint(fit):
    fit("--trainer.fast_dev_run=true", "--run_dir=run")
    assert not Path("run/checkpoints").exists() and not Path("run/results.json").exists()


def test_checkpoints_can_be_switched_off(fit, results):
    fit("--trainer.enable_checkpointing=false", "--run_dir=run", epochs=1)
    assert not Path("run/checkpoints").exists()
    assert results("run")["checkpoint"] is None and results("run")["metrics"]["test/mrr"] > 0


def test_the_metrics_file_adds_columns_and_drops_rows_of_a_resume(tmp_path):
    file = MetricsFile(tmp_path)
    file.log_metrics({"a": 1.0}, step=0)
    file.log_metrics({"b": 2.0}, step=1)
    file.log_metrics({"a": 3.0}, step=2)
    again = MetricsFile(tmp_path)
    again.forget_after(1)
    again.log_metrics({"b": 4.0}, step=2)
    with (tmp_path / "metrics.csv").open() as lines:
        assert [(row["step"], row["a"], row["b"]) for row in csv.DictReader(lines)] == [
            ("0", "1.0", ""), ("1", "", "2.0"), ("2", "", "4.0"),
        ]  # fmt: skip


@pytest.mark.parametrize("tail", [b"2,\xff\xfe\x00", b"2,\xff\xfe\x00\n", b"x,1.0\n", b"1,1.0,1.0,1.0\n"])
def test_a_resumed_run_drops_a_damaged_end_of_the_metrics(tmp_path, tail):
    file = MetricsFile(tmp_path)
    file.log_metrics({"a": 1.0}, step=0)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole + tail)
    MetricsFile(tmp_path).forget_after(1)
    assert file.path.read_bytes() == whole


def test_a_run_goes_on_with_metrics_that_excel_has_saved(tmp_path):
    file = MetricsFile(tmp_path)
    file.log_metrics({"a": 1.0}, step=0)
    whole = file.path.read_bytes()
    file.path.write_bytes(b"\xef\xbb\xbf" + whole + b"1,2.0\n")
    MetricsFile(tmp_path).forget_after(0)
    assert file.path.read_bytes() == whole
    file.path.write_text("time,a\n0,1.0\n")
    with pytest.raises(UsageError, match=r"metrics.csv is damaged .*no column `step`.*\nMove it away"):
        MetricsFile(tmp_path).forget_after(0)


def test_unreadable_metrics_are_named(tmp_path):
    file = MetricsFile(tmp_path)
    file.path.write_text("step,a\n0," + "1" * 200_000 + "\n")
    with pytest.raises(UsageError, match=r"metrics.csv is damaged .*\nMove it away"):
        file.forget_after(1)


def test_the_hash_of_a_configuration_depends_only_on_settings():
    model, data = {"init_args": {"lr": 1, "seed": 0}}, {"init_args": {"root": "a"}}
    config = {"model": model, "data": data, "trainer": {"max_epochs": 1}}
    other = json.loads(json.dumps(config))
    other["model"]["init_args"]["seed"], other["data"]["init_args"]["root"] = 1, "b"
    assert config_hash(config) == config_hash(other)
    other["trainer"]["max_epochs"] = 2
    assert config_hash(config) != config_hash(other)


def test_a_test_in_neighbourhoods_reports_both_protocols(cli, tmp_path):
    run = tmp_path / "near"
    done = cli(
        "fit", "--model", "knowformer", "--data", "umls", "--recipe", "none", "--trainer", "smoke",
        "--data.neighbourhood", "20", "--data.eval_neighbourhood", "30", "--run_dir", str(run),
    )  # fmt: skip
    assert done.status == 0, done.err
    result = json.loads((run / "results.json").read_text())
    assert result["protocol"] == "in neighbourhoods of 30 entities"
    assert {"test/mrr", "test/whole_graph/mrr"} <= set(result["metrics"])
    assert "in neighbourhoods of 30 entities" in done.out.replace("\n", " ")
    assert "both, on the whole graph" in done.out
    # Every table names the protocols.
    near, whole = (f"{result['metrics'][f'test/{name}']:.4f}" for name in ("mrr", "whole_graph/mrr"))
    table = cli("results", str(run), "--format", "markdown").out
    assert f"| mrr | {near} | 1 | 0 | in neighbourhoods of 30 entities |" in table
    assert f"| mrr | {whole} | 1 | 0 | on the whole graph |" in table
    lines = csv.DictReader(io.StringIO(cli("results", str(run), "--format", "csv").out))
    protocols = {line["metric"]: line["protocol"] for line in lines}
    assert protocols["mrr"] == "in neighbourhoods of 30 entities"
    assert protocols["whole_graph/mrr"] == "on the whole graph"
    groups = group_records(find_records([run]))
    assert headline(groups[0]) == f"Test MRR: {near} in neighbourhoods of 30 entities."
    page = str(results_section(groups).blocks)
    assert f"['MRR, on the whole graph', '{whole}'" in page
    assert "Evaluated in neighbourhoods of 30 entities." in page
    assert cli("export", str(run), "--out", str(tmp_path / "shared")).status == 0
    card = (tmp_path / "shared" / "README.md").read_text()
    assert f"| test/whole_graph/mrr | {whole} |" in card
    assert "(seed 0), evaluated in neighbourhoods of 30 entities;" in card


def test_drawn_splits_of_own_triples_make_a_row(cli, results, tiny_kg, monkeypatch):
    from graphzoo.cli import main, reproduce

    monkeypatch.setattr(reproduce, "run_command", main)
    lines = "".join((Path(tiny_kg) / f"{part}.txt").read_text() for part in ("train", "valid", "test"))
    Path("facts.tsv").write_text(lines)
    words = ["reproduce", "knowformer", "kg", "--splits=0,2", *SMALL, "--trainer.max_epochs=1", "--out=row"]
    done = cli(*words, "--data.path=facts.tsv")
    assert done.status == 0, done.err
    runs = [results(f"row/split-{split}-seed-0") for split in (0, 2)]
    assert [run["split"]["index"] for run in runs] == [0, 2]
    assert runs[0]["data_fingerprint"] != runs[1]["data_fingerprint"]
    command = ["test", "--ckpt_path=row/split-2-seed-0", "--run_dir=again"]
    refused = cli(*command, "--data.split_index=0")
    assert refused.status == 2 and "may be among its training triples" in refused.err, refused.err
    assert "Give --data.split_index 2" in refused.err
    assert cli(*command).status == 0 and results("again")["metrics"] == runs[1]["metrics"]
    both = cli(*command, "--data=umls", "--run_dir=umls")
    assert both.status == 2 and "--data.path null for umls" in both.err, both.err
    named = cli(*command, "--data=umls", "--data.path=null", "--data.split_index=0", "--run_dir=umls")
    assert named.status == 2 and "other relations than those of umls" in named.err, named.err
    other = cli("test", "--model=knowformer", "--data=umls", "--ckpt_path=knowformer-any", "--run_dir=umls")
    assert other.status == 2 and "holds the weights of a KnowFormerAny, but the model is a KnowF" in other.err
    given = cli(*words, f"--data.path={tiny_kg}")
    assert given.status == 2 and "kg has one split, 0" in given.err, given.err


def test_the_title_has_the_number_of_tested_samples(fit, fit_nodes, results):
    out = fit("--run_dir=part", "--trainer.limit_test_batches=1", "--data.eval_batch_size=4", epochs=1).out
    found = results("part")
    assert 0 < found["evaluated"] < found["tested"] == 24
    assert f"knowformer on tiny0: test, {found['evaluated']} of 24 queries, best.ckpt" in out
    out = fit_nodes("--run_dir=nodes", epochs=1).out
    assert f": test, {results('nodes')['tested']} nodes, best.ckpt" in out


def test_rows_and_comparisons_of_data_without_a_test_are_refused(cli, tiny_kg, workplace, monkeypatch):
    from graphzoo.cli import main, reproduce

    monkeypatch.setattr(reproduce, "run_command", main)
    shutil.copytree(tiny_kg, "second")
    Path("second/test.txt").unlink()
    data = ["kg", f"--data.path=[{tiny_kg},second]", "--trainer.max_epochs=1", *SMALL]
    row = cli("reproduce", "knowformer", *data, "--seeds=0", "--out=row")
    assert row.status == 2 and "seed 0 was not tested, and a row needs its test" in row.err, row.err
    compared = cli("compare", "--data", *data, "--models=knowformer", "--minutes=0.05", "--in-process")
    assert compared.status == 0 and "no test samples, so no model is tested" in compared.err, compared.err


def test_the_shipped_weights_are_tested_on_a_mixture(cli, tiny_kg, results):
    shutil.copytree(tiny_kg, "second")
    words = ["--data=mixture", f"--data.names={tiny_kg},second", "--trainer.accelerator=cpu", "--logger=csv"]
    done = cli("test", "--ckpt_path=knowformer-any", *words, "--run_dir=mixed")
    assert done.status == 0, done.err
    assert results("mixed")["metrics"]["test/mrr"] > 0
