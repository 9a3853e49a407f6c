"""Checkpoints are found by a run, a folder or a file, from any current folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import held_below, locate, run_of


@pytest.fixture
def run(tmp_path):
    run = tmp_path / "runs" / "model-data" / "1"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("seed_everything: 0\n")
    for name in ("best", "last"):
        (run / "checkpoints" / f"{name}.ckpt").write_bytes(b"")
    return run


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        (".", "runs/model-data/1"),
        (".", "runs/model-data/1/checkpoints"),
        (".", "runs/model-data/1/checkpoints/best.ckpt"),
        ("runs/model-data/1", "."),
        ("runs/model-data/1", "checkpoints"),
        ("runs/model-data/1", "checkpoints/best.ckpt"),
        ("runs/model-data/1/checkpoints", "."),
        ("runs/model-data/1/checkpoints", "best.ckpt"),
        ("runs/model-data/1/checkpoints", "../checkpoints/best.ckpt"),
    ],
)
def test_a_checkpoint_is_found_from_any_folder(run, tmp_path, monkeypatch, folder, value):
    monkeypatch.chdir(tmp_path / folder)
    path, found = locate("validate", value)
    assert path.resolve() == run / "checkpoints" / "best.ckpt"
    assert found is not None and found.resolve() == run


def test_a_checkpoint_outside_of_a_run_has_no_run(tmp_path, monkeypatch):
    (tmp_path / "some.ckpt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert locate("fit", "some.ckpt") == (Path("some.ckpt"), None)
    assert run_of(Path("some.ckpt")) is None


def test_a_heuristic_has_no_checkpoint(tmp_path):
    (tmp_path / "config.yaml").write_text("# model: heuristic.cn\nmodel: {}\n")
    with pytest.raises(UsageError, match="A heuristic has none"):
        locate("predict", str(tmp_path))


def test_a_folder_above_runs_is_answered_with_their_checkpoints(run, tmp_path):
    with pytest.raises(UsageError, match=r"It holds .*/1/checkpoints/best\.ckpt, .*last\.ckpt: give"):
        locate("predict", str(tmp_path))


def test_the_search_for_a_hint_ends_early(tmp_path, monkeypatch):
    for number in range(500):
        (tmp_path / "a" / str(number)).mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "up.ckpt").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    opened = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(path) or scandir(path))
    assert held_below(tmp_path) == f"\nIt holds {tmp_path / 'b' / 'up.ckpt'}: give one of these"
    assert len(opened) <= 200 and tmp_path / "loop" not in opened
