"""A run of an earlier version, whose modules had other paths, is loaded and resumed."""

import shutil
from pathlib import Path

import pytest

import graphzoo
from graphzoo.cli import main

KEPT = Path(__file__).parent / "run_of_earlier_version"


@pytest.fixture
def run(tmp_path, monkeypatch):
    shutil.copytree(KEPT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_the_run_is_loaded_and_gives_its_scores(run):
    scores = graphzoo.load(run).score([("a", "likes", "b"), ("c", "likes", "a"), ("b", "knows", "a")])
    assert list(scores) == pytest.approx([-0.51355183, -0.42538014, -0.41883132], abs=1e-6)


def test_the_run_is_resumed(run, capsys):
    assert main(["fit", "--ckpt_path", "run", "--trainer.max_epochs", "2"]) == 0
    printed = capsys.readouterr()
    assert "epoch 2/2" in printed.out and (run / "results.json").is_file()
