"""A trained node classifier with names: labels, probabilities and states of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import NodeGraph
from graphzoo.datasets.files.roots import cache_root
from graphzoo.errors import UsageError
from graphzoo.inference.forks import heed_fork
from graphzoo.inference.names import NodeNames
from graphzoo.inference.sources import NodeGraphSource, load_node_source, refuse_others, stored_node_graph
from graphzoo.inference.trained import TrainedModel, table_parts
from graphzoo.layers.noise import in_evaluation
from graphzoo.ops.of_weights import OfWeights
from graphzoo.system.memory import explain_out_of_memory
from graphzoo.tasks import NodeClassification
from graphzoo.tasks.prepared_graph import PreparedGraph


class NodeModel(TrainedModel):
    """A trained `NodeClassification` task and the graph whose nodes it labels; `graphzoo.load` returns one.

    Args:
        task: The task with its weights.
        graph: Raw features and edges.
        transform: Transform of raw features into the encoder's input.
        class_names: Names of the classes or yes-no labels, as in training.
        is_directed: Whether edges of other graphs, given to `predict`, keep their direction.

    Raises:
        UsageError: (a ValueError) if the features of the graph are not those of the training.
    """

    task: NodeClassification

    def __init__(
        self,
        task: NodeClassification,
        graph: NodeGraph,
        transform: FeatureTransform,
        class_names: Sequence[str],
        is_directed: bool = False,
    ) -> None:
        self.task, self._is_directed = task.eval(), is_directed
        self.transform = transform
        self.class_names = tuple(class_names)
        # Results for other graphs are not kept on disk: a server may get new features with each request.
        self._default = _Place(self, graph, cache_root() / "precomputed")

    @classmethod
    def of_checkpoint(
        cls, described: dict[str, Any], task: NodeClassification, run: Path | None, data: Any
    ) -> NodeModel:
        """The task of a checkpoint with the graph of its run, or with `data`."""
        refuse_others(data, NodeGraph, "this model labels nodes with features")
        projection = None if run is None else run / "graph" / "projection.npy"
        transform = FeatureTransform.load(described["features"], projection)
        is_directed = described["data"].get("is_directed", False)  # as it was trained
        if data is None and run is not None:
            nodes = stored_node_graph(run)
        else:
            nodes = load_node_source(data, directed=is_directed)
        return cls(task, nodes, transform, described["classes"], is_directed)

    @property
    def graph(self) -> NodeGraph:
        """The graph that `predict` uses by default, with its raw features."""
        return self._default.graph

    def graph_inputs(self) -> tuple[Tensor | None, Tensor]:
        """Transformed features [N, F], dense or sparse CSR, and edges [2, E]."""
        return self._default.x, self.graph.edge_index

    @property
    def names(self) -> NodeNames:
        """The names of the nodes."""
        return self._default.names

    def predict(
        self,
        nodes: str | int | Iterable[str | int] | None = None,
        data: NodeGraphSource | None = None,
        *,
        probabilities: bool = False,
        embeddings: bool = False,
    ) -> pd.DataFrame:
        """Labels of nodes.

        Args:
            nodes: One name or several, or numbers if the nodes have no names; None for all nodes.
            data: Another graph with the same features: a NodeGraph, a `Data` of PyG, files as for `--data
                nodes`, or the name of a data set.
            probabilities: Whether every class gets a column.
            embeddings: Whether every channel of the encoder's states gets a column.

        Returns:
            One row per node in the given order, with these columns:

            - `node`.
            - `label`: the most probable class. For yes-no labels, those with a probability of at least one
              half, joined by ";".
            - `probability`: that of the class; not for yes-no labels.
            - `probability_<class>`: for yes-no labels, or with `probabilities`.
            - `state_<i>`: with `embeddings`.

            Probabilities are softmax or sigmoid of the logits, without calibration.

        Raises:
            UsageError: (a ValueError) for unknown nodes, with the nearest names, and for features other than
                those of the training.

        >>> model.predict(nodes=[0, 5])  # doctest: +SKIP
        """
        tables = self.predict_batches(nodes, data, probabilities=probabilities, embeddings=embeddings)
        return pd.concat(list(tables), ignore_index=True)

    def predict_batches(
        self,
        nodes: str | int | Iterable[str | int] | None = None,
        data: NodeGraphSource | None = None,
        *,
        probabilities: bool = False,
        embeddings: bool = False,
    ) -> Iterator[pd.DataFrame]:
        """As `predict`, in tables of up to 100,000 rows; names are checked before the first table."""
        place = self._place(data)
        index = place.find(nodes)

        def tables() -> Iterator[pd.DataFrame]:
            for part in table_parts(index.numel()):
                yield self._table(place, index[part], probabilities=probabilities, embeddings=embeddings)

        return tables()

    def embed(
        self, nodes: str | int | Iterable[str | int] | None = None, data: NodeGraphSource | None = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The encoder's states [n, D], float32, of nodes in the given order; arguments as of `predict`."""
        place = self._place(data)
        states: np.ndarray[Any, np.dtype[np.float32]] = place.outputs.states[place.find(nodes)].numpy()
        return states

    def _place(self, data: NodeGraphSource | None) -> _Place:
        heed_fork(depth=3)
        if data is None:
            return self._default
        graph = load_node_source(data, directed=self._is_directed)
        return self._kept((graph.fingerprint, graph.feature_names), lambda: _Place(self, graph))

    def _table(self, place: _Place, index: Tensor, *, probabilities: bool, embeddings: bool) -> pd.DataFrame:
        assert self.task.spec is not None
        logits = place.outputs.logits[index]
        names = np.array(self.class_names, dtype=object)
        columns: dict[str, Any] = {"node": place.names.of(index)}
        if self.task.spec.is_multi_label:
            shares = logits.sigmoid()
            columns["label"] = [";".join(names[row]) for row in (shares >= 0.5).numpy()]
            probabilities = True
        else:
            shares = logits.softmax(1)
            best = shares.argmax(1)
            columns["label"] = names[best.numpy()]
            columns["probability"] = shares.gather(1, best[:, None]).squeeze(1).numpy()
        if probabilities:
            columns |= {f"probability_{name}": shares[:, i].numpy() for i, name in enumerate(names)}
        if embeddings:
            states = place.outputs.states[index]
            columns |= {f"state_{i}": states[:, i].numpy() for i in range(states.shape[1])}
        # An empty table must have the types of a full one.
        named = {} if place.names.are_numbers else {"node": "str"}
        return pd.DataFrame(columns).astype({"label": "str"} | named)


