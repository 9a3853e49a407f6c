"""SGFormer and Polynormer from PyG: graph transformers to compare with.

Wu et al., "SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations", NeurIPS 2023;
Deng et al., "Polynormer: Polynomial-Expressive Graph Transformer in Linear Time", ICLR 2024.

PyG's models end in a linear layer and log_softmax. Here that layer is removed: its input are the states, and
the task's decoder follows.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from graphzoo.encoders.base import NodeEncoder
from graphzoo.encoders.checks import (
    cast_features,
    check_ends,
    check_features,
    check_heads,
    check_rates,
    check_sizes,
    check_spec,
)
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.encoders.sgformer import check_branches
from graphzoo.errors import UsageError, check_range, check_whole
from graphzoo.layers import LastResult, NoiseStream, seeded_noise
from graphzoo.ops.eager import run_eagerly
from graphzoo.ops.sparse import refuse_gradient
from graphzoo.types import GraphSpec


class PyGTransformer(NodeEncoder):
    """What both have in common: features made dense, all nodes one graph, dropout by `noise_seed`.

    PyG draws dropout from the global random state. That state is seeded for the pass and restored afterwards,
    so that callers find it unchanged. The seed is `noise_seed`, or the next one of the module's own stream
    (`draws` in the state dict).
    """

    attends_to_all = True

    def __init__(self, spec: GraphSpec, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.noise = NoiseStream(seed)
        self._dense: LastResult[Tensor] = LastResult()

    @abstractmethod
    def _states(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Dense features [N, F], edges [2, E], zeros [N] -> states [N, D]."""

    @run_eagerly
    def forward(self, x: Tensor, edge_index: Tensor, *, noise_seed: int | None = None) -> Tensor:
        """Encode a graph; messages pass from the first node of an edge to its second: [N, F] -> [N, D]."""
        check_features(x, self.spec)
        check_ends(edge_index, x)
        norms = self.training and any(isinstance(module, _BatchNorm) for module in self.modules())
        if x.shape[0] < 1 + norms:  # PyG takes a maximum over nodes, BatchNorm their standard deviation
            name = type(self).__name__.removesuffix("PyG")
            needed = "two nodes while training" if norms else "a node"
            raise UsageError(f"PyG's {name} needs {needed}, got {x.shape[0]}")
        refuse_gradient(x)
        dense = x if x.layout is torch.strided else self._dense.get((x,), x.to_dense)
        dense = cast_features(dense, self)
        batch = torch.zeros(dense.shape[0], dtype=torch.int64, device=dense.device)
        if not self.training:
            return self._states(dense, edge_index, batch)
        with seeded_noise(self.noise.generator(noise_seed, dense.device)):
            return self._states(dense, edge_index, batch)


class SGFormerPyG(PyGTransformer):
    """`torch_geometric.nn.models.SGFormer` without its output layer: features and edges -> states [N, D].

    `SGFormer` is the authors' form.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: Width of both branches, and D; with `aggregate="cat"` D is twice that.
        num_layers: Layers of all-pair attention.
        num_heads: Heads of it, each as wide as the layer; their mean is taken.
        dropout: Dropout rate of the attention branch.
        gnn_num_layers: GCN layers of the other branch.
        gnn_dropout: Dropout rate of the GCN branch.
        graph_weight: Share of the GCN branch in the sum, in [0, 1].
        aggregate: "add" or "cat".
        seed: Seed of the noise stream.
    """

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        num_heads: int = 1,
        dropout: float = 0.5,
        gnn_num_layers: int = 3,
        gnn_dropout: float = 0.5,
        graph_weight: float = 0.5,
        aggregate: Literal["add", "cat"] = "add",
        seed: int = 0,
    ) -> None:
        from torch_geometric.nn.models import SGFormer as Model

        check_spec("SGFormerPyG", spec)
        check_sizes(hidden_channels=hidden_channels, num_layers=num_layers)
        check_sizes(num_heads=num_heads, gnn_num_layers=gnn_num_layers)
        check_rates(dropout=dropout, gnn_dropout=gnn_dropout)
        check_heads(hidden_channels, num_heads)
        check_branches(graph_weight, aggregate)
        super().__init__(spec, seed)
        self.out_channels = hidden_channels * (2 if aggregate == "cat" else 1)
        self.model = Model(
            spec.in_channels,
            hidden_channels,
            self.out_channels,
            trans_num_layers=num_layers,
            trans_num_heads=num_heads,
            trans_dropout=dropout,
            gnn_num_layers=gnn_num_layers,
            gnn_dropout=gnn_dropout,
            graph_weight=graph_weight,
            aggregate=aggregate,
        )
        self.model.fc = _Output()
        # these lists still hold the weights of the output layer
        del self.model.params1, self.model.params2

    def _states(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        # PyG's attention makes a tensor of the default dtype, which fits other dtypes only under autocast
        dtype, default = self.model.trans_conv.fcs[0].weight.dtype, torch.get_default_dtype()
        if dtype != default and (dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type)):
            raise UsageError(f"PyG's SGFormer computes only in {default}, got {dtype}\nTake SGFormer")
        self.model(x, edge_index, batch)
        states: Tensor = self.model.fc.take()
        return states


