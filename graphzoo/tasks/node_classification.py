"""Node classification: one class per node or yes-no labels, on whole graphs or random parts of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphzoo.decoders import NodeDecoder
from graphzoo.decoders.node import NodeDecoderKind
from graphzoo.encoders.base import Encoder, NodeEncoder
from graphzoo.errors import NonFiniteError, UsageError, check_choice, check_range
from graphzoo.metrics import Accuracy, RocAuc
from graphzoo.sampling import hash_numbers
from graphzoo.system.memory import explain_out_of_memory
from graphzoo.tasks.base import SMALLER, Task
from graphzoo.tasks.features import check_features_of, listed, scaling_options
from graphzoo.tasks.prepared_graph import PreparedGraph
from graphzoo.tasks.unfit_callbacks import refuse_scheduled_steps
from graphzoo.types import GraphSpec, NodeBatch

if TYPE_CHECKING:
    from graphzoo.analysis import Table
    from graphzoo.datasets import NodeGraph


log = logging.getLogger(__name__)

_VOTES = 5  # validations in a row with one predicted class, before the warning

NodeMetric = Literal["accuracy", "roc_auc"]
_LOGGED = {"accuracy": "acc", "roc_auc": "auroc"}


def _is_graph_of(trained: Mapping[str, Any], datamodule: Any) -> bool:
    """Whether the model was `trained` on this graph: a data set's nodes stay the same with other features."""
    is_named = getattr(datamodule, "is_named", True)
    same_name = is_named and datamodule.graph.name == trained["name"]
    return bool(same_name or datamodule.fingerprint == trained["fingerprint"])


