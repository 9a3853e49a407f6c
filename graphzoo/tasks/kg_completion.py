"""Knowledge-graph completion: train in both directions, evaluate by exact filtered ranking."""

from __future__ import annotations

import logging
import math
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.decoders import EntityDecoder
from graphzoo.encoders.base import Encoder, QueryEncoder
from graphzoo.errors import NonFiniteError, UsageError, check_choice, check_range, check_whole
from graphzoo.metrics import RankingMetric, rank_targets, summarize_ranks, tie_share
from graphzoo.metrics.ranks import Ties
from graphzoo.ops import QueryGraph, RelationalGraph
from graphzoo.ops.of_weights import OfWeights
from graphzoo.sampling import FactRemover, hash_numbers, sample_negatives
from graphzoo.system.units import duration
from graphzoo.tasks.base import FEW_QUERIES
from graphzoo.tasks.query_scoring import EVALUATION_STEP, QueryScoring
from graphzoo.tasks.reversed_queries import ReversedQueries
from graphzoo.types import GraphSpec, NeighbourhoodSpec, Protocol, QueryBatch, TripleBatch

if TYPE_CHECKING:
    from graphzoo.analysis import Table


_log = logging.getLogger(__name__)


class KGCompletion(QueryScoring):
    """Trains a `QueryEncoder` on a knowledge graph and ranks every entity for every query.

    Args:
        encoder: `GraphSpec -> QueryEncoder`.
        loss: "ce": softmax over all entities. "filtered_ce": the same without the question's other training
            answers (ours, not the paper's; for relations with many answers). "bce": the answer against
            sampled negatives (KnowFormer, Eq. 12), the negatives weighted by a softmax of their logits
            (self-adversarial).
        num_negatives: K of "bce"; at most the number of entities is used.
        adversarial_temperature: Divides the logits inside the softmax of the negatives' weights.
        loss_scale: Fixed factor on the mean loss of the global batch. It matters only with weight decay,
            since Adam cancels it otherwise. Published "bce" runs sum over a device's batch.
        remove_facts: What is hidden from message passing for each fact of the global batch: "exact" the fact
            and its inverse, "one_hop" every edge between its two entities, "none" nothing (for comparison:
            answers leak). "auto" is "one_hop" if facts rarely join the entities of a validation triple, but
            often those of a training triple, as in FB15k-237; else "exact".
        lr: Learning rate of Adam.
        weight_decay: L2 penalty, not on biases.
        lr_milestones: Epochs after which the learning rate is multiplied by `lr_gamma`.
        lr_gamma: See `lr_milestones`.
        ties: How tied scores rank: "realistic", "optimistic" or "pessimistic".
        reverse_weight: Weight of the reverse query in evaluation and prediction: the score of t as the answer
            of (h, r, ?) is combined with that of h as the answer of (t, r^-1, ?), see `ReversedQueries`.
            Ours, not the paper's; for small graphs, since every entity is asked for every relation.
        num_draws: Draws of the encoder's noise whose scores are averaged while evaluating, predicting and
            explaining.
        max_score_bytes: Bound on the memory of states while scoring; larger batches are scored in parts. It
            also bounds the scores that `reverse_weight` keeps.
        seed: Seed of noise, dropout and negatives.
        start_from: Weights to begin with: a folder that `graphzoo export` wrote, or the name of weights that
            ship with graphzoo. A resumed run ignores it and takes its own weights.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]] = (QueryEncoder,)
    described: ClassVar[Mapping[str, Any]] = {"relations": list}
    mode: ClassVar[str] = "max"

    def __init__(
        self,
        encoder: Callable[[GraphSpec], QueryEncoder] | None = None,
        *,
        loss: Literal["ce", "filtered_ce", "bce"] = "ce",
        num_negatives: int = 256,
        adversarial_temperature: float = 0.5,
        loss_scale: float = 1.0,
        remove_facts: Literal["exact", "one_hop", "none", "auto"] = "exact",
        lr: float = 5e-3,
        weight_decay: float = 1e-4,
        lr_milestones: list[int] | None = None,
        lr_gamma: float = 0.1,
        ties: Ties = "realistic",
        reverse_weight: float = 0.0,
        num_draws: int = 1,
        max_score_bytes: int = 2 * 2**30,
        seed: int = 0,
        start_from: str | None = None,
    ) -> None:
        super().__init__(encoder, start_from, num_draws=num_draws, max_score_bytes=max_score_bytes, seed=seed)
        check_choice("loss", loss, ("ce", "filtered_ce", "bce"))
        check_choice("remove_facts", remove_facts, ("exact", "one_hop", "none", "auto"))
        check_whole(at_least=1, num_negatives=num_negatives, num_draws=num_draws)
        check_range(at_least=1, below=math.inf, max_score_bytes=max_score_bytes)
        check_range(above=0, adversarial_temperature=adversarial_temperature, loss_scale=loss_scale, lr=lr)
        check_range(at_least=0, weight_decay=weight_decay)
        self.save_hyperparameters(ignore=["encoder", "start_from"])
        self.loss, self.loss_scale, self.remove_facts = loss, loss_scale, remove_facts
        self.num_negatives, self.adversarial_temperature = num_negatives, adversarial_temperature
        self.lr, self.weight_decay, self.lr_gamma = lr, weight_decay, lr_gamma
        self.lr_milestones = [10, 15] if lr_milestones is None else list(lr_milestones)
        self.metrics = nn.ModuleDict({name: RankingMetric(ties=ties) for name in ("val", "test", "other")})
        self.test_table: list[dict[str, Any]] = []
        self._test_began = 0.0
        self._num_asked = self._num_kept = 0.0  # training queries of an epoch; with answers that are seen
        self._told_of_dropped = False
        self._relations: list[str] = []  # of the data that it was built for
        self._removers: dict[int, FactRemover] = {}
        self._weights: OfWeights[object] = OfWeights()  # an object that changes when the weights do
        self._reversed = ReversedQueries(reverse_weight, is_binary=loss == "bce", max_bytes=max_score_bytes)

    def __getstate__(self) -> dict[str, Any]:
        """Copies also leave out the index of hidden facts."""
        return {**super().__getstate__(), "_removers": {}}

    @property
    def monitor(self) -> str:
        """Validation metric that stops early and, by default, selects the checkpoint."""
        return "val/mrr"

    def build_decoder(self, encoder: Encoder) -> nn.Module:
        """Two-layer perceptron on the states of every entity."""
        return EntityDecoder(encoder.out_channels)

    @property
    def reverse_weight(self) -> float:
        """Weight of the reversed question; may be set on a loaded model."""
        return self._reversed.weight

    @reverse_weight.setter
    def reverse_weight(self, weight: float) -> None:
        self._reversed.weight = weight
        self.hparams["reverse_weight"] = weight  # so that a model that is saved has it

    # Training

    def configure_model(self) -> None:
        """See `Task`; a model that is already built refuses data with other relations."""
        trained = self._loaded_data.get("relations") or self._relations
        is_built = self.encoder is not None
        super().configure_model()
        if self._has_data():
            if is_built and trained:
                self._check_relations({"relations": trained}, "the model")
            self._relations = list(self._datamodule().relations)

    def sizes_of_weights(self) -> dict[str, str]:
        return {} if self.query_encoder.any_relations else {"num_relations": "relations"}

    def check_start(self, described: Mapping[str, Any], name: str) -> None:
        """See `Task`; also refuse weights that were trained with other relations."""
        self._check_relations(described, name)
        super().check_start(described, name)

    def _check_loaded(self, described: dict[str, Any]) -> None:
        if described:  # also when a fit resumes: vectors would belong to other relations
            self._check_relations(described, "the checkpoint")
        super()._check_loaded(described)

    def _check_relations(self, described: Mapping[str, Any], name: str) -> None:
        there, here = described.get("relations") or [], list(self._datamodule().relations)
        if self.query_encoder.any_relations or there == here:
            return
        datamodule = self._datamodule()
        encoder = (described.get("encoder") or {}).get("class_path", "").rpartition(".")[2]
        own = type(self.query_encoder).__name__
        if encoder and encoder != own:
            raise UsageError(
                f"{name} holds the weights of a {encoder}, but the model is a {own}\n"
                "Give the --model that the weights were trained with"
            )
        remedy = "Only knowformer-any takes other relations than those it was trained with"
        if self.trainer.state.fn == "test" and set(here) <= set(there):
            path = getattr(datamodule, "path", None)
            place = path if isinstance(path, str) and Path(path).is_dir() else "FOLDER"
            remedy = (
                f'Give two folders, that of the training first: --data.path "[TRAINED_ON,{place}]"; the '
                "second needs a file of its facts, train.tsv, and one of what is tested, test.tsv (.csv)"
            )
        raise UsageError(
            f"{name} was trained with other relations than those of {datamodule.title}\n{remedy}"
        )

    def on_fit_start(self) -> None:
        """Set up micro-batches, check the memory, and index the facts that batches hide."""
        super().on_fit_start()
        datamodule = self._datamodule()
        for part in getattr(datamodule, "parts", [datamodule]):
            part.hides, part.knows_answers = self.remove_facts, self.loss != "ce"
        if len(datamodule.sources("train")) > 1:
            self._check_mixture()
        num_triples = min(datamodule.batch_size, len(datamodule.triples("train")))
        share = math.ceil(num_triples / self.trainer.world_size)
        at_once = self.micro_batches.least_at_once(share)
        num_nodes = whole = datamodule.spec.num_nodes
        if (near := datamodule.neighbourhood) is not None:
            num_nodes = min(whole, max(near, *datamodule.later_neighbourhoods.values(), 0))
        self.check_memory(at_once, num_nodes, option="--data.micro_batch_size")
        for split in ("train", "valid", "test"):  # before training, not after it
            self._check_reversed(split)
        self._num_asked = self._num_kept = 0.0
        self._removers.clear()
        if num_nodes == whole:  # now, not in the first step
            self._remover(0)
        self.fit_to_memory()
        self.micro_batches.accumulate()

    def _check_mixture(self) -> None:
        """Refuse encoders and settings that cannot be trained on several graphs."""
        if not self.query_encoder.any_relations:
            raise UsageError(
                f"{type(self.query_encoder).__name__} has a vector for each relation of one graph, so it "
                "cannot learn from several: take --model knowformer-any, or one data set"
            )
        if self.reverse_weight:
            raise UsageError("reverse_weight is for one graph at a time: take 0")

    def on_train_batch_start(self, batch: TripleBatch, batch_idx: int) -> None:
        """Count the queries of this process, and those whose answer lies in their neighbourhood."""
        super().on_train_batch_start(batch, batch_idx)
        self._num_asked += batch.num_global / self.parts_of_batch
        self._num_kept += len(batch)

    def on_train_epoch_end(self) -> None:
        """Log losses; warn once if most queries of an epoch were left out, as their answers are far away."""
        super().on_train_epoch_end()
        asked, kept = self._num_asked, self._num_kept
        self._num_asked = self._num_kept = 0.0
        near = self._datamodule().neighbourhood
        if near is None or 2 * kept >= asked or self._told_of_dropped or not self.trainer.is_global_zero:
            return
        self._told_of_dropped = True
        _log.warning(
            "%.0f %% of the training queries of this epoch were left out: their answers lie outside their "
            "neighbourhoods of %s entities\nGive a larger --data.neighbourhood, such as %d; "
            "--data.max_valid_triples 250 keeps validation short",
            100 * (1 - kept / asked), f"{near:,}", min(4 * near, self._datamodule().graph("train").num_nodes),
        )  # fmt: skip

    def part_loss(self, batch: TripleBatch) -> Tensor:
        """Loss of a part of the global batch, scaled so that gradients add up to the global mean's."""
        losses = self.sample_losses(batch)
        self.collect_loss(losses, batch.num_global)
        return losses.sum() * (self.loss_scale * self.parts_of_batch / batch.num_global)

    def sample_losses(self, batch: TripleBatch) -> Tensor:
        """Loss of each query of a part of the global batch, [B]."""
        seed = self._noise_seed(self.trainer.global_step + 1)
        if batch.graph is None:
            mask, answer = self._seen(batch), batch.tail
            graph = self._graph("train", batch.source)
            logits = self._logits(graph, batch.head, batch.relation, mask, seed)
        else:
            answer = batch.graph.find(batch.tail)
            if batch.graph.whole is None:  # it came from a worker
                batch.graph.whole = self._graph("train", batch.source)
            logits = self._logits(batch.graph, batch.graph.find(batch.head), batch.relation, None, seed)
        return self._bce(logits, answer, batch) if self.loss == "bce" else self._ce(logits, answer, batch)

    def _seen(self, batch: TripleBatch) -> Tensor | None:
        """Mask of the edges that the batch's queries see in the whole graph, [2n], bool; None for all."""
        mask = self._remover(batch.source).edge_mask(batch.removed)
        kept = self._datamodule().kept_facts(batch.epoch, batch.source)
        if kept is None:
            return mask
        edges: Tensor = self.to_device_once(f"kept/{batch.source}", kept).repeat(2)
        return edges if mask is None else mask & edges

    def _remover(self, source: int) -> FactRemover:
        """The object that hides the facts of a global batch from a whole graph."""
        if source not in self._removers:
            datamodule = self._datamodule()
            triples, hidden = datamodule.triples("train", source), datamodule.hidden(source)
            num_nodes = self._graph("train", source).num_nodes
            self._removers[source] = FactRemover(triples, num_nodes, hidden)
        return self._removers[source].to(self.device)

    def _known_answers(self, batch: TripleBatch) -> tuple[Tensor, Tensor]:
        """Training answers of every question of the batch: its row and the column of its logits, [A] each.

        The loader looked them up, so nothing waits for the device here.
        """
        row, entity = batch.known_row, batch.known_entity
        assert row is not None and entity is not None, "the DataModule was not asked for them"
        return row, entity

    def _ce(self, logits: Tensor, answer: Tensor, batch: TripleBatch) -> Tensor:
        if self.loss == "filtered_ce":
            others = torch.zeros_like(logits, dtype=torch.bool)
            others.index_put_(self._known_answers(batch), others.new_ones(()))
            others.scatter_(1, answer[:, None], False)  # the question's own answer stays
            logits = logits.masked_fill(others, float("-inf"))
        return F.cross_entropy(logits, answer, reduction="none")

    def _bce(self, logits: Tensor, answer: Tensor, batch: TripleBatch) -> Tensor:
        negatives, possible = sample_negatives(
            batch.index,
            *self._known_answers(batch),
            num_entities=logits.shape[1],
            num_negatives=min(self.num_negatives, logits.shape[1]),
            seed=self._seed_of_negatives(batch.source),
            epoch=batch.epoch,
        )
        positive = logits.gather(1, answer[:, None]).squeeze(1)
        negative = logits.gather(1, negatives)  # [B, K]
        with torch.no_grad():
            weight = torch.softmax(negative / self.adversarial_temperature, dim=1) * possible[:, None]
        return F.softplus(-positive) + (weight * F.softplus(negative)).sum(1)

    def _seed_of_negatives(self, source: int) -> int:
        """In a mixture, graphs number their facts alike, and a fact may come up several times in an epoch."""
        if len(self._datamodule().sources("train")) == 1:
            return self.seed
        return hash_numbers(self.seed, source, self.trainer.global_step)

    def configure_optimizers(self) -> Any:
        """Adam with the learning rate cut at the milestones; the command's `--optimizer` replaces it."""
        groups = self.parameter_groups(self.weight_decay)
        optimizer = torch.optim.Adam(groups, lr=self.lr, fused=self.fuses_optimizer)
        return self.with_milestones(optimizer, self.lr_milestones, self.lr_gamma)

    # Evaluation

    def on_validation_start(self) -> None:
        """Check the data (see `check_data`) and `reverse_weight`, and forget the scores of other weights."""
        super().on_validation_start()
        self._check_reversed("valid")
        self._begin_anew()

    def on_validation_end(self) -> None:
        self._reversed.clear()

    def on_test_start(self) -> None:
        super().on_test_start()
        self._check_reversed("test")
        self._begin_anew()
        self._test_began = time.perf_counter()

    def _begin_anew(self) -> None:
        """Forget the scores of other weights, and the ranks of an evaluation that did not finish."""
        self._reversed.clear()
        for prefix in self.metrics:
            self._metric(prefix).reset()

    on_predict_start = on_test_start
    on_test_end = on_predict_end = on_validation_end

    def _check_reversed(self, split: str) -> None:
        if not self.reverse_weight:
            return  # a second graph is not built before it is needed
        graph = self._datamodule().graph(split)
        self._refuse_reversed_near(graph)
        self._reversed.check(graph.num_nodes, graph.num_relations)

    def _refuse_reversed_near(self, graph: RelationalGraph) -> None:
        if self._sampler(graph, "neighbourhood") is not None:
            raise UsageError(
                f"reverse_weight {self.reverse_weight} asks every entity for every relation; this model asks "
                "in neighbourhoods, where most have no score\n"
                "Take reverse_weight 0, or a model that was trained without --data.neighbourhood"
            )

    def num_questions(self, batches: Iterable[QueryBatch]) -> int | None:
        """With `reverse_weight`, each relation of the batches is also asked once for every entity."""
        if not self.reverse_weight:
            return None
        count, relations = 0, set[int]()
        for batch in batches:
            count += batch.head.numel()
            relations.update(batch.relation.tolist())
        return count + len(relations) * self._graph("valid").num_nodes

    def validation_step(self, batch: QueryBatch, batch_idx: int) -> None:
        """Rank the targets of validation queries."""
        self._rank("val", "valid", batch)

    def test_step(self, batch: QueryBatch, batch_idx: int) -> None:
        """Rank the targets of test queries, under both protocols if the data ask for it."""
        self._rank("test", "test", batch)
        if len(self._datamodule().sources("test")) > 1:
            return
        if (other := self._other_protocol()) is not None:
            self._rank("other", "test", batch, other)

    def predict_step(self, batch: QueryBatch, batch_idx: int) -> Tensor:
        """For `Trainer.predict`: logits of every entity for the queries of a test batch, [B, N]."""
        return self.score_queries(self._graph("test", batch.source), batch.head, batch.relation)

    def _other_protocol(self) -> Protocol | None:
        """The protocol that a test reports beside its own; None without neighbourhoods."""
        spec, datamodule = self.neighbourhoods, self._datamodule()
        if spec is None or not datamodule.test_both or spec.num_nodes >= self._graph("test").num_nodes:
            return None
        return "whole_graph" if spec.protocol == "neighbourhood" else "neighbourhood"

    def on_validation_epoch_end(self) -> None:
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log test metrics, also per direction and tie rule; keep the tables."""
        self.require_good_scores()
        metric = self._metric("test")
        datamodule = self._datamodule()
        if len(datamodule.sources("test")) > 1:
            self.test_table = []
            self._report("test")
            return
        self.test_table = metric.table(datamodule.triples("test"), datamodule.knowledge_graph.relations)
        # The first rows; a relation may itself be called "all".
        first = [row for row in reversed(self.test_table[:3]) if row["relation"] == "all"]
        by_direction = {row["direction"]: row["mrr"] for row in first if row["direction"] != "both"}
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
        if (other := self._other_protocol()) is not None:
            self._report("other", f"test/{other}")
        elif (cost := getattr(datamodule, "cost_left_out", 0.0)) and self.trainer.is_global_zero:
            seconds = cost * (time.perf_counter() - self._test_began)
            message = "tested in neighbourhoods only; --data.test_both true adds the whole graph, about %s"
            _log.warning(message, duration(seconds))
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
            relation_labels=graph.relation_labels,
        )

    def _rank(self, prefix: str, split: str, batch: QueryBatch, protocol: Protocol | None = None) -> None:
        graph = self._graph(split, batch.source)
        scores = self.score_queries(graph, batch.head, batch.relation, protocol=protocol)
        try:
            optimistic, pessimistic = rank_targets(scores, batch)
        except NonFiniteError as error:
            self.bad_scores(split, error)
            return
        self._metric(prefix).update(optimistic, pessimistic, batch.target_index)

    def _report(self, prefix: str, shown: str = "") -> None:
        self.require_good_scores()
        metric = self._metric(prefix)
        figures = metric.compute()
        self.num_evaluated = metric.num_ranked
        if len(begins := self._datamodule().sources("valid" if prefix == "val" else "test")) > 1:
            figures = _mean_figures(dict(zip(begins, metric.compute_parts([*begins.values()]), strict=True)))
        for name, value in figures.items():
            self.log(f"{shown or prefix}/{name}", value, prog_bar=name == "mrr", sync_dist=False)
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
        graph: RelationalGraph | QueryGraph = (whole := self._graph("valid", batch.source))
        head, relation = batch.head[:count], batch.relation[:count]
        if (sampler := self._sampler(whole)) is not None:
            # an answer far away would attend to nothing that it is trained on
            graph, rows = sampler(head, relation, node, hides="none", outside="drop")
            if not rows.numel():
                return None
            rows, graph = rows.to(head.device), graph.to(head.device)
            head, node, relation = graph.find(head[rows]), graph.find(node[rows]), relation[rows]
        return self.query_encoder.attention_entropy(graph, head, relation, node, noise_seed=seed)

    # Scoring

    @torch.no_grad()
    def score_queries(
        self, graph: RelationalGraph, head: Tensor, relation: Tensor, *, protocol: Protocol | None = None
    ) -> Tensor:
        """Logits of every entity for every query, in as many parts as `max_score_bytes` asks for.

        Args:
            graph: Facts to reason over, with inverses.
            head: [B], int64.
            relation: [B], int64, in 0..2R-1.
            protocol: Protocol for a model trained in neighbourhoods; None for its own. Entities outside a
                neighbourhood get integers below all scores inside, the nearest first.

        Returns:
            [B, N]. A part that runs out of memory is halved and tried again, which changes at most the last
            bits of the scores. With `reverse_weight`, scores of both directions are combined; those of the
            reverse queries are kept until an evaluation begins or ends, or the graph changes.

        Raises:
            UsageError: if `reverse_weight` needs more than `max_score_bytes`.
        """
        if self.reverse_weight:
            self._refuse_reversed_near(graph)
        ask = partial(self._score_in_parts, graph, protocol=protocol)
        scores = ask(head, relation)
        if not self.reverse_weight:
            return scores
        made_by = self._weights.get(self, object), self.num_draws
        return self._reversed.join(scores, graph, head, relation, ask, made_by)

    # Checkpoints

    def describe_data(self, datamodule: Any) -> dict[str, Any]:
        """Relation names and the data's fingerprint; entities need not be the same in other data."""
        near = datamodule.neighbourhoods
        data = _described(datamodule) | {"neighbourhoods": near.to_dict() if near is not None else None}
        if hasattr(datamodule, "parts"):
            # Only a plain word may be both a folder and a data set; a shared model need not tell paths.
            given = [part if part == Path(part).name else "" for part in datamodule.given]
            data["parts"] = [
                {"given": name, "is_named": part.is_named, **_described(part)}
                for name, part in zip(given, datamodule.parts, strict=True)
            ]
        return {"relations": list(datamodule.relations), "data": data}

    @classmethod
    def data_options(
        cls, described: Mapping[str, Any], *, is_fit: bool, is_own: bool
    ) -> list[dict[str, Any]]:
        """The neighbourhoods of the training; none for a fit, which may choose its own."""
        spec = described["data"].get("neighbourhoods")
        if spec is None or is_fit:
            return []
        near = NeighbourhoodSpec.from_dict(spec)
        sizes = {"neighbourhood": near.num_nodes, "eval_neighbourhood": near.num_nodes}
        return [sizes | {"relation_share": near.relation_share, "protocol": near.protocol}]

    def check_split(self, trained: Mapping[str, Any], datamodule: Any) -> None:
        """Refuse another split of the triples that the model was trained on, also in a mixture."""
        is_mixture = hasattr(datamodule, "parts")
        if is_mixture and "parts" in trained:
            _check_places(trained["parts"], datamodule)
        before = [data.get("split") for data in trained.get("parts", [trained])]
        splits = [split for split in before if split is not None]  # none in checkpoints of earlier versions
        for part in datamodule.parts if is_mixture else [datamodule]:
            if not splits or not hasattr(part, "describe_split"):
                continue
            if self.trainer.state.fn == "test" and part.inference_graph is not None:
                continue  # the triples of a pair's other graph are tested
            here = part.describe_split()
            if here["fingerprint"] in [split["fingerprint"] for split in splits]:
                continue
            for there in splits:
                if here.get("triples") is not None and here["triples"] == there.get("triples"):
                    alone = f"--data kg --data.path {shlex.quote(str(part.path))} " if is_mixture else ""
                    _refuse_split(there, here, alone)
            self.warn_of_drawn(part, part.title if is_mixture else "")


