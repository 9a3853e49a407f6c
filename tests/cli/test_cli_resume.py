"""A resumed run equals an uninterrupted one, and checkpoints are not trusted."""

import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import yaml
from helpers.own import SendSignal
from helpers.same_runs import figures, load, same_training

from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError
from graphzoo.report.build import _facts
from graphzoo.runs.checkpoints import find_runs, locate
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records
from graphzoo.system import files
from graphzoo.training.trust import plain_settings

MICRO = ["--data.batch_size=16", "--data.micro_batch_size=4"]


@pytest.mark.fault(
    "SIGTERM or Ctrl-C in the middle of training",
    "status 143 or 130 after the current step; last.ckpt is written; the message says how to resume",
)
@pytest.mark.parametrize(
    "name, status, epoch, batch",
    [("SIGTERM", 143, 0, 5), ("SIGINT", 130, 1, 2), ("SIGTERM", 143, 1, 14), ("SIGTERM", 143, 2, 0)],
)
def test_a_resumed_run_equals_an_uninterrupted_one(fit, cli, results, name, status, epoch, batch):
    """Stops inside a step of four micro-batches, and in the first and the last step of an epoch."""
    settings = [*MICRO, "--model.lr_milestones=[1]", "--trainer.log_every_n_steps=1"]
    fit("--run_dir=whole", *settings, epochs=4)
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", f"--trainer.callbacks.name={name}"]
    stop += [f"--trainer.callbacks.epoch={epoch}", f"--trainer.callbacks.batch={batch}"]
    stopped = fit("--run_dir=parts", *settings, *stop, epochs=4, status=status)
    assert "graphzoo fit --ckpt_path parts --trust" in stopped.err and len(stopped.err.splitlines()) <= 6
    assert not Path("parts/results.json").exists()
    if name == "SIGTERM":
        assert SendSignal.then == signal.SIG_DFL, "a second signal ends the process"
    resumed = cli("fit", "--ckpt_path", "parts", "--trust")
    assert resumed.status == 0, resumed.err
    same_training("whole/checkpoints/last.ckpt", "parts/checkpoints/last.ckpt")
    assert results("whole")["metrics"] == results("parts")["metrics"]
    assert results("whole")["best_epoch"] == results("parts")["best_epoch"]
    assert figures("whole") == figures("parts")


@pytest.mark.fault(
    "SLURM ends or requeues a job", "last.ckpt is written after the current step, as after SIGTERM"
)
def test_a_job_ended_by_slurm_saves_its_last_step(fit, cli, monkeypatch):
    job = {"JOB_ID": 7, "JOB_NAME": "train", "NTASKS": 1, "PROCID": 0, "LOCALID": 0, "NODEID": 0}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", "--trainer.callbacks.epoch=1"]
    stopped = fit("--run_dir=run", *stop, "--trainer.callbacks.batch=1", status=143)
    assert "last.ckpt holds the state" in stopped.err
    assert load("run/checkpoints/last.ckpt")["global_step"] == 6, "of four steps an epoch"
    assert cli("fit", "--ckpt_path", "run", "--trust").status == 0


@pytest.mark.fault(
    "SIGTERM or Ctrl-C before the end of the first step, or in the test",
    "status 143 or 130 at once; the message says how to start again or resume",
)
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize(("epoch", "batch"), [(-1, 0), (0, 1), (-2, 0)])
def test_where_nothing_can_be_saved_a_signal_stops_at_once(fit, name, status, epoch, batch):
    SendSignal.then = None
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", f"--trainer.callbacks.name={name}"]
    stop += [f"--trainer.callbacks.epoch={epoch}", f"--trainer.callbacks.batch={batch}"]
    stop += [f"--trainer.num_sanity_val_steps={int(epoch == -1)}"]
    stopped = fit("--run_dir=parts", *MICRO, *stop, epochs=1, status=status)
    assert SendSignal.then is None, "the signal raises at once"
    assert ("Resume with" if epoch == -2 else "Start again") in stopped.err
    assert len(list(Path("parts").glob("checkpoints/*"))) == (2 if epoch == -2 else 0)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_finished_run_can_be_trained_longer(fit, cli):
    fit("--run_dir=whole", epochs=3)
    fit("--run_dir=parts", epochs=2)
    assert cli("fit", "--ckpt_path", "parts", "--trainer.max_epochs=3").status == 0
    same_training("whole/checkpoints/last.ckpt", "parts/checkpoints/last.ckpt")
    assert Path("parts/config.1.yaml").is_file(), "the earlier configuration is kept"


def test_integers_in_a_checkpoint_may_become_floats(fit, cli):
    """The timer of `max_time` starts at the integer 0, and a learning rate of 1 becomes a fraction."""
    begin = ["--trainer.max_time=00:01:00:00", "--optimizer=SGD", "--optimizer.lr=1"]
    fit("--run_dir=run", *begin, "--lr_scheduler=ExponentialLR", "--lr_scheduler.gamma=0.5", epochs=1)
    resumed = cli("fit", "--ckpt_path=run", "--trainer.max_epochs=2")
    assert resumed.status == 0, resumed.err
    assert load("run/checkpoints/last.ckpt")["epoch"] == 1


