"""`graphzoo export --to torch.export` or `onnx`: a trained model as a program that runs without graphzoo.

The program holds weights and operations of torch or ONNX, and takes graphs and batches of any size. Its
scores are those of the model on the whole graph. It is a little slower, since it has no fused kernels.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from graphzoo.catalog.tasks import function_of, task_of
from graphzoo.catalog.weights import PROGRAMS
from graphzoo.encoders.base import NodeEncoder, PairEncoder, QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.layers.relation_graph import compare_relations, set_relations
from graphzoo.ops import RelationalGraph
from graphzoo.ops.adjacency import AdjacencyOrders, PlainAdjacency
from graphzoo.tasks.scores import mean_of_draws
from graphzoo.types import PairSubgraphs

if TYPE_CHECKING:
    from graphzoo.inference.link_model import LinkModel
    from graphzoo.inference.node_model import NodeModel
    from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification, Task


DESCRIPTION = "inputs.json"
# Sizes of the example that is traced; the program takes any sizes.
_NODES, _EDGES, _QUERIES, _RELATIONS = 7, 11, 3, 5
_TOLERANCE = 1e-4
_EDGES_GIVEN = "edge_index"
_MOST_INPUTS = 2**27  # bytes of inputs.npz before compression
_ONNX = ("onnx", "onnxscript", "onnxruntime")
_PAIR_OUTPUT = (
    "[B]: logit of each pair in the given direction; if the run averages both directions or several "
    "relabelings, `graphzoo predict` gives the mean"
)


class Program(NamedTuple):
    """A module that takes only tensors, and its inputs."""

    module: nn.Module
    inputs: dict[str, tuple[Tensor, str]]  # name -> example, and its shape and meaning in words
    output: str  # shape and meaning of the result


class _Scores(nn.Module):
    """Base of modules with an encoder, or `_States`, and the decoder behind it."""

    def __init__(self, encoder: Any, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder


class _Queries(_Scores):
    """Score [B, N] of every node as the answer to each query."""

    def __init__(self, encoder: QueryEncoder, decoder: nn.Module, num_draws: int) -> None:
        super().__init__(encoder, decoder)
        self.num_draws = num_draws

    def forward(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        nodes: Tensor,
        head: Tensor,
        relation: Tensor,
        *cosines: Tensor,
    ) -> Tensor:
        types = cosines[0].shape[0] if cosines else 2 * self.encoder.spec.num_relations
        graph = RelationalGraph.unchecked(edge_index, edge_type, nodes.shape[0], types)
        if cosines:
            set_relations(graph, *cosines)

        def score(seed: int) -> Tensor:
            logits: Tensor = self.decoder(self.encoder(graph, head, relation, noise_seed=seed))
            return logits

        return mean_of_draws(score, self.num_draws)


class _States(nn.Module):
    """States [N, D] of all nodes, from features and the graph.

    `given` names the argument of the encoder for which `graph` is passed: `edge_index`, or a result of its
    `precompute`. `wider` holds the node pairs of higher adjacency orders, for encoders that use them.
    """

    def __init__(self, encoder: NodeEncoder, given: str) -> None:
        super().__init__()
        self.encoder, self.given = encoder, given

    def forward(self, x: Tensor, graph: Tensor, *wider: Tensor) -> Tensor:
        made: dict[str, Any] = {} if self.given == _EDGES_GIVEN else {self.given: graph}
        if wider:
            dtype = next(self.encoder.parameters()).dtype
            made["adjacency"] = AdjacencyOrders(
                PlainAdjacency(pairs, x.shape[0], dtype) for pairs in (graph, *wider)
            )
        states: Tensor = self.encoder(x, None if made else graph, **made)
        return states


class _Nodes(_Scores):
    """Logits of every node, [N, C]."""

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.encoder(x, *graph))
        return logits


class _NodePairs(_Scores):
    """Logits of node pairs, [B], from states of their nodes."""

    def forward(self, x: Tensor, *graph_and_ends: Tensor) -> Tensor:
        *graph, source, target = graph_and_ends
        states = self.encoder(x, *graph)
        logits: Tensor = self.decoder(states[source], states[target])
        return logits


class _Subgraphs(_Scores):
    """Logits of pairs, [B], from their subgraphs."""

    def forward(self, nodes: Tensor, adjacency: Tensor, num_nodes: Tensor, x: Tensor | None = None) -> Tensor:
        states = self.encoder(PairSubgraphs(nodes, adjacency, num_nodes), x)
        source, target = states.chunk(2, dim=-1)
        logits: Tensor = self.decoder(source, target)
        return logits


def make_program(task: Task, scale: int = 1) -> Program:
    """The scores of a trained task as a module of tensors, with example inputs.

    The example is `scale` times as large as the smallest one. A task whose scores need more than tensors is
    refused with a `UsageError`.
    """
    row = task_of(task)
    program: Program | None = function_of(row.program)(task, scale) if row and row.program else None
    if program is None:
        raise UsageError(
            f"a {type(task).__name__} of a {type(task.encoder).__name__} cannot be exported as a program\n"
            "Export it with --to safetensors"
        )
    return program


def of_facts(task: KGCompletion, scale: int) -> Program:
    """The program of a knowledge graph model: score of every entity as the answer to forward queries."""
    if task.reverse_weight:
        raise UsageError(
            f"a program scores forward queries only; this model combines both directions, reverse_weight "
            f"{task.reverse_weight:g}\n"
            "Export it with --to safetensors, or for forward queries with --reverse-weight 0"
        )
    return _of_queries(task.query_encoder, task.decoder, task.num_draws, scale)


def of_nodes(task: NodeClassification, scale: int) -> Program:
    """The program of a node classifier: logits of every node."""
    inputs = _example_graph(task.node_encoder, scale)
    module = _Nodes(_States(task.node_encoder, list(inputs)[1]), task.decoder)
    return Program(module, inputs, "[N, C]: logit of every class")


def of_links(task: LinkPrediction, scale: int) -> Program | None:
    """The program of a link model: logits of node pairs; None for a heuristic."""
    encoder = task.encoder
    if isinstance(encoder, QueryEncoder):
        program = _of_queries(encoder, task.decoder, task.num_draws, scale)
        text = "[B, N]: logit of the pair (head, v) for every node v, with relation 0"
        return program._replace(output=text)
    if isinstance(encoder, PairEncoder):
        return _of_subgraphs(encoder, task.decoder, scale)
    if not isinstance(encoder, NodeEncoder):
        return None
    pairs = torch.randint(_NODES, (2, scale * _QUERIES))
    ends = {
        "source": (pairs[0], "[B], int64: one node of each pair"),
        "target": (pairs[1], "[B], int64: the other"),
    }
    inputs = _example_graph(encoder, scale)
    return Program(_NodePairs(_States(encoder, list(inputs)[1]), task.decoder), inputs | ends, _PAIR_OUTPUT)


def _of_queries(encoder: QueryEncoder, decoder: nn.Module, num_draws: int, scale: int) -> Program:
    num_nodes, num_edges, num_queries = scale * _NODES, scale * _EDGES, scale * _QUERIES
    free = encoder.any_relations
    types = 2 * scale * _RELATIONS if free else 2 * encoder.spec.num_relations
    edges = torch.randint(num_nodes, (2, num_edges))
    inputs = {
        "edge_index": (edges, "[2, E], int64: facts and their inverses, from and to"),
        "edge_type": (
            torch.randint(types, (num_edges,)),
            "[E], int64: relation; the inverse of r is r + number of relations",
        ),
        "nodes": (torch.arange(num_nodes), "[N], int64: 0 to N - 1; says how many nodes there are"),
        "head": (torch.randint(num_nodes, (num_queries,)), "[B], int64: the node asked about"),
        "relation": (torch.randint(types, (num_queries,)), "[B], int64: relation, or inverse for heads"),
    }
    if free:
        for name in ("heads", "pairs"):
            text = f"[2R, 2R], float32: `graphzoo.layers.compare_relations(graph).to_dense().{name}`"
            inputs[name] = (torch.rand(types, types), text)
    return Program(_Queries(encoder, decoder, num_draws), inputs, "[B, N]: logit of every node")


def _of_subgraphs(encoder: PairEncoder, decoder: nn.Module, scale: int) -> Program:
    num_pairs, num_nodes = scale * _QUERIES, scale * _NODES
    most = encoder.spec.max_subgraph_nodes or 2 * _NODES
    if most < 3:
        raise UsageError("subgraphs of only the pair cannot be traced\nExport it with --to safetensors")
    size = min(scale * min(_NODES, max(3, most // 2)), most)
    links = torch.rand(num_pairs, size, size) < 0.5
    links = links | links.mT
    links[:, 0, 1] = links[:, 1, 0] = False
    inputs = {
        "nodes": (
            torch.randint(num_nodes, (num_pairs, size)),
            f"[B, S], int64: node numbers, the pair first, -1 where padded; S from 3 to {most}",
        ),
        "adjacency": (links, "[B, S, S], bool: links between them, never that of the pair"),
        "num_nodes": (torch.tensor([size, 2, size] * scale), "[B], int64: nodes of each subgraph"),
    }
    if getattr(encoder, "features", None) is not None:
        x = torch.rand(num_nodes, encoder.spec.in_channels)
        inputs["x"] = (x, "[N, F], float32: features of all nodes")
    return Program(_Subgraphs(encoder, decoder), inputs, _PAIR_OUTPUT)


def _example_graph(encoder: NodeEncoder, scale: int) -> dict[str, tuple[Tensor, str]]:
    x = torch.rand(scale * _NODES, encoder.spec.in_channels)
    around = torch.arange(scale * _NODES)
    edges = torch.stack([around, around.roll(1)])
    return graph_inputs(encoder, x, torch.cat([edges, edges.flip(0)], 1))


def graph_inputs(encoder: NodeEncoder, x: Tensor, edges: Tensor) -> dict[str, tuple[Tensor, str]]:
    """Inputs of a program that hold the graph, with descriptions; `x` has transformed features."""
    features = (x, "[N, F], float32: features, transformed as in the run")
    prepared = encoder.precompute(x, edges)
    if not encoder.needs_edges and [type(value) for value in prepared.values()] == [Tensor]:
        ((name, made),) = prepared.items()
        text = (
            f"[N, F], float32: `{type(encoder).__name__}.precompute(x, edge_index)[{name!r}]`, once per graph"
        )
        return {"x": features, name: (made.clone(), text)}
    inputs = {
        "x": features,
        _EDGES_GIVEN: (edges, "[2, E], int64: distinct edges without loops, both directions"),
    }
    orders = int(getattr(encoder, "rb_order", 1))
    for steps, order in zip(
        (2**i for i in range(1, orders)), prepared.get("adjacency", ())[1:], strict=False
    ):
        pairs = torch.stack([order.col.long(), order.row_of_entry()])
        text = (
            f"[2, E{steps}], int64: node pairs (from, to) that at most {steps} edges join, each once: the "
            f"entries of (A + I)^{steps} that are not 0, without the diagonal"
        )
        inputs[f"{_EDGES_GIVEN}_{steps}"] = (pairs[:, pairs[0] != pairs[1]], text)
    return inputs


def inputs_of(model: NodeModel | LinkModel) -> dict[str, np.ndarray[Any, Any]]:
    """The model's graph as inputs of its program, by name; empty for encoders of pairs, or without features.

    If the only transform of features is standardisation, its mean and scale are included.

    Returns:
        Arrays by name; empty, too, if edges, features or node pairs two edges apart could take more than
        `_MOST_INPUTS` bytes.
    """
    encoder = model.task.encoder
    if isinstance(encoder, QueryEncoder):
        graph = cast("LinkModel", model).relational_graph()
        if 24 * graph.edge_type.numel() > _MOST_INPUTS:
            return {}
        nodes = np.arange(graph.num_nodes)
        edges = {"edge_index": graph.edge_index.numpy(), "edge_type": graph.edge_type.numpy(), "nodes": nodes}
        if not encoder.any_relations:
            return edges
        relations = compare_relations(graph).to_dense()
        return edges | {"heads": np.asarray(relations.heads), "pairs": np.asarray(relations.pairs)}
    x, undirected = model.graph_inputs()
    if x is None or not isinstance(encoder, NodeEncoder):
        return {}
    pairs = int(undirected.flatten().bincount().square().sum())
    if max(8 * x.numel(), 16 * pairs) > _MOST_INPUTS:  # 8 bytes: features and their precomputed form
        return {}
    x = x.to_dense() if x.layout is not torch.strided else x
    with torch.no_grad():
        made = {name: tensor for name, (tensor, _) in graph_inputs(encoder, x, undirected).items()}
    transform = model.transform
    if transform is not None and not transform.normalize and transform.projection is None:
        made |= {
            name: tensor
            for name, tensor in (("mean", transform.mean), ("scale", transform.scale))
            if tensor is not None
        }
    return {name: tensor.numpy() for name, tensor in made.items()}


def write_program(task: Task, folder: Path, to: str = "torch.export") -> Path:
    """Trace the scores of a task on the CPU, and write the program and a description of its inputs.

    Args:
        task: The trained task.
        folder: Where the program and inputs.json are written.
        to: "torch.export" or "onnx".

    Returns:
        The file of the program.

    Raises:
        UsageError: if the task cannot be traced or converted, the program's scores differ from the model's,
            or packages for ONNX are missing.
    """
    if to == "onnx" and not all(map(find_spec, _ONNX)):
        raise UsageError("ONNX needs more packages\npip install 'graphzoo[onnx]'")
    task = task.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        program, larger = make_program(task), make_program(task, scale=2)
    traced, scores = _trace(task.encoder, program, larger)
    for part in traced.graph_module.modules():
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            node.meta.pop("stack_trace", None)  # thousands of paths of this machine
    examples = [example for example, _ in larger.inputs.values()]
    if to == "onnx":
        converted = _convert(task.encoder, traced, list(program.inputs))
        (scores,) = converted(*examples)
    with torch.no_grad():
        expected = larger.module(*examples)
    if not torch.allclose(scores, expected, atol=_TOLERANCE, rtol=_TOLERANCE):
        off = float((scores - expected).abs().max())
        raise UsageError(
            f"the program's scores differ from the model's by {off:.2g}, so it was not written\n"
            "Export it with --to safetensors"
        )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PROGRAMS[to]
    if to == "onnx":
        converted.save(file)
    else:
        # through memory: on a full disk, torch's writer would end the process
        archive = io.BytesIO()
        torch.export.save(traced, archive)
        file.write_bytes(archive.getbuffer())
    described = {
        "inputs": {name: text for name, (_, text) in program.inputs.items()},
        "output": program.output,
        "torch": torch.__version__,
    }
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return file


def _convert(encoder: Any, traced: Any, inputs: list[str]) -> Any:
    """A traced program converted to ONNX, with named inputs; a call runs it in onnxruntime."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)  # hides warnings about packages that are not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                traced, (), dynamo=True, verbose=False, input_names=inputs, output_names=["scores"]
            )
    except torch.onnx.OnnxExporterError as error:
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        line = str(first).strip().partition("\n")[0]
        raise UsageError(
            f"{type(encoder).__name__} cannot be written as ONNX: {line}\nExport it with --to torch.export"
        ) from error
    finally:
        log.setLevel(level)


