"""Which runs are of one setting."""

import copy

from graphzoo.runs.results_file import config_hash

CONFIG = {
    "model": {"class_path": "graphzoo.tasks.NodeClassification", "init_args": {"lr": 0.1, "seed": 0}},
    "data": {"class_path": "graphzoo.datamodules.NodeDataModule", "init_args": {"name": "cora"}},
    "trainer": {"max_epochs": 2, "max_time": None, "overfit_batches": 0.0},
}


def test_runs_without_an_optimiser_of_their_own_keep_the_hash_of_earlier_versions():
    assert config_hash(CONFIG) == "3c52b778ed27"
    assert config_hash({**CONFIG, "optimizer": None, "lr_scheduler": None}) == config_hash(CONFIG)


def test_runs_of_another_optimiser_or_length_are_of_another_setting():
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
