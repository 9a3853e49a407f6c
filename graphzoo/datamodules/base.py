"""What the DataModules share: loading the graph, sizes of batches, loaders, and saving the graph of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from graphzoo.datamodules.batches import (
    AsItIs,
    GlobalBatchSampler,
    ResumableLoader,
    pins_memory,
    rank_and_world_size,
)
from graphzoo.datasets.files.arrays import StoredGraph
from graphzoo.errors import UsageError, check_whole
from graphzoo.system.files import write_text_atomically
from graphzoo.types import PlainSettings

# A run keeps its graph beside the weights up to this size. Of a larger graph it keeps name and fingerprint.
_KEPT_BYTES = 64 * 2**20

Feed = tuple[Dataset[Any], DistributedSampler[Any], int]
"""The data set that makes training batches, the sampler of its items, and how many to prefetch."""
_Made = TypeVar("_Made")
_Part = TypeVar("_Part")
_Sampler = TypeVar("_Sampler", bound=GlobalBatchSampler[Any])


class Kind(NamedTuple):
    """Words for the data of a DataModule, in messages."""

    own: str  # name that stands for the user's own files
    default: str  # data set if neither name nor path is given
    holds: str  # what own files contain: "triples", "graph"
    files: str  # what `path` may be: "FILE", "FOLDER_OR_FILES"
    trained: str  # what a batch is counted in
    given: str  # argument that holds a graph in memory, for the class method `from_<given>`

    def name_of(self, name: str | None, path: str | list[str] | None) -> str:
        """`own` if there is a path, else the given name of the data set, or the default one.

        Raises:
            UsageError: if both a data set and own files are given, or `own` without files.

        >>> Kind("nodes", "cora", "graph", "FILE", "nodes", "data").name_of(None, None)
        'cora'
        """
        own, holds, files = self.own, self.holds, self.files
        is_own = name is not None and name.lower() == own
        if path is not None and name is not None and not is_own:
            raise UsageError(
                f"both the data set name={name!r} and your own path={path!r} (perhaps from a run) are given\n"
                f"Drop one of them: --data {own} --data.path {files} for your own {holds}, "
                f"--data.path null for {name} (in Python name={own!r}, path=None)"
            )
        if path is None and is_own:
            raise UsageError(f"name={own!r} means your own {holds}; give path={files} (--data.path ...)")
        return own if path is not None else name or self.default


class _TakesGraph(PlainSettings):
    """The metaclass of DataModules: `NodeDataModule(data=...)` is `NodeDataModule.from_data(...)`.

    The argument is not one of `__init__`, so that the command line and files of settings do not offer it.
    """

    def __call__(cls: type[_Made], *args: Any, **settings: Any) -> _Made:
        given = cls.kind.given  # type: ignore[attr-defined]
        is_given, graph = given in settings, settings.pop(given, None)
        made: _Made
        if graph is not None:
            made = getattr(cls, f"from_{given}")(graph, *args, **settings)
            return made
        if is_given and not (args or settings.get("name") or settings.get("path")):
            raise UsageError(
                f"{given}=None is no graph\nLeave it out for the default data set, or give a name"
            )
        made = super().__call__(*args, **settings)  # type: ignore[misc]
        return made


class GraphDataModule(LightningDataModule, metaclass=_TakesGraph):
    """A graph by name or path; see `NodeDataModule` for the arguments.

    Subclasses set `kind` and read their graph in `_load`.
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
        self.name = self.kind.name_of(name, path)
        check_whole(
            at_least=1,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            eval_batch_size=eval_batch_size,
        )
        check_whole(at_least=0, seed=seed, num_workers=num_workers)
        if batch_size is not None and micro_batch_size is not None and micro_batch_size > batch_size:
            raise UsageError(
                f"micro_batch_size {micro_batch_size} exceeds batch_size {batch_size}: a micro-batch is a "
                "part of the batch; lower it or raise batch_size"
            )
        self.path, self.root, self.download = path, root, download
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size
        self.eval_batch_size = eval_batch_size
        self.seed, self.num_workers = seed, num_workers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # Lightning's own `__str__` would make all batches in order to count them
    __str__ = __repr__

    in_memory = False
    """Whether the graph was given by the caller instead of by a name or a path."""

    @property
    def is_named(self) -> bool:
        """Whether this is a data set of the table, identified by its name."""
        return self.path is None and not self.in_memory

    def prepare_data(self) -> None:
        """Fetch and parse once per machine, so that `setup` finds everything in place."""
        self._load(self.download)

    def _load(self, download: bool | None) -> Any:
        raise NotImplementedError

    @property
    def num_valid(self) -> int:
        """Samples of a validation."""
        raise NotImplementedError

    def train_dataloader(self, epoch: int | None = None) -> ResumableLoader:
        """Loader of one rank's training batches.

        Args:
            epoch: Epoch to begin with; None for the trainer's. Without a trainer that is 0: then call
                `loader.set_epoch` for later epochs.

        Raises:
            UsageError: if the trainer has `overfit_batches`, which replaces the order of the batches.
        """
        return self._training_loader(epoch)

    def _training_loader(self, epoch: int | None) -> ResumableLoader:
        """See `train_dataloader`, which a user's own class may replace by Lightning's, without arguments."""
        self._refuse_overfitting()
        batches, sampler, ahead = self._training()
        current = self.trainer.current_epoch if self.trainer is not None else 0
        sampler.set_epoch(current if epoch is None else epoch)
        return self._resumable_loader(batches, sampler, ahead=ahead)

    def _refuse_overfitting(self) -> None:
        count = getattr(self.trainer, "overfit_batches", 0)
        if count > 0:
            raise UsageError(
                "overfit_batches replaces the order of the batches, which graphzoo needs to resume runs\n"
                f"Give --trainer.limit_train_batches {count} instead, and --trainer.limit_val_batches 0"
            )

    def _training(self) -> Feed:
        raise NotImplementedError

    def val_dataloader(self) -> DataLoader[Any]:
        """Loader of one rank's validation batches."""
        if getattr(getattr(self.trainer, "state", None), "fn", None) == "fit":
            self._refuse_overfitting()  # before Lightning changes this loader, too
        return self._evaluation_loader("valid")

    def test_dataloader(self) -> DataLoader[Any]:
        """Loader of one rank's test batches."""
        return self._evaluation_loader("test")

    def predict_dataloader(self) -> AsItIs:
        """The test batches, for `Trainer.predict`."""
        return AsItIs(self.test_dataloader())

    def _evaluation_loader(self, split: Literal["valid", "test"]) -> DataLoader[Any]:
        raise NotImplementedError

    @property
    def _fetches(self) -> bool | None:
        """Whether `setup` may download. With a trainer it need not: Lightning has called `prepare_data`."""
        return self.download if self.trainer is None else False

    def _check_processes(self) -> None:
        """Refuse a batch size below the number of processes, since some would get nothing."""
        world_size = rank_and_world_size(self.trainer)[1]
        if self.batch_size is not None and world_size > self.batch_size:
            raise UsageError(
                f"batch_size {self.batch_size} is less than the {world_size} processes: it counts the "
                f"{self.kind.trained} of all processes together\nGive a larger one"
            )

    def _sampler(self, kind: Callable[..., _Sampler], size: int) -> _Sampler:
        """The training sampler for `size` samples."""
        assert self.batch_size is not None
        share = self.micro_batch_size or self.batch_size
        return kind(size, self.batch_size, share, self.seed, *rank_and_world_size(self.trainer))

    def _resumable_loader(
        self, batches: Dataset[Any], sampler: DistributedSampler[Any], *, ahead: int
    ) -> ResumableLoader:
        pinned = pins_memory(self.trainer)
        return ResumableLoader(batches, sampler, self.num_workers, ahead=ahead, pin_memory=pinned)

    def _save_graph(
        self, directory: Path, graph: StoredGraph, file: str, num_bytes: int, facts: dict[str, Any]
    ) -> None:
        """Write meta.json with further `facts`, and the graph unless it is large."""
        stored = num_bytes <= _KEPT_BYTES
        if stored:
            graph.save(directory / file)
        paths = [self.path] if isinstance(self.path, str) else self.path
        meta = {
            "format": 1,
            "kind": self.kind.own,
            "name": self.name,
            "path": None if paths is None else [str(Path(part).absolute()) for part in paths],
            "root": None if self.root is None else str(Path(self.root).absolute()),
            "graph": file if stored else None,
            "graph_fingerprint": graph.fingerprint,
        }
        write_meta(directory, meta | facts)


def loaded(part: _Part | None) -> _Part:
    """Return a part of a DataModule that its `setup` has made.

    Raises:
        RuntimeError: if it has not run yet.
    """
    if part is None:
        raise RuntimeError("the data is not loaded; call setup() first")
    return part


def write_meta(directory: Path, meta: dict[str, Any]) -> None:
    """Write meta.json, which says what the files beside it are."""
    text = json.dumps(meta, indent=1, ensure_ascii=False) + "\n"
    write_text_atomically(directory / "meta.json", text)
