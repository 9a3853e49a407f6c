"""Heuristic estimation: how well an encoder predicts a heuristic of the full graph from subgraphs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from graphzoo.decoders.pair import PairDecoderKind
from graphzoo.encoders.base import Encoder, PairEncoder
from graphzoo.errors import UsageError
from graphzoo.heuristics import HeuristicTargets
from graphzoo.heuristics.targets import TargetName
from graphzoo.tasks.link_prediction import LinkPrediction
from graphzoo.types import GraphSpec, PairBatch

log = logging.getLogger(__name__)


class HeuristicEstimation(LinkPrediction):
    """Trains a pair encoder to predict a heuristic, by squared error (Truong et al., 2026, 3.3, C.1).

    Pairs, negatives and subgraphs are those of `LinkPrediction`. The target is not "link or not" but the
    heuristic's score of the pair in the graph of all training links, see `HeuristicTargets`. The metric is
    the root mean square error over a split's links and negatives.

    Args:
        encoder: `GraphSpec -> PairEncoder`.
        heuristic: "cn", "aa", "ra", "katz", "spd" or "pagerank".
        hide_link: Whether the target of a training link is computed without that link, which the encoder
            never sees; matters for "katz" and "spd".
        decoder: See `LinkPrediction`.
        dropout: On the input of each of the decoder's layers.
        lr: Learning rate of AdamW.
        weight_decay: Decoupled weight decay, not on biases.
        lr_milestones: Epochs after which the learning rate is multiplied by `lr_gamma`; None: never.
        lr_gamma: See `lr_milestones`.
        seed: Seed of noise and dropout.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]] = (PairEncoder,)
    mode: ClassVar[str] = "min"

    def __init__(
        self,
        encoder: Callable[[GraphSpec], PairEncoder] | None = None,
        *,
        heuristic: TargetName = "cn",
        hide_link: bool = True,
        decoder: PairDecoderKind | None = None,
        dropout: float = 0.0,
        lr: float = 2e-4,
        weight_decay: float = 0.01,
        lr_milestones: list[int] | None = None,
        lr_gamma: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(
            encoder,
            decoder=decoder,
            dropout=dropout,
            lr=lr,
            weight_decay=weight_decay,
            lr_milestones=lr_milestones,
            lr_gamma=lr_gamma,
            seed=seed,
        )
        self.save_hyperparameters(ignore=["encoder"])
        self.heuristic, self.hide_link = heuristic, hide_link
        self._targets: HeuristicTargets | None = None
        self._of_links = torch.empty(0)
        self._of_split: dict[str, Tensor] = {}

    @property
    def monitor(self) -> str:
        """Validation metric that selects the checkpoint."""
        return "val/rmse"

    def setup(self, stage: str) -> None:
        """Compute the targets of all pairs, except of training negatives, which are drawn in every epoch."""
        super().setup(stage)
        datamodule = self._datamodule()
        graph = datamodule.graph
        if graph.valid_edges_at_test:
            raise UsageError(
                f"{graph.name} is tested on another graph than it is trained on, where a heuristic has other "
                "scores\nTake data whose test uses the training links alone"
            )
        edge_index = datamodule.edge_index("train")
        self._targets = HeuristicTargets(
            edge_index, graph.num_nodes, self.heuristic, hide_link=self.hide_link
        )
        if stage == "fit":
            self._of_links = self._targets(graph.train)
        for prefix, split in (("val", "valid"), ("test", "test")):
            judged = datamodule.judged(split)
            pairs = torch.cat([judged.positive, judged.negative.reshape(-1, 2)])
            self._of_split[prefix] = self._targets(pairs)

    def on_before_batch_transfer(self, batch: PairBatch, dataloader_idx: int) -> PairBatch:
        """Replace the labels of a training batch by targets, before it moves to the device."""
        if batch.edge_label is None:
            return batch
        assert self._targets is not None
        is_link = batch.edge_label == 1
        target = torch.empty(len(batch))
        target[is_link] = self._of_links[batch.index[is_link]]
        target[~is_link] = self._targets(batch.edge_label_index.t()[~is_link])
        return replace(batch, edge_label=target)

    def losses(self, logits: Tensor, label: Tensor) -> Tensor:
        """Squared error of each pair, [B]."""
        return F.mse_loss(logits, label, reduction="none")

    def _report(self, prefix: str) -> None:
        self.require_good_scores()
        metric = self._metric(prefix)
        positive, negative = metric.scores()
        predicted = torch.cat([positive, negative.flatten()])
        seen = ~predicted.isnan()
        self.num_evaluated = int(seen[: positive.numel()].sum())  # links, as of `LinkPrediction`
        if not bool(seen.all()) and not self.trainer.sanity_checking:
            log.warning("not every pair was scored: the metrics are those of the scored pairs")
        error = predicted[seen] - self._of_split[prefix][seen].double()
        self.log(f"{prefix}/rmse", error.square().mean().sqrt(), prog_bar=True, sync_dist=False)
        if prefix == "test" and self.trainer.is_global_zero:
            from graphzoo.analysis import estimate_tables  # pandas; only a test needs it

            self.test_tables = estimate_tables(predicted, self._of_split[prefix], positive.numel())
        metric.reset()
