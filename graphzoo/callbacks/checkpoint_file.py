"""Writes checkpoints so that a file of that name is always complete."""

from __future__ import annotations

import errno
import math
import os
import time
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Trainer


class CheckpointFile(TorchCheckpointIO):
    """Writes a file beside the target and renames it; from time to time it also waits for the disk.

    Lightning's own class writes into the system's temporary folder and moves the result. If that folder is on
    another disk, moving means copying: if the process is killed meanwhile, or the disk is full, neither the
    old checkpoint nor the new one is left. This class also streams instead of holding the file in memory.
    Waiting for the disk guards only against power cuts, and takes seconds on a busy disk.
    """

    seconds = 20.0  # shortest time between two waits for the same file

    def __init__(self) -> None:
        self._waited: dict[Path, float] = {}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Replace the file by a complete new one, or leave it as it was; Lightning writes to addresses with `://`.

        Raises:
            OSError: if the file cannot be written, with its name and the system's reason.
        """
        if "://" in str(path):  # a remote store of fsspec, which replaces whole objects itself
            super().save_checkpoint(checkpoint, str(path), storage_options)
            return
        if storage_options is not None:
            raise TypeError("CheckpointFile takes no storage_options")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("wb") as file:
                writer = _Writer(file)
                try:
                    torch.save(checkpoint, cast(IO[bytes], writer))
                except RuntimeError as error:
                    # torch's archive writer reports a failed write as an error of its own
                    raise (writer.error or error) from error
                if time.monotonic() - self._waited.get(path, -math.inf) >= self.seconds:
                    file.flush()
                    os.fsync(file.fileno())
                    self._waited[path] = time.monotonic()
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            code = error.errno or errno.EIO
            raise OSError(code, error.strerror or str(error), str(path)) from error
        except BaseException:
            part.unlink(missing_ok=True)
            raise


class _Writer:
    """Writes to a file, and remembers the error if that fails."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def use_checkpoint_file(trainer: Trainer) -> None:
    """Let a trainer write checkpoints with `CheckpointFile`, unless its user chose how they are written."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = CheckpointFile()