def test_a_resumed_run_drops_metrics_after_its_checkpoint(fit, cli):
    fit("--run_dir=whole", "--trainer.log_every_n_steps=1", epochs=2)
    fit("--run_dir=short", "--trainer.log_every_n_steps=1", epochs=1)
    # As after kill -9 in the second epoch: metrics.csv has rows after last.ckpt.
    shutil.copytree("whole", "killed")
    Path("killed/results.json").unlink()
    shutil.copy("short/checkpoints/last.ckpt", "killed/checkpoints/last.ckpt")
    shutil.copy("short/checkpoints/best.ckpt", "killed/checkpoints/best.ckpt")
    assert cli("fit", "--ckpt_path", "killed").status == 0
    same_training("whole/checkpoints/last.ckpt", "killed/checkpoints/last.ckpt")
    assert figures("whole") == figures("killed")


@pytest.mark.parametrize("words", [["fit", "{run}"], ["test", "--ckpt_path", "{run}"]])
def test_a_run_on_files_of_another_folder_says_where_to_start(
    fit, cli, tiny_kg, tmp_path, monkeypatch, words
):
    shutil.copytree(tiny_kg, "mine")
    run = Path("run").absolute()
    fit("--run_dir=run", "--data.path=mine", epochs=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = [word.format(run=run) for word in words]
    refused = cli(*words)
    assert (
        refused.status == 2
        and "was trained on mine, which does not exist here\nRun it in the folder" in refused.err
    )
    found = cli(
        *words, f"--data.path={run.parent / 'mine'}", *(["--trainer.max_epochs=2"] * ("fit" in words))
    )
    assert found.status == 0, found.err


@pytest.mark.fault("a run directory is moved and then resumed", "its best checkpoint stays the best")
def test_a_moved_run_keeps_its_best_checkpoint(trained, cli):
    """Lightning forgets the best score if the folder is renamed; a worse epoch would replace best.ckpt."""
    shutil.copytree(trained, "moved")
    best = load("moved/checkpoints/best.ckpt")
    assert (
        cli("fit", "--ckpt_path", "moved", "--trainer.max_epochs=3", "--override", "--model.lr=1").status == 0
    )
    kept = load("moved/checkpoints/best.ckpt")
    assert kept["epoch"] == best["epoch"]
    assert all(torch.equal(kept["state_dict"][name], best["state_dict"][name]) for name in kept["state_dict"])


@pytest.mark.fault(
    "the command line has other settings than the checkpoint",
    "refused with both values of each setting; --override resumes",
)
def test_contradicting_settings_stop_a_resume(trained, cli):
    """Lightning would train with the checkpoint's settings while config.yaml shows the new ones."""
    shutil.copytree(trained, "run")
    result = cli("fit", "--ckpt_path", "run", "--model.lr=0.9", "--trainer.max_epochs=3")
    assert result.status == 2
    assert "--model.lr: 0.004 in the checkpoint, 0.9 now" in result.err and "--override" in result.err
    result = cli("fit", "--ckpt_path", "run", "--data.batch_size=8", "--trainer.max_epochs=3")
    assert result.status == 2 and "--data.batch_size: 16 in the checkpoint, 8 now" in result.err
    fixed = ("model.encoder.hidden_channels=16", "model.lr_gamma=0.5", "data.validate_on=inference")
    for frozen in (f"--{setting}" for setting in fixed):
        result = cli("fit", "--ckpt_path", "run", frozen, "--trainer.max_epochs=3", "--override")
        assert result.status == 2 and "A resumed run cannot change these" in result.err


def test_added_clipping_or_optimiser_stops_a_resume(trained, cli, results):
    """Otherwise results would be averaged under settings that the first epochs did not have."""
    shutil.copytree(trained, "run")
    more = ["--trainer.max_epochs=3", "--trainer.gradient_clip_val=0.001"]
    refused = cli("fit", "run", *more)
    assert (
        refused.status == 2 and "--trainer.gradient_clip_val: 0 in the checkpoint, 0.001 now" in refused.err
    )
    refused = cli(
        "fit", "run", "--optimizer=SGD", "--optimizer.lr=0.1", "--override", "--trainer.max_epochs=3"
    )
    assert refused.status == 2 and "--optimizer: none in the checkpoint, torch.optim.SGD now" in refused.err
    assert cli("fit", "run", *more, "--override").status == 0
    assert results("run")["resumed"] == "with other settings after epoch 2"


def test_override_really_changes_the_learning_rate(trained, cli):
    shutil.copytree(trained, "run")
    done = cli(
        "fit",
        "--ckpt_path",
        "run",
        "--model.lr=0.05",
        "--model.weight_decay=0.5",
        "--override",
        "--trainer.max_epochs=3",
    )
    assert done.status == 0, done.err
    groups = load("run/checkpoints/last.ckpt")["optimizer_states"][0]["param_groups"]
    assert [group["lr"] for group in groups] == pytest.approx([0.05, 0.05])
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]


