"""Which settings of a command contradict those of a checkpoint."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import graphzoo.tasks  # noqa: F401  the parser has imported the class by then
from graphzoo.errors import UsageError
from graphzoo.training.resume import ResumeGuard, check_resume, differences

TASK = "graphzoo.tasks.KGCompletion"


def compare(saved, given):
    return differences({"hyper_parameters": saved}, {"model": {"class_path": TASK, "init_args": given}}, None)


@pytest.mark.fault(
    "an option that the checkpoint, or this version, does not know", "compared with the option's usual value"
)
def test_options_that_one_side_does_not_name():
    assert compare({"lr": 0.1}, {"lr": 0.1, "reverse_weight": 0.0}) == {}
    assert compare({"lr": 0.1}, {"lr": 0.1, "reverse_weight": 0.5}) == {"--model.reverse_weight": (0.0, 0.5)}
    assert compare({"lr": 0.1, "reverse_weight": 0.5}, {"lr": 0.1}) == {"--model.reverse_weight": (0.5, 0.0)}
    assert compare({"lr": 0.1, "of_old": 3, "gone": None}, {"lr": 0.1}) == {"--model.of_old": (3, None)}
    assert compare({}, {"lr": 0.1}) == {}, "a checkpoint that says nothing"
    data = {"class_path": "graphzoo.datamodules.KGDataModule", "init_args": {"batch_size": 8, "root": "a"}}
    found = differences({}, {"data": data}, {"data": {"init_args": {"batch_size": 8, "num_negatives": 4}}})
    assert found == {"--data.num_negatives": (4, None)}


def test_another_way_of_judging_is_no_other_training():
    with pytest.raises(UsageError) as refused:
        check_resume({"--model.reverse_weight": (0.0, 0.5)}, Path("run/last.ckpt"), override=False)
    said = str(refused.value)
    assert "was validated with other settings" in said and "trained" not in said
    assert (
        "graphzoo test --ckpt_path run/last.ckpt --model.reverse_weight=0.5" in said and "--override" in said
    )
    check_resume({"--model.reverse_weight": (0.0, 0.5)}, Path("run/last.ckpt"), override=True)
    with pytest.raises(UsageError, match="trained with other settings"):
        pairs = {"--model.reverse_weight": (0.0, 0.5), "--model.lr": (1, 2)}
        check_resume(pairs, Path("run/last.ckpt"), override=False)


@pytest.mark.parametrize("old", [0.0, 0.5])
def test_a_changed_weight_decay_reaches_the_decayed_group_whatever_it_was(old):
    decayed, biases = ([torch.nn.Parameter(torch.ones(1))] for _ in range(2))
    groups = [{"params": decayed, "weight_decay": old}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(groups, lr=0.1)
    guard = ResumeGuard({}, {"--model.weight_decay": (old, 0.01), "--model.lr": (0.1, 0.2)})
    guard.on_train_start(SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[]), None)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.2]


def test_a_changed_weight_decay_leaves_groups_alone_that_an_optimiser_does_not_decay():
    biases, decayed = ([torch.nn.Parameter(torch.ones(1))] for _ in range(2))
    groups = [{"params": biases, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.01}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    guard = ResumeGuard({}, {"--model.weight_decay": (0.01, 0.1)})
    guard.on_train_start(SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[]), None)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.1]