class _Outputs(NamedTuple):
    states: Tensor  # [N, D]
    logits: Tensor  # [N, C]


class _Place:
    """A graph with its node names; states and logits are computed at their first use."""

    def __init__(self, model: NodeModel, graph: NodeGraph, cache: Path | None = None) -> None:
        self.graph, self._cache = graph, cache
        self.names = NodeNames(graph.node_names, graph.num_nodes)
        self._task = model.task
        self.x = model.transform(graph.x, graph.feature_names)
        self._outputs: OfWeights[_Outputs] = OfWeights()

    @property
    def outputs(self) -> _Outputs:
        """States and logits; computed again only if the weights have changed."""
        return self._outputs.get(self._task, self._encode)

    def _encode(self) -> _Outputs:
        task = self._task
        remedy = "Take another --device, or a model with fewer channels"
        with torch.no_grad(), in_evaluation(task), explain_out_of_memory("encoding the whole graph", remedy):
            prepared = PreparedGraph(
                task.node_encoder, self.x, self.graph.edge_index, task.device, self._cache
            )
            states = task.node_encoder(prepared.x, prepared.edge_index, **prepared.precomputed)
            logits = task.decode(states)
        if not torch.isfinite(logits).all():
            raise UsageError(
                f"{self.graph.name}: some predictions are NaN or infinite\n"
                "If the training failed, take another checkpoint; otherwise check the features of the graph"
            )
        return _Outputs(states.float().cpu(), logits.float().cpu())

    def find(self, nodes: str | int | Iterable[str | int] | None) -> Tensor:
        """Numbers [n], int64, of nodes; None means all nodes."""
        return torch.arange(self.graph.num_nodes) if nodes is None else self.names.find(nodes)
