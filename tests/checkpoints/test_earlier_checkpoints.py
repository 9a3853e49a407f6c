"""A run of the version in which all modules lay loose in one folder is used and resumed by this one."""

import shutil
from pathlib import Path

import pytest

import graphzoo
from graphzoo.cli import main

KEPT = Path(__file__).parent / "written_before_the_rooms"


@pytest.fixture
def run(tmp_path, monkeypatch):
    shutil.copytree(KEPT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_it_answers_with_the_scores_it_had(run):
    scores = graphzoo.load(run).score([("a", "likes", "b"), ("c", "likes", "a"), ("b", "knows", "a")])
    assert list(scores) == pytest.approx([-0.51355183, -0.42538014, -0.41883132], abs=1e-6)


def test_it_is_resumed(run, capsys):
    assert main(["fit", "--ckpt_path", "run", "--trainer.max_epochs", "2"]) == 0
    said = capsys.readouterr()
    assert "epoch 2/2" in said.out and (run / "results.json").is_file()
