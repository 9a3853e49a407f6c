"""Knowledge-graph completion: train in both directions, judge by exact filtered ranking."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.decoders import EntityDecoder
from graphzoo.encoders.base import Encoder, QueryEncoder
from graphzoo.errors import NonFiniteError
from graphzoo.memory import Halves
from graphzoo.metrics import RankingMetric, rank_targets, summarize_ranks, tie_share
from graphzoo.metrics.ranks import Ties
from graphzoo.ops import RelationalGraph
from graphzoo.sampling import FactRemover, hash_integers, sample_negatives
from graphzoo.tasks.base import FEW_QUERIES, SMALLER, Task
from graphzoo.tasks.reversed_queries import ReversedQueries
from graphzoo.types import GraphSpec, QueryBatch, TripleBatch

if TYPE_CHECKING:
    from graphzoo.analysis import Table

__all__ = ["KGCompletion"]

# Noise of evaluation; training steps count from 1, so that no step shares it.
EVALUATION_STEP = 0
# States, their update, aggregation and attention temporaries alive at once, in [N, B, D] tensors, while
# scoring.
_LIVE_STATES = 8


class KGCompletion(Task):
    """Trains a `QueryEncoder` on a knowledge graph and ranks every entity for every query.

    Args:
        encoder: `GraphSpec -> QueryEncoder`.
        loss: "ce": softmax over all entities; "bce": the answer against sampled negatives (KnowFormer,
            Eq. 12), the negatives weighted by a softmax of their logits (self-adversarial).
        num_negatives: K of "bce"; at most the number of entities is used.
        adversarial_temperature: Divides the logits inside the weights' softmax.
        loss_scale: Fixed factor on the mean loss of the global batch. It matters beside weight decay alone,
            since Adam is otherwise blind to it; published "bce" runs sum over a device's batch.
        remove_facts: What of the global batch is hidden from message passing: "exact" the facts and their
            inverses, "one_hop" every edge between the two entities, "none" nothing (for comparison: answers
            leak).
        lr: Learning rate of Adam.
        weight_decay: L2 penalty, not on biases.
        lr_milestones: Epochs after which the learning rate is multiplied by `lr_gamma`.
        lr_gamma: See `lr_milestones`.
        ties: How tied scores rank: "realistic", "optimistic" or "pessimistic".
        reverse_weight: Weight of the reversed question while judging and predicting: an answer t of
            (h, r, ?) is also judged by h as the answer of (t, r^-1, ?), see `ReversedQueries`. Ours, not the
            paper's; for small graphs, since every entity is asked for every relation.
        max_score_bytes: Bound on the states alive while scoring; larger batches are scored in parts. Also on
            the scores that `reverse_weight` keeps.
        seed: Seed of noise, dropout and negatives.

    Raises:
        ValueError: for settings that make no sense.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]] = (QueryEncoder,)
    mode: ClassVar[str] = "max"

    def __init__(
        self,
        encoder: Callable[[GraphSpec], QueryEncoder] | None = None,
        *,
        loss: Literal["ce", "bce"] = "ce",
        num_negatives: int = 256,
        adversarial_temperature: float = 0.5,
        loss_scale: float = 1.0,
        remove_facts: Literal["exact", "one_hop", "none"] = "exact",
        lr: float = 5e-3,
        weight_decay: float = 1e-4,
        lr_milestones: list[int] | None = None,
        lr_gamma: float = 0.1,
        ties: Ties = "realistic",
        reverse_weight: float = 0.0,
        max_score_bytes: int = 2 * 2**30,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder)
        if loss not in ("ce", "bce"):
            raise ValueError(f"loss must be 'ce' or 'bce', got {loss!r}")
        if remove_facts not in ("exact", "one_hop", "none"):
            raise ValueError(f"remove_facts must be 'exact', 'one_hop' or 'none', got {remove_facts!r}")
        for name, value in (("num_negatives", num_negatives), ("max_score_bytes", max_score_bytes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name, setting in (
            ("adversarial_temperature", adversarial_temperature), ("loss_scale", loss_scale), ("lr", lr),
        ):  # fmt: skip
            if not setting > 0:
                raise ValueError(f"{name} must be above 0, got {setting}")
        if weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {weight_decay}")
        self.save_hyperparameters(ignore=["encoder"])
        self.loss, self.num_negatives, self.adversarial_temperature = (
            loss,
            num_negatives,
            adversarial_temperature,
        )
        self.loss_scale, self.remove_facts, self.seed = loss_scale, remove_facts, seed
        self.lr, self.weight_decay, self.lr_gamma = lr, weight_decay, lr_gamma
        self.lr_milestones = [10, 15] if lr_milestones is None else list(lr_milestones)
        self.max_score_bytes = max_score_bytes
        self.metrics = nn.ModuleDict({"val": RankingMetric(ties=ties), "test": RankingMetric(ties=ties)})
        self.test_table: list[dict[str, Any]] = []
        self._remover: FactRemover | None = None
        self._halves = Halves("scoring", "queries", SMALLER)
        self._reversed = ReversedQueries(reverse_weight, is_binary=loss == "bce", max_bytes=max_score_bytes)

    @property
    def monitor(self) -> str:
        """Validation metric that selects the checkpoint."""
        return "val/mrr"

    def build_decoder(self, encoder: Encoder) -> nn.Module:
        """Two-layer perceptron on the states of every entity."""
        return EntityDecoder(encoder.out_channels)

    @property
    def query_encoder(self) -> QueryEncoder:
        """The built encoder; an error that says what to do before it is built."""
        if not isinstance(self.encoder, QueryEncoder):
            raise ValueError("the model is not built yet: fit it, or load a checkpoint")
        return self.encoder

    @property
    def reverse_weight(self) -> float:
        """Weight of the reversed question; may be set on a loaded model."""
        return self._reversed.weight

    @reverse_weight.setter
    def reverse_weight(self, weight: float) -> None:
        self._reversed.weight = weight
        self.hparams["reverse_weight"] = weight  # so that a model that is saved has it

    # Training

    def on_fit_start(self) -> None:
        """Fit micro-batches to Lightning's accumulation, and index the facts that batches hide."""
        datamodule = self._datamodule()
        self.accumulate_micro_batches()
        share = math.ceil(
            min(datamodule.batch_size, len(datamodule.triples("train"))) / self.trainer.world_size
        )
        at_once = min(datamodule.micro_batch_size or share, share)
        self.check_memory(at_once, datamodule.spec.num_nodes, option="--data.micro_batch_size")
        for split in ("train", "valid", "test"):  # before training, not after it
            self._check_reversed(split)
        self._remover = FactRemover(datamodule.triples("train"), datamodule.spec.num_nodes, self.remove_facts)

    def training_step(self, batch: TripleBatch, batch_idx: int) -> Tensor:
        """Loss of a part of the global batch, scaled so that gradients add up to the global mean's."""
        assert self._remover is not None
        step = self.trainer.global_step + 1
        mask = self._remover.to(self.device).edge_mask(batch.removed)
        logits = self._logits(self._graph("train"), batch.head, batch.relation, mask, self._noise_seed(step))
        losses = self._ce(logits, batch) if self.loss == "ce" else self._bce(logits, batch)  # [B]
        self.collect_loss(losses, batch.num_global)
        return losses.sum() * (self.loss_scale * self.parts_of_batch / batch.num_global)

    def _ce(self, logits: Tensor, batch: TripleBatch) -> Tensor:
        return F.cross_entropy(logits.float(), batch.tail, reduction="none")

    def _bce(self, logits: Tensor, batch: TripleBatch) -> Tensor:
        known_row, known_entity = (
            self._datamodule().answers("train").lookup(batch.head.cpu(), batch.relation.cpu())
        )
        negatives, possible = sample_negatives(
            batch.index,
            known_row.to(self.device),
            known_entity.to(self.device),
            num_entities=logits.shape[1],
            num_negatives=min(self.num_negatives, logits.shape[1]),
            seed=self.seed,
            epoch=batch.epoch,
        )
        logits = logits.float()
        positive = logits.gather(1, batch.tail[:, None]).squeeze(1)
        negative = logits.gather(1, negatives)  # [B, K]
        with torch.no_grad():
            weight = torch.softmax(negative / self.adversarial_temperature, dim=1) * possible[:, None]
        return F.softplus(-positive) + (weight * F.softplus(negative)).sum(1)

    def configure_optimizers(self) -> Any:
        """Adam with the learning rate cut at the milestones; the command's `--optimizer` replaces it."""
        groups = self.parameter_groups(self.weight_decay)
        optimizer = torch.optim.Adam(groups, lr=self.lr, fused=self.fuses_optimizer)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, self.lr_milestones, self.lr_gamma)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}

    # Judging

    def on_validation_start(self) -> None:
        """Refuse what cannot be asked, and forget what other weights said; see `check_data`."""
        super().on_validation_start()
        self._check_reversed("valid")
        self._reversed.clear()

    def on_validation_end(self) -> None:
        """Free what was kept of the reversed questions."""
        self._reversed.clear()

    def on_test_start(self) -> None:
        """See `on_validation_start`."""
        super().on_test_start()
        self._check_reversed("test")
        self._reversed.clear()

    def on_test_end(self) -> None:
        """See `on_validation_end`."""
        self._reversed.clear()

    def _check_reversed(self, split: str) -> None:
        if not self.reverse_weight:
            return  # a second graph is not built before it is needed
        graph = self._datamodule().graph(split)
        self._reversed.check(graph.num_nodes, graph.num_relations)

    def validation_step(self, batch: QueryBatch, batch_idx: int) -> None:
        """Rank the targets of validation queries."""
        self._rank("val", "valid", batch)

    def test_step(self, batch: QueryBatch, batch_idx: int) -> None:
        """Rank the targets of test queries."""
        self._rank("test", "test", batch)

    def on_validation_epoch_end(self) -> None:
        """Log val/mrr, val/mr and val/hits@k."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log test metrics, also per direction and tie rule; keep the tables."""
        self.require_good_scores()
        metric = self._metric("test")
        datamodule = self._datamodule()
        self.test_table = metric.table(datamodule.triples("test"), datamodule.knowledge_graph.relations)
        by_direction = {
            row["direction"]: row["mrr"]
            # The first rows; a relation may itself be called "all".
            for row in reversed(self.test_table[:3])
            if row["relation"] == "all" and row["direction"] != "both"
        }
        figures = {f"test/mrr_{direction}": mrr for direction, mrr in by_direction.items()}
        if len(by_direction) == 2:
            figures["test/head_tail_gap"] = by_direction["tail"] - by_direction["head"]
        ranks = optimistic, pessimistic, _ = metric.ranks()
        figures["test/tie_share"] = tie_share(optimistic, pessimistic)
        rules: tuple[Ties, ...] = ("optimistic", "realistic", "pessimistic")
        for ties in rules:
            figures[f"test/mrr_{ties}"] = summarize_ranks(optimistic, pessimistic, ties=ties)["mrr"]
        for name, figure in figures.items():
            # As a tensor: Lightning keeps plain numbers in single precision.
            self.log(name, torch.tensor(figure, dtype=torch.float64), sync_dist=False)
        if self.trainer.is_global_zero:
            self.test_tables = self._tables(ranks)
        self._report("test")

    def _tables(self, ranks: tuple[Tensor, Tensor, Tensor]) -> tuple[Table, ...]:
        from graphzoo.analysis import triple_tables  # pandas; only a test needs it

        datamodule = self._datamodule()
        graph = datamodule.inference_graph or datamodule.knowledge_graph
        relations = datamodule.knowledge_graph.relations
        return triple_tables(
            ranks,
            datamodule.triples("test"),
            graph.known_triples(),
            graph.entities,
            relations,
            ties=self._metric("test").ties,
            labels=graph.entity_labels,
        )

    def _rank(self, prefix: str, split: str, batch: QueryBatch) -> None:
        scores = self.score_queries(self._graph(split), batch.head, batch.relation)
        try:
            optimistic, pessimistic = rank_targets(scores, batch)
        except NonFiniteError as error:
            self.bad_scores(split, error)
            return
        self._metric(prefix).update(optimistic, pessimistic, batch.target_index)

    def _report(self, prefix: str) -> None:
        self.require_good_scores()
        metric = self._metric(prefix)
        for name, value in metric.compute().items():
            self.log(f"{prefix}/{name}", value, prog_bar=name == "mrr", sync_dist=False)
        metric.reset()

    def _metric(self, prefix: str) -> RankingMetric:
        metric = self.metrics[prefix]
        assert isinstance(metric, RankingMetric)
        return metric

    def attention_entropy(self, batch: QueryBatch) -> Tensor | None:
        """Of the first targets of a few queries."""
        count = min(FEW_QUERIES, batch.head.numel())
        rows = torch.arange(count, device=batch.head.device)
        if not count or not batch.target.numel():
            return None
        node = batch.target[torch.searchsorted(batch.target_row, rows)]
        seed = self._noise_seed(EVALUATION_STEP)
        return self.query_encoder.attention_entropy(
            self._graph("valid"), batch.head[:count], batch.relation[:count], node, noise_seed=seed
        )

    # Scoring

    @torch.no_grad()
    def score_queries(self, graph: RelationalGraph, head: Tensor, relation: Tensor) -> Tensor:
        """Logits of every entity for every query, in as many parts as `max_score_bytes` asks for.

        Args:
            graph: Facts to reason over, with inverses.
            head: [B], int64.
            relation: [B], int64, in 0..2R-1.

        Returns:
            [B, N]. A part that runs out of memory is halved and tried again; the scores are the same to the
            last bits of a matrix product. With `reverse_weight`, those of both ends; what was asked in
            reverse is kept until an evaluation begins or ends, or the graph is another.

        Raises:
            UsageError: where `reverse_weight` asks for more than `max_score_bytes`.
        """
        scores = self._score_in_parts(graph, head, relation)
        return self._reversed.join(scores, graph, head, relation, partial(self._score_in_parts, graph))

    def _score_in_parts(self, graph: RelationalGraph, head: Tensor, relation: Tensor) -> Tensor:
        channels = self.query_encoder.out_channels
        per_query = graph.num_nodes * channels * 4 * _LIVE_STATES
        if per_query > self.max_score_bytes:  # one query is the least there is
            self.check_memory(1, graph.num_nodes, option="--model.max_score_bytes")
        seed = self._noise_seed(EVALUATION_STEP)
        scores = self._halves(
            lambda start, stop: self._logits(graph, head[start:stop], relation[start:stop], None, seed),
            head.numel(),
            self.max_score_bytes // max(1, per_query),
        )
        return torch.cat(scores) if scores else torch.empty(0, graph.num_nodes, device=head.device)

    def edge_gradients(
        self,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        tail: int,
        *,
        edge_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logit of one answer and its derivative in every edge's weight; see `QueryEncoder.edge_gradients`.

        Args:
            graph: Facts to reason over, with inverses.
            head: [1], int64.
            relation: [1], int64, in 0..2R-1.
            tail: The answer.
            edge_mask: True for edges that count, [E], bool.

        Returns:
            A scalar and [E].
        """

        def score(states: Tensor) -> Tensor:
            return self.decode(states)[0, tail]

        return self.query_encoder.edge_gradients(
            graph, head, relation, score, edge_mask=edge_mask, noise_seed=self._noise_seed(EVALUATION_STEP)
        )

    def attention(
        self,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        node: Tensor,
        edge_mask: Tensor | None = None,
    ) -> Tensor:
        """Whom a node [B] of each query attends to, [L, N, B]; see `QueryEncoder.attention`."""
        seed = self._noise_seed(EVALUATION_STEP)
        return self.query_encoder.attention(graph, head, relation, node, edge_mask=edge_mask, noise_seed=seed)

    def _logits(
        self,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        edge_mask: Tensor | None,
        noise_seed: int,
    ) -> Tensor:
        states = self.query_encoder(graph, head, relation, edge_mask=edge_mask, noise_seed=noise_seed)
        return self.decode(states)

    def _noise_seed(self, step: int) -> int:
        # Evaluation does not depend on the run's seed: a checkpoint has one result.
        return 0 if step == EVALUATION_STEP else int(hash_integers(self.seed, step))

    def _graph(self, split: str) -> RelationalGraph:
        graph: RelationalGraph = self.to_device_once(f"graph/{split}", self._datamodule().graph(split))
        return graph

    # Checkpoints

    def describe_data(self, datamodule: Any) -> dict[str, Any]:
        """The relation vocabulary and the data's fingerprint: entities are free, relations are not."""
        graph = datamodule.knowledge_graph
        return {
            "relations": list(graph.relations),
            "data": {"name": graph.name, "fingerprint": datamodule.fingerprint},
        }
