"""The hash of a configuration, and undefined metrics in results.json."""

import copy
import json
import math

import pytest

from graphzoo.runs.published import average_metrics
from graphzoo.runs.results_file import config_hash, read_results, write_results
from graphzoo.runs.row import read_row

CONFIG = {
    "model": {"class_path": "graphzoo.tasks.NodeClassification", "init_args": {"lr": 0.1, "seed": 0}},
    "data": {"class_path": "graphzoo.datamodules.NodeDataModule", "init_args": {"name": "cora"}},
    "trainer": {"max_epochs": 2, "max_time": None, "overfit_batches": 0.0},
}


def test_the_hash_without_an_own_optimiser_is_that_of_earlier_versions():
    assert config_hash(CONFIG) == "3c52b778ed27"
    assert config_hash({**CONFIG, "optimizer": None, "lr_scheduler": None}) == config_hash(CONFIG)


def test_optimiser_schedule_and_length_change_the_hash():
    seen = {config_hash(CONFIG)}
    for section, value in (
        ("optimizer", {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}),
        ("optimizer", {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.2}}),
        ("lr_scheduler", {"class_path": "torch.optim.lr_scheduler.StepLR"}),
        ("trainer", {**CONFIG["trainer"], "max_time": "00:00:01:00"}),
        ("trainer", {**CONFIG["trainer"], "overfit_batches": 3}),
    ):
        seen.add(config_hash({**copy.deepcopy(CONFIG), section: value}))
    assert len(seen) == 6


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def test_an_undefined_metric_is_null_in_the_file_and_nan_when_it_is_read(tmp_path):
    path = tmp_path / "results.json"
    write_results(
        path, {"metrics": {"test/auroc": math.nan, "test/mrr": 0.5}, "validation": {"best": math.inf}}
    )
    strict = json.loads(path.read_text(), parse_constant=refuse_constant)
    assert strict == {"metrics": {"test/auroc": None, "test/mrr": 0.5}, "validation": {"best": None}}
    assert read_results(path)["metrics"] == pytest.approx(
        {"test/auroc": math.nan, "test/mrr": 0.5}, nan_ok=True
    )


def test_a_row_keeps_the_undefined_metric_of_a_run(tmp_path):
    metrics = average_metrics([{"test/auroc": 0.5}, {"test/auroc": math.nan}], {})
    path = tmp_path / "row.json"
    write_results(path, {"model": "galit", "data": "own", "metrics": metrics})
    json.loads(path.read_text(), parse_constant=refuse_constant)
    figure = read_row(path)["metrics"]["test/auroc"]
    assert math.isnan(figure["mean"]) and figure["values"] == pytest.approx([0.5, math.nan], nan_ok=True)
