"""The three kinds of encoder. The kind says what a task may do with it; no task knows an encoder by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph
    from graphzoo.types import PairSubgraphs

__all__ = ["Encoder", "NodeEncoder", "PairEncoder", "QueryEncoder"]


class Encoder(nn.Module, ABC):
    """A module built as `Encoder(spec, **settings)` that remembers its settings.

    Attributes:
        init_args: Every keyword argument with its value, defaults included: plain values, so that a
            checkpoint can name what it holds and rebuild it in a later version whose defaults differ.
        out_channels: D, the width of the states.
    """

    out_channels: int
    init_args: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Encoder:
        """Note the settings before `__init__` runs."""
        module = super().__new__(cls)
        # copy and pickle make an empty shell first, and restore `init_args` themselves.
        if args or kwargs:
            signature = inspect.signature(cls.__init__)
            bound = signature.bind(module, *args, **kwargs)
            bound.apply_defaults()
            settings: dict[str, Any] = {}
            for name, value in list(bound.arguments.items())[2:]:
                gathers = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                settings |= value if gathers else {name: value}
            # nn.Module is not initialised yet, so its own __setattr__ must not see this.
            object.__setattr__(module, "init_args", settings)
        return module


class NodeEncoder(Encoder):
    """Graph -> one state per node.

    What an encoder computes once per graph (denoised features, adjacency orders) it returns from
    `precompute`; callers hand it to every later call by name. Without it, `forward` computes it itself.

    Attributes:
        needs_edges: Whether `forward` still reads `edge_index` when given what `precompute` returned.
    """

    needs_edges: bool = True

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Encode features `x` [N, F], dense or sparse CSR, over `edge_index` [2, E] into states [N, D].

        Encoders may take more by keyword: `noise_seed`, an integer that names the draw of dropout and other
        noise while training (None: the next of the module's own), and what their `precompute` returns. The
        global random state is neither read nor changed.
        """

    def forward_with_auxiliary(
        self,
        x: Tensor,
        edge_index: Tensor | None,
        *,
        noise_seed: int | None = None,
        **precomputed: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """`forward`, and a term that is added to the task's loss as it stands, or None."""
        if "noise_seed" in inspect.signature(self.forward).parameters:
            precomputed["noise_seed"] = noise_seed
        return self(x, edge_index, **precomputed), None

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """What depends on the graph alone, as keyword arguments of `forward`; values have `.to(device)`.

        Where a graph is trained on in parts, `needs_edges` is False and every value is a tensor with one row
        per node, parts take their rows of it; otherwise this is called for each part.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: Edges [2, E], int64.
            cache: Folder in which costly results may be kept; None keeps nothing.
        """
        return {}


class QueryEncoder(Encoder):
    """Graph and queries (head, relation, ?) -> one state per entity and query."""

    @abstractmethod
    def forward(
        self,
        graph: RelationalGraph,
        head: Tensor,
        relation: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> Tensor:
        """Encode B queries at once.

        Args:
            graph: Facts with their inverses; message passing follows its edges.
            head: Entity asked about, [B], int64.
            relation: Relation in 0..2R-1, [B], int64.
            edge_mask: True where an edge may be used, [E], bool; None for all.
            noise_seed: Names the draw of an encoder's noise; the same seed gives the same states.

        Returns:
            States [N, B, D].
        """


class PairEncoder(Encoder):
    """Sampled subgraphs around B node pairs -> the two task states, [B, 2 * hidden].

    Attributes:
        out_channels: 2 * hidden, the width of both states side by side.
    """

    @abstractmethod
    def forward(
        self, subgraphs: PairSubgraphs, x: Tensor | None = None, *, noise_seed: int | None = None
    ) -> Tensor:
        """Encode a batch of pair subgraphs.

        Args:
            subgraphs: Nodes and links around each pair.
            x: Features of all nodes of the whole graph, [N, F], dense or sparse CSR; None without.
            noise_seed: Names the draw of dropout while training; None: the next of the module's own.

        Returns:
            States of u and v side by side, [B, 2 * hidden].
        """
