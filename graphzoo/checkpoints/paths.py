"""Keep a checkpoint from deciding which files a run deletes."""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

_BEST = ("best_model_path", "kth_best_model_path")


def forget_foreign_paths(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Remove paths from the states of `ModelCheckpoint` callbacks that are not files in their own folders.

    Lightning deletes the paths that such a state lists as worse checkpoints, even a folder with its content,
    and takes a path with `..` for one inside the run. The checkpoint is changed in place.
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
            # Scores of these paths are removed, too: they belong to files that do not exist.
            changed = {**dict.fromkeys(_BEST, ""), "best_k_models": {}}
        last = state.get("last_model_path")
        if last not in ("", None) and not _is_own(callback, last):
            changed["last_model_path"] = ""
        states[callback.state_key] = {**state, **changed}


def _is_own(callback: ModelCheckpoint, path: Any) -> bool:
    """Whether a path is a checkpoint file directly in the callback's folder, which need not exist yet.

    A link to such a file, which Lightning makes with `save_last="link"`, is one, too.
    """
    folder = str(callback.dirpath or "")
    if not folder or not isinstance(path, str) or not path.endswith(callback.FILE_EXTENSION):
        return False
    folder = folder if "://" in folder else os.path.abspath(folder)
    target = os.path.dirname(os.path.realpath(path))
    return os.path.dirname(path) == folder and target == os.path.realpath(folder) and not os.path.isdir(path)