class NodeClassification(Task):
    """Trains a `NodeEncoder` and a decoder on the labelled nodes of a graph.

    The loss is cross-entropy for one class per node, and binary cross-entropy for yes-no labels, averaged
    over a node's known labels, then over nodes. Evaluation always encodes the whole graph.

    Args:
        encoder: `GraphSpec -> NodeEncoder`.
        metric: "accuracy" or "roc_auc" (of class 1, or the mean over yes-no labels that have both answers);
            None takes that of the data set.
        class_weights: Weights of the classes in the training loss: None for none, "balanced" for the inverse
            of a class's share of the training nodes, or one factor per class. They are scaled to a mean of 1
            over the training nodes. val/loss and test/loss are not weighted.
        decoder: "linear", or "mlp" with one hidden layer.
        dropout: Dropout rate on the input of each of the decoder's layers.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty.
        decay_biases: Whether the penalty includes biases, as in the published code.
        lr_milestones: Epochs after which the learning rate is multiplied by `lr_gamma`; None: never.
        lr_gamma: See `lr_milestones`.
        checkpoint_by_loss: Whether the checkpoint is chosen by val/loss instead of the metric.
        seed: Seed of noise and dropout.
        start_from: Weights to begin with: a folder that `graphzoo export` wrote.
    """

    accepts: ClassVar[tuple[type[Encoder], ...]] = (NodeEncoder,)
    described: ClassVar[Mapping[str, Any]] = {
        "classes": list,
        "features": dict,
        "features.in_channels": int,
        "features.normalize": bool,
        "features.reduce_channels": int | None,
    }
    unit: ClassVar[str] = "nodes"

    def __init__(
        self,
        encoder: Callable[[GraphSpec], NodeEncoder] | None = None,
        *,
        metric: NodeMetric | None = None,
        class_weights: Literal["balanced"] | list[float] | None = None,
        decoder: NodeDecoderKind = "linear",
        dropout: float = 0.0,
        lr: float = 1e-2,
        weight_decay: float = 5e-4,
        decay_biases: bool = True,
        lr_milestones: list[int] | None = None,
        lr_gamma: float = 0.5,
        checkpoint_by_loss: bool = False,
        seed: int = 0,
        start_from: str | None = None,
    ) -> None:
        super().__init__(encoder, start_from)
        if metric is not None:
            check_choice("metric", metric, _LOGGED)
        check_range(above=0, lr=lr)
        check_range(at_least=0, weight_decay=weight_decay)
        check_range(at_least=0, below=1, dropout=dropout)
        if isinstance(class_weights, str) and class_weights != "balanced":
            raise UsageError(f"class_weights must be 'balanced' or a list of factors, got {class_weights!r}")
        if class_weights is not None and not isinstance(class_weights, str):
            try:
                class_weights = [float(weight) for weight in class_weights]
            except (TypeError, ValueError):
                raise UsageError(
                    f"class_weights must be 'balanced' or a list of factors, got {class_weights!r}"
                ) from None
            if not (all(0 <= weight < math.inf for weight in class_weights) and any(class_weights)):
                raise UsageError(
                    f"class_weights must be at least 0, finite and not all 0, got {class_weights}"
                )
        self.save_hyperparameters(ignore=["encoder", "start_from"])
        self.metric: str | None = metric
        self.class_weights = class_weights
        self.decoder_kind, self.dropout, self.seed = decoder, dropout, seed
        self.lr, self.weight_decay, self.decay_biases = lr, weight_decay, decay_biases
        self.checkpoint_by_loss = checkpoint_by_loss
        self.lr_milestones, self.lr_gamma = list(lr_milestones or []), lr_gamma
        self.metrics = nn.ModuleDict()
        self._weights: Tensor | None = None
        self._prepared: PreparedGraph | None = None
        self._votes = 0  # validations in a row that found one class everywhere

    def build_decoder(self, encoder: Encoder) -> nn.Module:
        """A linear layer or perceptron on every node's state."""
        assert self.spec is not None
        return NodeDecoder(
            encoder.out_channels,
            self.spec.num_classes,
            kind=self.decoder_kind,
            dropout=self.dropout,
            seed=self.seed,
        )

    @property
    def node_encoder(self) -> NodeEncoder:
        """The built encoder; an error that says what to do before it is built."""
        if not isinstance(self.encoder, NodeEncoder):
            raise UsageError("the model is not built yet: fit it, or load a checkpoint")
        return self.encoder

    @property
    def metric_name(self) -> str:
        """Accuracy or roc_auc: the argument, else the data's own metric."""
        if self.metric is None and self._has_data():
            return str(getattr(self._datamodule().graph, "metric", "accuracy"))
        return self.metric or "accuracy"

    @staticmethod
    def monitor_of(metric: str | None, graph: NodeGraph) -> str:
        """`monitor` for a setting of `metric` on a graph."""
        return f"val/{_LOGGED[metric or graph.metric]}"

    @property
    def monitor(self) -> str:
        """Validation metric that a run is compared by: "val/acc" or "val/auroc"."""
        return f"val/{_LOGGED[self.metric_name]}"

    @property
    def checkpoint_by(self) -> tuple[str, str]:
        """The largest metric, or with `checkpoint_by_loss` the smallest val/loss."""
        return ("val/loss", "min") if self.checkpoint_by_loss else super().checkpoint_by

    def setup(self, stage: str) -> None:
        """Make the metrics once the data are known, and refuse one that does not suit them."""
        super().setup(stage)
        if stage == "fit" and self._datamodule().batch_size is not None:
            # The sampler is made once, and one of its batches is all that is accumulated.
            refuse_scheduled_steps(self.trainer, "changes how many parts of the graph make a step")
        graph = self._datamodule().graph
        if self.metric_name == "roc_auc" and not graph.is_multi_label and graph.num_classes != 2:
            raise UsageError(
                f"roc_auc is for two classes or for yes-no labels, {graph.name} has {graph.num_classes} "
                "classes\nTake --model.metric accuracy"
            )
        # Every rank evaluates the whole graph, so metrics are not summed over ranks.
        kind = RocAuc if self.metric_name == "roc_auc" else Accuracy
        for prefix in ("val", "test"):
            self.metrics[prefix] = kind(sync_on_compute=False)

    # Training

    def on_fit_start(self) -> None:
        """Compute the class weights, and what the encoder precomputes for the graph."""
        super().on_fit_start()
        self._votes = 0
        datamodule = self._datamodule()
        graph = datamodule.graph
        if datamodule.batch_size is None and self.trainer.accumulate_grad_batches != 1:
            raise UsageError(
                "a whole graph is one batch an epoch, so there is nothing to accumulate\n"
                "Leave out --trainer.accumulate_grad_batches, or set --data.batch_size"
            )
        self._weights = self._weigh_classes(graph.y, datamodule.split.train, graph)
        prepared = self._prepare(self.in_precision(graph.x), graph.edge_index)
        datamodule.skip_edges = prepared.is_sliceable

    def _weigh_classes(self, y: Tensor, train: Tensor, graph: Any) -> Tensor | None:
        """Weights of the classes [C], with a mean of 1 over the training nodes; None for none."""
        if self.class_weights is None:
            return None
        if graph.is_multi_label:
            raise UsageError("class_weights are for one class per node; these data have yes-no labels")
        counts = torch.bincount(y[train], minlength=graph.num_classes).double()
        if isinstance(self.class_weights, str):
            weights = torch.where(counts > 0, 1 / counts.clamp(min=1), 0.0)
        elif len(self.class_weights) != graph.num_classes:
            raise UsageError(
                f"class_weights has {len(self.class_weights)} factors for {graph.num_classes} classes "
                f"({listed(graph.class_names)})"
            )
        else:
            weights = torch.tensor(self.class_weights, dtype=torch.float64)
        mean = (weights * counts).sum() / counts.sum()
        if not mean > 0:
            raise UsageError(
                "class_weights are 0 for every class of the training nodes\n"
                "Give a weight above 0 to a class that they have"
            )
        return (weights / mean).float()

    def sizes_of_weights(self) -> dict[str, str]:
        return {**super().sizes_of_weights(), "num_classes": "classes"}

    def training_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Loss of a process's share of the targets, see `batch_loss`."""
        noise_seed = hash_numbers(self.seed, batch.epoch, batch.number)
        x, edge_index, precomputed = self._inputs(batch)
        states, auxiliary = self.node_encoder.forward_with_auxiliary(
            x, edge_index, noise_seed=noise_seed, **precomputed
        )
        logits = self.decode(states, noise_seed=noise_seed)[batch.target]
        weights = None if self._weights is None else self.to_device_once("class weights", self._weights)
        losses = self._losses(logits, batch.y[batch.target], weights)  # [T]
        return self.batch_loss(losses, batch.num_global, auxiliary, batch.num_parts)

    @property
    def parts_of_batch(self) -> int:
        """Parts of a global batch; here accumulated batches form one global batch, see `PartSampler`."""
        return self.trainer.world_size * self.trainer.accumulate_grad_batches

    @property
    def less_memory(self) -> str:
        """The remedy when a training step runs out of memory, one line."""
        size = self._datamodule().batch_size
        nodes = self._datamodule().graph.num_nodes if size is None else size
        how = "" if size is not None else ": training then takes parts of the graph of that size"
        return f"Take --data.batch_size {max(1, nodes // 2)}{how}; or {SMALLER[0].lower()}{SMALLER[1:]}"

    @property
    def logs_epochs(self) -> bool:
        """True on a whole graph, where an epoch has one step."""
        return bool(self._datamodule().batch_size is None)

    def _losses(self, logits: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        """Loss of each node, [T], times the weight of its class."""
        if target.dim() == 1:
            weights = None if weights is None else weights.to(logits.dtype)
            return F.cross_entropy(logits, target, weight=weights, reduction="none")
        known = ~target.isnan()
        losses = F.binary_cross_entropy_with_logits(logits, target.nan_to_num(0.0), reduction="none")
        return (losses * known).sum(1) / known.sum(1).clamp(min=1)

    def configure_optimizers(self) -> Any:
        """Adam with the learning rate cut at the milestones; the command's `--optimizer` replaces it."""
        if self.decay_biases:
            groups = [{"params": list(self.parameters()), "weight_decay": self.weight_decay}]
        else:
            groups = self.parameter_groups(self.weight_decay)
        optimizer = torch.optim.Adam(groups, lr=self.lr, fused=self.fuses_optimizer)
        if not self.lr_milestones:
            return optimizer
        return self.with_milestones(optimizer, self.lr_milestones, self.lr_gamma)

    # The graph

    def _prepare(self, x: Tensor, edge_index: Tensor) -> PreparedGraph:
        if self._prepared is None or not self._prepared.is_of(x, edge_index, self.device):
            cache = getattr(getattr(self.trainer, "datamodule", None), "cache_directory", None)
            self._prepared = PreparedGraph(self.node_encoder, x, edge_index, self.device, cache)
        return self._prepared

    def _inputs(self, batch: NodeBatch) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Features, edges and precomputed values of a batch, on the device."""
        if batch.index is None:
            assert batch.edge_index is not None
            x, own = batch.x, self._datamodule().graph.x
            if x.dtype != own.dtype:  # Lightning casts them for every batch: take the tensor that is kept
                x = self.in_precision(own)
            prepared = self._prepare(x, batch.edge_index)
            return prepared.x, prepared.edge_index, prepared.precomputed
        if self._prepared is not None and self._prepared.is_sliceable:
            return batch.x, None, self._prepared.rows(batch.index)
        assert batch.edge_index is not None
        return batch.x, batch.edge_index, self.node_encoder.precompute(batch.x, batch.edge_index)

    # Evaluation

    def validation_step(self, batch: NodeBatch, batch_idx: int) -> None:
        self._evaluate("val", batch)

    def test_step(self, batch: NodeBatch, batch_idx: int) -> None:
        self._evaluate("test", batch)

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """For `Trainer.predict`: logits of the test nodes, [nodes, classes], in the order of the split."""
        return self._score(batch)[1]

    def attention_entropy(self, batch: NodeBatch) -> Tensor | None:
        """See `Task.attention_entropy`; of a few validation nodes."""
        if not len(batch):
            return None
        x, edge_index, precomputed = self._inputs(batch)
        few = self.few_nodes(batch.target, x.shape[0])
        return self.node_encoder.attention_entropy(x, edge_index, few, **precomputed)

    def on_validation_epoch_end(self) -> None:
        self._report("val")

    def on_test_epoch_end(self) -> None:
        self._report("test")

    @classmethod
    def data_options(
        cls, described: Mapping[str, Any], *, is_fit: bool, is_own: bool
    ) -> list[dict[str, Any]]:
        """The treatment of the features in training."""
        features = described["features"]
        return [scaling_options(features), {"reduce_channels": features["reduce_channels"]}]

    def check_data(self, trained: dict[str, Any], datamodule: Any) -> None:
        """See `Task`; also refuse other features and classes. Another graph may be evaluated."""
        features, before = datamodule.transform.describe(), trained["features"]
        for key, option in (("normalize", "normalize_features"), ("reduce_channels", "reduce_channels")):
            if features[key] != before[key]:
                raise UsageError(
                    f"the model was trained with {option} {before[key]}, here it is {features[key]}\n"
                    f"Give --data.{option} {before[key]}"
                )
        check_features_of(trained, datamodule)
        if before["reduce_channels"] is not None and not _is_graph_of(trained["data"], datamodule):
            raise UsageError(
                f"the model was trained on features reduced to {before['reduce_channels']} by a projection "
                "learnt from its graph; another graph would get another projection\n"
                "Use predict, which applies the projection of the training"
            )
        classes, known = list(datamodule.graph.class_names), list(trained["classes"])
        if classes != known:
            raise UsageError(
                f"the model's classes are {listed(known)}, those of {datamodule.graph.name} are "
                f"{listed(classes)}; labels are compared by number, so the metrics would be wrong\n"
                "Give data with these classes (`class_names` of an .npz or .pt file says which), or predict"
            )
        super().check_data(trained, datamodule)

    def check_split(self, trained: Mapping[str, Any], datamodule: Any) -> None:
        """Refuse another split of the graph that the model was trained on."""
        split, there = datamodule.describe_split(), trained["split"]
        if not _is_graph_of(trained, datamodule):  # the same positions may be other nodes
            self.warn_of_drawn(datamodule)
        elif split["fingerprint"] != there["fingerprint"]:
            raise UsageError(
                f"the model was trained on split {there['name']} {there['index']}; nodes of "
                f"{split['name']} {split['index']} may be among its training nodes\n"
                f"Give --data.split {there['name']} --data.split_index {there['index']}"
            )

    def _score(self, batch: NodeBatch) -> tuple[Tensor, Tensor]:
        """States of all nodes, and logits of a batch's targets."""
        with explain_out_of_memory("encoding the whole graph, which has to be done at once", SMALLER):
            x, edge_index, precomputed = self._inputs(batch)
            states = self.node_encoder(x, edge_index, **precomputed)
            return states, self.decode(states)[batch.target]

    def _evaluate(self, prefix: str, batch: NodeBatch) -> None:
        states, logits = self._score(batch)
        if not len(batch):
            log.warning("the %s split is empty, nothing is evaluated", prefix)
            return
        target = batch.y[batch.target]
        try:
            self._metric(prefix).update(logits, target)
        except NonFiniteError as error:
            self.bad_scores({"val": "valid"}.get(prefix, prefix), error)
            return
        if prefix == "val" and self.metric_name == "accuracy" and target.dim() == 1:
            self._notice_one_class(logits.argmax(1), target)
        loss = self._losses(logits, target).double().mean()
        self.log(f"{prefix}/loss", loss, batch_size=len(batch), sync_dist=False)
        if prefix == "test" and self.trainer.is_global_zero:
            self.test_tables = self._tables(states, logits, batch)

    def _notice_one_class(self, predicted: Tensor, target: Tensor) -> None:
        """Warn once if several validations in a row predict the same class for every node."""
        if self.trainer.sanity_checking or len(target) < 2 or bool((target == target[0]).all()):
            return
        self._votes = self._votes + 1 if bool((predicted == predicted[0]).all()) else 0
        if self._votes == _VOTES and self.trainer.is_global_zero:
            graph, number = self._datamodule().graph, int(predicted[0])
            names = graph.class_names
            remedy = "--model.metric roc_auc or " if graph.num_classes == 2 else ""
            log.warning(
                "all %d validation nodes get class %s, %d validations in a row: the model predicts one class "
                "for all; if classes differ in size, try %s--model.class_weights balanced",
                len(target), names[number] if names else number, _VOTES, remedy,
            )  # fmt: skip

    def _tables(self, states: Tensor, logits: Tensor, batch: NodeBatch) -> tuple[Table, ...]:
        from graphzoo.analysis import node_tables, sample_nodes  # pandas; only a test needs it

        graph = self._datamodule().graph
        sample = sample_nodes(len(batch))
        nodes = batch.target.cpu()
        names = getattr(graph, "node_names", ())
        return node_tables(
            logits,
            batch.y[batch.target],
            graph.class_names,
            nodes=[names[node] if names else str(node) for node in nodes.tolist()],
            states=states[nodes[sample].to(states.device)],
            sample=sample,
        )

    def _report(self, prefix: str) -> None:
        self.require_good_scores()
        metric = self._metric(prefix)
        if metric.update_called:
            name = f"{prefix}/{_LOGGED[self.metric_name]}"
            self.log(name, metric.compute(), prog_bar=True, sync_dist=False)
            data = self._datamodule()  # a split is evaluated in one batch
            self.num_evaluated = data.num_valid if prefix == "val" else data.num_tested
        metric.reset()

    def _metric(self, prefix: str) -> Accuracy | RocAuc:
        metric = self.metrics[prefix]
        assert isinstance(metric, Accuracy | RocAuc)
        return metric

    # Checkpoints

    def describe_data(self, datamodule: Any) -> dict[str, Any]:
        """Class names, the treatment of the features, and the data's name, fingerprint, edges and split."""
        return {
            "classes": list(datamodule.graph.class_names),
            "features": datamodule.transform.describe(),
            "data": {
                "name": datamodule.graph.name,
                "fingerprint": datamodule.fingerprint,
                "split": datamodule.describe_split(),
                "is_directed": datamodule.is_directed,
            },
        }
