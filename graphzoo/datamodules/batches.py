"""Batches of triples: their order is a function of (seed, epoch), divided over ranks and micro-batches.

The samplers derive from `DistributedSampler` so that Lightning does not replace them, whatever
`use_distributed_sampler` says.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from graphzoo.datamodules.prefetch import prefetch
from graphzoo.datasets.kg.answers import AnswerIndex
from graphzoo.errors import UsageError
from graphzoo.types import QueryBatch, TripleBatch

if TYPE_CHECKING:
    from graphzoo.sampling import FactDropout, NeighbourhoodSampler
    from graphzoo.sampling.hidden_facts import RemoveFacts


_Item = TypeVar("_Item")


def permute(size: int, *key: object) -> Tensor:
    """A permutation of 0..size-1 that depends on the key alone and touches no global generator."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def rank_and_world_size(trainer: Trainer | None) -> tuple[int, int]:
    """Rank and number of processes: the trainer's, else those of torch.distributed, else one process."""
    if trainer is not None:
        return trainer.global_rank, trainer.world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def pins_memory(trainer: Trainer | None) -> bool:
    """Whether batches go to a GPU; it copies pinned memory while the host continues."""
    device = getattr(getattr(trainer, "strategy", None), "root_device", None)
    return device is not None and device.type == "cuda"


class Slice(NamedTuple):
    """One loader item: a micro-batch of one rank."""

    epoch: int
    begin: int  # place in the epoch's order
    position: Tensor  # its triples, as positions in the training split, [B]
    removed: Tensor  # all triples of the global batch, likewise
    source: int = 0  # which of several graphs


class RankSampler(DistributedSampler[_Item]):
    """A sampler of the loader items for one process, number `rank` of `world_size`."""

    def __init__(self, size: int, rank: int, world_size: int) -> None:
        super().__init__(range(size), num_replicas=world_size, rank=rank, shuffle=False)  # type: ignore[arg-type]


class GlobalBatchSampler(RankSampler[_Item]):
    """Cuts each epoch's permutation into global batches, these into parts of ranks, these into micro-batches.

    A global batch is `batch_size` consecutive places of the permutation (the last may be smaller). It is cut
    into one part for each of W ranks, as even as possible. Every rank cuts its part into the same number of
    micro-batches: as many as the largest part needs to have at most `micro_batch_size` places in each. So all
    ranks make the same number of steps. If the last global batch is smaller than W, some ranks get an empty
    micro-batch.
    """

    def __init__(
        self, size: int, batch_size: int, micro_batch_size: int, seed: int, rank: int, world_size: int
    ) -> None:
        super().__init__(size, rank, world_size)
        self.size, self.seed = size, seed
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size

    def num_micro_batches(self, size: int) -> int:
        """Loader items per rank for a global batch of `size` places."""
        return math.ceil(math.ceil(size / self.num_replicas) / self.micro_batch_size)

    @property
    def num_in_step(self) -> int:
        """Loader items per rank for a whole global batch."""
        return self.num_micro_batches(min(self.batch_size, self.size))

    def __len__(self) -> int:
        full, rest = divmod(self.size, self.batch_size)
        return full * self.num_micro_batches(self.batch_size) + (self.num_micro_batches(rest) if rest else 0)

    def __iter__(self) -> Iterator[_Item]:
        epoch = self.epoch
        order = permute(self.size, "training order", self.seed, epoch)
        for start in range(0, self.size, self.batch_size):
            yield from self._cut(epoch, start, order[start : start + self.batch_size])

    def _cut(self, epoch: int, start: int, batch: Tensor) -> Iterator[_Item]:
        """The micro-batches of this rank in a global batch [G] that begins at place `start` of the epoch."""
        raise NotImplementedError


class TrainingSampler(GlobalBatchSampler[Slice]):
    """A sampler of the triples of every micro-batch."""

    def _cut(self, epoch: int, start: int, batch: Tensor, source: int = 0) -> Iterator[Slice]:
        size = batch.numel()
        low, high = cut(size, self.num_replicas, self.rank)
        parts = self.num_micro_batches(size)
        for part in range(parts):
            first, last = cut(high - low, parts, part)
            # cloned: a slice of the permutation would carry all of it to a worker
            position = batch[low + first : low + last].clone()
            yield Slice(epoch, start + low + first, position, batch.clone(), source)


