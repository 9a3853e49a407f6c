"""Several knowledge graphs at once, for encoders that run on any relations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from graphzoo.datamodules.base import Feed, GraphDataModule, Kind
from graphzoo.datamodules.batches import (
    EvaluationBatches,
    Slice,
    TrainingBatches,
    TrainingSampler,
    evaluation_loader,
    permute,
)
from graphzoo.datamodules.kg import KGDataModule
from graphzoo.datamodules.neighbourhood_sizes import near_in_words
from graphzoo.datasets.kg.table import find_source
from graphzoo.errors import UsageError, check_whole
from graphzoo.types import GraphSpec, NeighbourhoodSpec, QueryBatch, TripleBatch

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph
    from graphzoo.sampling.hidden_facts import RemoveFacts


class MixtureSampler(TrainingSampler):
    """A sampler of batches from several graphs; each batch comes from one graph.

    Graphs get a share of an epoch's batches in proportion to their training triples, whose numbers are
    `sizes`. The order of the graphs is a function of (seed, epoch). A graph continues where the last epoch
    ended, pass after pass over its triples, and every pass has a new order.
    """

    def __init__(self, sizes: list[int], size: int, batch_size: int, *others: int) -> None:
        super().__init__(size, batch_size, *others)
        self.sizes = sizes
        self.shares = _shares(sizes, size // batch_size)

    def __iter__(self) -> Iterator[Slice]:
        epoch = self.epoch
        source = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.shares))
        order = source[permute(source.numel(), "order of graphs", self.seed, epoch)].tolist()
        given = [epoch * share for share in self.shares]
        for turn, number in enumerate(order):
            batch = self._positions(number, given[number])
            given[number] += 1
            yield from self._cut(epoch, turn * self.batch_size, batch, number)

    def _positions(self, source: int, number: int) -> Tensor:
        """Triples of a graph's batch; `number` counts its batches from the beginning of the training."""
        size = self.sizes[source]
        first, stop = number * self.batch_size, (number + 1) * self.batch_size
        passes = range(first // size, (stop - 1) // size + 1)
        order = torch.cat([permute(size, "training order", self.seed, source, turn) for turn in passes])
        return order[first - passes[0] * size : stop - passes[0] * size]


def _shares(sizes: list[int], total: int) -> list[int]:
    """Integer parts of a total in proportion to sizes, at least 1 each, by the largest-remainder method."""
    exact = [total * size / sum(sizes) for size in sizes]
    parts = [max(1, math.floor(part)) for part in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: parts[i] - exact[i])
    while sum(parts) != total:
        step = 1 if sum(parts) < total else -1
        # if the sum is too large, the largest part gives one away
        place = by_remainder.pop(0) if step == 1 else max(range(len(parts)), key=parts.__getitem__)
        parts[place] += step
    return parts


class MixtureBatches(Dataset[TripleBatch]):
    """Makes a batch of a `Slice`, from the graph that it names."""

    def __init__(self, parts: list[TrainingBatches]) -> None:
        self.parts = parts

    def __getitem__(self, item: Slice) -> TripleBatch:
        return self.parts[item.source][item]


class ConcatenatedBatches(Dataset[QueryBatch]):
    """The evaluation batches of several graphs, one graph after another; one past the last is empty."""

    def __init__(self, parts: list[EvaluationBatches]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, number: int) -> QueryBatch:
        for part in self.parts[:-1]:
            if number < len(part):
                return part[number]
            number -= len(part)
        return self.parts[-1][number]


class MixtureDataModule(GraphDataModule):
    """Several knowledge graphs to train one model on; its encoder must run on any relations.

    Every step asks about one graph, in neighbourhoods, so that steps cost about the same on all graphs.
    Validation and test report the mean over the graphs that have such triples, and the MRR of each.

    Args:
        name: Name of the mixture.
        names: Two or more data sets (`graphzoo list`) or folders of your own triples, as a list or separated
            by commas.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether missing files may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        batch_size: Queries of an optimiser step over all ranks and micro-batches, all of one graph.
        micro_batch_size: Largest number of queries that go through the encoder at once while training; None
            chooses it by memory, see `KGDataModule`.
        eval_batch_size: Distinct queries of an evaluation batch; None takes `micro_batch_size` or
            `batch_size`.
        epoch_queries: Training queries of an epoch, over all graphs.
        max_valid_triples: Validation triples of each graph, a fixed sample.
        neighbourhood: Entities K of a training query's neighbourhood; smaller graphs are used as a whole.
        eval_neighbourhood: Entities K in evaluation; None takes `neighbourhood`.
        relation_share: Share of K for entities that are known to answer the relation.
        leave_out: Data sets whose triples are removed from all graphs of the mixture, see `KGDataModule`.
        seed: Seed of the training order.
        num_workers: Loader processes.
    """

    batch_size: int
    # a mixture has only names of data sets: neither `path` nor a graph in memory
    kind = Kind("", "mixture", "", "", "queries", "")
    later_neighbourhoods: dict[int, int] = {}
    test_both = False
    asks_near = True

    def __init__(
        self,
        name: str = "mixture",
        names: str | list[str] = "fb15k237,wn18rr,codex-m,nell995",
        root: str | None = None,
        download: bool | None = None,
        batch_size: int = 64,
        micro_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        epoch_queries: int = 25_600,
        max_valid_triples: int = 250,
        neighbourhood: int = 300,
        eval_neighbourhood: int | None = None,
        relation_share: float = 0.5,
        leave_out: str | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            name, None, root, download, batch_size=batch_size, micro_batch_size=micro_batch_size,
            eval_batch_size=eval_batch_size, seed=seed, num_workers=num_workers,
        )  # fmt: skip
        chosen = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
        different = {_place_or_name(part) for part in filter(None, chosen)}
        if len(different) < max(2, len(chosen)):
            raise UsageError(
                f"a mixture needs at least two different data sets, got {', '.join(chosen) or 'none'}\n"
                "For one graph give --data NAME"
            )
        check_whole(at_least=1, epoch_queries=epoch_queries, max_valid_triples=max_valid_triples)
        self.parts = [
            KGDataModule(
                None if Path(part).is_dir() else part,
                path=part if Path(part).is_dir() else None,
                root=root,
                download=download,
                batch_size=batch_size,
                micro_batch_size=micro_batch_size,
                eval_batch_size=eval_batch_size,
                max_valid_triples=max_valid_triples,
                neighbourhood=neighbourhood,
                eval_neighbourhood=eval_neighbourhood,
                relation_share=relation_share,
                leave_out=leave_out,
                seed=seed,
                num_workers=num_workers,
            )
            for part in chosen
        ]
        folders = [Path(part).resolve().name if Path(part).is_dir() else part for part in chosen]
        self.names = folders if len(set(folders)) == len(chosen) else chosen
        self.given = chosen
        self.epoch_queries, self.neighbourhood = epoch_queries, neighbourhood
        self._spec = NeighbourhoodSpec(eval_neighbourhood or neighbourhood, relation_share)

    def prepare_data(self) -> None:
        """Fetch and parse once per machine."""
        for part in self.parts:
            part.prepare_data()

    def setup(self, stage: str | None = None) -> None:
        """Load the graphs, once. For `stage` "validate" or "test", some graph must have such triples."""
        for part in self.parts:
            part.trainer = self.trainer
            part.setup("fit")
        split = {"validate": "valid", "test": "test"}.get(stage or "")
        if split and not any(len(part.triples(split)) for part in self.parts):
            raise UsageError(
                f"none of {', '.join(self.names)} has {split} triples: there is nothing to evaluate\n"
                f"Give data with {split} triples; predict needs none"
            )

    @property
    def spec(self) -> GraphSpec:
        """The largest sizes: an encoder of a mixture does not depend on them."""
        specs = [part.spec for part in self.parts]
        return GraphSpec(
            num_nodes=max(spec.num_nodes for spec in specs),
            num_relations=max(spec.num_relations for spec in specs),
        )

    @property
    def relations(self) -> tuple[str, ...]:
        """None: every graph has its own."""
        return ()

    @property
    def fingerprint(self) -> str:
        """sha256 over those of all graphs."""
        return hashlib.sha256("\n".join(part.fingerprint for part in self.parts).encode()).hexdigest()

    @property
    def title(self) -> str:
        """Names of the graphs."""
        return "+".join(self.names)

    @property
    def neighbourhoods(self) -> NeighbourhoodSpec:
        """How evaluated queries get their neighbourhoods."""
        return self._spec

    @property
    def protocol_in_words(self) -> str:
        """Where queries are evaluated."""
        return near_in_words(self._spec.num_nodes, "entities")

    def describe_graph(self) -> dict[str, int]:
        """Training triples of each graph."""
        return {f"{name} triples": len(part.triples("train")) for name, part in self._named()}

    def describe_queries(self) -> str:
        """Where queries are asked, in words."""
        trained = near_in_words(self.neighbourhood, "entities")
        return f"trained {trained}; evaluated {self.protocol_in_words}"

    @property
    def num_valid(self) -> int:
        """Validation queries of all graphs."""
        return sum(part.num_valid for part in self.parts)

    @property
    def num_tested(self) -> int:
        """Test queries of all graphs."""
        return sum(part.num_tested for part in self.parts)

    @property
    def largest_epoch(self) -> int:
        """The epoch, from 0, whose training neighbourhoods have most entities."""
        return self.parts[0].largest_epoch

    @property
    def num_micro_batches(self) -> int:
        """Loader items of an optimiser step: the value for `accumulate_grad_batches`."""
        return self._training_sampler().num_in_step

    def triples(self, split: str, source: int | None = None) -> Tensor:
        """The triples of one graph, [n, 3], or of all, one after another; each graph has ids of its own."""
        if source is not None:
            return self.parts[source].triples(split)
        return torch.cat([part.triples(split) for part in self.parts])

    def sources(self, split: str) -> dict[str, int]:
        """Names of the graphs, and where their `QueryBatch.target_index` begin."""
        begin, first = {}, 0
        for name, part in self._named():
            begin[name] = first
            first += 2 * len(part.triples(split))
        return begin

    def graph(self, split: str, source: int = 0) -> RelationalGraph:
        """Facts of one graph to pass messages along, see `KGDataModule.graph`."""
        return self.parts[source].graph(split)

    def kept_facts(self, epoch: int, source: int = 0) -> Tensor | None:
        """None: all; see `KGDataModule.kept_facts`."""
        return self.parts[source].kept_facts(epoch)

    def hidden(self, source: int = 0) -> RemoveFacts:
        """What is hidden from a training query of one graph, see `KGDataModule.hidden`."""
        return self.parts[source].hidden()

    def _training(self) -> Feed:
        batches = MixtureBatches([part.training_batches() for part in self.parts])
        return batches, self._training_sampler(), 1

    def _named(self) -> Iterator[tuple[str, KGDataModule]]:
        return zip(self.names, self.parts, strict=True)

    def _evaluation_loader(self, split: str) -> DataLoader[QueryBatch]:
        first = self.sources(split)
        parts = [
            part.evaluation_batches(split, source=number, first=first[part_name])
            for number, (part_name, part) in enumerate(self._named())
        ]
        return evaluation_loader(ConcatenatedBatches(parts), self.trainer, self.num_workers)

    def _training_sampler(self) -> MixtureSampler:
        sizes = [len(part.triples("train")) for part in self.parts]
        num_batches = max(len(sizes), self.epoch_queries // self.batch_size)
        return self._sampler(partial(MixtureSampler, sizes), num_batches * self.batch_size)


def _place_or_name(part: str) -> Path | str:
    """The place of a folder of triples, or the name of a data set."""
    if Path(part).is_dir():
        return Path(part).resolve()
    try:
        return find_source(part).name
    except UsageError as error:
        raise UsageError(
            f"{part}: there is no such folder here, and no data set of this name ({error})\n"
            "The folders of a run are found where the run was started; otherwise give --data.names anew"
        ) from error
