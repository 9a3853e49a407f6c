"""What the DataModules share: where data come from, when files are read, sizes of batches, epochs."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from lightning.pytorch import LightningDataModule

from graphzoo.datamodules.batches import rank_and_world_size
from graphzoo.datamodules.source import check_source
from graphzoo.errors import UsageError, check_range

__all__ = ["GraphDataModule", "Kind", "check_neighbourhoods"]


class Kind(NamedTuple):
    """Words for the data of a DataModule, in messages.

    Args:
        own: Name that stands for the user's own files.
        default: Data set taken when neither name nor path is given.
        holds: What own files hold.
        files: What `path` may be.
        trained: What a batch is counted in.
    """

    own: str
    default: str
    holds: str
    files: str
    trained: str


class GraphDataModule(LightningDataModule):
    """A graph by name or path.

    Subclasses set `kind` and read their graph in `_load`.

    Args:
        name: Data set, or None.
        path: The user's own files, or None.
        root: Data root.
        download: Whether missing files may be fetched.
        batch_size: Samples of an optimiser step over all processes; None: all of them.
        micro_batch_size: Most samples that go through the encoder at once while training.
        eval_batch_size: The same in evaluation.
        seed: Seed of the training order.
        num_workers: Loader processes.

    Raises:
        UsageError: for arguments that make no sense, with the remedy.
    """

    kind: ClassVar[Kind]
    # Lightning declares it optional
    name: str

    def __init__(
        self,
        name: str | None,
        path: str | list[str] | None,
        root: str | None,
        download: bool | None,
        *,
        batch_size: int | None,
        micro_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        seed: int,
        num_workers: int,
    ) -> None:
        super().__init__()
        kind = self.kind
        self.name = check_source(
            name, path, own=kind.own, default=kind.default, what=kind.holds, files=kind.files
        )
        check_range(
            at_least=1,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            eval_batch_size=eval_batch_size,
        )
        check_range(at_least=0, seed=seed, num_workers=num_workers)
        if batch_size is not None and micro_batch_size is not None and micro_batch_size > batch_size:
            raise UsageError(
                f"micro_batch_size {micro_batch_size} exceeds batch_size {batch_size}: a micro-batch is a "
                "part of the batch; lower it or raise batch_size"
            )
        self.path, self.root, self.download = path, root, download
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size
        self.eval_batch_size = eval_batch_size
        self.seed, self.num_workers = seed, num_workers

    in_memory = False
    """Whether the graph was given by the caller instead of by a name or a path."""

    @property
    def is_named(self) -> bool:
        """Whether the data are those of the table, which its name identifies."""
        return self.path is None and not self.in_memory

    def prepare_data(self) -> None:
        """Fetch and parse once per machine, so that `setup` finds everything in place."""
        self._load(self.download)

    def _load(self, download: bool | None) -> Any:
        raise NotImplementedError

    @property
    def _fetches(self) -> bool | None:
        """Whether `setup` may download: without a trainer nobody has called `prepare_data`."""
        return self.download if self.trainer is None else False

    def _check_processes(self) -> None:
        """Refuse a batch that has nothing for some of the processes."""
        world_size = rank_and_world_size(self.trainer)[1]
        if self.batch_size is not None and world_size > self.batch_size:
            raise UsageError(
                f"batch_size {self.batch_size} is less than the {world_size} processes; it counts the "
                f"{self.kind.trained} of all processes together, raise it"
            )

    def _begin_with(self, epoch: int | None) -> int:
        """The epoch that a training loader begins with: the trainer's unless one is given."""
        if epoch is not None:
            return epoch
        return self.trainer.current_epoch if self.trainer is not None else 0


def check_neighbourhoods(
    neighbourhood: int | str | None, eval_neighbourhood: int | None, *, members: str
) -> None:
    """Refuse sizes of neighbourhoods that make no sense.

    Args:
        neighbourhood: In training; None: the whole graph.
        eval_neighbourhood: In evaluation; None: as in training.
        members: What a neighbourhood holds, for the message.

    Raises:
        UsageError: naming the argument.
    """
    for name, size in (("neighbourhood", neighbourhood), ("eval_neighbourhood", eval_neighbourhood)):
        if size is not None and not isinstance(size, str) and size < 2:
            raise UsageError(f"{name} must be at least 2 {members}, got {size}")
    if eval_neighbourhood is not None and neighbourhood is None:
        raise UsageError(
            f"eval_neighbourhood {eval_neighbourhood} is for models that train in neighbourhoods: "
            "give --data.neighbourhood too, or leave it out"
        )
