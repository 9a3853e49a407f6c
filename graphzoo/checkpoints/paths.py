"""What a checkpoint may not decide: which files a run removes."""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

_BEST = ("best_model_path", "kth_best_model_path")


def forget_foreign_paths(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Take paths out of the states of `ModelCheckpoint`s that are not files of their own folders.

    Lightning removes what such a state calls a worse checkpoint: a folder with all that is in it, and a path
    with `..` in it counts as one inside. The checkpoint is changed in place.
    """
    states = checkpoint.get("callbacks")
    if not isinstance(states, dict):
        return
    for callback in trainer.checkpoint_callbacks:
        state = states.get(callback.state_key)
        if not isinstance(callback, ModelCheckpoint) or not isinstance(state, dict):
            continue
        models = state.get("best_k_models")
        best = [*(models if isinstance(models, dict) else {}), *map(state.get, _BEST)]
        changed: dict[str, Any] = {}
        if not all(path in ("", None) or _is_own(callback, path) for path in best):
            # without paths the scores would speak of files that nobody has
            changed = {**dict.fromkeys(_BEST, ""), "best_k_models": {}}
        last = state.get("last_model_path")
        if last not in ("", None) and not _is_own(callback, last):
            changed["last_model_path"] = ""
        states[callback.state_key] = {**state, **changed}


def _is_own(callback: ModelCheckpoint, path: Any) -> bool:
    """Whether it is a checkpoint file right in the callback's folder, or could become one.

    So is the link to such a file that Lightning makes with `save_last="link"`.
    """
    folder = str(callback.dirpath or "")
    if not folder or not isinstance(path, str) or not path.endswith(callback.FILE_EXTENSION):
        return False
    folder = folder if "://" in folder else os.path.abspath(folder)
    target = os.path.dirname(os.path.realpath(path))
    return os.path.dirname(path) == folder and target == os.path.realpath(folder) and not os.path.isdir(path)
