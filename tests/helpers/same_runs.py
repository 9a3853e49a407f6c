"""Comparison of two runs by their bits, without columns of times and memory."""

import csv
from pathlib import Path

import torch

TIMES = (
    "train/seconds",
    "train/queries_per_s",
    "train/nodes_per_s",
    "train/pairs_per_s",
    "train/step_seconds",
    "train/data_seconds",
    "train/peak_memory_gib",
)


def load(path):
    return torch.load(path, weights_only=True)


def same_training(one, other):
    """Assert equal bits of weights, optimizer and learning-rate schedule."""
    first, second = load(one), load(other)
    assert first["epoch"] == second["epoch"] and first["global_step"] == second["global_step"]
    assert all(
        torch.equal(first["state_dict"][name], second["state_dict"][name]) for name in first["state_dict"]
    )
    for left, right in zip(first["optimizer_states"], second["optimizer_states"], strict=True):
        assert left["param_groups"] == right["param_groups"]
        for key, state in left["state"].items():
            assert all(torch.equal(state[name], right["state"][key][name]) for name in state)
    assert first["lr_schedulers"] == second["lr_schedulers"]


def figures(run):
    """metrics.csv without columns of times and memory."""
    with (Path(run) / "metrics.csv").open() as file:
        found = list(csv.DictReader(file))
    kept = [{k: v for k, v in row.items() if v and k not in TIMES} for row in found]
    return [row for row in kept if set(row) - {"step", "epoch"}]