class TrainingBatches(Dataset[TripleBatch]):
    """Makes a `TripleBatch` of a `Slice`: even places of the epoch ask for the tail, odd ones for the head.

    Args:
        triples: Training triples, [n, 3], int64.
        num_relations: R, forward relations.
        samplers: Samplers of neighbourhoods by the first epoch of their use, beginning with 0. Where it is
            None, and without any sampler, queries see the whole graph.
        hides: Which edges of a query's own fact its neighbourhood leaves out.
        answers: Known answers to include in batches; None for none.
        hides_batch: Whether queries on the whole graph do not see the facts of their global batch; if not,
            only those of their loader item are hidden.
        dropout: Facts hidden from the neighbourhoods of an epoch; None for none.
    """

    def __init__(
        self,
        triples: Tensor,
        num_relations: int,
        samplers: Mapping[int, NeighbourhoodSampler | None] | None = None,
        hides: RemoveFacts = "exact",
        answers: AnswerIndex | None = None,
        hides_batch: bool = True,
        dropout: FactDropout | None = None,
    ) -> None:
        self.triples = triples
        self.num_relations = num_relations
        self.samplers, self.hides, self.answers = samplers or {}, hides, answers
        self.hides_batch, self.dropout = hides_batch, dropout

    def __getitem__(self, item: Slice) -> TripleBatch:
        head, relation, tail = self.triples[item.position].unbind(1)
        place = item.begin + torch.arange(item.position.numel())
        inverse = place % 2 == 1
        batch = TripleBatch(
            head=torch.where(inverse, tail, head),
            relation=torch.where(inverse, relation + self.num_relations, relation),
            tail=torch.where(inverse, head, tail),
            index=item.position,
            removed=item.removed if self.hides_batch else item.position,
            num_global=item.removed.numel(),
            epoch=item.epoch,
            source=item.source,
        )
        last = max((epoch for epoch in self.samplers if epoch <= item.epoch), default=0)
        if (sampler := self.samplers.get(last)) is not None:
            if self.dropout is not None:
                sampler = self.dropout.sampler(item.epoch, sampler)
            graph, kept = sampler(batch.head, batch.relation, batch.tail, hides=self.hides, outside="drop")
            columns = {name: getattr(batch, name)[kept] for name in ("head", "relation", "tail", "index")}
            batch = replace(batch, **columns, graph=graph)
        if self.answers is not None:
            row, entity = self.answers.lookup(batch.head, batch.relation)
            if batch.graph is not None:  # on the CPU, where counting the answers inside needs no wait
                entity = batch.graph.find(entity, row)
                row, entity = row[entity >= 0], entity[entity >= 0]
            batch.known_row, batch.known_entity = row, entity
        return batch