def test_without_checkpoints_the_last_weights_are_tested(trained, cli, results):
    """The test does not use the best checkpoint of the earlier training."""
    shutil.copytree(trained, "run")
    before = results("run")["metrics"]["test/mrr"]
    done = cli("fit", "run", "--trainer.max_epochs=4", "--trainer.enable_checkpointing=false")
    assert done.status == 0, done.err
    assert results("run")["checkpoint"] is None and results("run")["metrics"]["test/mrr"] != before


def test_override_leaves_a_users_own_optimiser_alone(fit, cli):
    """`--model.lr` does not belong to an optimiser given by `--optimizer`."""
    fit("--run_dir=run", "--optimizer=SGD", "--optimizer.lr=0.1", "--optimizer.weight_decay=0.01", epochs=1)
    more = ["--model.lr=0.05", "--model.weight_decay=0.5", "--override", "--trainer.max_epochs=2"]
    done = cli("fit", "run", *more)
    assert done.status == 0, done.err
    (group,) = load("run/checkpoints/last.ckpt")["optimizer_states"][0]["param_groups"]
    assert (group["lr"], group["weight_decay"]) == (0.1, 0.01)


@pytest.mark.fault("a run is resumed on other data", "refused; the data are compared by fingerprint")
def test_other_data_stop_a_resume(trained, cli, tiny_kg):
    shutil.copytree(trained, "run")
    shutil.copytree(tiny_kg, "other")
    lines = Path("other/train.txt").read_text().splitlines()
    Path("other/train.txt").write_text("\n".join([*lines[1:], "entity3\tnext\tentity9"]) + "\n")
    result = cli("fit", "--ckpt_path", "run", "--data.path=other", "--trainer.max_epochs=3")
    assert result.status == 2 and "fingerprint" in result.err


@pytest.mark.fault("a run is resumed on other data with --override", "a warning, and the run is marked")
@pytest.mark.parametrize("folder", ["run", "new"])
def test_override_on_other_data_warns_and_marks_the_run(folder, trained, cli, tiny_kg, results, caplog):
    shutil.copytree(trained, "run")
    shutil.copytree(tiny_kg, "other")
    lines = Path("other/train.txt").read_text().splitlines()
    Path("other/train.txt").write_text("\n".join([*lines[1:], "entity3\tnext\tentity9"]) + "\n")
    more = ["--ckpt_path", "run", "--run_dir", folder, "--trainer.max_epochs=3", "--override"]
    same = cli("fit", *more, "--run_dir=same")
    assert same.status == 0 and "may have been trained on parts of this" not in caplog.text
    assert results("same")["resumed"] is None
    result = cli("fit", *more, "--data.path=other")
    assert result.status == 0, result.err
    assert caplog.text.count("the weights may have been trained on parts of this") == 1
    expected = "on other data after epoch 2"
    assert results(folder)["resumed"] == expected
    assert f"# resumed: {expected}\n" in Path(folder, "config.yaml").read_text()
    assert cli("fit", folder, "--trainer.max_epochs=4").status == 0 and results(folder)["resumed"] == expected


def test_validation_scores_on_other_data_are_dropped(trained, cli, tiny_kg, results):
    shutil.copytree(tiny_kg, "other")
    lines = Path("other/train.txt").read_text().splitlines()
    Path("other/train.txt").write_text("\n".join([*lines[1:], "entity3\tnext\tentity9"]) + "\n")
    more = ["--ckpt_path", trained, "--run_dir", "run", "--trainer.max_epochs=3", "--override"]
    result = cli("fit", *more, "--data.path=other", "--trainer.limit_val_batches=0")
    assert result.status == 0, result.err
    assert not results("run")["validation"]


def test_a_test_needs_no_model_and_no_data(trained, cli):
    """LightningCLI requires --model, although the checkpoint knows it."""
    assert cli("test", "--ckpt_path", trained).status == 0
    assert cli("test", "--ckpt_path", trained / "checkpoints").status == 0
    assert cli("test", "--ckpt_path", trained / "checkpoints" / "last.ckpt").status == 0


@pytest.mark.fault("a checkpoint outside its run directory", "refused without --data; works with it")
def test_a_lone_checkpoint_asks_for_data_and_then_works(trained, cli, tiny_kg, results):
    shutil.copy(trained / "checkpoints" / "best.ckpt", "lone.ckpt")
    refused = cli("test", "--ckpt_path", "lone.ckpt")
    assert refused.status == 2 and "Add --data NAME" in refused.err
    done = cli("test", "--ckpt_path", "lone.ckpt", "--data=kg", "--data.path", tiny_kg, "--run_dir=out")
    assert done.status == 0, done.err
    assert results("out")["metrics"] == results(trained)["metrics"]
    assert results("out")["model"] == "knowformer"


@pytest.mark.fault(
    "the command line has an encoder of another shape than the checkpoint",
    "refused with the option and both values, instead of torch's list of weights",
)
def test_another_encoder_is_refused_before_the_weights(trained, cli):
    result = cli("test", "--ckpt_path", trained, "--model.encoder.hidden_channels=16")
    assert result.status == 2
    assert "--model.encoder.hidden_channels: 8 in the checkpoint, 16 now" in result.err