class Polynormer(PyGTransformer):
    """`torch_geometric.nn.models.Polynormer` without its output layers: features and edges -> states [N, D].

    The paper first trains the local layers alone, and then all layers with the global attention. With
    `local_passes`, that many first passes in training mode (epochs of a whole graph) leave out the global
    attention. Several processes then need `--trainer.strategy ddp_find_unused_parameters_true`. There is one
    head, since PyG's global attention supports no more.

    Args:
        spec: Sizes of the graph; `in_channels` is the width of the features.
        hidden_channels: D, width of every layer.
        num_layers: Local layers.
        num_global_layers: Layers of linear global attention.
        input_dropout: Dropout rate of the features.
        dropout: Dropout rate after every local layer.
        global_dropout: Dropout rate after every global layer.
        beta: Weight of the linear part of a local layer beside its products, in [0, 1].
        local_attention: Local layers by GAT instead of GCN.
        qk_shared: Whether queries and keys of the global attention are the same.
        pre_norm: LayerNorm in front of every local layer.
        post_norm: BatchNorm behind the convolution of every local layer.
        local_passes: First passes in training mode without global attention; counted in the state dict.
        seed: Seed of the noise stream.
    """

    passes: Tensor

    @has_other_forms
    def __init__(
        self,
        spec: GraphSpec,
        *,
        hidden_channels: int = 64,
        num_layers: int = 7,
        num_global_layers: int = 2,
        input_dropout: float = 0.15,
        dropout: float = 0.5,
        global_dropout: float = 0.5,
        beta: float = 0.9,
        local_attention: bool = False,
        qk_shared: bool = False,
        pre_norm: bool = False,
        post_norm: bool = True,
        local_passes: int = 0,
        seed: int = 0,
    ) -> None:
        from torch_geometric.nn.models import Polynormer as Model

        check_spec("Polynormer", spec)
        check_sizes(
            hidden_channels=hidden_channels, num_layers=num_layers, num_global_layers=num_global_layers
        )
        check_rates(input_dropout=input_dropout, dropout=dropout, global_dropout=global_dropout)
        check_range(at_least=0, at_most=1, beta=beta)
        check_whole(at_least=0, local_passes=local_passes)
        super().__init__(spec, seed)
        self.out_channels, self.local_passes = hidden_channels, local_passes
        settings: dict[str, Any] = {"pre_ln": pre_norm, "post_bn": post_norm, "local_attn": local_attention}
        self.model = Model(
            spec.in_channels,
            hidden_channels,
            hidden_channels,
            local_layers=num_layers,
            global_layers=num_global_layers,
            in_dropout=input_dropout,
            dropout=dropout,
            global_dropout=global_dropout,
            beta=beta,
            qk_shared=qk_shared,
            **settings,
        )
        self.model.pred_local = self.model.pred_global = _Output()
        # PyG never uses this map, and DDP fails on weights without a gradient
        self.model.lin_in = nn.Identity()
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def _states(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
        # Evaluation does what the last pass of training did: the decoder was trained on such states.
        is_global = self.local_passes == 0 or int(self.passes) > self.local_passes
        self.model._global = is_global
        self.model(x, edge_index, batch)
        states: Tensor = self.model.pred_local.take()
        return states


class _Output(nn.Identity):
    """Replaces an output layer and remembers its last input, for each thread."""

    given = threading.local()

    def forward(self, states: Tensor) -> Tensor:
        self.given.states = states
        return states

    def take(self) -> Tensor:
        """Return this thread's last input, and forget it."""
        states: Tensor = self.given.__dict__.pop("states")
        return states