class WholeBatchSampler(RankSampler[int]):
    """Deals batch numbers 0..n-1 to the ranks in turn; nothing is repeated.

    Each of W ranks gets ceil(n / W) numbers, since collective operations wait for all ranks. Missing numbers
    are filled with n, which stands for an empty batch.
    """

    def __init__(self, num_batches: int, rank: int, world_size: int) -> None:
        super().__init__(num_batches, rank, world_size)
        self.num_batches = num_batches

    def __len__(self) -> int:
        return math.ceil(self.num_batches / self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        for turn in range(len(self)):
            yield min(turn * self.num_replicas + self.rank, self.num_batches)


class EvaluationBatches(Dataset[QueryBatch]):
    """The distinct queries of some triples, both directions, in batches with targets and filters.

    Number n, one past the last batch, is an empty batch; see `WholeBatchSampler`.

    Args:
        triples: Triples of the split, [n, 3], int64.
        answers: Known answers, for the filtered ranking.
        batch_size: Distinct queries of a batch.
        chosen: Positions of the triples to ask about; None for all.
        source: Which of several graphs the triples belong to.
        first: Number of the first target, for several graphs.
    """

    def __init__(
        self,
        triples: Tensor,
        answers: AnswerIndex,
        batch_size: int,
        chosen: Tensor | None = None,
        *,
        source: int = 0,
        first: int = 0,
    ) -> None:
        num_triples, num_relations = triples.size(0), answers.num_relations
        chosen = torch.arange(num_triples) if chosen is None else chosen
        head, relation, tail = triples[chosen].unbind(1)
        key = torch.cat(
            [head * 2 * num_relations + relation, tail * 2 * num_relations + relation + num_relations]
        )
        order = torch.argsort(key, stable=True)
        query, size = torch.unique_consecutive(key[order], return_counts=True)
        divisor = max(2 * num_relations, 1)
        self.head: Tensor = query // divisor
        self.relation: Tensor = query % divisor
        self.start = torch.cat([size.new_zeros(1), size.cumsum(0)])
        self.target = torch.cat([tail, head])[order]
        self.target_index = torch.cat([chosen, chosen + num_triples])[order] + first
        self.answers = answers
        self.batch_size, self.source = batch_size, source

    def __len__(self) -> int:
        return math.ceil(int(self.head.numel()) / self.batch_size)

    def __getitem__(self, number: int) -> QueryBatch:
        first = min(number * self.batch_size, self.head.numel())
        last = min(first + self.batch_size, self.head.numel())
        head, relation = self.head[first:last], self.relation[first:last]
        low, high = int(self.start[first]), int(self.start[last])
        size = self.start[first + 1 : last + 1] - self.start[first:last]
        known_row, known_entity = self.answers.lookup(head, relation)
        return QueryBatch(
            head=head.clone(),
            relation=relation.clone(),
            target=self.target[low:high].clone(),
            target_row=torch.repeat_interleave(torch.arange(last - first), size),
            target_index=self.target_index[low:high].clone(),
            known_row=known_row,
            known_entity=known_entity,
            source=self.source,
        )


class AsItIs:
    """The batches of a loader. For predictions, Lightning would replace a `DataLoader`, but not this."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


class ResumableLoader(DataLoader[Any]):
    """A loader of whole batches that counts them, so that a run can resume in the middle of an epoch.

    Without workers, a thread makes `ahead` batches in advance; see `prefetch`.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: DistributedSampler[Any],
        num_workers: int = 0,
        *,
        ahead: int = 0,
        pin_memory: bool = False,
    ) -> None:
        # its own generator, or each epoch would draw a seed for the workers from the global one
        generator = torch.Generator()
        super().__init__(
            dataset,
            batch_size=None,
            sampler=sampler,
            num_workers=num_workers,
            generator=generator,
            pin_memory=pin_memory,
        )
        self._order = sampler
        self._ahead = 0 if num_workers else ahead
        self._epoch = 0
        self._given = 0
        self._resume: tuple[int, int] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; Lightning does so itself."""
        self._order.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the number of items that it has yielded, and its length."""
        return {"epoch": self._epoch, "given": self._given, "length": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Skip the items that were yielded before, if the next iteration is of the same epoch.

        Raises:
            UsageError: if the epoch has another number of items now.
        """
        if state["length"] != len(self):
            raise UsageError(
                f"the checkpoint was written in an epoch of {state['length']} loader items, but the epoch "
                f"now has {len(self)}: resume with the same data, batch_size, micro_batch_size and number of "
                "processes, or from a checkpoint written at the end of an epoch"
            )
        self._resume = (state["epoch"], state["given"])

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # a generator starts when the first item is asked for: Lightning calls iter() before set_epoch
        self._epoch, self._given = self._order.epoch, 0
        skip = 0
        if self._resume is not None:
            epoch, given = self._resume
            self._resume = None
            if epoch == self._epoch and given < len(self):
                skip = given
        batches: Iterator[Any] = super().__iter__()
        for batch in prefetch(batches, self._ahead) if self._ahead else batches:
            self._given += 1
            if self._given > skip:
                yield batch


def evaluation_loader(
    batches: EvaluationBatches | Dataset[QueryBatch], trainer: Trainer | None, num_workers: int
) -> DataLoader[QueryBatch]:
    """Loader of the batches of one rank; all ranks have the same number."""
    sampler = WholeBatchSampler(len(batches), *rank_and_world_size(trainer))  # type: ignore[arg-type]
    # its own generator, or each pass would draw a seed for the workers from the global one
    return DataLoader(
        batches,
        batch_size=None,
        sampler=sampler,
        num_workers=num_workers,
        generator=torch.Generator(),
        pin_memory=pins_memory(trainer),
    )


def cut(size: int, parts: int, number: int) -> tuple[int, int]:
    """Bounds of the `number`-th of `parts` consecutive parts that differ by at most one."""
    return size * number // parts, size * (number + 1) // parts