def test_evaluation_settings_may_differ(trained, cli, results):
    assert cli("test", "--ckpt_path", trained, "--model.ties=pessimistic", "--run_dir=out").status == 0
    assert results("out")["metrics"]["test/mrr"] <= results(trained)["metrics"]["test/mrr"]


def test_best_and_last_mean_the_newest_run(workplace):
    for number, name in enumerate(("b", "a")):
        folder = workplace / "runs" / "knowformer-umls" / name
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.yaml").touch()
        for kind in ("best", "last"):
            (folder / "checkpoints" / f"{kind}.ckpt").touch()
            os.utime(folder / "checkpoints" / f"{kind}.ckpt", (number, number))
    assert [run.name for run in find_runs()] == ["b", "a"]
    path, run = locate("test", "best")
    assert (path.name, run.name) == ("best.ckpt", "a")
    assert locate("fit", "last", pattern="knowformer-umls")[0].name == "last.ckpt"
    assert locate("fit", str(run))[0].name == "last.ckpt"
    assert locate("test", str(run))[0].name == "best.ckpt"
    for drive in ("C:/runs/x", "c:\\\\runs"):
        with pytest.raises(UsageError, match="no such file"):
            locate("test", drive)
    with pytest.raises(UsageError, match="no run below"):
        locate("fit", "last", pattern="other-umls")


# Damaged and malicious checkpoints


