"""Paths in a checkpoint that a callback keeps; tests/cli/test_cli_strangers.py has those to be left out."""

from types import SimpleNamespace

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from graphzoo.checkpoints.paths import forget_foreign_paths


@pytest.mark.parametrize(("target", "is_kept"), [("best.ckpt", True), ("../elsewhere.ckpt", False)])
def test_a_link_as_last_checkpoint_keeps_the_paths_of_the_best(tmp_path, target, is_kept):
    """Lightning makes last.ckpt a link if `save_last="link"`."""
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    best.touch()
    last.symlink_to(target)
    callback = ModelCheckpoint(tmp_path, monitor="val/acc", save_last="link")
    state = {
        "best_model_path": str(best),
        "kth_best_model_path": str(best),
        "best_k_models": {str(best): 0.9},
        "last_model_path": str(last),
    }
    checkpoint = {"callbacks": {callback.state_key: state}}
    forget_foreign_paths(SimpleNamespace(checkpoint_callbacks=[callback]), checkpoint)
    kept = state if is_kept else {**state, "last_model_path": ""}
    assert checkpoint["callbacks"][callback.state_key] == kept
