"""Baseline models from the command line: their presets train, resume and predict."""

import pandas as pd
import pytest
from helpers.own import QUIET_CPU
from helpers.same_runs import figures, same_training

BASELINES = ("gcn", "gat", "sage", "sgc", "mlp", "mlp-denoised", "sgformer", "sgformer-pyg", "polynormer")


@pytest.mark.parametrize("model", BASELINES)
def test_a_baseline_trains_on_whole_graphs_and_parts_and_labels_nodes(cli, tiny_nodes, results, model):
    command = ["fit", f"--model={model}", "--data=nodes", f"--data.path={tiny_nodes}", *QUIET_CPU]
    for run, more in (("whole", []), ("parts", ["--data.batch_size=20"])):
        done = cli(*command, "--trainer.max_epochs=2", f"--run_dir={run}", *more)
        assert done.status == 0, done.err
        assert results(run)["metrics"]["test/acc"] >= 0 and results(run)["epochs"] == 2
    assert cli("predict", "--ckpt_path=whole", "--out=labels.csv").status == 0
    assert len(pd.read_csv("labels.csv")) == 60


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("sgformer", []),
        ("sgformer", ["--data.batch_size=20"]),
        ("sgformer-pyg", []),
        ("sgformer-pyg", ["--data.batch_size=20"]),
        # Stopped during the local passes, and after them.
        ("polynormer", ["--model.encoder.local_passes=4"]),
        ("polynormer", ["--model.encoder.local_passes=1"]),
    ],
)
def test_a_resumed_baseline_equals_an_uninterrupted_one(fit_nodes, cli, results, model, more):
    fit_nodes("--run_dir=whole", *more, model=model, epochs=5)
    stop = ["--trainer.callbacks+=helpers.own.SendSignal", "--trainer.callbacks.epoch=2"]
    fit_nodes(
        "--run_dir=parts", *more, *stop, "--trainer.callbacks.batch=0", model=model, epochs=5, status=143
    )
    assert cli("fit", "--ckpt_path", "parts", "--trust").status == 0
    same_training("whole/checkpoints/last.ckpt", "parts/checkpoints/last.ckpt")
    assert results("whole")["metrics"] == results("parts")["metrics"]
    assert figures("whole") == figures("parts")


@pytest.mark.parametrize("model", ["sgc", "polynormer"])
def test_a_baseline_predicts_links(cli, links, results, model):
    command = ["fit", f"--model={model}", "--data=links", f"--data.path={links}", *QUIET_CPU]
    done = cli(*command, "--trainer.max_epochs=1", "--run_dir=run")
    assert done.status == 0, done.err
    assert 0 <= results("run")["metrics"]["test/auroc"] <= 1