class Payload:
    """Runs a shell command when it is unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {os.getcwd()}/harmed",)


def poison(source, target, place):
    checkpoint = load(source)
    if place == "weights":
        checkpoint["state_dict"]["extra"] = Payload()
    elif place == "hyperparameters":
        checkpoint["hyper_parameters"]["extra"] = Payload()
    elif place == "instantiator":
        checkpoint["hyper_parameters"]["_instantiator"] = "os.system"
    else:
        checkpoint["graphzoo"]["encoder"]["class_path"] = "harmful.Encoder"
    torch.save(checkpoint, target)


PLACES = {
    "weights": ("code (a pickle payload) among the weights of a checkpoint", "refused; no code runs"),
    "hyperparameters": ("code (a pickle payload) in the settings of a checkpoint", "refused; no code runs"),
    "instantiator": ("a checkpoint names a function in `_instantiator`", "the function is never called"),
    "encoder": (
        "a checkpoint names an encoder of unknown origin",
        "its module is not imported; the message mentions --trust",
    ),
}


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=pytest.mark.fault(*texts)) for place, texts in PLACES.items()]
)
@pytest.mark.parametrize("command", ["test", "fit"])
def test_hostile_checkpoints_run_no_code(trained, cli, tiny_kg, monkeypatch, workplace, place, command):
    harm = f"open({str(workplace / 'harmed')!r}, 'w').close()\n"
    (workplace / "harmful.py").write_text(harm + "class Encoder: pass\n")
    monkeypatch.syspath_prepend(str(workplace))
    poison(trained / "checkpoints" / "last.ckpt", "hostile.ckpt", place)
    result = cli(
        command, "--ckpt_path", "hostile.ckpt", "--data=kg", "--data.path", tiny_kg, "--trainer.max_epochs=2"
    )
    assert not Path("harmed").exists()
    assert len(result.err.splitlines()) <= 6 or result.status == 0
    if place in ("weights", "hyperparameters"):
        assert result.status == 2 and "refused" in result.err and "No code was run" in result.err
    if place == "encoder":
        assert result.status == 2 and "harmful.Encoder" in result.err and "--trust" in result.err


@pytest.mark.fault(
    "the config.yaml of a run names a class of unknown origin", "not imported; the message mentions --trust"
)
def test_a_hostile_run_configuration_is_not_imported(trained, cli, monkeypatch, workplace):
    own = "from lightning.pytorch import Callback as Base\nclass Callback(Base): pass\n"
    harm = f"open({str(workplace / 'harmed')!r}, 'w').close()\n"
    (workplace / "harmful.py").write_text(harm + own)
    monkeypatch.syspath_prepend(str(workplace))
    shutil.copytree(trained, "run")
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    config["trainer"]["callbacks"] = [{"class_path": "harmful.Callback"}]
    Path("run/config.yaml").write_text(yaml.safe_dump(config))
    result = cli("test", "--ckpt_path", "run")
    assert result.status == 2 and "harmful.Callback" in result.err and "--trust" in result.err
    assert not Path("harmed").exists()
    trusted = cli("test", "--ckpt_path", "run", "--trust")
    assert trusted.status == 0 and Path("harmed").exists(), "the flag does what it says"


# YAML decodes this to class_path and dlr.evil.Payload, neither of which occurs in the text.
ESCAPED = '"cl\\x61ss_path": "dlr\\x2eevil\\x2ePayload"\n"init_args": {"cmd": "x"}\n'
EVIL = """
from pathlib import Path
from lightning.pytorch import Callback
Path(__file__).with_name("harmed").touch()
Path("harmed").touch()
class Payload(Callback): pass
def pwn(*arguments): pass
"""


def in_key(section, **more):
    return lambda config: config[section].update(more)


HOSTILE = {
    "appended": in_key("trainer", **{"callbacks+": ["dlr.evil.Payload"]}),
    "dotted": lambda config: config.update({"trainer.callbacks": [{"class_path": "dlr.evil.Payload"}]}),
    "dotted inside": lambda config: config["model"]["init_args"].update(
        {"encoder.class_path": "dlr.evil.Payload"}
    ),
    "function": in_key(
        "trainer",
        callbacks=[
            {
                "class_path": "lightning.pytorch.callbacks.LambdaCallback",
                "init_args": {"on_test_start": "dlr.evil.pwn"},
            }
        ],
    ),
    "scalar": in_key("trainer", callbacks="dlr.evil.Payload"),
    "text": in_key("trainer", callbacks="[{class_path: dlr.evil.Payload}]"),
    "file": in_key("trainer", strategy="dlr/evil.yaml"),
    "encoder": lambda config: config["model"]["init_args"].update(encoder="dlr.evil.Payload"),
    "encoder text": lambda config: config["model"]["init_args"].update(
        encoder="{class_path: dlr.evil.Payload}"
    ),
    "module of a module": lambda config: config["model"]["init_args"].update(
        encoder={"class_path": "graphzoo.training.launch.os.system"}
    ),
    "argument": lambda config: config["model"]["init_args"]["encoder"]["init_args"].update(
        norm="dlr.evil.pwn"
    ),
    "class argument": lambda config: config["data"]["init_args"].update(
        name={"class_path": "dlr.evil.Payload"}
    ),
    "escaped averages": in_key(
        "trainer",
        callbacks=[
            {
                "class_path": "lightning.pytorch.callbacks.EMAWeightAveraging",
                "init_args": {"multi_avg_fn": ESCAPED},
            }
        ],
    ),
    "escaped decay": in_key(
        "trainer",
        callbacks=[
            {
                "class_path": "graphzoo.callbacks.WarmupEMAWeightAveraging",
                "init_args": {"decay": ESCAPED},
            }
        ],
    ),
    "escaped device": in_key(
        "trainer",
        callbacks=[
            {"class_path": "lightning.pytorch.callbacks.EMAWeightAveraging", "init_args": {"device": ESCAPED}}
        ],
    ),
    "escaped rate": lambda config: config.update(
        optimizer={"class_path": "torch.optim.Adam", "init_args": {"lr": ESCAPED}}
    ),
    "no such date": lambda config: config.update(
        optimizer={"class_path": "torch.optim.Adam", "init_args": {"lr": "2001-99-99"}}
    ),
    "argument of a logger": in_key(
        "trainer",
        logger={
            "class_path": "lightning.pytorch.loggers.CSVLogger",
            "init_args": {"name": {"class_path": "dlr.evil.Payload"}},
        },
    ),
    "escaped argument of a logger": in_key(
        "trainer",
        logger={"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"version": ESCAPED}},
    ),
    "another file": lambda config: config.update({"config": "dlr/evil.yaml"}),
    "interpolation": lambda config: config["model"]["init_args"].update(loss="${oc.env:HOME}"),
    "no mapping": lambda config: config.update(trainer=["dlr.evil.Payload"]),
}


@pytest.mark.fault(
    "the config.yaml of a run hides a class in a key, a text, a file or an interpolation",
    "the class is not imported",
)
@pytest.mark.parametrize("variant", HOSTILE)
@pytest.mark.parametrize("command", ["test", "fit"])
def test_no_spelling_in_a_run_configuration_runs_code(trained, cli, workplace, monkeypatch, variant, command):
    shutil.copytree(trained, "dlr")
    Path("dlr/evil.py").write_text(EVIL)
    Path("dlr/evil.yaml").write_text("trainer: {callbacks: [{class_path: dlr.evil.Payload}]}")
    config = yaml.safe_load(Path("dlr/config.yaml").read_text())
    HOSTILE[variant](config)
    Path("dlr/config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.syspath_prepend(str(workplace))  # as with `python -m`
    before = list(sys.path)
    result = cli(command, "--ckpt_path", "dlr")
    assert not list(Path().rglob("harmed")) and "dlr.evil" not in sys.modules, result.err
    assert result.status in (0, 2) and len(result.err.splitlines()) <= 6, result.err
    if result.status:
        assert "--trust" in result.err
    assert sys.path == before


def test_a_full_folder_for_temporary_files_is_named(trained, cli, tmp_path, monkeypatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(files.os, "fsync", no_room)
    result = cli("fit", "--ckpt_path", trained, "--trainer.max_epochs=3")
    assert result.status == 1
    assert re.search(rf"graphzoo: {re.escape(str(tmp_path))}/.*config\.yaml: No space left", result.err), (
        result.err
    )


def test_a_file_named_like_a_setting_is_reported(trained, cli, workplace):
    (workplace / "l2").write_text("mine")
    result = cli("test", "--ckpt_path", trained)
    assert result.status == 2
    assert "model.encoder.norm is 'l2'" in result.err and "rename the file" in result.err
    (workplace / "l2").rename(workplace / "l3")
    assert cli("test", "--ckpt_path", trained).status == 0


def test_what_a_run_configuration_keeps_without_trust(trained, cli, results):
    """Plain settings and stopping callbacks are kept. A test drops and names the others; a resume refuses."""
    config = yaml.safe_load((trained / "config.yaml").read_text())
    stopping = {
        "class_path": "lightning.pytorch.callbacks.EarlyStopping",
        "init_args": {"monitor": "val/mrr"},
    }
    config["trainer"]["callbacks"] = [stopping]
    config["trainer"]["logger"] = [{"class_path": "lightning.pytorch.loggers.CSVLogger"}]
    kept, dropped = plain_settings(config, "x", fit=True)
    assert kept["model"] == config["model"] and kept["data"] == config["data"]
    assert kept["trainer"]["callbacks"] == [stopping] and dropped == []
    other = [{"class_path": "lightning.pytorch.callbacks.ModelSummary"}]
    config["trainer"]["callbacks"] = other
    assert sorted(plain_settings(config, "x", fit=False)[1]) == ["trainer.callbacks", "trainer.logger"]
    with pytest.raises(UsageError, match="ModelSummary.*\n.*--trust"):
        plain_settings(config, "x", fit=True)


WANDB = "lightning.pytorch.loggers.WandbLogger"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", [1]),
        ("max_time", {"hours": 1}),
        ("logger", []),
        ("logger", [{"class_path": WANDB, "init_args": {"save_dir": ".", "project": "v1.2", "tags": ["a"]}}]),
        ("logger", {"class_path": "lightning.pytorch.loggers.mlflow.MLFlowLogger"}),
    ],
)
def test_plain_lists_and_lightnings_loggers_need_no_trust(name, value):
    assert plain_settings({"trainer": {name: value}}, "x", fit=True) == ({"trainer": {name: value}}, [])


@pytest.mark.fault(
    "the config.yaml of a run has a logger that writes elsewhere or runs code",
    "the logger is left out without --trust, but stays in the file",
)
@pytest.mark.parametrize(
    "arguments",
    [
        {"save_dir": "/etc"},
        {"name": "../../home"},
        {"project": "${oc.env:HOME}"},
        {"settings": {"base_url": "http://elsewhere"}},
        {"tags": ["~/x"]},
        {"experiment": {"class_path": "lightning.pytorch.Trainer"}},
        {"config": "{class_path: lightning.Trainer}"},
        {"save_dir": "$HOME"},
        {"save_dir": "src"},
        {"save_dir": ""},
        {"dir": ""},
        {"save_dir": "./mlruns"},
        {"name": "file:%2E%2E%2Fx"},
        {"settings": {"api_key": "k"}},
        {"save_code": True},
        {"log_model": "all"},
        {"log_model": True},
    ],
    ids=str,
)
def test_loggers_with_more_than_names_need_trust(arguments):
    config = {"trainer": {"logger": [{"class_path": WANDB, "init_args": arguments}]}}
    assert plain_settings(config, "x", fit=True) == ({"trainer": {}}, ["trainer.logger"])


@pytest.mark.parametrize("name", ["csv", "mlflow", "tensorboard", "wandb"])
def test_every_logger_by_name_needs_no_trust_in_a_resume(cli, name):
    """With all its arguments, as config.yaml has them."""
    pytest.importorskip({"csv": "lightning"}.get(name, name))
    shown = cli("fit", "--model=knowformer", "--data=umls", f"--logger={name}", "--print_config")
    assert shown.status == 0, shown.err
    config = yaml.safe_load(shown.out)
    loggers = config["trainer"]["logger"]
    assert any(name in entry["class_path"].lower() for entry in loggers) or name == "csv"
    assert plain_settings(config, "x", fit=True)[1] == []


@pytest.mark.parametrize(("newest", "projects"), [(False, [None, "mine", None]), (True, [None, None, "new"])])
def test_a_logger_named_again_in_a_resume_logs_once(newest, projects):
    from graphzoo.training.loggers import without_repeated

    others = [{"class_path": "lightning.pytorch.loggers.CSVLogger"} for _ in range(2)]
    mine, new = ({"class_path": WANDB, "project": project} for project in ("mine", "new"))
    kept = without_repeated([others[0], mine, others[1], new], ["wandb"], newest=newest)
    assert [one.get("project") for one in kept] == projects


def test_options_of_the_last_logger_leave_the_settings_of_the_others():
    from graphzoo.training.loggers import without_repeated

    mine, new = ({"class_path": WANDB, "project": project} for project in ("mine", "new"))
    board = {"class_path": "lightning.pytorch.loggers.TensorBoardLogger", "flush_secs": 5}
    assert without_repeated([mine, new, board], ["wandb", "tensorboard"], newest=True) == [mine, board]
    twice = [mine, {**mine, "entity": "team"}, new]
    assert without_repeated(twice, ["wandb"], newest=False) == twice[:2], "two of the run's own stay"


def test_a_resume_keeps_the_loggers_and_settings_it_may_not_use(trained, cli):
    shutil.copytree(trained, "run")
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    csv = [
        {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": ".", "name": "more"}}
    ]
    header = Path("run/config.yaml").read_text().partition("\nseed")[0]
    config["trainer"] |= {"logger": csv, "default_root_dir": "elsewhere"}
    Path("run/config.yaml").write_text(f"{header}\n{yaml.safe_dump(config)}")
    resumed = cli("fit", "run", "--trainer.max_epochs=3")
    assert resumed.status == 0 and "does not set trainer.default_root_dir\n" in resumed.err, resumed.err
    assert list(Path("run/more").rglob("metrics.csv")) and not Path("elsewhere").exists()
    now = Path("run/config.yaml").read_text()
    assert now.partition("\nseed")[0] == header
    again = yaml.safe_load(now)["trainer"]
    assert again["default_root_dir"] == "elsewhere" and again["max_epochs"] == 3
    assert again["logger"][0]["init_args"]["name"] == "more"


@pytest.mark.fault(
    "a truncated checkpoint", "refused with its size; a complete checkpoint in the same folder is named"
)
def test_the_size_of_a_damaged_checkpoint_and_a_complete_one_are_named(trained, cli):
    shutil.copytree(trained, "run")
    last = Path("run/checkpoints/last.ckpt")
    last.write_bytes(last.read_bytes()[:5000])
    result = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert result.status == 2
    assert "(5,000 bytes)" in result.err and "run/checkpoints/best.ckpt" in result.err


@pytest.mark.fault(
    "one bit of a weight in a checkpoint is flipped", "refused, although torch itself would load it"
)
def test_a_changed_byte_of_a_weight_is_noticed(tmp_path):
    """torch loads such a file without an error."""
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"weight": torch.arange(1000.0) + 0.5}}, path)
    content = bytearray(path.read_bytes())
    content[content.index(torch.tensor([500.5, 501.5]).numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match="damaged"):
        read_checkpoint(path)


@pytest.mark.fault("a file of another kind is given as a checkpoint", "refused with its size")
@pytest.mark.parametrize("content", [b"", b"PK", b"hello, this is text", pickle.dumps({"a": 1})])
def test_other_files_are_refused_as_checkpoints(tmp_path, content):
    path = tmp_path / "x.ckpt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no checkpoint|not a checkpoint"):
        read_checkpoint(path)


def test_checkpoints_hold_plain_values_only(trained):
    """Lightning's `_parse_ckpt_path` and `torch.load(weights_only=True)` read nothing else."""
    for name in ("best", "last"):
        checkpoint = load(trained / "checkpoints" / f"{name}.ckpt")
        assert checkpoint["graphzoo"]["encoder"]["class_path"] == "graphzoo.encoders.KnowFormer"
        assert "_instantiator" not in checkpoint["hyper_parameters"]


