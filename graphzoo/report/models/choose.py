"""Which pictures there are of a run's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.errors import UsageError
from graphzoo.report.content import Block, Note

if TYPE_CHECKING:
    from graphzoo.report.build import Options
    from graphzoo.report.records import Record

__all__ = ["model_blocks"]


def model_blocks(record: Record, options: Options, prefix: str) -> list[Block]:
    """Pictures of the run's best checkpoint.

    Args:
        record: A run.
        options: What to show, and on which device.
        prefix: Begins the pictures' names.

    Raises:
        UsageError: if the checkpoint or its graph cannot be loaded, or a fact has unknown names.
    """
    if not any((record.path / "checkpoints").glob("*.ckpt")):
        raise UsageError("the run has no checkpoint")
    return [Note("There is no picture of this encoder.")]
