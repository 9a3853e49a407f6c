"""Link prediction: any encoder, and a decoder from its states to a logit per node pair."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.decoders import EntityDecoder, PairDecoder
from graphzoo.decoders.pair import PairDecoderKind
from graphzoo.encoders.base import Encoder, NodeEncoder, PairEncoder, QueryEncoder
from graphzoo.errors import NonFiniteError, UsageError, check_range, check_whole
from graphzoo.heuristics import GraphPairScorer
from graphzoo.metrics import LinkMetric
from graphzoo.metrics.links import HITS, check_name
from graphzoo.sampling import LinkHider, hash_numbers
from graphzoo.system.memory import Halves, explain_out_of_memory
from graphzoo.tasks.base import FEW_PAIRS, FEW_QUERIES, SMALLER, Task
from graphzoo.tasks.features import check_features_of, scaling_options
from graphzoo.tasks.prepared_graph import PreparedGraph
from graphzoo.tasks.scores import NEAR_QUERIES, mean_of_draws, score_far, score_near
from graphzoo.types import GraphSpec, PairBatch

if TYPE_CHECKING:
    from graphzoo.datamodules.links import Batching
    from graphzoo.datasets import LinkGraph
    from graphzoo.ops import QueryGraph
    from graphzoo.sampling import NeighbourhoodSampler


log = logging.getLogger(__name__)

# settings of a sampler that weights need as in their training
_FIXED = ("use_features", "depth", "num_neighbors", "max_nodes")
_NEAR = ("neighbourhood", "eval_neighbourhood")


class LinkPrediction(Task):
    """Trains an encoder to tell links from unlinked pairs (binary cross-entropy), and ranks them.

    A `PairEncoder` sees the subgraph around each pair, without the pair's own link. A `NodeEncoder` or
    `QueryEncoder` sees the whole graph; while training, the links of the global batch are hidden from it. For
    a `QueryEncoder` the pair (u, v) is the answer v to the query (u, relation 0). With
    `LinkDataModule(neighbourhood=K)` it sees K nodes around u, and a training pair hides only its own link.
    A `GraphPairScorer`, such as a heuristic, scores pairs itself and is only evaluated.

    Args:
        encoder: `GraphSpec -> PairEncoder | NodeEncoder | QueryEncoder | GraphPairScorer`.
        decoder: "hadamard", "dot", "concat" or "linear", see `PairDecoder`; None takes "linear" for pair
            encoders, else "hadamard". A `QueryEncoder` has its own.
        dropout: Dropout rate on the input of each of the decoder's layers.
        hide_positives: Whether the batch's links are hidden from encoders of the whole graph. False is for
            comparison: the answers leak.
        metric: Metric that selects the checkpoint: "mrr", "hits@20", "auroc", "ap", ...; None takes that of
            the data set.
        lr: Learning rate of AdamW.
        weight_decay: Decoupled weight decay, not on biases.
        lr_milestones: Epochs after which the learning rate is multiplied by `lr_gamma`; None: never.
        lr_gamma: See `lr_milestones`.
        num_draws: See `KGCompletion`; for query encoders.
        seed: Seed of noise and dropout.
        start_from: Weights to begin with: a folder that `graphzoo export` wrote.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]] = (PairEncoder, NodeEncoder, QueryEncoder, GraphPairScorer)
    described: ClassVar[Mapping[str, Any]] = {
        "data": dict,
        "data.settings": dict,
        "data.settings.depth": int,
        "data.settings.num_neighbors": int,
        "data.settings.num_relabelings": int,
        "data.settings.both_directions": bool,
    }
    unit: ClassVar[str] = "pairs"

    def __init__(
        self,
        encoder: Callable[[GraphSpec], Encoder] | None = None,
        *,
        decoder: PairDecoderKind | None = None,
        dropout: float = 0.0,
        hide_positives: bool = True,
        metric: str | None = None,
        lr: float = 1e-4,
        weight_decay: float = 0.01,
        lr_milestones: list[int] | None = None,
        lr_gamma: float = 0.5,
        num_draws: int = 1,
        seed: int = 0,
        start_from: str | None = None,
    ) -> None:
        super().__init__(encoder, start_from)
        check_range(above=0, lr=lr)
        check_range(at_least=0, weight_decay=weight_decay)
        check_whole(at_least=1, num_draws=num_draws)
        check_range(at_least=0, below=1, dropout=dropout)
        if metric is not None:
            check_name(metric)
        self.save_hyperparameters(ignore=["encoder", "start_from"])
        self.decoder_kind, self.dropout, self.seed = decoder, dropout, seed
        self.hide_positives, self.num_draws = hide_positives, num_draws
        self.metric: str | None = metric
        self.lr, self.weight_decay = lr, weight_decay
        self.lr_milestones, self.lr_gamma = list(lr_milestones or []), lr_gamma
        self.metrics = nn.ModuleDict()
        self._hider: LinkHider | None = None
        self._prepared: PreparedGraph | None = None
        self._states: Tensor | None = None
        self._halves = Halves("scoring", "pairs", SMALLER)

    # Building

    def build_decoder(self, encoder: Encoder) -> nn.Module:
        """The decoder from the encoder's states to logits."""
        if isinstance(encoder, QueryEncoder):
            if self.decoder_kind is not None:
                raise UsageError(
                    f"{type(encoder).__name__} answers queries with a decoder of its own\n"
                    "Leave out --model.decoder"
                )
            return EntityDecoder(encoder.out_channels)
        if isinstance(encoder, GraphPairScorer):
            return nn.Identity()
        pairs = isinstance(encoder, PairEncoder)
        width = encoder.out_channels // 2 if pairs else encoder.out_channels
        kind = self.decoder_kind or ("linear" if pairs else "hadamard")
        return PairDecoder(width, kind=kind, dropout=self.dropout, seed=self.seed)

    def configure_model(self) -> None:
        """Build, and tell the DataModule what the encoder needs of a batch."""
        super().configure_model()
        if self.encoder is not None and self._has_data():
            datamodule = self._datamodule()
            datamodule.batching, datamodule.hides_links = self.batching, self.hide_positives
            if isinstance(self.encoder, GraphPairScorer) and self.trainer.state.fn == "fit":
                raise UsageError(
                    "a heuristic has nothing to train\n"
                    "Evaluate it with graphzoo test and the same --model and --data"
                )

    @property
    def batching(self) -> Batching:
        """What a batch has to hold for the encoder; see `LinkDataModule`."""
        if isinstance(self.encoder, PairEncoder):
            return "subgraphs"
        if isinstance(self.encoder, GraphPairScorer):
            return "whole"
        return "sources" if isinstance(self.encoder, QueryEncoder) else "pairs"

    @staticmethod
    def monitor_of(metric: str | None, graph: LinkGraph) -> str:
        """`monitor` for a setting of `metric` on a graph."""
        return f"val/{metric or graph.metric}"

    @property
    def monitor(self) -> str:
        """Validation metric that selects the checkpoint."""
        metric = self.metric
        if metric is None and self._has_data():
            metric = getattr(self._datamodule().graph, "metric", None)
        return f"val/{metric or 'mrr'}"

    @property
    def _wanted_hits(self) -> list[int]:
        name, _, k = self.monitor.removeprefix("val/").partition("@")
        return [int(k)] if name == "hits" else []

    def setup(self, stage: str) -> None:
        super().setup(stage)
        datamodule = self._datamodule()
        for prefix, split in (("val", "valid"), ("test", "test")):
            judged = datamodule.judged(split)
            self.metrics[prefix] = LinkMetric(
                int(judged.positive.shape[0]),
                int(judged.negative.shape[-2]),
                has_own_negatives=judged.has_own_negatives,
                hits=sorted({*HITS, *self._wanted_hits}),
            )
            if prefix == "val" and judged.has_own_negatives and self.monitor in ("val/auroc", "val/ap"):
                raise UsageError(
                    f"{self.monitor} needs negatives that all links share; here every link has its own\n"
                    "Choose mrr or hits@K with --model.metric"
                )

    # Training

    def on_fit_start(self) -> None:
        """Set up micro-batches, check the memory, and index the links that batches hide."""
        super().on_fit_start()
        datamodule = self._datamodule()
        if self.batching == "sources":
            num_links = min(datamodule.batch_size, len(datamodule.graph.train))
            share = math.ceil(num_links / self.trainer.world_size)
            near = datamodule.neighbourhoods("train", training=True)
            num_nodes = datamodule.graph.num_nodes if near is None else near.num_nodes
            # Sources to ask for each link: its own, and those of its negatives unless they share it.
            shares_source = datamodule.structured_negatives and near is None
            each = 1 if shares_source else 1 + datamodule.num_negatives
            at_once = each * self.micro_batches.least_at_once(share)
            at_once = min(at_once, num_nodes) if near is None else at_once
            self.check_memory(at_once, num_nodes, option="--data.micro_batch_size")
        self._hider = None  # of an earlier fit
        if self.hide_positives and self.batching != "subgraphs":
            self._hider = LinkHider(self._edges("train"), datamodule.graph.num_nodes).to(self.device)
        # other encoders encode the whole graph, so that fewer pairs would save no memory
        if self.batching in ("sources", "subgraphs"):
            self.fit_to_memory()
        self.micro_batches.accumulate()

    def places_to_cut(self, batch: PairBatch) -> list[int]:
        """Behind every pair; for query encoders, behind all pairs of a source."""
        return batch.places_to_cut(by_source=self.batching == "sources")

    def part_loss(self, batch: PairBatch) -> Tensor:
        """Loss of a part of the global batch, see `batch_loss`."""
        losses, auxiliary = self._losses_and_auxiliary(batch)
        return self.batch_loss(losses, batch.num_global, auxiliary, batch.num_parts)

    def sample_losses(self, batch: PairBatch) -> Tensor:
        """Loss of each pair of a part of the global batch, [B]."""
        return self._losses_and_auxiliary(batch)[0]

    def _losses_and_auxiliary(self, batch: PairBatch) -> tuple[Tensor, Tensor | None]:
        assert batch.edge_label is not None
        # An encoder of the whole graph has one draw per step, however ranks and parts divide the step.
        step = self.trainer.global_step + 1
        name = (batch.epoch, batch.number) if self.batching == "subgraphs" else (step,)
        noise_seed = hash_numbers(self.seed, *name)
        logits, auxiliary = self._logits(batch, "train", noise_seed)
        return self.losses(logits, batch.edge_label), auxiliary

    @property
    def logs_epochs(self) -> bool:
        """True below 20 steps: most epochs would end without a logged step."""
        datamodule = self._datamodule()
        num_links: int = datamodule.graph.train.shape[0]
        return bool(math.ceil(num_links / datamodule.batch_size) < 20)

    def losses(self, logits: Tensor, label: Tensor) -> Tensor:
        """Binary cross-entropy of each pair, [B]."""
        return F.binary_cross_entropy_with_logits(logits, label, reduction="none")

    def configure_optimizers(self) -> Any:
        """AdamW with the learning rate cut at the milestones; the command's `--optimizer` replaces it."""
        groups = self.parameter_groups(self.weight_decay)
        optimizer = torch.optim.AdamW(groups, lr=self.lr, fused=self.fuses_optimizer)
        if not self.lr_milestones:
            return optimizer
        return self.with_milestones(optimizer, self.lr_milestones, self.lr_gamma)

    # Evaluation

    def __getstate__(self) -> dict[str, Any]:
        """Copies also leave out the index of hidden links and the states of all nodes."""
        return {**super().__getstate__(), "_hider": None, "_states": None}

    def forget_states(self) -> None:
        """Let the next `score_batch` compute the states of all nodes again: weights or graph have changed."""
        self._states = None

    on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = forget_states

    def validation_step(self, batch: PairBatch, batch_idx: int) -> None:
        """Score validation pairs."""
        self._evaluate("val", "valid", batch)

    def test_step(self, batch: PairBatch, batch_idx: int) -> None:
        """Score test pairs."""
        self._evaluate("test", "test", batch)

    def predict_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """For `Trainer.predict`: logits of the pairs of a test batch, [B]; `batch.index` tells which."""
        return self.score_batch(batch)

    def attention_entropy(self, batch: PairBatch) -> Tensor | None:
        """See `Task.attention_entropy`; of the first pairs, or of some of their nodes."""
        encoder = self.encoder
        if not len(batch):
            return None
        if isinstance(encoder, PairEncoder):
            few = batch.part(0, min(FEW_PAIRS, len(batch)))
            assert few.subgraphs is not None
            return encoder.attention_entropy(few.subgraphs, self._features())
        u, v = batch.edge_label_index
        if isinstance(encoder, QueryEncoder):
            head, node = u[:FEW_QUERIES], v[:FEW_QUERIES]
            relation = torch.zeros_like(head)
            if (sampler := self._datamodule().neighbourhoods("valid")) is not None:
                near = sampler(head, relation, node, hides="none", outside="bring")[0].to(head.device)
                return encoder.attention_entropy(near, near.find(head), relation, near.find(node))
            graph = self.to_device_once("graph/valid", self._datamodule().relational_graph("valid"))
            return encoder.attention_entropy(graph, head, relation, node)
        if isinstance(encoder, NodeEncoder):
            graph = self._prepare(encoder, "valid")
            few_nodes = self.few_nodes(u, graph.x.shape[0])
            return encoder.attention_entropy(graph.x, graph.edge_index, few_nodes, **graph.precomputed)
        return None

    def on_validation_epoch_end(self) -> None:
        """Log val/mrr, val/hits@K and, against a shared pool, val/auroc and val/ap."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        self._report("test")

    def _evaluate(self, prefix: str, split: str, batch: PairBatch) -> None:
        if not len(batch):
            return
        try:
            self._metric(prefix).update(self.score_batch(batch, split).double(), batch.index)
        except NonFiniteError as error:
            self.bad_scores(split, error)

    def _report(self, prefix: str) -> None:
        self._states = None
        self.require_good_scores()
        metric = self._metric(prefix)
        figures = metric.compute()
        self.num_evaluated, self.ranked_among = metric.num_ranked, metric.num_negatives
        if not metric.is_complete() and not self.trainer.sanity_checking:
            log.warning("not every pair was scored: the metrics are those of the scored pairs")
        for name, value in figures.items():
            self.log(f"{prefix}/{name}", value, prog_bar=self.monitor == f"val/{name}", sync_dist=False)
        if prefix == "test":
            scores = metric.scores()  # of all processes
            if self.trainer.is_global_zero:
                from graphzoo.analysis import link_tables  # pandas; only a test needs it

                graph = self._datamodule().graph
                self.test_tables = link_tables(*scores, graph.test.positive, graph.node_names)
        metric.reset()

    def _metric(self, prefix: str) -> LinkMetric:
        metric = self.metrics[prefix]
        assert isinstance(metric, LinkMetric)
        return metric

    # Scoring

    @torch.no_grad()
    def score_batch(self, batch: PairBatch, split: str = "test") -> Tensor:
        """Logits of a batch's pairs on the message graph of a split, [B].

        The states of a `NodeEncoder` are computed once and kept until `forget_states`. A batch that runs out
        of memory is scored in halves; for a `QueryEncoder`, pairs with the same source stay together.

        Raises:
            OutOfMemoryError: if a single pair, or a single source, is too much.
        """
        if isinstance(self.encoder, GraphPairScorer):
            return self._logits(batch, split, None)[0]
        if isinstance(self.encoder, NodeEncoder) and self._states is None:
            with explain_out_of_memory("encoding the whole graph", SMALLER):
                self._states = self._encode(self.encoder, split)
        ends = self.places_to_cut(batch)
        scores = self._halves(
            lambda first, last: self._logits(batch.part(ends[first], ends[last]), split, None)[0],
            len(ends) - 1,
        )
        return torch.cat(scores) if scores else torch.empty(0, device=self.device)

    def _logits(self, batch: PairBatch, split: str, noise_seed: int | None) -> tuple[Tensor, Tensor | None]:
        """Logits [B], and a term that the encoder adds to the loss."""
        encoder, (u, v) = self.encoder, batch.edge_label_index
        if isinstance(encoder, PairEncoder):
            assert batch.subgraphs is not None
            states = encoder(batch.subgraphs, self._features(), noise_seed=noise_seed)
            source, target = states.chunk(2, dim=-1)
            return self.decode(source, target, noise_seed=noise_seed), None
        if isinstance(encoder, QueryEncoder):
            return self._answers(encoder, batch, split, noise_seed), None
        if isinstance(encoder, GraphPairScorer):
            return encoder(self._datamodule().edge_index(split), batch.edge_label_index.t()), None
        assert isinstance(encoder, NodeEncoder)
        if noise_seed is None:
            assert self._states is not None
            return self.decode(self._states[u], self._states[v]), None
        states, auxiliary = self._encode_hidden(encoder, batch, noise_seed)
        # The encoder has one draw per step; each pair has its own in the decoder.
        part = hash_numbers(self.seed, batch.epoch, batch.number)
        return self.decode(states[u], states[v], noise_seed=part), auxiliary

    def _answers(self, encoder: QueryEncoder, batch: PairBatch, split: str, noise_seed: int | None) -> Tensor:
        u, v = batch.edge_label_index
        near = self._datamodule().neighbourhoods(split, training=noise_seed is not None)
        if near is not None and noise_seed is not None:
            graph = batch.graph
            if graph is None:
                raise UsageError(
                    "a training batch has no neighbourhoods, though the DataModule's neighbourhood is set\n"
                    'Give `TrainingPairs` `datamodule.neighbourhoods("train", training=True)` as `near`'
                )
            if graph.whole is None:  # it came from a worker
                graph.whole = near.graph
            states = encoder(graph, graph.find(u), torch.zeros_like(u), noise_seed=noise_seed)
            place = torch.arange(u.numel(), device=u.device)
            return self.decode(states[graph.find(v), place][:, None]).squeeze(0)
        head, row = batch.source, batch.source_row
        if head is None or row is None:
            head, row = torch.unique(u, return_inverse=True)
        if near is not None:
            parts = [self.score_near(near, part)[0] for part in head.split(NEAR_QUERIES)]
            return torch.cat(parts)[row, v] if parts else torch.empty(0, device=self.device)
        graph = self.to_device_once(f"graph/{split}", self._datamodule().relational_graph(split))
        mask = None
        if noise_seed is not None and self._hider is not None:
            mask = self._hider.keep(batch.removed)
            if graph.num_edges != mask.numel():  # inverses of directed links
                mask = torch.cat([mask, mask])
        relation = torch.zeros_like(head)

        def score(seed: int) -> Tensor:
            states = encoder(graph, head, relation, edge_mask=mask, noise_seed=seed)
            return self.decode(states[v, row][:, None]).squeeze(0)

        return mean_of_draws(score, self.num_draws) if noise_seed is None else score(noise_seed)

    def score_near(self, sampler: NeighbourhoodSampler, head: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of all nodes as partners of each head [B], and which are far; see `score_near`."""
        return score_near(sampler, head, torch.zeros_like(head), self._near_logits)

    def score_far(self, sampler: NeighbourhoodSampler, head: Tensor, node: Tensor) -> Tensor:
        """Logits of pairs `head`, `node` [P] that are far from each other; see `tasks.scores.score_far`."""
        return score_far(sampler, head, torch.zeros_like(head), node, self._near_logits)

    def _near_logits(self, graph: QueryGraph, place: Tensor, relation: Tensor) -> Tensor:
        encoder = self.encoder
        assert isinstance(encoder, QueryEncoder)

        def score(seed: int) -> Tensor:
            return self.decode(encoder(graph, place, relation, noise_seed=seed))

        return mean_of_draws(score, self.num_draws)

    def _prepare(self, encoder: NodeEncoder, split: str) -> PreparedGraph:
        x, edge_index = self.in_precision(self._datamodule().x), self._datamodule().edge_index(split)
        if self._prepared is None or not self._prepared.is_of(x, edge_index, self.device):
            self._prepared = PreparedGraph(encoder, x, edge_index, self.device)
        return self._prepared

    def _encode(self, encoder: NodeEncoder, split: str) -> Tensor:
        prepared = self._prepare(encoder, split)
        return encoder.forward_with_auxiliary(prepared.x, prepared.edge_index, **prepared.precomputed)[0]

    def _encode_hidden(
        self, encoder: NodeEncoder, batch: PairBatch, noise_seed: int
    ) -> tuple[Tensor, Tensor | None]:
        """States over the training graph without the links of the global batch."""
        x, edge_index = self._features(), self._edges("train")
        assert x is not None
        kept: Tensor | None
        with torch.no_grad():
            if self._hider is None:
                kept, precomputed = edge_index, encoder.precompute(x, edge_index)
            else:  # precomputed values must not know the hidden edges
                mask = self._hider.keep(batch.removed)
                kept, precomputed = encoder.precompute_masked(x, edge_index, mask)
        return encoder.forward_with_auxiliary(x, kept, noise_seed=noise_seed, **precomputed)

    def _features(self) -> Tensor | None:
        x = self._datamodule().x
        return None if x is None else self.to_device_once("x", self.in_precision(x))

    def _edges(self, split: str) -> Tensor:
        edge_index: Tensor = self.to_device_once(f"edge_index/{split}", self._datamodule().edge_index(split))
        return edge_index

    # Checkpoints

    def describe_data(self, datamodule: Any) -> dict[str, Any]:
        """Treatment of the features; name, fingerprint and split of the data; how pairs become batches."""
        transform = datamodule.transform
        return {
            "features": None if transform is None else transform.describe(),
            "data": {
                "name": datamodule.graph.name,
                "fingerprint": datamodule.fingerprint,
                "split": datamodule.describe_split(),
                "settings": datamodule.describe_settings(),
            },
        }

    @classmethod
    def data_options(
        cls, described: Mapping[str, Any], *, is_fit: bool, is_own: bool
    ) -> list[dict[str, Any]]:
        """The sampler's settings of the training; a fit may choose relabelings and directions itself."""
        there = described["data"]["settings"]
        names = [*_FIXED, *_NEAR, *(() if is_fit else ("num_relabelings", "both_directions"))]
        options = [{name: there[name]} for name in names if name in there]  # older checkpoints lack some
        if (features := described["features"]) is not None:
            options.append(scaling_options(features))
        return options + ([{"directed": True}] if is_own and there["is_directed"] else [])

    def sizes_of_weights(self) -> dict[str, str]:
        return {} if isinstance(self.encoder, QueryEncoder) else super().sizes_of_weights()

    def check_data(self, trained: dict[str, Any], datamodule: Any) -> None:
        """See `Task`; also refuse other settings of the sampler and other features."""
        before, now = trained["data"]["settings"], datamodule.describe_settings()
        fixed: tuple[str, ...] = _FIXED + (() if trained["features"] is None else ("normalize_features",))
        if "neighbourhood" in before:  # older checkpoints have none
            fixed += _NEAR if now["eval_neighbourhood"] is None else _NEAR[:1]
        for option in fixed:
            if before[option] != now[option]:
                raise UsageError(
                    f"the model was trained with {option} {before[option]}, here it is {now[option]}\n"
                    f"Give --data.{option} {before[option]}"
                )
        # encoders with use_features=False read none
        if not isinstance(self.encoder, QueryEncoder) and getattr(self.encoder, "use_features", True):
            check_features_of(trained, datamodule)
        super().check_data(trained, datamodule)

    def check_split(self, trained: Mapping[str, Any], datamodule: Any) -> None:
        """Refuse another split of the links that the model was trained on."""
        split, here = trained["split"], datamodule.describe_split()
        same = datamodule.graph.name == trained["name"] and datamodule.is_named
        if (same or here["links"] == split["links"]) and here["fingerprint"] != split["fingerprint"]:
            protocol, index = (split[key] == here[key] for key in ("name", "index"))
            remedy = f"--data.split_index {split['index']}"
            if datamodule.is_named and not (protocol and index):
                remedy += f" --data.protocol {split['name']}"
            elif index or not protocol:  # no index gives that split of these files
                remedy = "the files that it was trained on"
            raise UsageError(
                f"the model was trained on split {split['name']} {split['index']} of these links; those "
                f"of another split may be among its training links\nGive {remedy}"
            )
        if here["fingerprint"] != split["fingerprint"]:
            self.warn_of_drawn(datamodule)
