"""Settings of a command that contradict those of a checkpoint."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import graphzoo.tasks  # noqa: F401  as the parser has imported the class
from graphzoo.errors import UsageError
from graphzoo.training.resume import ResumeGuard, check_resume, differences

TASK = "graphzoo.tasks.KGCompletion"


def compare(saved, given):
    return differences({"hyper_parameters": saved}, {"model": {"class_path": TASK, "init_args": given}}, None)


@pytest.mark.fault(
    "an option that the checkpoint or this version does not have", "compared with the option's default"
)
def test_options_that_one_side_lacks_have_their_default():
    assert compare({"lr": 0.1}, {"lr": 0.1, "reverse_weight": 0.0}) == {}
    assert compare({"lr": 0.1}, {"lr": 0.1, "reverse_weight": 0.5}) == {"--model.reverse_weight": (0.0, 0.5)}
    assert compare({"lr": 0.1, "reverse_weight": 0.5}, {"lr": 0.1}) == {"--model.reverse_weight": (0.5, 0.0)}
    assert compare({"lr": 0.1, "of_old": 3, "gone": None}, {"lr": 0.1}) == {"--model.of_old": (3, None)}
    assert compare({}, {"lr": 0.1}) == {}, "a checkpoint that says nothing"
    data = {"class_path": "graphzoo.datamodules.KGDataModule", "init_args": {"batch_size": 8, "root": "a"}}
    found = differences({}, {"data": data}, {"data": {"init_args": {"batch_size": 8, "num_negatives": 4}}})
    assert found == {"--data.num_negatives": (4, None)}
    data["init_args"]["test_both"] = None  # of a recipe; the training is the same
    assert (
        differences({}, {"data": data}, {"data": {"init_args": {"batch_size": 8, "test_both": True}}}) == {}
    )


def configured(optimizer=None, lr_scheduler=None, **trainer):
    """A configuration; optimiser and schedule are given as (class, arguments)."""
    config = {"trainer": {"max_epochs": 2, "devices": 1, **trainer}}
    for name, given in (("optimizer", optimizer), ("lr_scheduler", lr_scheduler)):
        if given is not None:
            config[name] = {"class_path": f"torch.optim.{given[0]}", "init_args": given[1]}
    return config


SHAPING = [
    ({"gradient_clip_val": 1e-6}, "--trainer.gradient_clip_val", (0, 1e-6)),
    ({"precision": "bf16-mixed"}, "--trainer.precision", ("32-true", "bf16-mixed")),
    ({"accumulate_grad_batches": 4}, "--trainer.accumulate_grad_batches", (1, 4)),
    ({"limit_train_batches": 1}, "--trainer.limit_train_batches", (1.0, 1)),
    ({"overfit_batches": 2}, "--trainer.overfit_batches", (0, 2)),
]
HARMLESS = {
    "max_epochs": 9,
    "max_steps": 50,
    "min_epochs": 3,
    "max_time": "00:01:00:00",
    "val_check_interval": 0.5,
    "check_val_every_n_epoch": 2,
    "limit_test_batches": 2,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "accelerator": "gpu",
    "precision": "32",
    "limit_train_batches": 1.0,
    "gradient_clip_val": None,
    "gradient_clip_algorithm": "norm",
}


@pytest.mark.fault(
    "a run is resumed with another precision, clipping, accumulation or limit of batches",
    "refused; --override resumes and marks the run",
)
@pytest.mark.parametrize(("given", "option", "values"), SHAPING)
def test_trainer_settings_that_affect_weights_are_compared(given, option, values):
    assert differences({}, configured(**given), configured()) == {option: values}
    assert differences({}, configured(), configured(**given)) == {option: values[::-1]}
    assert differences({}, configured(**given), configured(**given)) == {}
    with pytest.raises(UsageError, match="--override"):
        check_resume({option: values}, Path("run/last.ckpt"), override=False)
    check_resume({option: values}, Path("run/last.ckpt"), override=True)


@pytest.mark.parametrize("name", HARMLESS)
def test_other_trainer_settings_may_change(name):
    assert differences({}, configured(**{name: HARMLESS[name]}), configured()) == {}


def test_accumulation_may_change_with_the_number_of_devices():
    """The number of processes times that of accumulated batches is the same, see docs/distributed.md."""
    assert differences({}, configured(devices=2), configured(accumulate_grad_batches=2)) == {}


def test_another_optimiser_or_schedule_is_always_refused():
    """The state of the old one is restored, so the new one would not be used."""
    adam, cosine = ("Adam", {"lr": 0.1}), ("lr_scheduler.CosineAnnealingLR", {"T_max": 4})
    before = configured(adam, cosine)
    assert differences({}, before, before) == {}
    found = differences({}, configured(("SGD", {"lr": 0.1}), cosine), before)
    assert found == {"--optimizer": ("torch.optim.Adam", "torch.optim.SGD")}
    assert differences({}, configured(), configured(adam)) == {"--optimizer": ("torch.optim.Adam", "none")}
    betas = ("Adam", {"lr": 0.1, "betas": [0.5, 0.9]})
    longer = ("lr_scheduler.CosineAnnealingLR", {"T_max": 8})
    found |= differences({}, configured(betas, longer), before)
    assert found["--optimizer.betas"][1] == [0.5, 0.9] and found["--lr_scheduler.T_max"] == (4, 8)
    for option in found:
        with pytest.raises(UsageError, match="A resumed run cannot change these"):
            check_resume({option: found[option]}, Path("run/last.ckpt"), override=True)


def test_averages_of_the_weights_are_compared():
    class_path = "lightning.pytorch.callbacks.EMAWeightAveraging"
    old, new = (
        configured(callbacks=[{"class_path": class_path, "init_args": {"decay": decay, "device": None}}])
        for decay in (0.9, 0.99)
    )
    assert differences({}, new, old) == {"--trainer.callbacks.decay": (0.9, 0.99)}
    assert differences({}, new, configured()) == {"--trainer.callbacks": ("none", class_path)}
    assert differences({}, old, old) == {}
    stopping = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"patience": 3}}
    assert differences({}, configured(callbacks=[stopping]), configured()) == {}


def test_rate_and_decay_of_an_own_optimiser_change_with_override():
    before, now = (configured(("Adam", {"lr": lr, "weight_decay": lr / 10})) for lr in (0.1, 0.2))
    found = differences({}, now, before)
    assert found == {"--optimizer.lr": (0.1, 0.2), "--optimizer.weight_decay": (0.01, 0.02)}
    with pytest.raises(UsageError, match="--override"):
        check_resume(found, Path("run/last.ckpt"), override=False)
    check_resume(found, Path("run/last.ckpt"), override=True)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=0.1, weight_decay=0.01)
    guard = ResumeGuard({}, found, rates="--optimizer")
    guard.on_train_start(SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[]), None)
    assert [optimizer.param_groups[0][name] for name in ("lr", "weight_decay")] == [0.2, 0.02]


def test_settings_of_validation_are_not_called_settings_of_training():
    with pytest.raises(UsageError) as refused:
        check_resume({"--model.reverse_weight": (0.0, 0.5)}, Path("run/last.ckpt"), override=False)
    text = str(refused.value)
    assert "was validated with other settings" in text and "trained" not in text
    assert (
        "graphzoo test --ckpt_path run/last.ckpt --model.reverse_weight=0.5" in text and "--override" in text
    )
    check_resume({"--model.reverse_weight": (0.0, 0.5)}, Path("run/last.ckpt"), override=True)
    with pytest.raises(UsageError, match="trained with other settings"):
        pairs = {"--model.reverse_weight": (0.0, 0.5), "--model.lr": (1, 2)}
        check_resume(pairs, Path("run/last.ckpt"), override=False)


@pytest.mark.parametrize("old", [0.0, 0.5])
def test_a_changed_weight_decay_is_set_in_the_decayed_group(old):
    decayed, biases = ([torch.nn.Parameter(torch.ones(1))] for _ in range(2))
    groups = [{"params": decayed, "weight_decay": old}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(groups, lr=0.1)
    guard = ResumeGuard({}, {"--model.weight_decay": (old, 0.01), "--model.lr": (0.1, 0.2)})
    guard.on_train_start(SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[]), None)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.2]


def test_a_changed_weight_decay_leaves_other_groups_unchanged():
    biases, decayed = ([torch.nn.Parameter(torch.ones(1))] for _ in range(2))
    groups = [{"params": biases, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.01}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    guard = ResumeGuard({}, {"--model.weight_decay": (0.01, 0.1)})
    guard.on_train_start(SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[]), None)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.1]


@pytest.mark.parametrize(
    ("has", "there", "here", "remedy"),
    [
        ({"split": "random"}, ("public", 0), ("random", 1), "--data.split public --data.split_index 0"),
        ({"split": "random"}, ("random", 0), ("random", 1), "--data.split_index 0"),
        ({"protocol": "ours"}, ("ours", 0), ("ours", 1), "--data.split_index 0"),
        ({"protocol": "vgae"}, ("ours", 0), ("vgae", 0), "--data.protocol ours"),
        ({"protocol": "neighbourhood"}, ("own seed 0", 0), ("own seed 1", 1), "--data.split_index 0"),
        ({}, ("given", 0), ("given", 0), "the files that it was trained on"),
    ],
)
def test_the_remedy_for_another_split_names_options_of_its_data(has, there, here, remedy):
    """The fingerprint of links and triples depends on the split, so the split is compared first."""
    described = {"name": here[0], "index": here[1], "fingerprint": "b"}
    datamodule = SimpleNamespace(describe_split=lambda: described, **has)
    guard = ResumeGuard({"split": {"name": there[0], "index": there[1], "fingerprint": "a"}}, {})
    with pytest.raises(UsageError) as refused:
        guard.on_fit_start(SimpleNamespace(datamodule=datamodule), torch.nn.Linear(1, 1))
    assert str(refused.value).splitlines()[1] == f"Give {remedy}, or add --override"
    if there != here:
        datamodule.fingerprint, guard.data["fingerprint"] = "of b", "of a"
        with pytest.raises(UsageError, match="the split differs"):
            guard.on_fit_start(SimpleNamespace(datamodule=datamodule), torch.nn.Linear(1, 1))


def test_a_differing_split_of_links_or_triples_is_named_first(tmp_path):
    """The splits are drawn from the same file."""
    from graphzoo.datamodules import KGDataModule, LinkDataModule

    links = [(f"n{i}", f"n{(i + step) % 30}") for i in range(30) for step in (1, 2, 5)]
    (tmp_path / "links.csv").write_text("".join(f"{u},{v}\n" for u, v in links))
    (tmp_path / "train.txt").write_text("".join(f"{u}\tnear\t{v}\n" for u, v in links))
    for module, path in ((LinkDataModule, tmp_path / "links.csv"), (KGDataModule, tmp_path / "train.txt")):
        first, other = (module(path=path, split_index=index) for index in (0, 1))
        for each in (first, other):
            each.prepare_data()
            each.setup("fit")
        guard = ResumeGuard({"fingerprint": first.fingerprint, "split": first.describe_split()}, {})
        guard.on_fit_start(SimpleNamespace(datamodule=first), torch.nn.Linear(1, 1))
        with pytest.raises(UsageError, match="(?s)the split differs.*Give --data.split_index 0, or add"):
            guard.on_fit_start(SimpleNamespace(datamodule=other), torch.nn.Linear(1, 1))
