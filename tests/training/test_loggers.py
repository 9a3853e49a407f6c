"""Names, groups and tags of runs at Weights & Biases."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonargparse import Namespace

from graphzoo.callbacks import WandbRun
from graphzoo.training.callbacks import PaperLine
from graphzoo.training.loggers import _place_wandb


def test_long_names_of_own_data_fit_weights_and_biases():
    """It allows tags of 64 characters, and names of 128."""
    arguments = Namespace(group=None, tags=None, job_type=None, name="mine")
    state = SimpleNamespace(
        model="pencil",
        data="links",
        data_name="d" * 150,
        plan=SimpleNamespace(command="fit", resume=False, recipe="pencil/links"),
    )
    _place_wandb(arguments, Path("run"), state, {"data": "d" * 150, "recipe": "short"})
    assert arguments.tags == ["data:" + "d" * 59, "recipe:short"]
    assert arguments.group == "pencil-" + "d" * 121
    arguments.group = None
    _place_wandb(arguments, Path("row/seed-0"), state, {})
    assert arguments.group == "pencil-" + "d" * 117 + "-row"


@pytest.mark.parametrize(
    ("recipe", "run_dir", "expected"),
    [
        ("knowformer/umls", "runs/mine", "knowformer-umls"),
        ("", "runs/mine", "knowformer-umls-none"),
        ("umls", "runs/mine", "knowformer-umls-umls"),  # a user's file of this name
        ("knowformer/umls-long", "runs/mine", "knowformer-umls-umls-long"),
        ("knowformer/umls", "runs/reproduce/knowformer-umls/seed-0", "knowformer-umls"),
        ("knowformer/umls-long", "runs/knowformer-umls-umls-long/seed-0", "knowformer-umls-umls-long"),
        ("knowformer/umls", "runs/ablation/knowformer-umls-layers/l-1/seed-0", "knowformer-umls-l-1"),
        ("knowformer/umls", "mine/split-1-seed-2", "knowformer-umls-mine"),
    ],
)
def test_panels_average_the_seeds_of_one_setting(recipe, run_dir, expected):
    """Other recipes and the rows of an ablation are other settings."""
    arguments = Namespace(group=None, tags=None, job_type=None, name=None)
    plan = SimpleNamespace(command="fit", resume=False, recipe=recipe)
    state = SimpleNamespace(model="knowformer", data="umls", data_name="umls", plan=plan)
    _place_wandb(arguments, Path(run_dir), state, {})
    assert arguments.group == expected and arguments.name == f"knowformer-umls-{Path(run_dir).name}"


def test_a_group_of_the_user_is_kept():
    arguments = Namespace(group="mine", tags=None, job_type=None, name=None)
    plan = SimpleNamespace(command="fit", resume=False, recipe="")
    state = SimpleNamespace(model="knowformer", data="umls", data_name="umls", plan=plan)
    _place_wandb(arguments, Path("run"), state, {})
    assert arguments.group == "mine"


def test_trials_of_searches_are_groups_of_seeds():
    plan = SimpleNamespace(command="fit", resume=False, recipe="knowformer/umls")
    state = SimpleNamespace(model="knowformer", data="umls", data_name="umls", plan=plan)
    placed = {}
    for run in ("a/s/trials/0003/seed-0", "a/s/trials/0003/seed-1", "a/s/trials/0004/seed-0",
                "b/s/trials/0003/seed-0"):  # fmt: skip
        arguments = Namespace(group=None, tags=None, job_type=None, name=None)
        _place_wandb(arguments, Path(run, "run"), state, {})
        placed[run] = arguments.group, arguments.name
    groups = [group for group, _ in placed.values()]
    assert groups[0] == groups[1] and len(set(groups)) == 3
    assert len({name for _, name in placed.values()}) == 4
    for number in ("0003", "0004"):  # a long name is cut before the number
        arguments = Namespace(group=None, tags=None, job_type=None, name=None)
        _place_wandb(arguments, Path("s" * 124, "trials", number, "seed-0", "run"), state, {})
        assert arguments.group.endswith(f"-trial-{number}") and len(arguments.group) <= 128
    arguments = Namespace(group=None, tags=None, job_type=None, name=None)
    _place_wandb(arguments, Path("/seed-0/run"), state, {})
    assert "trial" not in arguments.group
    group, name = placed["a/s/trials/0003/seed-1"]
    assert re.fullmatch(r"knowformer-umls-s-[0-9a-f]{4}-trial-0003", group) and name == f"{group}-seed-1"


@pytest.mark.parametrize(
    ("recipe", "protocol", "is_drawn"),
    [
        ("pencil/citeseer-link", "original", True),
        ("pencil/citeseer-link", "heart", False),
        ("pencil/citeseer-link-heart", "heart", True),
        ("pencil/no-longer-there", "heart", True),
    ],
)
def test_the_line_of_the_paper_is_drawn_only_for_its_protocol(recipe, protocol, is_drawn, tmp_path):
    run = WandbRun(tmp_path, paper={"test/mrr": 0.5})
    data = SimpleNamespace(describe_split=lambda: {"name": protocol})
    trainer = SimpleNamespace(callbacks=[run], datamodule=data)
    state = SimpleNamespace(model="pencil", data="citeseer-link", plan=SimpleNamespace(recipe=recipe))
    PaperLine(state).on_fit_start(trainer, None)
    assert run.paper == ({"paper/mrr": 0.5} if is_drawn else {})