def _described(datamodule: Any) -> dict[str, Any]:
    return {
        "name": datamodule.title,
        "fingerprint": datamodule.fingerprint,
        "split": datamodule.describe_split() if hasattr(datamodule, "describe_split") else None,
    }


def _check_places(trained: list[Mapping[str, Any]], datamodule: Any) -> None:
    """Refuse a folder with the name of a data set that was trained on, and the other way round."""
    was_named = {part["given"]: part["is_named"] for part in trained}
    for given, part in zip(datamodule.given, datamodule.parts, strict=True):
        if was_named.get(given, part.is_named) == part.is_named:
            continue
        if part.is_named:
            raise UsageError(
                f"the model was trained on the folder {given}, which does not exist here; there is a data "
                "set of the same name\n"
                "Run it in the folder where the run was started, or give --data.names anew"
            )
        raise UsageError(
            f"the model was trained on the data set {given}, but here is a folder of the same name\n"
            f"Rename the folder, or give --data.names with ./{given} to use it"
        )


def _refuse_split(there: Mapping[str, Any], here: Mapping[str, Any], alone: str) -> None:
    drawn = [name.rpartition(" seed ")[0] for name in (there["name"], here["name"])]
    remedy = "the files that it was trained on"
    if drawn[0] == drawn[1] != "":
        remedy = f"{alone}--data.split_index {there['index']}"
        if there["name"] == here["name"]:  # drawn by the rules of another version
            remedy = "the split that the run has kept: --data.path RUN/graph/knowledge_graph.npz"
    raise UsageError(
        f"the model was trained on another split of these triples ({there['name']}, here {here['name']}): "
        f"those that are tested may be among its training triples\nGive {remedy}"
    )


def _mean_figures(of_graphs: dict[str, dict[str, Tensor] | None]) -> dict[str, Tensor]:
    """The mean over graphs of every metric, and the MRR of each graph as mrr_NAME."""
    seen = {name: figures for name, figures in of_graphs.items() if figures is not None}
    mean = {
        metric: torch.stack([figures[metric] for figures in seen.values()]).mean()
        for metric in next(iter(seen.values()))
    }
    return mean | {f"mrr_{name}": figures["mrr"] for name, figures in seen.items()}