def test_a_run_resumed_with_other_settings_says_that_no_command_repeats_it(trained, cli, results):
    shutil.copytree(trained, "run")
    longer = cli("fit", "run", "--trainer.max_epochs=3")
    assert "resumes after epoch 2\n" in longer.err and "resumed" not in Path("run/config.yaml").read_text()
    assert cli("fit", "run", "--trainer.max_epochs=4", "--model.lr=0.02", "--override").status == 0
    again = cli("fit", "run")
    assert "run has finished its 4 epochs; --trainer.max_epochs N trains on\n" in again.err, (
        "and stays marked"
    )
    expected = "with other settings after epoch 3"
    assert results("run")["resumed"] == expected
    shown = cli("results", "run", "--commands", "--format=markdown").out
    assert f"| resumed {expected}: no single command repeats it |" in shown
    (group,) = group_records(find_records([Path("run")]))
    assert "no single command" in str(_facts(group)) and "This run again" not in str(_facts(group))


@pytest.mark.fault(
    "a run resumed with `--override` is killed before its first save",
    "refused with both ways on; `results` does not mark the earlier score as resumed",
)
def test_a_killed_override_says_how_to_go_on(trained, cli):
    shutil.copytree(trained, "run")
    killed = (
        Path("run/config.yaml")
        .read_text()
        .replace("\n", "\n# resumed: with other settings after epoch 2\n", 1)
    )
    assert "lr: 0.004\n" in killed
    Path("run/config.yaml").write_text(killed.replace("lr: 0.004\n", "lr: 0.01\n"))
    shown = cli("results", "run", "--format=markdown").out
    assert "knowformer" in shown and "resumed" not in shown
    shutil.copytree("run", "other")
    refused = cli("fit", "run", "--trainer.max_epochs=3")
    assert refused.status == 2 and "--model.lr: 0.004 in the checkpoint, 0.01 now" in refused.err
    remedy = "Its config.yaml has the new values. Add --override to resume with them, or --model.lr=0.004\n"
    assert refused.err.endswith(remedy)
    assert cli("fit", "run", "--trainer.max_epochs=3", "--model.lr=0.004").status == 0
    assert cli("fit", "other", "--trainer.max_epochs=3", "--override").status == 0


