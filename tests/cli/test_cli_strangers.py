"""Runs and checkpoints of strangers: nothing is removed, begun anew in silence, or waited for without end."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from same_runs import load

from graphzoo.callbacks import BestCheckpoint
from graphzoo.checkpoint_paths import forget_foreign_paths


def change(path, alter):
    """Save a checkpoint anew with what `alter` does to it."""
    checkpoint = load(path)
    alter(checkpoint)
    torch.save(checkpoint, path)


def state_of_best(checkpoint):
    return next(state for name, state in checkpoint["callbacks"].items() if "BestCheckpoint" in name)


@pytest.mark.fault(
    "the checkpoint of a run names another folder as its best checkpoint",
    "paths are never taken from a checkpoint, scores are; nothing outside the run is removed",
)
def test_a_resume_removes_nothing_that_a_checkpoint_names(trained, cli):
    """Lightning removes what the state calls the best so far, a folder with all that is in it."""
    shutil.copytree(trained, "run")
    Path("victim").mkdir()
    Path("victim/letters.txt").write_text("kept")
    Path("run/checkpoints/best.ckpt").unlink()
    directory = str(Path("run/checkpoints").absolute())
    named = f"{directory}/../../victim"

    def alter(checkpoint):
        worst = torch.tensor(0.0, dtype=torch.float64)
        paths = dict.fromkeys(["best_model_path", "kth_best_model_path", "last_model_path"], named)
        state = {"dirpath": directory, "best_k_models": {named: worst}, "best_model_score": worst}
        state_of_best(checkpoint).update(paths | state | {"kth_value": worst})

    change("run/checkpoints/last.ckpt", alter)
    done = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert done.status == 0, done.err
    assert Path("victim/letters.txt").read_text() == "kept"
    assert Path("run/checkpoints/best.ckpt").is_file()


@pytest.mark.parametrize("best_is_there", [True, False])
def test_a_best_checkpoint_takes_scores_alone(tmp_path, best_is_there):
    callback = BestCheckpoint(tmp_path, monitor="val/mrr")
    if best_is_there:
        (tmp_path / "best.ckpt").touch()
    score = torch.tensor(0.5)
    others = {"last_model_path": "/elsewhere", "kth_best_model_path": "/elsewhere", "dirpath": "/elsewhere"}
    callback.load_state_dict(
        {"best_model_path": "/elsewhere", "best_model_score": score, "best_k_models": {"/x": score}, **others}
    )
    own = str(tmp_path / "best.ckpt") if best_is_there else ""
    assert (callback.best_model_path, callback.kth_best_model_path, callback.last_model_path) == (
        own,
        own,
        "",
    )
    assert callback.best_k_models == ({own: score} if best_is_there else {})
    assert callback.best_model_score == (score if best_is_there else None)
    assert callback.dirpath == str(tmp_path)


@pytest.mark.parametrize(
    "name", ["../../victim", "inner/a.ckpt", "folder.ckpt", "link.ckpt", "../other/a.ckpt"]
)
def test_no_model_checkpoint_takes_a_path_of_others(tmp_path, name):
    """Lightning's own, which a user may add: it removes the worst of the files that its state names."""
    (tmp_path / "folder.ckpt").mkdir()
    (tmp_path / "link.ckpt").symlink_to(tmp_path)
    callback = ModelCheckpoint(tmp_path, monitor="val/mrr", save_top_k=2)
    trainer = SimpleNamespace(checkpoint_callbacks=[callback])
    own, foreign = str(tmp_path / "a.ckpt"), f"{tmp_path}/{name}"
    state = {"dirpath": str(tmp_path), "best_model_score": torch.tensor(1.0), "kth_value": torch.tensor(0.0)}
    state |= {"best_model_path": own, "kth_best_model_path": own, "last_model_path": ""}
    for field in ("best_model_path", "kth_best_model_path", "last_model_path", "best_k_models"):
        found = {field: foreign} if field != "best_k_models" else {field: {own: 1.0, foreign: 0.0}}
        checkpoint = {"callbacks": {callback.state_key: {**state, "best_k_models": {own: 1.0}, **found}}}
        forget_foreign_paths(trainer, checkpoint)
        assert name not in str(checkpoint)
    checkpoint = {"callbacks": {callback.state_key: {**state, "best_k_models": {own: 1.0}}}}
    forget_foreign_paths(trainer, checkpoint)
    assert checkpoint["callbacks"][callback.state_key]["best_k_models"] == {own: 1.0}
