"""Batches of pairs: their order is a function of (seed, epoch), divided over ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from graphzoo.datamodules.batches import GlobalBatchSampler, cut, permute
from graphzoo.datasets import LinkSplit
from graphzoo.sampling import hash_integers, hash_numbers
from graphzoo.types import PairBatch

if TYPE_CHECKING:
    from graphzoo.ops import QueryGraph
    from graphzoo.sampling import NegativePairs, NeighbourhoodSampler, PairSubgraphSampler
    from graphzoo.sampling.pair_subgraphs import PairSamples
    from graphzoo.types import PairSubgraphs


# Purposes of draws: with them, draws of the same seed do not share random numbers.
_DIRECTION, _SUBGRAPH, _COPY = 0x646972, 0x737562, 0x636F7079
# Batches whose subgraphs are sampled together and sorted by size.
_WINDOW = 16


class PairSlice(NamedTuple):
    """One loader item of training."""

    epoch: int
    begin: int  # place in the epoch's order where the rank's share begins
    share: Tensor  # links of the rank's share of the global batch, positions in the training split
    batch: Tensor  # links of the global batch
    part: int  # which micro-batch of the share
    num_parts: int


class PairSampler(GlobalBatchSampler[PairSlice]):
    """A sampler of the micro-batches of a rank's share.

    Every item has all links of the share. `TrainingPairs` chooses the pairs of each micro-batch, since it
    groups pairs with subgraphs of similar size.
    """

    def _cut(self, epoch: int, start: int, batch: Tensor) -> Iterator[PairSlice]:
        batch = batch.clone()  # a slice of the permutation would carry all of it to a worker
        low, high = cut(batch.numel(), self.num_replicas, self.rank)
        num_parts = self.num_micro_batches(batch.numel())
        for part in range(num_parts):
            yield PairSlice(epoch, start + low, batch[low:high].clone(), batch, part, num_parts)


class TrainingPairs(Dataset[PairBatch]):
    """Makes a `PairBatch` of a `PairSlice`: links and their negatives, grouped by the size of subgraphs.

    Undirected links are asked in a random direction, which is a function of (seed, epoch, link).

    Args:
        train: Training links, [n, 2], int64.
        negatives: Draws negatives.
        is_directed: Whether (u, v) and (v, u) are two links.
        num_negatives: Negatives of each link.
        seed: Seed of directions, negatives and subgraphs.
        subgraphs: Sampler of subgraphs around pairs; None for encoders of whole graphs.
        is_structured: Whether negatives have the source of their link. If that is linked to all nodes, they
            are drawn from all pairs.
        by_source: Whether a batch lists its distinct sources; on a GPU, to find them would make the host
            wait.
        near: Sampler of the neighbourhood of each pair's source; None for the whole graph.
        hides_links: Whether the pair's own link is left out of the neighbourhood.
    """

    def __init__(
        self,
        train: Tensor,
        negatives: NegativePairs,
        *,
        is_directed: bool,
        num_negatives: int,
        seed: int,
        subgraphs: PairSubgraphSampler | None,
        is_structured: bool = False,
        by_source: bool = False,
        near: NeighbourhoodSampler | None = None,
        hides_links: bool = True,
    ) -> None:
        self.train, self.negatives, self.subgraphs = train, negatives, subgraphs
        self.near, self.hides_links = near, hides_links
        self.is_directed, self.num_negatives, self.seed = is_directed, num_negatives, seed
        self.is_structured, self.by_source = is_structured, by_source
        self._share: tuple[tuple[int, int], Tensor, Tensor, Tensor, PairSamples | None, Tensor] | None = None

    def __getitem__(self, item: PairSlice) -> PairBatch:
        key = (item.epoch, item.begin)
        if self._share is None or self._share[0] != key:
            self._share = (key, *self._make_share(item))
        _, pairs, label, index, samples, order = self._share
        # links stay together with their negatives, so that their common source is encoded once
        unit = 1 + self.num_negatives if self.is_structured and samples is None else 1
        low, high = (unit * end for end in cut(order.numel() // unit, item.num_parts, item.part))
        rows = order[low:high]
        shares = self.by_source and self.near is None  # pairs the states of their source
        sources = torch.unique(pairs[0, rows], return_inverse=True) if shares else (None, None)
        return PairBatch(
            edge_label_index=pairs[:, rows],
            edge_label=label[rows],
            index=index[rows],
            subgraphs=None if samples is None else samples.pad(rows),
            removed=self.train[item.batch].t(),
            num_global=item.batch.numel() * (1 + self.num_negatives),
            epoch=item.epoch,
            number=item.begin * (1 + self.num_negatives) + low,
            source=sources[0],
            source_row=sources[1],
            graph=None if self.near is None else self._neighbourhoods(self.near, pairs[:, rows], label[rows]),
            num_parts=item.num_parts,
        )

    def _neighbourhoods(self, near: NeighbourhoodSampler, pairs: Tensor, label: Tensor) -> QueryGraph:
        """Neighbourhoods of the sources of pairs; each contains the target of its link or negative."""
        u, v = pairs
        hidden = v
        if self.is_structured:
            # A negative comes after the link with the same source. That link is hidden from both.
            is_link = label > 0
            hidden = v[is_link][is_link.cumsum(0) - 1]
        hides: Literal["exact", "none"] = "exact" if self.hides_links else "none"
        return near(u, torch.zeros_like(u), hidden, hides=hides, outside="bring", target=v)[0]

    def _make_share(self, item: PairSlice) -> tuple[Tensor, Tensor, Tensor, PairSamples | None, Tensor]:
        """Pairs [2, B], labels, positions, subgraphs, and the order in which micro-batches take the pairs."""
        positive = self.train[item.share].t()
        if not self.is_directed:
            swapped = hash_integers(_DIRECTION, self.seed, item.epoch, item.share) & 1 == 1
            positive = torch.where(swapped, positive.flip(0), positive)
        negative = self.negatives.sample(
            item.share,
            source=positive[0] if self.is_structured else None,
            num_negatives=self.num_negatives,
            seed=self.seed,
            epoch=item.epoch,
        )
        pairs = torch.cat([positive, negative], dim=1)
        label = torch.zeros(pairs.shape[1])
        label[: positive.shape[1]] = 1
        index = torch.cat([item.share, item.share.repeat_interleave(self.num_negatives)])
        if self.subgraphs is None:
            order = torch.arange(pairs.shape[1])
            if self.is_structured:  # a link beside its negatives
                links = torch.arange(positive.shape[1])
                order = torch.cat([links, links.repeat_interleave(self.num_negatives)]).argsort(stable=True)
            return pairs, label, index, None, order
        seed = hash_numbers(_SUBGRAPH, self.seed, item.epoch)
        samples = self.subgraphs.sample(pairs.t().contiguous(), seed=seed)
        return pairs, label, index, samples, samples.num_nodes.argsort(stable=True)


class EvaluationPairs(Dataset[PairBatch]):
    """Pairs to be scored, in batches; number n, one past the last batch, is an empty batch.

    With subgraphs, several batches (a window) are sampled together and sorted by size. A pair's subgraph
    depends only on the pair, so that batch size, windows and ranks do not change its score.

    Args:
        pairs: Pairs to score, [M, 2], int64.
        batch_size: Pairs of a batch.
        subgraphs: Sampler of subgraphs around pairs; None for encoders of whole graphs.
        num_relabelings: Times that each pair is scored, with its nodes in different orders.
        both_directions: Whether each pair is also scored as (v, u).
        by_source: Whether a batch has all pairs of `batch_size` distinct sources, for encoders that answer
            all pairs of a source at once.
        order: Order in which the pairs are scored, [M]; None for their own.
    """

    def __init__(
        self,
        pairs: Tensor,
        batch_size: int,
        *,
        subgraphs: PairSubgraphSampler | None = None,
        num_relabelings: int = 1,
        both_directions: bool = False,
        by_source: bool = False,
        order: Tensor | None = None,
    ) -> None:
        self.pairs, self.batch_size, self.subgraphs = pairs, batch_size, subgraphs
        self.both_directions, self.by_source = both_directions, by_source
        self.num_copies = num_relabelings * (2 if both_directions else 1)
        self._numbers = torch.arange(pairs.shape[0]) if order is None else order
        # For each copy: its pairs in their order, and where its batches begin and end.
        self._copies = [self._cut(copy) for copy in range(2 if both_directions and by_source else 1)]
        self._window: tuple[tuple[int, int], Tensor, Tensor, PairSamples] | None = None

    def _cut(self, copy: int) -> tuple[Tensor, Tensor]:
        if not self.by_source:
            starts = torch.arange(0, self.pairs.shape[0], self.batch_size)
            return self._numbers, torch.cat([starts, torch.tensor([self.pairs.shape[0]])])
        source = self._pairs(self._numbers, copy)[0]
        order = source.argsort(stable=True)
        count = torch.unique_consecutive(source[order], return_counts=True)[1]
        ends = count.cumsum(0)[self.batch_size - 1 :: self.batch_size]
        last = torch.tensor([self.pairs.shape[0]])
        return self._numbers[order], torch.unique(torch.cat([torch.zeros_like(last), ends, last]))

    def _place(self, number: int) -> tuple[int, int]:
        """The copy that a batch belongs to, and its number within the copy."""
        copy = 0
        while number >= (size := self._num_batches(copy)):
            number, copy = number - size, copy + 1
        return copy, number

    def _num_batches(self, copy: int) -> int:
        return self._copies[copy % len(self._copies)][1].numel() - 1

    def __len__(self) -> int:
        return sum(self._num_batches(copy) for copy in range(self.num_copies))

    def __getitem__(self, number: int) -> PairBatch:
        if number >= len(self):
            return self._batch(torch.empty(0, dtype=torch.int64), 0, None)
        copy, number = self._place(number)
        if self.subgraphs is None:
            ordered, bounds = self._copies[copy % len(self._copies)]
            return self._batch(ordered[bounds[number] : bounds[number + 1]], copy, None)
        window, place = divmod(number, _WINDOW)
        if self._window is None or self._window[0] != (copy, window):
            size = _WINDOW * self.batch_size
            index = self._numbers[window * size : (window + 1) * size]
            # Fixed seeds: a checkpoint has one result. Copies have the same nodes in another order.
            order_seed = hash_numbers(_COPY, copy) if copy else None
            pairs = self._pairs(index, copy).t().contiguous()
            samples = self.subgraphs.sample(pairs, seed=0, order_seed=order_seed)
            self._window = ((copy, window), index, samples.num_nodes.argsort(stable=True), samples)
        _, index, order, samples = self._window
        rows = order[place * self.batch_size : (place + 1) * self.batch_size]
        return self._batch(index[rows], copy, samples.pad(rows))

    def _pairs(self, index: Tensor, copy: int) -> Tensor:
        pairs = self.pairs[index].t()
        return pairs.flip(0) if self.both_directions and copy % 2 == 1 else pairs

    def _batch(self, index: Tensor, copy: int, subgraphs: PairSubgraphs | None) -> PairBatch:
        return PairBatch(
            edge_label_index=self._pairs(index, copy),
            edge_label=None,
            index=index,
            subgraphs=subgraphs,
            removed=torch.empty(2, 0, dtype=torch.int64),
            num_global=index.numel(),
        )


def sample_split(split: LinkSplit, size: int | None) -> LinkSplit:
    """A fixed sample of `size` positives, with their own negatives or the same share of the pool."""
    total = int(split.positive.shape[0])
    if size is None or size >= total:
        return split
    chosen = permute(total, "evaluation sample", "valid")[:size].sort().values
    if split.has_own_negatives:
        return LinkSplit(split.positive[chosen], split.negative[chosen])
    pool = int(split.negative.shape[0])
    kept = permute(pool, "evaluation sample", "pool")[: max(1, round(pool * size / total))].sort().values
    return LinkSplit(split.positive[chosen], split.negative[kept])


def mixed_order(split: LinkSplit) -> Tensor:
    """Order of a split's pairs that mixes links and negatives evenly.

    A run that scores only the first batches then has both.
    """
    positives, negatives = int(split.positive.shape[0]), split.negative.reshape(-1, 2).shape[0]
    place = torch.cat(
        [torch.arange(count, dtype=torch.float64) / max(count, 1) for count in (positives, negatives)]
    )
    return place.argsort(stable=True)