def test_the_seed_of_a_test_does_not_replace_that_of_the_run(trained, cli, results, tiny_kg):
    """Results of a test have the seed of the training, which the checkpoint knows."""
    trained_with = results(trained)["seed"]
    assert cli("test", trained, "--seed", 7, "--run_dir", "again").status == 0
    lone = ["--ckpt_path", trained / "checkpoints" / "best.ckpt", "--data=kg", "--data.path", tiny_kg]
    assert cli("test", *lone, "--model.seed=7", "--seed=7", "--run_dir=lone").status == 0
    assert [results(name)["seed"] for name in ("again", "lone")] == [trained_with] * 2


def test_a_test_of_a_run_resumed_with_other_settings_says_so(trained, cli, results):
    shutil.copytree(trained, "run")
    assert cli("fit", "run", "--trainer.max_epochs=3", "--model.lr=0.02", "--override").status == 0
    assert cli("test", "run", "--run_dir", "tested").status == 0
    expected = "with other settings after epoch 2"
    assert results("tested")["resumed"] == expected
    shown = cli("results", "tested", "--commands", "--format=markdown").out
    assert f"resumed {expected} |" in shown and "`graphzoo test" in shown


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_new_run_without_epochs_left_is_refused(trained, cli, epochs):
    """It would train nothing and keep no checkpoint."""
    again = cli("fit", "--ckpt_path", trained, f"--trainer.max_epochs={epochs}", "--run_dir=new")
    assert again.status == 2 and not Path("new/results.json").exists()
    expected = f"last.ckpt has had 2 epochs and --trainer.max_epochs is {epochs}\nGive 3 or more\n"
    assert "new: nothing is left to train, as " in again.err and again.err.endswith(expected)


