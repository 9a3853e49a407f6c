"""The three kinds of encoder. The kind says what a task may do with it; no task knows an encoder by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.random import fork_rng

from graphzoo.catalog.classes import class_path, load_class, spec_problem
from graphzoo.encoders.any_edges import with_any_edges
from graphzoo.encoders.pyg_form import PyGForm
from graphzoo.errors import UsageError, suggestion
from graphzoo.ops.last_result import LastResult
from graphzoo.types import GraphSpec

if TYPE_CHECKING:
    from graphzoo.ops import QueryGraph, RelationalGraph
    from graphzoo.types import PairSubgraphs


_CARD = """{header}

# {kind}

Weights of a graph encoder of graphzoo, without a task's decoder.

## Use

```python
from {module} import {kind}

encoder = {kind}.from_pretrained({name!r})
states = {call}
```

## Settings

{facts}
"""


class Encoder(nn.Module, ABC):
    """A module built as `Encoder(spec, **settings)` that remembers its settings.

    Attributes:
        spec: Sizes of the graph that it was built for.
        init_args: Every keyword argument with its value, defaults included. The values are plain, so that a
            checkpoint can store them. A later version rebuilds the same encoder, even if its defaults differ.
        out_channels: D, the width of the states.
    """

    spec: GraphSpec
    out_channels: int
    init_args: dict[str, Any]
    _call: ClassVar[str] = "encoder(...)"  # how the model card calls it

    if TYPE_CHECKING:
        __call__: Callable[..., Tensor]  # nn.Module has Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Record the settings before `__init__` runs."""
        module = super().__new__(cls)
        # copy and pickle call this without arguments, and restore the attributes set here themselves.
        if args or kwargs:
            signature = inspect.signature(cls.__init__)
            given = args[0] if args else kwargs.get("spec")
            has_spec = args or "spec" in kwargs  # if not, `bind` says what is missing
            if has_spec and not isinstance(given, GraphSpec) and [*signature.parameters][1:2] == ["spec"]:
                shown = given if isinstance(given, int) else f"a {type(given).__name__}"
                raise UsageError(
                    f"{cls.__name__} takes a GraphSpec first, got {shown}\n"
                    "Give GraphSpec(num_nodes, num_relations, in_channels), or GraphSpec.from_data(data)"
                )
            if args and isinstance(given, GraphSpec) and (problem := spec_problem(cls)):
                raise UsageError(problem)
            try:
                bound = signature.bind(module, *args, **kwargs)
            except TypeError as error:
                unknown = [name for name in kwargs if name not in signature.parameters]
                near = suggestion(unknown[0], signature.parameters) if unknown else ""
                raise TypeError(f"{cls.__name__}: {error}\n{near}".rstrip()) from None
            bound.apply_defaults()
            settings: dict[str, Any] = {}
            for name, value in list(bound.arguments.items())[2:]:
                is_kwargs = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                settings |= value if is_kwargs else {name: value}
            # config.json cannot hold numbers of NumPy
            settings = {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()}
            # nn.Module is not initialised yet, so its own __setattr__ must not see this.
            object.__setattr__(module, "spec", list(bound.arguments.values())[1])
            object.__setattr__(module, "init_args", settings)
        return module

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the weights again, in place, and restart the noise stream.

        Like building an encoder, this draws from torch's global random state.
        """
        new = type(self)(self.spec, **self.init_args)
        for parameter, drawn in zip(self.parameters(), new.parameters(), strict=True):
            parameter.copy_(drawn)
        for buffer, made in zip(self.buffers(), new.buffers(), strict=True):
            buffer.copy_(made)

    def save_pretrained(self, folder: str | PathLike[str]) -> Path:
        """Write weights, settings and a model card to a new folder, in the layout of the Hugging Face Hub.

        Args:
            folder: A folder that does not exist yet or is empty.

        Returns:
            The folder.

        Raises:
            UsageError: if the folder has content or cannot be written, a setting is not a plain value, or
                modules were changed after the encoder was built, as with `weight_norm`.
        """
        from graphzoo.encoders.pretrained import write_pretrained

        with fork_rng(devices=[]):
            known = type(self)(self.spec, **self.init_args).state_dict()
        if other := self.state_dict().keys() ^ known.keys():
            raise UsageError(
                f"{min(other)} is not a weight of both this encoder and a new {class_path(self)}, so the "
                "folder could not be loaded again\nUndo changes of its modules first, such as weight_norm"
            )
        weights = {f"encoder.{name}": value for name, value in self.state_dict().items()}
        card = self._card(Path(folder).absolute().name)
        return write_pretrained(folder, weights, {"graphzoo": self.describe()}, card=card)

    def _card(self, name: str) -> str:
        """The model card of the encoder alone, in a folder of that name."""
        from graphzoo.encoders.pretrained import card_header, facts_table

        path = class_path(self)
        module, _, kind = path.rpartition(".")
        facts = {
            "class": f"`{path}`",
            "states": f"width {self.out_channels}",
            "parameters": sum(p.numel() for p in self.parameters()),
            **{f"`spec.{key}`": value for key, value in self.spec.to_dict().items()},
            **{f"`{key}`": value for key, value in self.init_args.items()},
        }
        return _CARD.format(
            header=card_header([kind.lower()]),
            module=module,
            kind=kind,
            name=name,
            call=self._call,
            facts=facts_table(facts),
        )

    def describe(self) -> dict[str, Any]:
        """Class, settings and spec as plain values, from which `from_pretrained` builds it again."""
        return {
            "encoder": {"class_path": class_path(self), "init_args": dict(self.init_args)},
            "spec": self.spec.to_dict(),
        }

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str], *, trust: bool = False) -> Self:
        """An encoder with its weights, from a folder of `save_pretrained` or `graphzoo export`.

        Args:
            folder: A folder; a repository USER/NAME of the Hugging Face Hub, which needs the package
                huggingface_hub; or "knowformer-any", whose weights ship with graphzoo. No code in it runs.
            trust: Whether to import the class that config.json names even if it is neither registered nor
                imported.

        Returns:
            The encoder in evaluation mode, in the saved precision. Called on a base class such as
            `NodeEncoder`, this returns an instance of the saved subclass.

        Raises:
            UsageError: for a damaged folder, an encoder of another class, or weights that do not fit.
        """
        from graphzoo.encoders.pretrained import read_pretrained

        saved = read_pretrained(folder)
        try:
            named, spec = saved["graphzoo"]["encoder"], GraphSpec.from_dict(saved["graphzoo"]["spec"])
            path, settings = str(named["class_path"]), dict(named["init_args"])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{folder}: config.json describes no encoder ({error})") from error
        encoder_class = load_class(path, folder, trust=trust)
        if not issubclass(encoder_class, cls):
            raise UsageError(f"{folder} holds a {path}, no {cls.__name__}")
        weights = {
            name.removeprefix("encoder."): value
            for name, value in saved["state_dict"].items()
            if name.startswith("encoder.")
        }
        # The initial weights are drawn and then replaced: the caller's random state must not notice.
        with fork_rng(devices=[]):
            try:
                encoder = encoder_class(spec, **settings)
                for name, part in encoder.state_dict(keep_vars=True).items():
                    if name in weights:
                        part.data = part.data.to(weights[name].dtype)
                encoder.load_state_dict(weights)
            except (TypeError, ValueError, RuntimeError) as error:
                line = " ".join(str(error).split())
                raise UsageError(f"{folder}: settings and weights do not make a {path}: {line}") from error
        return encoder.eval()


def _map_states(encoder: Any, states: Tensor) -> Tensor:
    # states of SGC without weights have the precision of the features
    output: Tensor = encoder.output(states.to(encoder.output.weight.dtype))
    return output


def _map_first(encoder: Any, pair: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    return encoder.output(pair[0]), pair[1]


# Methods that take `x, edge_index, ...`, each with the function that applies the output layer to its result.
_ON_GRAPHS: dict[str, Callable[[Any, Any], Any] | None] = {
    "forward": _map_states,
    "forward_with_auxiliary": _map_first,
    "precompute": None,
    "attention": None,
    "attention_entropy": None,
}


class NodeEncoder(Encoder, metaclass=PyGForm):
    """Graph -> one state per node.

    There are two ways to build one. `Encoder(spec, **settings)` takes a `GraphSpec`. `Encoder(in_channels,
    hidden_channels, out_channels, **settings)` takes widths, like the models of PyG. With `out_channels`,
    which the first form takes by name, a linear layer maps the states to this width.

    An encoder is called with a PyG `Data`, or with `x` and the edges. The edges are an edge_index [2, E],
    PyG's `EdgeIndex`, or the transposed adjacency (PyG's `adj_t`) as a `SparseTensor` or a sparse tensor of
    torch.

    `precompute` returns what needs to be computed only once per graph (denoised features, adjacency orders).
    Callers pass it to every later call by keyword. Without it, `forward` computes it itself.

    Attributes:
        needs_edges: Whether `forward` reads `edge_index` even if it is given the result of `precompute`.
        attends_to_all: Whether a state depends on all nodes. If so, a `Batch` of several graphs is refused.
    """

    needs_edges: bool = True
    attends_to_all: bool = False
    _call = "encoder(x, edge_index)  # [nodes, width]"
    _has_output = False
    _edges: LastResult[Tensor] | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        """Wrap the methods of a subclass: they receive a plain edge_index, whatever form the caller gives."""
        super().__init_subclass__(**settings)
        for name, finish in _ON_GRAPHS.items():
            if name in cls.__dict__:
                setattr(cls, name, with_any_edges(cls.__dict__[name], finish))

    @classmethod
    def from_channels(
        cls,
        in_channels: int,
        hidden_channels: int | None = None,
        out_channels: int | None = None,
        **settings: Any,
    ) -> Self:
        """`Encoder(in_channels, hidden_channels, out_channels, **settings)` as a method of the class.

        Args:
            in_channels: Width of the features.
            hidden_channels: Width of the states; None takes the encoder's default.
            out_channels: Width of the output; None leaves it that of the states.
            **settings: Further settings of the encoder.
        """
        build: Any = cls
        given = {"hidden_channels": hidden_channels, "out_channels": out_channels}
        channels = {name: width for name, width in given.items() if width is not None}
        encoder: Self = build(in_channels=in_channels, **channels, **settings)
        return encoder

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Encode features `x` [N, F], dense or sparse CSR, over `edge_index` [2, E] into states [N, D].

        Encoders may take more by keyword: the results of their `precompute`, and `noise_seed`, an integer
        that seeds dropout and other noise while training. With None the encoder takes the next seed of its
        own noise stream. The global random state is neither read nor changed.
        """

    def forward_with_auxiliary(
        self, x: Tensor, edge_index: Tensor | None, *, noise_seed: int | None = None, **precomputed: Any
    ) -> tuple[Tensor, Tensor | None]:
        """The states of `forward`, and a term that the task adds to its loss without a weight, or None."""
        if "noise_seed" in inspect.signature(self.forward).parameters:
            precomputed["noise_seed"] = noise_seed
        return self(x, edge_index, **precomputed), None

    def precompute(
        self, x: Tensor, edge_index: Tensor, *, cache: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Compute what depends on the graph alone, as keyword arguments of `forward`.

        Every value has a method `.to(device)`. If a graph is trained on in parts, the task calls this for
        each part. It calls it only once for the whole graph, and gives each part its rows, if `needs_edges`
        is False and every value is a tensor with one row per node.

        Args:
            x: Features [N, F], dense or sparse CSR.
            edge_index: Edges [2, E], int64.
            cache: Folder in which costly results may be kept; None keeps nothing.

        Returns:
            Values by the name of the argument of `forward`; empty by default.
        """
        return {}

    def precompute_masked(
        self, x: Tensor, edge_index: Tensor, edge_mask: Tensor
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """`precompute` for the edges whose mask [E] is True; the mask differs in every training step.

        Returns:
            These edges, or None if `forward` does not read them, and the result of `precompute`.
        """
        kept = edge_index[:, edge_mask]
        return kept if self.needs_edges else None, self.precompute(x, kept)

    def attention(self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any) -> Tensor:
        """Noise-free weights [L, H, Q, N] with which the nodes `queries` [Q] attend to all nodes.

        All L H Q N weights are in memory: on large graphs, ask for few nodes at a time.

        Raises:
            UsageError: if the encoder does not attend to all nodes.
        """
        raise UsageError(f"{type(self).__name__} has no attention over all nodes to show")

    def attention_entropy(
        self, x: Tensor, edge_index: Tensor | None, queries: Tensor, **precomputed: Any
    ) -> Tensor | None:
        """Mean entropy of the nodes' attention in each layer, [L]; None if the encoder has no attention.

        It is 1 if nodes attend to all nodes equally, and 0 if each attends to one; see
        `graphzoo.layers.row_entropy`.
        """
        return None


class QueryEncoder(Encoder):
    """Graph and queries (head, relation, ?) -> one state per entity and query.

    Attributes:
        any_relations: Whether a trained encoder runs on graphs with other relations.
    """

    any_relations: ClassVar[bool] = False
    _call = (
        "encoder(graph, head, relation)  # [entities, queries, width]; graph: graphzoo.ops.RelationalGraph"
    )

    @abstractmethod
    def forward(
        self,
        graph: RelationalGraph | QueryGraph,
        head: Tensor,
        relation: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int | None = None,
    ) -> Tensor:
        """Encode B queries at once.

        Args:
            graph: Facts with their inverses; message passing follows its edges. A `QueryGraph` holds a part
                of the facts for every query; N is then K, the number of nodes in each part.
            head: Head of each query, a node of `graph`, [B], int64.
            relation: Relation in 0..2R-1, [B], int64.
            edge_mask: True where an edge may be used, [E], bool; None for all.
            noise_seed: Seed of the encoder's noise; the same seed gives the same states. With None, training
                takes the next seed of the encoder's noise stream, and evaluation always the same one.

        Returns:
            States [N, B, D].
        """

    def edge_gradients(
        self,
        graph: RelationalGraph | QueryGraph,
        head: Tensor,
        relation: Tensor,
        score: Callable[[Tensor], Tensor],
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """How much every edge adds to a score: what the score would lose, to first order, without the edge.

        Args:
            graph: As for `forward`.
            head: Head of one query, [1].
            relation: Relation of the query, [1].
            score: Function from the states [N, 1, D] to a scalar.
            edge_mask: As for `forward`; edges left out have a gradient of 0.
            noise_seed: As for `forward`.

        Returns:
            The score, a scalar, and its derivative with respect to the weight of every edge's messages, [E].

        Raises:
            UsageError: if the encoder does not support this.
        """
        raise UsageError(f"{type(self).__name__} does not say which edges a score comes from")

    def attention(
        self,
        graph: RelationalGraph | QueryGraph,
        head: Tensor,
        relation: Tensor,
        node: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> Tensor:
        """Weights [L, N, B] with which one node [B] of each query attends to all nodes.

        Raises:
            UsageError: if the encoder does not attend to nodes.
        """
        raise UsageError(f"{type(self).__name__} has no attention over nodes to show")

    def attention_entropy(
        self,
        graph: RelationalGraph | QueryGraph,
        head: Tensor,
        relation: Tensor,
        node: Tensor,
        *,
        edge_mask: Tensor | None = None,
        noise_seed: int = 0,
    ) -> Tensor | None:
        """Mean entropy, [L], of the weights of `attention` in each layer; None if there is no attention."""
        return None


class PairEncoder(Encoder):
    """Sampled subgraphs around B node pairs -> the two task states, [B, 2 * hidden].

    Attributes:
        out_channels: 2 * hidden, the width of both states side by side.
    """

    _call = "encoder(subgraphs, x)  # [pairs, width]; subgraphs: PairSubgraphs"

    @abstractmethod
    def forward(
        self, subgraphs: PairSubgraphs, x: Tensor | None = None, *, noise_seed: int | None = None
    ) -> Tensor:
        """Encode a batch of pair subgraphs.

        Args:
            subgraphs: Nodes and links around each pair.
            x: Features of all nodes of the whole graph, [N, F], dense or sparse CSR; None for no features.
            noise_seed: Seed of dropout while training; None takes the next seed of the encoder's stream.

        Returns:
            States of u and v side by side, [B, 2 * hidden].
        """

    def attention_entropy(self, subgraphs: PairSubgraphs, x: Tensor | None = None) -> Tensor | None:
        """Mean entropy of each layer's attention, [L]; None if the encoder has no attention."""
        return None