def _trace(encoder: Any, program: Program, larger: Program) -> tuple[Any, Tensor]:
    """The traced program, and its scores for the larger inputs.

    If the encoder draws random features, they are drawn once and stay fixed during the trace.
    """
    draws = hasattr(encoder, "draw_projections")
    if draws:
        encoder.fixed = encoder.draw_projections()
    arguments = tuple(example for example, _ in program.inputs.values())
    dynamic: Any = torch.export.Dim.AUTO
    shapes: Any = [dict.fromkeys(range(example.dim()), dynamic) for example in arguments]
    if isinstance(program.module, _Nodes | _NodePairs):  # *args counts as one argument
        shapes = [shapes[0], tuple(shapes[1:])]
    elif isinstance(program.module, _Queries) and shapes[5:]:  # cosines are *args, too
        shapes = [*shapes[:5], tuple(shapes[5:])]
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.export.export(
                program.module, arguments, dynamic_shapes=tuple(shapes), strict=False
            )
            runs: Any = traced.module()
            return traced, runs(*(example for example, _ in larger.inputs.values()))
    except (UsageError, OSError):  # a full disk says nothing about the model
        raise
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{type(encoder).__name__} cannot be traced: {line}\nExport it with --to safetensors"
        ) from error
    finally:
        if draws:
            encoder.fixed = None