@pytest.mark.parametrize("more", [[], ["--quiet"]])
def test_fewer_epochs_than_are_done_are_refused(trained, cli, more):
    shutil.copytree(trained, "run")
    before = Path("run/config.yaml").read_text()
    again = cli("fit", "run", "--trainer.max_epochs=1", *more)
    assert Path("run/config.yaml").read_text() == before
    expected = (
        "run: training is past epoch 2, and --trainer.max_epochs is 1\n"
        "Give more than 2, or test it: graphzoo test run\n"
    )
    assert again.status == 2 and again.err.endswith(expected) and "finished" not in again.err


EARLY = [
    "--trainer.limit_train_batches=1",
    "--trainer.callbacks+=EarlyStopping",
    "--trainer.callbacks.monitor=val/mr",
    "--trainer.callbacks.patience=1",
    "--trainer.callbacks.min_delta=100",  # so that nothing is better than the first epoch
]


@pytest.mark.fault(
    "a run that `EarlyStopping` has ended is resumed", "it is only tested, as one that has had its epochs"
)
def test_a_run_that_has_ended_early_is_not_trained_on(fit, cli, results):
    fit("--run_dir=whole", *EARLY, epochs=30)
    shutil.copytree("whole", "run")
    Path("run/results.json").unlink()  # as after a stop in its test
    again = cli("fit", "run")
    assert again.status == 0, again.err
    done = "run was ended by EarlyStopping after 2 epochs; a patience above 1 ("
    assert done in again.err and "resumes after" not in again.err
    assert load("run/checkpoints/last.ckpt")["global_step"] == 2
    for name in ("metrics", "best_epoch", "epochs", "steps"):
        assert results("run")[name] == results("whole")[name], name
    assert figures("whole") == figures("run")

    longer = cli("fit", "run", "--trainer.callbacks.patience=3")
    assert longer.status == 0 and "resumes after epoch 2\n" in longer.err
    assert load("run/checkpoints/last.ckpt")["epoch"] == 3, "two more without a better one"


def test_a_new_run_from_one_that_has_ended_early_is_trained(fit, cli):
    fit("--run_dir=run", *EARLY, epochs=30)
    start = ["--run_dir=new", "--ckpt_path=run/checkpoints/last.ckpt"]
    assert cli("fit", *start).status == 0
    assert load("new/checkpoints/last.ckpt")["epoch"] == 2


def test_a_threshold_that_is_judged_at_the_end_of_an_epoch_stops_no_resume_inside_it(fit, cli):
    stop = ["monitor=train/loss", "stopping_threshold=1000", "check_on_train_epoch_end=true"]
    early = ["--trainer.callbacks+=EarlyStopping", *(f"--trainer.callbacks.{each}" for each in stop)]
    steps = ["--trainer.limit_train_batches=3", "--trainer.max_steps=1", "--trainer.log_every_n_steps=1"]
    fit("--run_dir=run", *early, *steps, "--no-test", epochs=3)
    assert cli("fit", "run", "--trainer.max_steps=-1").status == 0
    assert load("run/checkpoints/last.ckpt")["global_step"] == 3, "the end of the epoch"
